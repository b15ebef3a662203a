"""Devices as a random effect: each is one draw from those there are, and one more device is one more of the sample.

Every device has a value of its own, true but for its error, and the true values scatter with a variance tau2:

    value(i) = mean + device(i) + error(i),    device ~ (0, tau2),    error(i) ~ (0, variance(i))

tau2 is Paule and Mandel's: the one at which the weighted squares sum to their degrees of freedom. The mean's interval
is Hartung and Knapp's, never narrower than the errors alone make it: Student's t with one degree of freedom less than
there are devices. The interval of tau is the Q-profile's (Viechtbauer). Why: docs/decisions/0016.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tare.analysis.estimators import Shift, paired_shift
from tare.analysis.numeric.distributions import normal_quantile, t_quantile
from tare.analysis.numeric.medians import FLOOR, Floats
from tare.base.errors import ObstacleError
from tare.base.installed import pip_install

FEWEST = 3  # devices: two have a difference, and no spread that one could know
LEVEL = 0.95
# A variance of logs that no device's clock comes below (a deviation of a millionth). Beside one that weighs far more
# than the others, the mean is so near to its value that rounding would decide where Newton's first step ends.
_TINY = 1e-12
_STEPS = 200
_ALLOWED = 49  # values of tau that stand for all that the data allow


@dataclass(frozen=True, slots=True)
class Pooled:
    """What holds for devices such as these, on the scale of the values."""

    devices: int
    mean: float
    error: float  # standard error of the mean
    tau: float  # deviation of the devices' true values
    tau_low: float
    tau_high: float
    next_low: float  # where the true value of one more device lies
    next_high: float

    def reach(self, level: float = LEVEL) -> float:
        """Half the mean's interval."""
        return _t(self.devices - 1, level) * self.error


def _scipy() -> tuple[Any, Any]:
    """scipy's special functions and root finding, which nothing but fleets needs."""
    try:
        from scipy import optimize, special
    except ImportError:
        raise ObstacleError(f"how devices vary is computed with scipy: `{pip_install('devices')}` brings it.") from None
    return special, optimize


def pooled(values: Floats, variances: Floats) -> Pooled:
    """The mean over devices, and how they scatter about it; `variances` are of the values' errors."""
    if len(values) < FEWEST:
        raise ValueError(f"{len(values)} devices are too few to estimate how devices vary; {FEWEST} are enough")
    special, _ = _scipy()
    known = np.maximum(variances, _TINY)
    freedom = len(values) - 1
    mean, tau2, error = scatter(values, variances)
    low, high = _next(values, known)
    tail = (1 - LEVEL) / 2
    ends = _betweens(values, known, special.chdtri(freedom, np.array([tail, 1 - tail])))
    return Pooled(
        devices=len(values),
        mean=mean,
        error=error,
        tau=math.sqrt(tau2),
        tau_low=math.sqrt(ends[0]),
        tau_high=math.sqrt(ends[1]),
        next_low=low,
        next_high=high,
    )


def _next(values: Floats, known: Floats) -> tuple[float, float]:
    """The prediction interval: over every tau that the data allow, each as often as they allow it (Nagashima).

    With the best tau alone it would be too narrow: of few devices that is often zero where it should not be.
    """
    special, _ = _scipy()
    freedom = len(values) - 1
    squares = special.chdtri(freedom, (np.arange(_ALLOWED) + 0.5) / _ALLOWED)
    found = [_at(values, known, float(tau2)) for tau2 in _betweens(values, known, squares)]
    means, taus2, errors = (np.array(column) for column in zip(*found, strict=True))
    tail = (1 - LEVEL) / 2
    stretch = _t(freedom, LEVEL) / -normal_quantile(tail)
    scales = np.sqrt(taus2 + (stretch * errors) ** 2)
    return _mixture(means, scales, tail), _mixture(means, scales, 1 - tail)


def _mixture(means: Floats, scales: Floats, at: float) -> float:
    """The quantile of normal distributions that are mixed in equal parts."""
    special, optimize = _scipy()
    ends = means + scales * normal_quantile(at)
    margin = 1e-6 * float(scales.max())  # at the ends themselves rounding could decide on the sign

    def beyond(x: float) -> float:
        return float(special.ndtr((x - means) / scales).mean()) - at

    return float(optimize.brentq(beyond, ends.min() - margin, ends.max() + margin, xtol=1e-9 * margin))


