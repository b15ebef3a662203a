"""The decision itself: the lowest figure among those that surely keep the limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tare.analysis.configurations import Configuration, by_group, configurations, copied_rows, find_configuration
from tare.analysis.model import Estimate
from tare.analysis.observations import Observation, Setting
from tare.analysis.recommend.candidates import Judged, best_predicted, candidate, fitting, judged, nearest_miss
from tare.analysis.recommend.chances import STATED_FREEDOM, Spread
from tare.analysis.recommend.job import Job
from tare.analysis.recommend.model import Predicted, Recommendation
from tare.analysis.recommend.next_trial import next_trial
from tare.analysis.recommend.practices import Scene, practices
from tare.analysis.resampling import affordable, resampled_centres
from tare.analysis.stats import FLOOR
from tare.errors import StudyError

CONFIDENCE = 0.95
SHOWN = ("time", "energy", "power", "cost")
CONTENDERS = 500  # that fit, with the lowest figure: those far above it cannot turn out the best


def recommend(
    rows: Sequence[Observation],
    job: Job,
    *,
    default: Mapping[str, Setting] | None = None,
    confidence: float = CONFIDENCE,
    stated_spread: float | None = None,
    predicted: Sequence[Predicted] = (),
    source: Path | str = "",
) -> list[Recommendation]:
    """One answer a group. `stated_spread` is how much trials differ (a share), where the rows cannot tell."""
    needed = list(dict.fromkeys([job.minimise, *(limit.figure for limit in job.limits)]))
    found = configurations(rows, needed)
    if not found:
        raise StudyError(f"{source}: no row has all of {', '.join(needed)}.")
    stated = Spread(stated_spread, STATED_FREEDOM) if stated_spread is not None else None
    return [
        _answer(
            group,
            judged(each, job.limits, stated),
            job,
            find_configuration(each, default, source) if default is not None else None,
            confidence,
            [one for one in predicted if one.group == group],
        )
        for group, each in by_group(found).items()
    ]


def _answer(
    group: str | None,
    all_of_them: Sequence[Judged],
    job: Job,
    today: Configuration | None,
    confidence: float,
    offered: Sequence[Predicted],
) -> Recommendation:
    needed = list(dict.fromkeys([job.minimise, *(limit.figure for limit in job.limits)]))
    figures = list(dict.fromkeys([*needed, *SHOWN]))
    fit = fitting(all_of_them, job.minimise, confidence)
    best, held_to = fit[0] if fit else (None, None)
    hoped = best_predicted(offered, job.limits, job.minimise, confidence)
    if hoped is not None and best is not None:
        better = hoped.figures[job.minimise].value < best.configuration.centre(job.minimise)
        hoped = hoped if better else None
    miss = nearest_miss(all_of_them, figures) if best is None and job.limits else None
    in_use = next((one for one in all_of_them if one.configuration is today), None)
    found = [one.configuration for one in all_of_them]
    return Recommendation(
        group,
        job.minimise,
        job.limits,
        confidence,
        held_to if job.limits and best is not None and best.keeps_all is not None else None,
        len(all_of_them),
        candidate(best, figures) if best is not None else None,
        _best_share([one for one, _ in fit[:CONTENDERS]], job.minimise),
        hoped,
        candidate(in_use, figures) if in_use is not None else None,
        _gain(best.configuration, today, figures) if best is not None and today is not None else {},
        miss,
        next_trial(best, all_of_them, job.minimise, hoped, miss),
        tuple(practices(Scene(found, best.configuration if best else None, today))),
        (*_notes(all_of_them, best), *copied_rows(found, needed)),
    )


def _best_share(contenders: Sequence[Judged], minimise: str) -> float | None:
    """How often the first is the lowest when trials are drawn again; None where it was measured once."""
    found = [one.configuration for one in contenders]
    if not found or found[0].n < 2:
        return None
    drawn = resampled_centres(found, [minimise], affordable(found, [minimise]))[:, :, 0]
    return float((drawn[:, 0] <= drawn.min(axis=1)).mean())


def _gain(best: Configuration, today: Configuration, figures: Sequence[str]) -> dict[str, Estimate]:
    """What the best takes more, or less, than what is in use; as a share of the latter."""
    shared = [name for name in figures if all(name in t.values for t in (*best.trials, *today.trials))]
    shared = [name for name in shared if (today.values(name) > 0).all()]  # more than nothing is no share
    n = min(best.n, today.n)
    if best is today:
        return {name: Estimate(0.0, None, None, n, "it is the default itself") for name in shared}
    if n < FLOOR:
        few = f"ratio of medians; {n} trials are too few for an interval"
        return {name: Estimate(best.centre(name) / today.centre(name) - 1, None, None, n, few) for name in shared}
    drawn = resampled_centres([best, today], shared)
    made = {}
    for axis, name in enumerate(shared):
        low, high = np.quantile(drawn[:, 0, axis] / drawn[:, 1, axis] - 1, [0.025, 0.975])
        value = best.centre(name) / today.centre(name) - 1
        method = f"ratio of medians, bootstrap ({len(drawn)} resamples)"
        made[name] = Estimate(value, float(low), float(high), n, method)
    return made


def _notes(all_of_them: Sequence[Judged], best: Judged | None) -> list[str]:
    notes = []
    if best is not None and best.keeps_all is None:
        notes.append(
            "Nothing was measured twice, so how surely a limit is kept is unknown: it was kept that once. "
            "--spread states how much trials differ, where you know it."
        )
    few = sum(one.configuration.n < FLOOR for one in all_of_them)
    if few and best is not None and best.keeps_all is not None:
        notes.append(f"{few} of {len(all_of_them)} configurations have fewer than {FLOOR} trials; more would say more.")
    return notes
