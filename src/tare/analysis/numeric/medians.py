"""Medians with their intervals, Holm's levels, and which trials stand out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tare.analysis.model import Estimate
from tare.analysis.numeric.distributions import heads_at_most, normal_quantile

Floats: TypeAlias = NDArray[np.float64]


FLOOR = 6  # trials a side: the fewest whose extremes hold the median with 95 % confidence
ALPHA = 0.05
RESAMPLES = 9_999
OUTLIER_Z = 14.826  # ten robust standard deviations, in median absolute deviations (docs/explanation/verdicts.md)
TIED_SHARE = 0.10  # where most values tie there is no deviation to count in: this far from the median
NEAR_SHARE = 0.01
_SEED = 20_240_229  # fixed: the same figures give the same interval, on every machine
_CHUNK = 1_000_000  # resampled values held at a time
_BUDGET = 4_000_000  # resampled values in all: a long table gets fewer resamples, and its method says so


def floats(values: Sequence[float]) -> Floats:
    return np.asarray(values, dtype=np.float64)


def median_of(values: Sequence[float] | Floats) -> float:
    """As `np.median`, which imports masked arrays: that takes a tenth of a short answer."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    if not n or np.isnan(ordered[-1]):
        return math.nan
    return float(ordered[n // 2] if n % 2 else np.mean(ordered[n // 2 - 1 : n // 2 + 1]))


def quantile_of(values: Floats, share: float) -> float:
    """As `np.quantile`, to the last bit, and without its imports."""
    ordered = np.sort(values)
    place = (len(ordered) - 1) * share
    below = ordered[math.floor(place)]
    above = ordered[min(math.floor(place) + 1, len(ordered) - 1)]
    part = place - math.floor(place)
    return float(above - (above - below) * (1 - part) if part >= 0.5 else below + (above - below) * part)


def median_estimate(values: Sequence[float], level: float = 1 - ALPHA) -> Estimate:
    """The median with its exact order-statistic interval; no interval where n is too small for the level."""
    ordered = np.sort(floats(values))
    n, centre = len(ordered), median_of(ordered)
    cut = median_ranks(n, level)
    if cut is None:
        return Estimate(centre, None, None, n, f"median; {n} trials are too few for an interval", level)
    covered = 1 - 2 * heads_at_most(cut, n)
    low, high = float(ordered[cut]), float(ordered[n - 1 - cut])
    return Estimate(centre, low, high, n, f"median, order statistics {covered:.1%}".replace("%", " %"), level)


def median_ranks(n: int, level: float) -> int | None:
    """How many values the interval leaves out at each end; None where even the extremes do not reach `level`."""
    tail = (1 - level) / 2
    if heads_at_most(0, n) > tail:
        return None
    # Within a few of the normal approximation; the exact tails decide.
    near = max(0, math.floor(n / 2 + normal_quantile(tail) * math.sqrt(n) / 2) - 3)
    return near + sum(heads_at_most(count, n) <= tail for count in range(near, near + 8)) - 1


def ratio_of_medians(
    ours: Floats, theirs: Floats, *, paired: bool, level: float = 1 - ALPHA, resamples: int = RESAMPLES
) -> Estimate:
    """The ratio of two medians with a percentile bootstrap interval; paired sides are resampled as whole blocks."""
    value, n = median_of(ours) / median_of(theirs), min(len(ours), len(theirs))
    if n < FLOOR:
        return Estimate(value, None, None, n, f"ratio of medians; {n} trials are too few for an interval", level)
    count = max(199, min(resamples, _BUDGET // max(len(ours), len(theirs))))
    tail = (1 - level) / 2
    drawn = _resampled_ratios(ours, theirs, paired, count)
    low, high = quantile_of(drawn, tail), quantile_of(drawn, 1 - tail)
    unit = "block" if paired else "trial"
    return Estimate(value, float(low), float(high), n, f"ratio of medians, {unit} bootstrap ({count} resamples)", level)


def _resampled_ratios(ours: Floats, theirs: Floats, paired: bool, count: int) -> Floats:
    generator = np.random.default_rng(_SEED)
    ratios = []
    for rows in _chunks(count, max(len(ours), len(theirs))):
        picked = generator.integers(0, len(ours), (rows, len(ours)))
        other = picked if paired else generator.integers(0, len(theirs), (rows, len(theirs)))
        ratios.append(_row_medians(ours[picked]) / _row_medians(theirs[other]))
    return np.concatenate(ratios)


def _chunks(count: int, width: int) -> Iterator[int]:
    step = max(1, _CHUNK // width)
    for start in range(0, count, step):
        yield min(step, count - start)


def _row_medians(rows: Floats) -> Floats:
    """The median of each row (a full `np.median` costs several times as much for short rows)."""
    n = rows.shape[1]
    middle = [(n - 1) // 2, n // 2]
    return np.asarray(np.partition(rows, middle, axis=1)[:, middle].mean(axis=1))


def holm_levels(ps: Sequence[float], alpha: float = ALPHA) -> list[float]:
    """The significance level of each test, by Holm's step-down: an interval at 1 - level agrees with its verdict.

    The smallest p is held against alpha/m, the next against alpha/(m-1), and so on until one fails; that level
    then holds for all that are left, since none of them may be claimed.
    """
    levels = [alpha] * len(ps)
    level, stopped = alpha, False
    for done, index in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        if not stopped:
            level = alpha / (len(ps) - done)
            stopped = ps[index] > level
        levels[index] = level
    return levels


def outliers(values: Sequence[float]) -> list[int]:
    """Positions of values over ten robust standard deviations from the median (10 % where most tie): marked, kept.

    Within 1 % of it nothing stands out, however close the others lie: counts of page faults differ by a few.
    """
    array = floats(values)
    if len(array) < 3:
        return []
    centre = median_of(array)
    unit = median_deviation(array)
    far = max(OUTLIER_Z * unit, NEAR_SHARE * abs(centre)) if unit > 0 else TIED_SHARE * abs(centre)
    return [int(place) for place in np.flatnonzero(np.abs(array - centre) > far)]


def median_deviation(values: Floats) -> float:
    """The median distance from the median: a spread that a few far values do not move."""
    return median_of(np.abs(values - median_of(values)))


def variation(values: Sequence[float]) -> float | None:
    """Coefficient of variation between trials: standard deviation over mean, as a share."""
    array = floats(values)
    if len(array) < 2:
        return None
    shares = array / array.max()  # so that no square can overflow
    return float(shares.std(ddof=1) / shares.mean())
