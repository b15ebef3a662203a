"""What a trial's figures are made of: of one that has just run (seen.py), and of one that was sealed (rederive.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tare.parts.protocols import Mark

if TYPE_CHECKING:
    from tare.records.spool import Times, Values


class Neighbour(Protocol):
    """What is known of a tenant beside the workload that is measured."""

    @property
    def marks(self) -> Sequence[Mark]: ...

    @property
    def result(self) -> Mapping[str, Any]: ...


class Evidence(Protocol):
    """Values only; `Seen` says what each is."""

    @property
    def marks(self) -> Sequence[Mark]: ...

    @property
    def result(self) -> Mapping[str, Any]: ...

    @property
    def outcome(self) -> Mapping[str, Any]: ...

    @property
    def neighbours(self) -> Sequence[Neighbour]: ...

    @property
    def readings(self) -> Mapping[str, Sequence[float]]: ...

    @property
    def series(self) -> Mapping[str, tuple[Times, Values]]: ...

    @property
    def channels(self) -> Sequence[Mapping[str, Any]]: ...

    @property
    def traced(self) -> Mapping[str, float]: ...

    @property
    def facts(self) -> Mapping[str, Any]: ...

    @property
    def slept_s(self) -> float: ...
