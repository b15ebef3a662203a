"""Tails and quantiles of the normal, Student's t and the fair binomial distribution, one number at a time.

scipy.special has all of these, but its import takes longer than a whole verdict.
tests/property/test_distributions.py compares each function with it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_NORMAL = NormalDist()
_PRECISE = 1e-15
_TINY = 1e-300
_EXACT_TOSSES = 1000  # counted in whole numbers up to here
_FAR = 100.0  # a threshold beyond it would take too fine a sum


def normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def normal_quantile(p: float) -> float:
    return _NORMAL.inv_cdf(p) if 0 < p < 1 else _end(p)


@lru_cache(maxsize=4096)
def heads_at_most(count: int, tosses: int) -> float:
    """How likely a fair coin shows at most `count` heads."""
    if not 0 <= count < tosses:
        return float(count >= 0)
    if tosses > _EXACT_TOSSES:
        return _fewer_heads(count, tosses) if 2 * count < tosses else 1 - _fewer_heads(tosses - count - 1, tosses)
    ways = outcomes = 1
    for heads in range(count):
        ways = ways * (tosses - heads) // (heads + 1)
        outcomes += ways
    return outcomes / (1 << tosses)


def _fewer_heads(count: int, tosses: int) -> float:
    """The same of less than half, where counting takes too long: the likeliest number of heads first."""
    ways = math.lgamma(tosses + 1) - math.lgamma(count + 1) - math.lgamma(tosses - count + 1)
    likely = whole = math.exp(ways - tosses * math.log(2))
    while likely > whole * _PRECISE:
        likely *= count / (tosses - count + 1)
        count -= 1
        whole += likely
    return whole


@lru_cache(maxsize=4096)
def t_cdf(freedom: float, x: float) -> float:
    if not freedom > 0 or math.isnan(x):
        return math.nan
    if math.isinf(freedom) or math.isinf(x):
        return normal_cdf(x)
    square = x * x
    tail = 0.5 * _incomplete_beta(freedom / 2, freedom / (freedom + square), square / (freedom + square))
    return tail if x < 0 else 1 - tail


@lru_cache(maxsize=4096)
def t_quantile(freedom: float, p: float) -> float:
    """Where the distribution function of t is `p`."""
    if not freedom > 0:
        return math.nan
    if not 0 < p < 1:
        return _end(p)
    if p > 0.5:
        return -t_quantile(freedom, 1 - p)
    if p == 0.5 or math.isinf(freedom):
        return normal_quantile(p)
    # Newton: below 0 the function is convex, and the log of a far tail over log(-x) concave, so that both steps arrive.
    x = 0.0 if p > 0.1 else normal_quantile(p)
    for _ in range(100):
        at, slope = t_cdf(freedom, x), _t_density(freedom, x)
        new = x - (at - p) / slope if p > 0.1 else x * math.exp(math.log(at / p) * at / (-x * slope))
        x, before = new, x
        if abs(x - before) <= 4 * _PRECISE * abs(x):
            break
    return x


@lru_cache(maxsize=4096)
def noncentrality(freedom: float, p: float, x: float) -> float:
    """Of the noncentral t distribution that has a share of `p` below `x`."""
    if not 0 < x < math.inf:
        return math.nan
    if x > _FAR:  # the share of x is a limit and a part that falls with the square of x
        half, whole = (noncentrality(freedom, p, each) / each for each in (_FAR / 2, _FAR))
        return x * (whole - (half - whole) / 3 * (1 - (_FAR / x) ** 2))
    weights = _chi_weights(freedom, x)
    low, high = 0.0, math.inf
    shift = x - normal_quantile(p)
    for _ in range(100):  # Newton, and half-way where that leaves what is known
        at = sum(weight * normal_cdf(x * chi - shift) for chi, weight in weights)
        slope = sum(weight * _NORMAL.pdf(x * chi - shift) for chi, weight in weights)
        low, high = (shift, high) if at > p else (low, shift)
        new = shift + (at - p) / slope if slope > 0 else math.inf
        shift, before = new if low <= new <= high and new < math.inf else (low + min(high, 2 * shift)) / 2, shift
        if abs(shift - before) <= 1e-13 * shift:
            break
    return shift


def _chi_weights(freedom: float, x: float) -> list[tuple[float, float]]:
    """Places and weights for a mean over chi / sqrt(freedom): equal steps of its log, over which sums converge fast."""
    low, high = -37 / freedom - 9 / math.sqrt(freedom), min(9 / math.sqrt(freedom), 2.3)
    steps = math.ceil((high - low) * 4 * (math.sqrt(freedom) + x))
    logs = [low + (high - low) * each / steps for each in range(steps + 1)]
    raw = [math.exp(freedom * (log - math.expm1(2 * log) / 2)) for log in logs]
    whole = math.fsum(raw)
    return [(math.exp(log), each / whole) for log, each in zip(logs, raw, strict=True)]


def _end(p: float) -> float:
    return math.nan if math.isnan(p) else math.copysign(math.inf, p - 0.5)


def _t_density(freedom: float, x: float) -> float:
    scale = _gamma_ratio(freedom / 2) / math.sqrt(freedom * math.pi)
    return scale * math.exp(-(freedom + 1) / 2 * math.log1p(x * x / freedom))


def _gamma_ratio(a: float) -> float:
    """gamma(a + 1/2) / gamma(a)."""
    if a < 100:
        return math.gamma(a + 0.5) / math.gamma(a)
    series = (1.0, -1 / 8, 1 / 128, 5 / 1024, -21 / 32768, -399 / 262144)
    return math.sqrt(a) * sum(each / a**power for power, each in enumerate(series))


def _incomplete_beta(a: float, x: float, rest: float) -> float:
    """The regularised incomplete beta function of `a`, 1/2 at x = 1 - rest."""
    if x <= 0 or rest <= 0:
        return float(x > 0)
    scale = _gamma_ratio(a) / math.sqrt(math.pi) * math.exp(a * math.log1p(-rest) if rest < 0.5 else a * math.log(x))
    scale *= math.sqrt(rest)
    if x < (a + 1) / (a + 2.5):
        return scale * _fraction(a, 0.5, x) / a
    return 1 - scale * _fraction(0.5, a, rest) / 0.5


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    product = d
    for m in range(1, 10_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _not_zero(1 + term * d)
            c = _not_zero(1 + term / c)
            product *= c * d
        if abs(c * d - 1) < _PRECISE:
            break
    return product


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