def scatter(values: Floats, variances: Floats) -> tuple[float, float, float]:
    """The mean of two devices or more, their variance between devices, and the mean's standard error.

    With this variance the weighted squares are what they should be, or fewer: then Hartung and Knapp's error, which
    is never taken below that of the errors alone, is one over the root of the weights' sum.
    """
    known = np.maximum(variances, _TINY)
    return _at(values, known, between(values, known, len(values) - 1))


def _at(values: Floats, known: Floats, tau2: float) -> tuple[float, float, float]:
    weights = 1 / (known + tau2)
    total = float(weights.sum())
    return float((weights * values).sum()) / total, tau2, math.sqrt(1 / total)


def between(values: Floats, variances: Floats, squares: float) -> float:
    """The variance between devices at which the weighted squares sum to this; 0 where they are fewer at none."""
    return float(_betweens(values, variances, np.array([squares]))[0])


def _betweens(values: Floats, variances: Floats, squares: Floats) -> Floats:
    """The same for several sums.

    A sum falls with the variance and is convex, so Newton's steps from below never pass the place. They begin where
    it would be if every error were as large as the largest, which is below it. All at once: one search of
    `scipy.optimize` for each takes three times as long.
    """
    tau2 = np.maximum(0.0, ((values - values.mean()) ** 2).sum() / squares - variances.max())
    for _ in range(_STEPS):
        weights = 1 / (variances + tau2[:, None])
        means = (weights * values).sum(axis=1) / weights.sum(axis=1)
        distances = (values - means[:, None]) ** 2
        excess = (weights * distances).sum(axis=1) - squares
        slopes = (weights**2 * distances).sum(axis=1)
        going = (excess > squares * 1e-12) & (slopes > 0)
        if not going.any():
            break
        tau2[going] += excess[going] / slopes[going]
    return np.asarray(tau2)


def shrunk(values: Floats, variances: Floats, found: Pooled) -> Floats:
    """Each device's own effect, as far as it can be told from its error: drawn to the mean (best linear prediction)."""
    known = np.maximum(variances, _TINY)
    trust = found.tau**2 / (found.tau**2 + known)
    return np.asarray(found.mean + trust * (values - found.mean))


def _t(freedom: float, level: float) -> float:
    return -t_quantile(freedom, (1 - level) / 2)


@dataclass(frozen=True, slots=True)
class Centre:
    """A centre on the log scale; `n` is what it is made of, and `unit_variance` of one of these (None: not known)."""

    value: float
    n: int
    unit_variance: float | None
    low: float | None = None
    high: float | None = None
    method: str = ""


def centre_of(logs: Floats) -> Centre:
    """The centre of one sample."""
    if len(logs) == 1:
        return Centre(float(logs[0]), 1, None, method="one trial")
    return from_shift(paired_shift(logs, LEVEL), len(logs))


def from_shift(shift: Shift, n: int) -> Centre:
    """A centre with the interval of its own test; no interval with fewer than six, though its variance is used."""
    unit = shift.standard_error(LEVEL) ** 2 * n if n > 1 else None
    if n < FLOOR:
        return Centre(shift.centre, n, unit, method=f"{n} are too few for an interval")
    low, high = shift.interval(LEVEL)
    return Centre(shift.centre, n, unit, low, high, shift.method)


def error_variances(centres: Sequence[Centre]) -> Floats:
    """The variance of each centre's error. The noise of one trial is pooled over the devices: of six it is a guess."""
    unit, _ = pooled_unit(centres)
    return np.array([unit / each.n for each in centres])


def own_variances(centres: Sequence[Centre]) -> Floats:
    """The same from each device's own noise; 0 where that is not known."""
    return np.array([(each.unit_variance or 0.0) / each.n for each in centres])


def pooled_unit(centres: Sequence[Centre]) -> tuple[float, int]:
    """The variance of one trial within a device, and its degrees of freedom; nothing known is no variance at all."""
    known = [(each.unit_variance, each.n - 1) for each in centres if each.unit_variance is not None]
    freedom = sum(weight for _, weight in known)
    if not freedom:
        return 0.0, 0
    return sum(variance * weight for variance, weight in known) / freedom, freedom


def reach(variance: float, freedom: int) -> float | None:
    """Half a centre's interval, from the pooled noise; None where nothing is known of it."""
    if freedom < 1:
        return None
    return -t_quantile(freedom, (1 - LEVEL) / 2) * math.sqrt(variance)


DRAWS = 4_999
FEWEST_GROUPS = 3  # of the level: with two, an interval would reach over a factor of seventy
WITHIN = "trials of a device"
METHOD = "nested analysis of variance of logs, method of moments"
