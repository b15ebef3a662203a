"""The decision itself: the lowest figure among those that surely keep the limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tare.analysis.choose.configurations import (
    Configuration,
    affordable,
    configurations,
    copied_rows,
    default_among,
    models_apart,
    resampled_centres,
)
from tare.analysis.choose.contrasts import Contrast, contrast
from tare.analysis.choose.recommend.candidates import (
    STATED_FREEDOM,
    Candidate,
    Judged,
    Miss,
    NextTrial,
    Predicted,
    Recommendation,
    Spread,
    best_predicted,
    candidate,
    fitting,
    judged,
    nearest_miss,
)
from tare.analysis.choose.recommend.job import Job
from tare.analysis.choose.recommend.practices import PracticeInput, practices
from tare.analysis.model import Estimate
from tare.analysis.observations import Setting
from tare.analysis.statistics import FLOOR
from tare.base.errors import StudyError
from tare.records.trials import TrialRow, grouped

WORTH_IT = 1e-4  # of the figure: less than this is not worth a trial
CONSIDERED = 200  # configurations with the lowest figure: those far above it cannot turn out the best


def next_trial(
    best: Judged | None,
    all_of_them: Sequence[Judged],
    minimise: str,
    predicted: Candidate | None = None,
    miss: Miss | None = None,
) -> NextTrial | None:
    """The trial with the largest expected gain; where nothing is known of the spread, that which would tell it."""
    if best is None:
        return _after_nothing_fits(predicted, miss)
    if predicted is not None:
        now, then = best.configuration.centre(minimise), predicted.figures[minimise].value
        gain = 1 - then / now if now > 0 else None
        return NextTrial(predicted.settings, "it is predicted to be better, and nobody has measured it", gain)
    if best.configuration.n < 2:
        return NextTrial(best.configuration.settings, "it was measured once, so its spread is unknown", None)
    if best.configuration.centre(minimise) == 0:
        return None  # nothing can be below it
    return _largest_gain(best, all_of_them, minimise)


def _after_nothing_fits(predicted: Candidate | None, miss: Miss | None) -> NextTrial | None:
    if predicted is not None:
        return NextTrial(predicted.settings, "nothing that was measured fits, and this is predicted to", None)
    if miss is None or miss.over > 0:
        return None
    return NextTrial(miss.candidate.settings, "it keeps the limits by its median, but not surely enough", None)


def _largest_gain(best: Judged, all_of_them: Sequence[Judged], minimise: str) -> NextTrial | None:
    """Each configuration's chance to be the better one after all, times by how much."""
    rivals = sorted((one for one in all_of_them if one is not best), key=lambda one: one.objective(minimise))
    near = [best, *rivals[:CONSIDERED]]
    found = [one.configuration for one in near]
    drawn = resampled_centres(found, [minimise], affordable(found, [minimise]))[:, :, 0]
    now = best.configuration.centre(minimise)
    weights = np.array([1.0 if one.keeps_all is None else one.keeps_all for one in near])
    gains = np.maximum(0.0, drawn[:, :1] - drawn).mean(axis=0) * weights / now
    # A trial of the best itself: what is saved if it turns out above the lowest of the others that may fit.
    others = [one.configuration.centre(minimise) for one in near[1:] if one.keeps_all != 0.0]
    gains[0] = float(np.maximum(0.0, drawn[:, 0] - min(others)).mean() / now) if others else 0.0
    place = int(np.argmax(gains))
    if gains[place] < WORTH_IT:
        return None
    reason = "it may be worse than it looked" if place == 0 else _reason(near[place], best, minimise)
    return NextTrial(near[place].configuration.settings, reason, float(gains[place]))


def _reason(one: Judged, best: Judged, minimise: str) -> str:
    lower = one.configuration.centre(minimise) < best.configuration.centre(minimise)
    return "it is better, but does not surely keep the limits" if lower else "it may turn out better"


CONFIDENCE = 0.95
SHOWN = ("time", "energy", "power", "cost")
CONTENDERS = 500  # that fit, with the lowest figure: those far above it cannot turn out the best


def recommend(
    rows: Sequence[TrialRow],
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
    rows, apart = models_apart(rows)
    found = configurations(rows, needed)
    if not found:
        raise StudyError(f"{source}: no row has all of {', '.join(needed)}.")
    stated = Spread(stated_spread, STATED_FREEDOM) if stated_spread is not None else None
    return [
        _answer(
            group,
            judged(each, job.limits, stated),
            job,
            default_among(each, found if apart else each, default, source) if default is not None else None,
            confidence,
            [one for one in predicted if one.group == group],
            apart,
        )
        for group, each in grouped(found, lambda each: each.group).items()
    ]


def _answer(
    group: str | None,
    all_of_them: Sequence[Judged],
    job: Job,
    today: Configuration | None,
    confidence: float,
    offered: Sequence[Predicted],
    told: tuple[str, ...] = (),
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
    gain = _gain(best.configuration, today, figures, len(found) - 1) if best is not None and today is not None else {}
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
        {name: each.estimate for name, each in gain.items()},
        gain[job.minimise].word if job.minimise in gain else None,
        _rivals([one for one, _ in fit[:CONTENDERS]], job.minimise),
        miss,
        next_trial(best, all_of_them, job.minimise, hoped, miss),
        tuple(practices(PracticeInput(found, best.configuration if best else None, today))),
        (*told, *_notes(all_of_them, best), *copied_rows(found, needed)),
    )


def _best_share(contenders: Sequence[Judged], minimise: str) -> float | None:
    """How often the first is the lowest when trials are drawn again; None where it was measured once."""
    found = [one.configuration for one in contenders]
    if not found or found[0].n < 2:
        return None
    drawn = resampled_centres(found, [minimise], affordable(found, [minimise]))[:, :, 0]
    return float((drawn[:, 0] <= drawn.min(axis=1)).mean())


def _gain(best: Configuration, today: Configuration, figures: Sequence[str], tries: int) -> dict[str, Contrast]:
    """What the best takes more, or less, than what is in use; as a share of the latter."""
    shared = [name for name in figures if all(name in t.metrics for t in (*best.trials, *today.trials))]
    shared = [name for name in shared if (today.values(name) > 0).all()]  # more than nothing is no share
    if best is today:
        itself = Contrast(Estimate(0.0, None, None, best.n, "it is the default itself"), "equivalent")
        return dict.fromkeys(shared, itself)
    return {name: contrast(best, today, name, tries) for name in shared}


def _rivals(contenders: Sequence[Judged], minimise: str) -> tuple[Mapping[str, Setting], ...]:
    """Those that fit too, and of which the first is not surely the better one."""
    if len(contenders) < 2:
        return ()
    best, *others = (one.configuration for one in contenders)
    tries = len(others)
    return tuple(other.settings for other in others if not _is_below(contrast(best, other, minimise, tries).estimate))


def _is_below(estimate: Estimate) -> bool:
    return estimate.high is not None and estimate.high < 0


def _notes(all_of_them: Sequence[Judged], best: Judged | None) -> list[str]:
    notes = []
    if best is not None and best.keeps_all is None:
        notes.append(
            "Nothing was measured twice, so how surely a limit is kept is unknown: it was kept that once. "
            "--spread states how much trials differ, where you know it."
        )
    few = sum(one.configuration.n < FLOOR for one in all_of_them)
    if few and best is not None and best.keeps_all is not None:
        notes.append(f"{few} of {len(all_of_them)} configurations have fewer than {FLOOR} trials; more would be surer.")
    return notes
