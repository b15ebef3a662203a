"""Whether the stall is hidden, and how many workers it should take to hide it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tare.analysis.anatomy.model import HIDDEN
from tare.analysis.anatomy.parts import Group
from tare.analysis.compare import Contest, judge
from tare.analysis.model import Comparison, Estimate, Measurement
from tare.analysis.ranks import Floats
from tare.analysis.stats import FLOOR

RESAMPLES = 1_999
_SEED = 20_240_229


def hidden_words(group: Group, share: float) -> dict[float, str]:
    """Workers -> hidden, not hidden or cannot tell; all numbers of workers are one family."""
    return {float(each.level): HIDDEN[each.verdict] for each in _compared(group, share)}


def _compared(group: Group, share: float) -> list[Comparison]:
    """Each trial's step with its stall, against the same step without it: equivalent within the share is hidden."""
    family = []
    for workers, trials in group.trials.items():
        level, bare = f"{workers:g}", f"{workers:g}, without its stall"
        ours = [Measurement(level, row.values["step"], row.trial, trial=row.trial) for row in trials]
        theirs = [
            Measurement(bare, row.values["step"] - row.values["stall"], row.trial, trial=row.trial) for row in trials
        ]
        family.append(Contest(level, bare, ours, theirs))
    # A stall of `share` of the step is share / (1 - share) of the step without it.
    return judge(family, margin=share / (1 - share), metric="step_s", resamples=0)


def predicted_stall(fetch_s: float, rest_s: float, workers: float) -> float:
    """Workers fetch side by side, behind the rest of the step; without workers the step waits for all of it."""
    return fetch_s if workers == 0 else max(0.0, fetch_s / workers - rest_s)


def predicted_workers(fetch_s: float, rest_s: float, share: float) -> int:
    """The fewest whose predicted stall is below this share of the step; none where the fetch itself is."""
    if fetch_s <= share * (fetch_s + rest_s):
        return 0
    return max(1, math.ceil(fetch_s * (1 - share) / rest_s - 1e-9))


def workers_estimate(group: Group, share: float) -> Estimate | None:
    """The predicted number of workers, with the percentiles of it when trials are drawn again."""
    if 0.0 not in group.trials:
        return None
    fetch, rest = group.values(0.0, "stall"), rest_of(group)
    value = predicted_workers(float(np.median(fetch)), float(np.median(rest)), share)
    n = min(len(fetch), len(rest))
    if n < FLOOR:
        return Estimate(
            value, None, None, n, f"fetch over the rest of the step; {n} trials are too few for an interval"
        )
    drawn = [predicted_workers(f, r, share) for f, r in zip(_medians(fetch, 1), _medians(rest, 2), strict=True)]
    low, high = np.quantile(drawn, [0.025, 0.975], method="nearest")
    return Estimate(value, float(low), float(high), n, f"fetch over the rest of the step, bootstrap ({RESAMPLES})")


def rest_of(group: Group) -> Floats:
    """The rest of the step while nothing fetches beside it; with workers it may grow, for want of cores."""
    return group.rest(0.0) if 0.0 in group.trials else group.rest(min(group.trials))


def _medians(values: Floats, seed: int) -> Sequence[float]:
    generator = np.random.default_rng(_SEED + seed)
    drawn: list[float] = np.median(
        values[generator.integers(0, len(values), (RESAMPLES, len(values)))], axis=1
    ).tolist()
    return drawn
