"""What an anatomy says, as values. Times are seconds a step; a missing figure is None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from tare.analysis.model import Estimate, Word

Binds: TypeAlias = Literal["disk", "cpu", "input", "compute"]  # "input": disk or CPU, which cannot be told apart here

HIDDEN: Mapping[Word, str] = {  # the step with its stall, against the step without it
    "equivalent": "hidden",
    "slower": "not hidden",
    "faster": "hidden",
    "cannot_tell": "cannot tell",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A pipeline at one number of workers."""

    workers: float
    n: int
    step_s: Estimate
    stall_s: Estimate
    rest_s: Estimate  # of the step without its stall: what the workers can hide behind
    stall_share: Estimate  # of the step
    predicted_stall_s: float | None  # from the fetch without workers; None where that was not measured
    hidden: str  # "hidden", "not hidden" or "cannot tell"
    by_median: bool  # whether the median stall is below the share
    shares: Mapping[str, float]  # compute, copy, overhead: of the step, where they are measured
    binds: Binds


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One medium and state of the cache, in otherwise equal settings."""

    cell: str  # what else is fixed
    medium: str | None
    cache: str | None
    parts: tuple[Part, ...]  # by rising number of workers
    fetch_s: Estimate | None  # fetch and pre-process of a step, without workers
    disk_s: float | None  # of it, what a warm cache or the fastest medium takes off
    disk_at_least: bool  # the disk's part may be larger: no warm cache was measured
    workers_predicted: Estimate | None
    workers_measured: float | None  # the fewest that surely hide the stall
    workers_by_median: float | None  # the fewest whose median does


@dataclass(frozen=True, slots=True)
class Media:
    """The slowest medium that still hides the stall, at a number of workers."""

    cell: str
    cache: str | None
    workers: float
    slowest_predicted: str | None
    slowest_measured: str | None  # surely
    slowest_by_median: str | None


@dataclass(frozen=True, slots=True)
class Anatomy:
    """All pipelines of a source."""

    share: float  # a stall below this share of the step counts as hidden
    pipelines: tuple[Pipeline, ...]
    media: tuple[Media, ...]
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
