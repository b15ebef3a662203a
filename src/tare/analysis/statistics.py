"""Medians with their intervals, Holm's levels, and which trials stand out.

Exact rank statistics: how the counts behind two Hodges-Lehmann intervals are distributed when nothing differs.

Both intervals are read off a sorted list of pairwise values: the averages of every two block differences (paired),
or every difference between a trial of one side and one of the other (unpaired). Long lists are never written out.

Components of variance of nested groups, balanced or not, by the method of moments.

The sums of squares of each level within the one above are set equal to what they are expected to be (the analysis
of variance, Henderson's first method). With n(g) samples in group g, the sum of squares of level j expects

    sum over levels i >= j of variance(i) * sum over groups g of i of n(g)^2 * (1/n(g's group at j) - 1/n(... at j-1))

which is solved from the lowest level upwards; a variance that comes out below zero is zero. Values are logs, so that
a deviation of 0.01 is about 1 %. Cells (configurations) are not compared: each has its own mean.

How far a variance may be from that is told by generalised pivots (Weerahandi): each sum of squares is divided by draws
from the chi-squared distribution that it would follow. Groups drawn again would show too little with few of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from tare.analysis.model import Estimate

# Tails and quantiles of the normal, Student's t and the fair binomial distribution, one number at a time.
#
# scipy.special has all of these; it is as large as all else that tare needs together, and its import takes longer than
# a whole verdict (docs/explanation/costs.md). tests/property/test_distributions.py holds each function against it.

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


Floats: TypeAlias = NDArray[np.float64]

EXACT_BLOCKS = 200  # signed rank: beyond this the normal approximation is right to 4 digits
EXACT_PAIRS = 10_000  # Mann-Whitney: trials of one side times trials of the other
WRITTEN_OUT = 2_000_000  # pairwise values kept as an array; a longer list is searched without being made
BISECTIONS = 40
DIGITS = 12  # of a pairwise value: 0.1 * 3 and 0.3 must tie, and their logs differ by some 1e-16
_HALF = 0.5 * 10**-DIGITS


class Null(Protocol):
    """The distribution of a rank count when the two sides do not differ."""

    @property
    def word(self) -> str:
        """How the interval is named: exact or approximate."""
        ...

    def at_most(self, count: int) -> float: ...
    def critical(self, tail: float) -> int:
        """The largest count whose lower tail is at most `tail`; -1 where even 0 is too likely."""
        ...


@dataclass(frozen=True)
class ExactNull:
    """Every outcome counted."""

    cdf: Floats
    word: str = "exact"

    def at_most(self, count: int) -> float:
        return float(self.cdf[min(count, len(self.cdf) - 1)]) if count >= 0 else 0.0

    def critical(self, tail: float) -> int:
        return int(np.searchsorted(self.cdf, tail, side="right")) - 1


@dataclass(frozen=True)
class NormalNull:
    """The normal approximation, with continuity correction."""

    mean: float
    deviation: float
    word: str = "approximate"

    def at_most(self, count: int) -> float:
        return normal_cdf((count + 0.5 - self.mean) / self.deviation)

    def critical(self, tail: float) -> int:
        return max(-1, math.floor(self.mean - 0.5 + self.deviation * normal_quantile(tail)))


@lru_cache(maxsize=512)
def signed_rank_null(n: int) -> Null:
    """How the Wilcoxon signed-rank sum of `n` differences is distributed when they are symmetric about zero."""
    if n > EXACT_BLOCKS:
        return NormalNull(n * (n + 1) / 4, math.sqrt(n * (n + 1) * (2 * n + 1) / 24))
    share = np.zeros(n * (n + 1) // 2 + 1)
    share[0] = 1.0
    for rank in range(1, n + 1):  # each rank is in the sum or not, with even odds
        with_rank = share.copy()
        with_rank[rank:] += share[:-rank]
        share = with_rank / 2
    return ExactNull(np.cumsum(share))


@lru_cache(maxsize=512)
def mann_whitney_null(n: int, m: int) -> Null:
    """How many of the `n * m` pairs are in order when both sides come from one distribution."""
    if n * m > EXACT_PAIRS:
        return NormalNull(n * m / 2, math.sqrt(n * m * (n + m + 1) / 12))
    column = [np.ones(1) for _ in range(n + 1)]  # column[i]: shares of the counts for i trials against j
    for j in range(1, m + 1):
        previous, column = column, [np.ones(1)]
        for i in range(1, n + 1):  # the largest of the i + j values belongs to one side or the other
            share = np.zeros(i * j + 1)
            share[j:] += column[i - 1] * (i / (i + j))
            share[: len(previous[i])] += previous[i] * (j / (i + j))
            column.append(share)
    return ExactNull(np.cumsum(column[n]))


class PairValues(ABC):
    """A list of pairwise values in ascending order, each to 12 digits, asked for counts and for its k-th entry."""

    def __init__(self, size: int, write_out: Callable[[], Floats]) -> None:
        self.size = size
        self._sorted = np.sort(np.round(write_out(), DIGITS)) if size <= WRITTEN_OUT else None

    def at_most(self, bound: float) -> int:
        """How many values are `bound` or less."""
        if self._sorted is not None:
            return int(np.searchsorted(self._sorted, bound, side="right"))
        return self._count(bound + _HALF)

    def at_least(self, bound: float) -> int:
        """How many values are `bound` or more."""
        if self._sorted is not None:
            return self.size - int(np.searchsorted(self._sorted, bound, side="left"))
        return self.size - self._count(bound - _HALF)

    def kth(self, k: int) -> float:
        """The k-th smallest value, counted from 0."""
        if self._sorted is not None:
            return float(self._sorted[k])
        low, high = self._ends()
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (low, middle) if self._count(middle) > k else (middle, high)
        return round(self._snap(high), DIGITS)

    def median(self) -> float:
        return (self.kth((self.size - 1) // 2) + self.kth(self.size // 2)) / 2

    @abstractmethod
    def _count(self, bound: float) -> int: ...

    @abstractmethod
    def _ends(self) -> tuple[float, float]:
        """A value below all, or the least, and the greatest."""

    @abstractmethod
    def _snap(self, bound: float) -> float:
        """The greatest value that is at most `bound`: a bisection ends near an entry, and ties must stay ties."""


class WalshAverages(PairValues):
    """The average of every two differences, each with itself as well."""

    def __init__(self, differences: Floats) -> None:
        self._d = np.sort(differences)
        super().__init__(len(self._d) * (len(self._d) + 1) // 2, self._written_out)

    def _written_out(self) -> Floats:
        first, second = np.triu_indices(len(self._d))
        return np.asarray((self._d[first] + self._d[second]) / 2)

    def _partners(self, bound: float) -> NDArray[np.intp]:
        """For each difference, how many differences keep the average of the two at `bound` or below."""
        return np.searchsorted(self._d, 2 * bound - self._d, side="right")

    def _count(self, bound: float) -> int:
        return int(np.maximum(0, self._partners(bound) - np.arange(len(self._d))).sum())

    def _ends(self) -> tuple[float, float]:
        return float(self._d[0]), float(self._d[-1])

    def _snap(self, bound: float) -> float:
        partners = self._partners(bound)
        has = partners > 0
        return float(((self._d[has] + self._d[partners[has] - 1]) / 2).max())


class PairDifferences(PairValues):
    """Every value of one side less every value of the other."""

    def __init__(self, ours: Floats, theirs: Floats) -> None:
        self._ours, self._theirs = np.sort(ours), np.sort(theirs)
        super().__init__(len(ours) * len(theirs), self._written_out)

    def _written_out(self) -> Floats:
        return np.asarray(self._ours[:, None] - self._theirs[None, :]).ravel()

    def _partners(self, bound: float) -> NDArray[np.intp]:
        return np.searchsorted(self._ours, self._theirs + bound, side="right")

    def _count(self, bound: float) -> int:
        return int(self._partners(bound).sum())

    def _ends(self) -> tuple[float, float]:
        return float(self._ours[0] - self._theirs[-1]), float(self._ours[-1] - self._theirs[0])

    def _snap(self, bound: float) -> float:
        partners = self._partners(bound)
        has = partners > 0
        return float((self._ours[partners[has] - 1] - self._theirs[has]).max())


FLOOR = 6  # trials a side: the fewest whose extremes hold the median with 95 % confidence (validity.md)
ALPHA = 0.05
RESAMPLES = 9_999
OUTLIER_Z = 14.826  # ten robust standard deviations, in median absolute deviations (docs/explanation/validity.md)
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


Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Nested:
    """The analysis of variance, highest level first; the lowest level is the samples themselves."""

    squares: Floats  # sum of squares of each level within the one above
    expected: Floats  # levels x levels: what each variance (column) adds to each sum of squares (row)
    freedom: Ids  # degrees of freedom; 0 where a level cannot be told from the one above
    groups: Ids  # of each level

    @property
    def units(self) -> int:
        """The highest groups: how many there are says how sure all of it is."""
        return int(self.groups[0])


def nested(values: Floats, cells: Sequence[object], levels: Sequence[Sequence[object]]) -> Nested:
    """Sums for `values` in `cells`, within which `levels` (highest first) lie; a sample is the lowest level itself."""
    ids = [_ids([cells, *levels[:depth]]) for depth in range(len(levels) + 1)] + [np.arange(len(values))]
    sizes = [np.bincount(each).astype(np.float64) for each in ids]
    means = [np.bincount(each, values) / size for each, size in zip(ids, sizes, strict=True)]
    depth = len(ids) - 1
    squares, expected = np.zeros(depth), np.zeros((depth, depth))
    for i in range(depth):
        first = np.unique(ids[i + 1], return_index=True)[1]  # a sample of each group: through it, the group's parents
        size = sizes[i + 1]
        squares[i] = (size * (means[i + 1] - means[i][ids[i][first]]) ** 2).sum()
        for j in range(i + 1):
            share = 1 / sizes[j + 1][ids[j + 1][first]] - 1 / sizes[j][ids[j][first]]
            expected[j, i] = (size**2 * share).sum()
    groups = np.array([len(size) for size in sizes])
    return Nested(squares, expected, np.diff(groups), groups[1:])


def variances(sums: Nested) -> Floats:
    """The variance of each level; NaN where it cannot be told from the level above."""
    found: Floats = _solved(sums, sums.squares[None])[0]
    return found


def possible_variances(sums: Nested, count: int) -> Floats:
    """Draws x levels: what the variances may be, given sums of squares such as these."""
    generator = np.random.default_rng(_SEED)
    freedom = np.maximum(sums.freedom, 1)
    return _solved(sums, sums.squares * freedom / generator.chisquare(freedom, (count, len(freedom))))


def _solved(sums: Nested, squares: Floats) -> Floats:
    """From the lowest level upwards, for each row of sums of squares."""
    found = np.full(squares.shape, np.nan)
    for j in reversed(range(squares.shape[1])):
        if sums.freedom[j] > 0:
            below = np.nansum(sums.expected[j, j + 1 :] * found[:, j + 1 :], axis=1)
            found[:, j] = np.maximum((squares[:, j] - below) / sums.expected[j, j], 0.0)
    return found


def _ids(labels: Sequence[Sequence[object]]) -> Ids:
    """A number for each combination of labels, in order of appearance."""
    known: dict[tuple[object, ...], int] = {}
    return np.array([known.setdefault(each, len(known)) for each in zip(*labels, strict=True)], dtype=np.int64)
