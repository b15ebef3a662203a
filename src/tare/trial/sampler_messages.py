"""What the runner and its sampler tell each other: one JSON object a line, over the sampler's stdin and stdout."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class SamplerSpec:
    """All that the sampler is told when it starts."""

    probes: tuple[tuple[str, Mapping[str, Any]], ...]  # name and fields
    spool: str
    period_ns: int
    core: int | None  # the core it keeps to, so that it does not wander over the workload's
    runner: int  # the pid whose death ends it

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SamplerReport:
    """What the sampler did, and what that cost. Times are of the watching alone, without its start."""

    ticks: int
    missed: int  # points of the grid at which nothing was read
    late_p99_s: float
    cpu_s: float
    seconds: float
    lost: list[str] = field(default_factory=list)  # sentences: what is missing from the series
    core: int | None = None  # None: there was no core to spare
    errors: Mapping[str, int] = field(default_factory=dict)  # probe -> reads that gave nothing usable
    longest_gap_s: float = 0.0  # between two ticks

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Line:
    """One end of the line. It is read without a buffer of Python's own, so that `waiting` can be trusted."""

    def __init__(self, hears: int, says: int) -> None:
        self._hears, self._says = hears, says
        self._rest = b""
        self._ended = False

    def waiting(self, limit_s: float) -> bool:
        """Whether the other end has said something, or is gone, within the limit."""
        if b"\n" in self._rest or self._ended:
            return True
        return bool(select.select([self._hears], [], [], max(0.0, limit_s))[0])

    def hear(self, limit_s: float | None = None) -> dict[str, Any] | None:
        """The next message; None when the other end is gone. Raises TimeoutError past the limit."""
        while b"\n" not in self._rest and not self._ended:
            if limit_s is not None and not self.waiting(limit_s):
                raise TimeoutError(f"no word within {limit_s:g} s")
            chunk = os.read(self._hears, 65536)
            self._rest += chunk
            self._ended = not chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line) if line else None

    def say(self, message: Mapping[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        with suppress(BrokenPipeError):  # nobody is left to hear it
            while data:
                data = data[os.write(self._says, data) :]
