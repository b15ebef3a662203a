"""What a weighing is asked: from the caller where it says, else from the study in the store, else by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.analysis.cells import resolve_factor, text
from tare.analysis.stats import ALPHA
from tare.analysis.stopping import LOOKING_ALPHA
from tare.errors import StudyError
from tare.measures import parse_share
from tare.records.model import Record

DEFAULT_BY = "platform"
DEFAULT_MARGIN = 0.05


@dataclass(frozen=True)
class Request:
    """The question, complete but for what only the records can tell."""

    by: str
    against: Any  # a level as the caller or the study wrote it; None where nobody did
    named: bool  # whether the caller named it: then a level that is not there is an error
    margin: float
    metric: str | None  # asked for by the caller, else by the study
    its_metric: str | None  # what the study declares, whatever the caller asks for
    until: float | None  # the stop rule's target for half an interval, where one was declared
    least_blocks: int | None
    most_blocks: int | None
    declared: bool  # whether factor and baseline are those that the stop rule looked at

    @property
    def alpha(self) -> float:
        """A run that looks at its interval after each block pays for it (see `stopping`)."""
        return ALPHA if self.until is None else LOOKING_ALPHA


def request(
    study: Mapping[str, Any],
    records: Sequence[Record] = (),
    *,
    by: str | None = None,
    against: str | None = None,
    margin: float | None = None,
    metric: str | None = None,
) -> Request:
    """The question that the caller and the study put together."""
    declared, repeat = _mapping(study.get("compare")), _mapping(study.get("repeat"))
    its_by, its_against = _baseline(declared)
    its_factor = _factor(records, its_by or DEFAULT_BY)
    factor = its_factor if by is None else _factor(records, by)
    until = repeat.get("until")
    return Request(
        by=factor,
        # The study's baseline is a level of its own factor: it says nothing about another.
        against=against if against is not None else its_against if factor == its_factor else None,
        named=against is not None,
        margin=margin if margin is not None else _share(declared.get("margin"), "compare.margin") or DEFAULT_MARGIN,
        metric=metric or declared.get("metric"),
        its_metric=declared.get("metric"),
        until=_share(until, "repeat.until"),
        least_blocks=repeat.get("min"),
        most_blocks=repeat.get("max"),
        declared=factor == its_factor and against in (None, text(its_against)),
    )


def _factor(records: Sequence[Record], name: str) -> str:
    """The whole name of a factor: `workload.batch` for `batch`. A wrong one is refused later, where it is used."""
    try:
        return resolve_factor(records, name)
    except StudyError:
        return name


def _baseline(declared: Mapping[str, Any]) -> tuple[str | None, Any]:
    """`against: {platform: bare}` names factor and level; `against: bare` the level alone."""
    by, against = declared.get("by"), declared.get("against")
    if isinstance(against, Mapping):
        factor = by if by in against else next(iter(against), None)
        return by or factor, against.get(factor)
    return by or (DEFAULT_BY if against is not None else None), against


def _share(value: Any, where: str) -> float | None:
    try:
        return None if value is None else parse_share(value)
    except ValueError as error:
        raise StudyError(f"the study in the store: {where}: {error}.") from None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
