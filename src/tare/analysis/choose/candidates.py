"""Configurations, measured or predicted, held against the limits of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tare.analysis.choose.chances import (
    Spread,
    all_kept,
    chance_at_most,
    chance_like_the_others,
    pooled_spread,
    predicted_chance,
    residuals,
)
from tare.analysis.choose.configurations import Configuration, settings_text
from tare.analysis.choose.jobs import Limit
from tare.analysis.choose.offers import Predicted
from tare.analysis.choose.standing import Standing
from tare.analysis.model import Estimate, Finding
from tare.analysis.numeric.medians import median_estimate
from tare.analysis.observations import Setting


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
    gain: Mapping[str, Estimate]  # share that the best takes more (or less) than the default; corrected for the search
    verdict: Standing | None  # of the best against the default, by the figure that is minimised; None without a default
    rivals: tuple[Mapping[str, Setting], ...]  # others that fit, and of which the best is not surely the better one
    nearest_miss: Miss | None
    next_trial: NextTrial | None
    practices: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    conditions: Mapping[str, Setting] = field(default_factory=dict)  # of a job's group: what is alike, and no choice

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


HOPELESS = 0.01  # below this chance luck will not let a configuration pass, and it is not in question


@dataclass(frozen=True)
class Judged:
    """A configuration with the chances that its next run keeps each limit."""

    configuration: Configuration
    chances: Mapping[str, float | None]
    keeps_all: float | None
    over: Mapping[str, float]  # limit -> share above it, by the median
    by_its_own: float | None = None  # that it keeps all, by its own trials alone

    @property
    def within(self) -> bool:
        """Whether it keeps every limit by its median."""
        return all(over <= 0 for over in self.over.values())

    def objective(self, figure: str) -> tuple[float, str]:
        return self.configuration.centre(figure), self.configuration.label

    @property
    def worst(self) -> tuple[str, float]:
        """The limit that it comes nearest to breaking, or breaks by most."""
        known = {name: chance for name, chance in self.chances.items() if chance is not None}
        name = min(known, key=known.__getitem__) if known else max(self.over, key=self.over.__getitem__)
        return name, self.over[name]


def judged(found: Sequence[Configuration], limits: Sequence[Limit], stated: Spread | None) -> list[Judged]:
    """Every configuration against every limit."""
    shared = {limit.name: stated or pooled_spread(found, limit.figure) for limit in limits}
    pools = {limit.name: residuals(found, limit.figure) for limit in limits}
    made = []
    for each in found:
        own: dict[str, float | None] = {}
        chances: dict[str, float | None] = {}
        for limit in limits:
            chance = chance_at_most(each, limit.figure, limit.at_most, shared[limit.name])
            like = chance_like_the_others(each, limit.figure, limit.at_most, pools[limit.name])
            own[limit.name] = chance
            chances[limit.name] = chance if chance is None or like is None else min(chance, like)
        over = {limit.name: each.centre(limit.figure) / limit.at_most - 1 for limit in limits}
        made.append(Judged(each, chances, all_kept(list(chances.values())), over, all_kept(list(own.values()))))
    return made


def fitting(all_of_them: Sequence[Judged], minimise: str, confidence: float) -> list[tuple[Judged, float]]:
    """Those that keep the limits surely enough, the lowest figure first, each with the probability it was held to.

    Whoever picks the first that passes gives luck one chance with each that is tried, so the allowed probability of
    breaking a limit is shared among those in question so far (Bonferroni): of all answers, no more than 1 - confidence
    break one. That is of chance in its own trials; what all runs together show must only reach the confidence itself.
    Where nothing was run twice, a configuration is held to having kept the limits that once.
    """
    found: list[tuple[Judged, float]] = []
    in_question = 0
    for one in sorted(all_of_them, key=lambda each: each.objective(minimise)):
        in_question += bool(one.chances) and one.by_its_own is not None and one.by_its_own >= HOPELESS
        held_to = 1 - (1 - confidence) / max(1, in_question)
        surely = True
        if one.keeps_all is not None and one.by_its_own is not None:
            surely = one.by_its_own >= held_to and one.keeps_all >= confidence
        if one.within and surely:
            found.append((one, held_to))
    return found


def candidate(one: Judged, figures: Sequence[str]) -> Candidate:
    """A configuration as the answer shows it."""
    each = one.configuration
    shown = {
        figure: median_estimate(each.values(figure).tolist())
        for figure in figures
        if all(figure in trial.metrics for trial in each.trials)
    }
    return Candidate(each.settings, shown, each.n, one.chances, one.keeps_all)


def best_predicted(
    offered: Sequence[Predicted], limits: Sequence[Limit], minimise: str, confidence: float
) -> Candidate | None:
    """The lowest prediction that keeps every limit surely enough, by its own interval."""
    made = []
    for each in offered:
        if not all(name in each.figures for name in [minimise, *(limit.figure for limit in limits)]):
            continue
        chances = {limit.name: predicted_chance(each.figures[limit.figure], limit.at_most) for limit in limits}
        keeps = all_kept(list(chances.values()))
        if keeps is not None and keeps >= confidence:
            made.append(Candidate(each.settings, each.figures, 0, chances, keeps, predicted=True))
    return min(made, key=lambda one: (one.figures[minimise].value, settings_text(one.settings)), default=None)


def nearest_miss(all_of_them: Sequence[Judged], figures: Sequence[str]) -> Miss | None:
    """The configuration that comes nearest to keeping every limit."""
    if not all_of_them:
        return None

    def distance(one: Judged) -> tuple[float, float, str]:
        return -(one.keeps_all or 0.0), max(one.over.values(), default=0.0), one.configuration.label

    nearest = min(all_of_them, key=distance)
    name, over = nearest.worst
    return Miss(candidate(nearest, figures), name, over)
