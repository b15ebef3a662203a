"""The probability that the next run of a configuration keeps a limit.

The next trial is predicted from the logs of those that were run: their mean, and their standard deviation times
sqrt(1 + 1/n), by Student's t. Where a configuration has fewer trials than an interval takes, the spread is that of
all configurations together, or its own where that is larger. Where nothing was run twice, there is no claim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tare.analysis.choose.configurations import Configuration
from tare.analysis.model import Estimate
from tare.analysis.numeric.distributions import normal_cdf, normal_quantile, t_cdf
from tare.analysis.numeric.medians import FLOOR, Floats

UNSEEN = math.log(1.5)  # how slow a run may be that none of the trials has shown
STATED_FREEDOM = 1e6  # a spread that the user states is taken as known


@dataclass(frozen=True, slots=True)
class Spread:
    """The standard deviation of one trial, in logs (0.02 is about 2 %), and on how much it rests."""

    deviation: float
    freedom: float


def pooled_spread(found: Sequence[Configuration], figure: str) -> Spread | None:
    """The spread between trials of the same configuration, over all of them; None where nothing was run twice."""
    squares, freedom = 0.0, 0
    for each in found:
        if each.n >= 2:
            logs = _logs(each.values(figure))
            squares += float(((logs - logs.mean()) ** 2).sum())
            freedom += each.n - 1
    return Spread(math.sqrt(squares / freedom), freedom) if freedom else None


def spread_of(each: Configuration, figure: str, shared: Spread | None) -> Spread | None:
    """Its own where it has trials enough, else the shared one, or its own where that is larger."""
    own = Spread(float(_logs(each.values(figure)).std(ddof=1)), each.n - 1) if each.n >= 2 else None
    if own is not None and (each.n >= FLOOR or shared is None):
        return own
    if own is None or shared is None:
        return shared
    return Spread(max(own.deviation, shared.deviation), shared.freedom)


def chance_at_most(each: Configuration, figure: str, at_most: float, shared: Spread | None) -> float | None:
    """The probability that the next trial's figure is at most this; None where the spread is unknown."""
    spread = spread_of(each, figure, shared)
    if spread is None:
        return None
    logs = _logs(each.values(figure))
    room = _log(at_most) - float(logs.mean())
    scale = spread.deviation * math.sqrt(1 + 1 / len(logs))
    if scale == 0:
        return float(room >= 0)
    return t_cdf(spread.freedom, room / scale)


def predicted_chance(estimate: Estimate, at_most: float) -> float | None:
    """The same for a prediction with an interval, taken as log-normal; None where it has none."""
    if estimate.low is None or estimate.high is None or estimate.low <= 0:
        return None
    scale = math.log(estimate.high / estimate.low) / (2 * normal_quantile(0.5 + estimate.level / 2))
    room = _log(at_most) - _log(estimate.value)
    return float(room >= 0) if scale == 0 else normal_cdf(room / scale)


def chance_like_the_others(each: Configuration, figure: str, at_most: float, pool: Floats) -> float | None:
    """The same, by how far runs of any of the configurations lay from the others of their own; None without any.

    A tenth of the runs may be slow, and most configurations of six trials have none of them: what a slow run does is
    known from all of them together. Beside those that were seen, half a run is counted that nobody has seen (Jeffreys)
    and that takes half as much again: a few trials cannot promise that there is none.
    """
    if not len(pool):
        return None
    centre, limit = _log(each.centre(figure)), _log(at_most)
    over = int((centre + pool > limit).sum()) + 0.5 * (centre + UNSEEN > limit)
    return 1 - over / (len(pool) + 1)


def residuals(found: Sequence[Configuration], figure: str) -> Floats:
    """Of every trial, how far its log lies from the median of the other trials of its configuration."""
    made: list[float] = []
    for each in found:
        logs = _logs(each.values(figure))
        if len(logs) >= 2:
            made += [float(logs[place] - np.median(np.delete(logs, place))) for place in range(len(logs))]
    return np.array(made)


def all_kept(chances: Sequence[float | None]) -> float | None:
    """At least this likely are all limits kept, however they depend on each other; None where one is unknown."""
    known = [chance for chance in chances if chance is not None]
    return max(0.0, 1 - sum(1 - chance for chance in known)) if len(known) == len(chances) else None


def _logs(values: Floats) -> Floats:
    return np.log(np.maximum(values, np.finfo(np.float64).tiny))  # a stall may be zero, and is below every limit


def _log(value: float) -> float:
    return math.log(max(value, float(np.finfo(np.float64).tiny)))
