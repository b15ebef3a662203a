"""The decision itself: the lowest figure among the configurations that surely keep the limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tare.analysis.choose.candidates import (
    Judged,
    Recommendation,
    best_predicted,
    candidate,
    fitting,
    judged,
    nearest_miss,
)
from tare.analysis.choose.chances import STATED_FREEDOM, Spread
from tare.analysis.choose.configurations import (
    Configuration,
    configurations_of_jobs,
    copied_rows,
    default_among,
    shared_settings,
)
from tare.analysis.choose.jobs import Job
from tare.analysis.choose.next_trial import next_trial
from tare.analysis.choose.offers import Predicted
from tare.analysis.choose.practices import PracticeInput, practices
from tare.analysis.choose.resampling import affordable, resampled_centres
from tare.analysis.choose.standing import Contrast, contrast
from tare.analysis.model import Estimate
from tare.analysis.numeric.medians import FLOOR
from tare.analysis.observations import Setting
from tare.records.model import TrialRow, grouped

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
    rows, found, apart = configurations_of_jobs(rows, job.needed, source)
    stated = Spread(stated_spread, STATED_FREEDOM) if stated_spread is not None else None
    told = (*apart, *_unanswered(rows, found, job.needed))
    made = []
    for group, each in grouped(found, lambda each: each.group).items():
        today = default_among(each, found if apart else each, default, source) if default is not None else None
        alike = shared_settings(each) if apart else {}
        own = [replace(one, settings={n: v for n, v in one.settings.items() if n not in alike}) for one in each]
        today = next((mine for one, mine in zip(each, own, strict=True) if one is today), None)
        offered = [one for one in predicted if one.group == group]
        answer = _answer(group, judged(own, job.limits, stated), job, today, confidence, offered, told)
        made.append(replace(answer, conditions=alike))
    return made


def _unanswered(rows: Sequence[TrialRow], found: Sequence[Configuration], needed: Sequence[str]) -> tuple[str, ...]:
    """A sentence for each group of which no trial has what is asked about."""
    told = []
    for group, its in grouped(rows, lambda row: row.group).items():
        if all(each.group != group for each in found):
            missing = [name for name in needed if all(name not in row.metrics for row in its)] or needed
            instead = " `--minimise time` answers it." if missing == ["energy"] and len(needed) == 1 else ""
            told.append(f"{group}: no answer: none of its {len(its)} trials has {' and '.join(missing)}.{instead}")
    return tuple(told)


def _answer(
    group: str | None,
    all_of_them: Sequence[Judged],
    job: Job,
    today: Configuration | None,
    confidence: float,
    offered: Sequence[Predicted],
    told: tuple[str, ...] = (),
) -> Recommendation:
    figures = list(dict.fromkeys([*job.needed, *SHOWN]))
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
        (*told, *_notes(all_of_them, best), *copied_rows(found, job.needed)),
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
    return tuple(other.settings for other in others if not contrast(best, other, minimise, tries).surely_below)


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
