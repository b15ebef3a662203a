"""What a recommendation says, as values. Shares are of what the default takes; a missing figure is None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tare.analysis.model import Estimate, Finding
from tare.analysis.observations import Setting
from tare.analysis.recommend.job import Limit


@dataclass(frozen=True, slots=True)
class Predicted:
    """A configuration that nobody has measured, as a predictor sees it: figures by their word, with intervals."""

    settings: Mapping[str, Setting]
    figures: Mapping[str, Estimate]
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration, its figures for the whole job, and how likely its next run keeps each limit."""

    settings: Mapping[str, Setting]
    figures: Mapping[str, Estimate]
    n: int  # trials; 0 where it is predicted
    chances: Mapping[str, float | None]  # limit -> probability; None where it was measured once
    keeps_all: float | None  # at least this likely, however the limits depend on each other
    predicted: bool = False


@dataclass(frozen=True, slots=True)
class Miss:
    """Why nothing fits, by the candidate that comes nearest."""

    candidate: Candidate
    limit: str
    over: float  # share above the limit; below zero where it keeps it, but not surely enough


@dataclass(frozen=True, slots=True)
class NextTrial:
    """The one measurement that would help most, and why."""

    settings: Mapping[str, Setting]
    reason: str
    expected_gain: float | None  # share of the recommended figure; None where nothing is known of the spread


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The answer for one group of configurations."""

    group: str | None
    minimised: str
    limits: tuple[Limit, ...]
    confidence: float
    held_to: float | None  # the probability that the best was held to: higher, the more were in question
    configurations: int
    best: Candidate | None  # measured; None where nothing fits
    best_share: float | None  # of the resamples in which it is the best of those that fit; None where unknown
    predicted: Candidate | None  # only where it is better than the best that was measured
    default: Candidate | None
    gain: Mapping[str, Estimate]  # share that the best takes more (or less) than the default
    nearest_miss: Miss | None
    next_trial: NextTrial | None
    practices: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
