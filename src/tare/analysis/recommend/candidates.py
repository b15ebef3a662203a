"""Configurations, measured or predicted, held against the limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.configurations import Configuration, settings_text
from tare.analysis.recommend.chances import Spread, all_kept, chance_at_most, pooled_spread, predicted_chance
from tare.analysis.recommend.job import Limit
from tare.analysis.recommend.model import Candidate, Miss, Predicted
from tare.analysis.stats import median_estimate

HOPELESS = 0.01  # below this chance luck will not let a configuration pass, and it is not in question


@dataclass(frozen=True)
class Judged:
    """A configuration with the chances that its next run keeps each limit."""

    configuration: Configuration
    chances: Mapping[str, float | None]
    keeps_all: float | None
    over: Mapping[str, float]  # limit -> share above it, by the median

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
    made = []
    for each in found:
        chances = {
            limit.name: chance_at_most(each, limit.figure, limit.at_most, shared[limit.name]) for limit in limits
        }
        over = {limit.name: each.centre(limit.figure) / limit.at_most - 1 for limit in limits}
        made.append(Judged(each, chances, all_kept(list(chances.values())), over))
    return made


def fitting(all_of_them: Sequence[Judged], minimise: str, confidence: float) -> list[tuple[Judged, float]]:
    """Those that keep the limits surely enough, the lowest figure first, each with the probability it was held to.

    Whoever picks the first that passes gives luck one chance with each that is tried, so the allowed probability of
    breaking a limit is shared among those in question so far (Bonferroni): of all answers, no more than 1 - confidence
    break one. Where nothing was run twice, a configuration is held to having kept the limits that once.
    """
    found: list[tuple[Judged, float]] = []
    in_question = 0
    for one in sorted(all_of_them, key=lambda each: each.objective(minimise)):
        in_question += bool(one.chances) and one.keeps_all is not None and one.keeps_all >= HOPELESS
        held_to = 1 - (1 - confidence) / max(1, in_question)
        if one.within and (one.keeps_all is None or one.keeps_all >= held_to):
            found.append((one, held_to))
    return found


def candidate(one: Judged, figures: Sequence[str]) -> Candidate:
    """A configuration as the answer shows it."""
    each = one.configuration
    shown = {
        figure: median_estimate(each.values(figure).tolist())
        for figure in figures
        if all(figure in trial.values for trial in each.trials)
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
