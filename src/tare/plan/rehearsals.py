"""The rehearsal: which sides run once before the blocks, and what that says of the trials to come.

A rehearsal is sealed like a trial, under an id that no reader takes for data (`base/sides.py`). Where a side cannot
run, this is where it shows: once, and not in every block.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tare.parts.protocols import Workload
from tare.plan.matrix import Trial, place
from tare.studies.model import Study

MOST_SIDES = 12  # with more of them, each platform is tried with one workload
FIRST_LIMIT_S = 1800.0  # of a rehearsal, where the study names no limit and nobody knows how long it takes
ENOUGH_STEPS = 20  # fewer are mostly warm-up, and say little of those to come
LEAST_LIMIT_S = 120.0
LIMIT_FACTOR, LIMIT_SLACK_S = 3.0, 60.0
UNSEEN_FACTOR = 30.0  # of another side that has not run yet: it may be much slower, which is what is asked


@dataclass(frozen=True)
class Length:
    """What a trial of a side will take, by its rehearsal."""

    workload: Workload
    trial_s: float  # from its begin to its sealed record
    run_s: float  # of the workload alone, which the limit is about


def rehearsals(study: Study, trials: Iterable[Trial]) -> list[Trial]:
    """A rehearsal for each side of these trials, the baseline's first; of many sides one for each platform."""
    sides: dict[str, Trial] = {}
    for trial in trials:
        sides.setdefault(trial.side, trial)
    chosen = list(sides.values())
    if len(chosen) > MOST_SIDES:
        platforms: dict[str, Trial] = {}
        for trial in chosen:
            own = {name: value for name, value in trial.cell.settings.items() if name.partition(".")[0] == "platform"}
            platforms.setdefault(json.dumps(own, sort_keys=True), trial)
        chosen = list(platforms.values())
    chosen.sort(key=lambda trial: not study.compare.baseline.picks(place(trial.cell)))
    limit_s = study.limit_s if study.sets_limit else FIRST_LIMIT_S
    short = [replace(t.cell, workload=t.cell.workload.shortened(), neighbours=(), tenants=1) for t in chosen]
    return [
        Trial(study.study, cell, -1, number, trial.seed, limit_s, rehearses=trial.cell)
        for number, (trial, cell) in enumerate(zip(chosen, short, strict=True))
    ]


def followed_limit_s(run_s: Sequence[float], factor: float = LIMIT_FACTOR) -> float | None:
    """The limit that follows from how long the workload took on each side; None where that is not known."""
    return max(LEAST_LIMIT_S, factor * max(run_s) + LIMIT_SLACK_S) if run_s else None


def length_of(rehearsal: Trial, trial_s: float, run_s: float, metrics: dict[str, Any]) -> Length | None:
    """What a whole trial takes: what the rehearsal took and the steps that it left away; None where nobody knows."""
    assert rehearsal.rehearses is not None
    whole, short = rehearsal.rehearses.workload, rehearsal.cell.workload
    if whole == short:
        return Length(whole, trial_s, run_s)
    if (bound_s := whole.bound_s()) is not None:
        return Length(whole, trial_s + bound_s, run_s + bound_s)
    all_steps, some_steps = whole.about_units(), short.about_units()
    step_s = 1 / rate if (rate := metrics.get("requests_per_s")) else metrics.get("step_s")  # requests overlap
    if all_steps is None or some_steps is None or step_s is None or some_steps < ENOUGH_STEPS:
        return None
    more_s = max(0, all_steps - some_steps) * step_s
    return Length(whole, trial_s + more_s, run_s + more_s)


def with_limit(trials: Sequence[Trial], limit_s: float | None) -> list[Trial]:
    return list(trials) if limit_s is None else [replace(trial, limit_s=limit_s) for trial in trials]
