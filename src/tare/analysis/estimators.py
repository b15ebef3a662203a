"""How far one side lies from the other, on the log scale: the estimate, its interval and the tests that match it.

An interval leaves out exactly those values that its own test rejects, so words and intervals cannot disagree.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from statistics import median
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tare.analysis import sentences
from tare.analysis.cells import together
from tare.analysis.model import Measurement
from tare.analysis.numeric.distributions import t_cdf, t_quantile
from tare.analysis.numeric.medians import Floats, floats, median_deviation, median_of, quantile_of
from tare.analysis.numeric.ranks import (
    DIGITS,
    Null,
    PairDifferences,
    PairValues,
    WalshAverages,
    mann_whitney_null,
    signed_rank_null,
)
from tare.base.errors import StudyError
from tare.base.rulings import Ruling
from tare.records.model import grouped


class Shift(ABC):
    """The difference of the logs of two sides."""

    centre: float
    method: str
    freedom: float  # of the t distribution that its standard error goes with
    ranks: ClassVar[bool]  # by ranks, with no assumption of normal noise
    for_unlike: bool = False  # meant for two samples that differ in size or spread

    @abstractmethod
    def interval(self, confidence: float) -> tuple[float, float]: ...

    @abstractmethod
    def p_above(self, bound: float) -> float:
        """One-sided: how surprising the data were if the true shift were `bound` or less."""

    @abstractmethod
    def p_below(self, bound: float) -> float:
        """One-sided: how surprising the data were if the true shift were `bound` or more."""

    @abstractmethod
    def attained(self, confidence: float) -> float:
        """The confidence that an interval asked for at `confidence` really has."""

    def can_reach(self, confidence: float) -> bool:
        """Whether an interval of this confidence exists at this number of trials."""
        return True

    def standard_error(self, confidence: float) -> float:
        """How far normal noise of this interval's width would scatter the centre; 0 where nothing varies."""
        low, high = self.interval(confidence)
        return (high - low) / 2 / -t_quantile(self.freedom, (1 - self.attained(confidence)) / 2)

    def p(self) -> float:
        """Two-sided, against no difference."""
        return min(1.0, 2 * min(self.p_above(0.0), self.p_below(0.0)))

    def p_equivalence(self, margin: float) -> float:
        """The larger of two one-sided tests, against an effect of -margin or less and of +margin or more."""
        low = round(math.log1p(-margin), DIGITS) if margin < 1 else -math.inf
        return max(self.p_above(low), self.p_below(round(math.log1p(margin), DIGITS)))


class RankShift(Shift):
    """Hodges-Lehmann estimate with the exact interval of its rank test."""

    ranks = True

    def __init__(self, values: PairValues, null: Null, freedom: float, method: str) -> None:
        self._values, self._null, self.freedom = values, null, freedom
        self.centre, self.method = values.median(), method

    def can_reach(self, confidence: float) -> bool:
        return self._null.critical((1 - confidence) / 2) >= 0

    def interval(self, confidence: float) -> tuple[float, float]:
        k = max(0, self._null.critical((1 - confidence) / 2))
        return self._values.kth(k), self._values.kth(self._values.size - 1 - k)

    def attained(self, confidence: float) -> float:
        return 1 - 2 * self._null.at_most(max(0, self._null.critical((1 - confidence) / 2)))

    @property
    def least_p(self) -> float:
        """The smallest one-sided p that so few trials can have."""
        return self._null.at_most(0)

    def p_above(self, bound: float) -> float:
        return self._null.at_most(self._values.at_most(bound))

    def p_below(self, bound: float) -> float:
        return self._null.at_most(self._values.at_least(bound))


@dataclass(frozen=True)
class StudentShift(Shift):
    """Difference of mean logs with a t interval: for the confidence that few ranks cannot reach."""

    ranks: ClassVar[bool] = False
    centre: float
    error: float  # standard error of the centre
    freedom: float
    method: str

    def interval(self, confidence: float) -> tuple[float, float]:
        reach = -t_quantile(self.freedom, (1 - confidence) / 2) * self.error
        return self.centre - reach, self.centre + reach

    def attained(self, confidence: float) -> float:
        return confidence

    def p_above(self, bound: float) -> float:
        if self.error == 0 or math.isinf(bound):
            return 0.0 if self.centre > bound else 1.0
        return t_cdf(self.freedom, (bound - self.centre) / self.error)

    def p_below(self, bound: float) -> float:
        return StudentShift(-self.centre, self.error, self.freedom, self.method).p_above(-bound)


@dataclass(frozen=True)
class WiderShift(Shift):
    """Ranks' estimate with the wider of two intervals: it leaves out only what both tests reject.

    For two samples so unlike that ranks alone would claim too much, and else for so few trials that ranks cannot reach
    the confidence: then it is the wider of the range of all ranks and t. The estimate stays the robust one: of six
    blocks, one that is ten times as slow moves a mean of logs by 47 %.
    """

    ranks: ClassVar[bool] = False
    centre: float
    freedom: float
    by_ranks: RankShift
    by_t: Shift
    method: str
    for_unlike: bool

    def interval(self, confidence: float) -> tuple[float, float]:
        (low, high), (other_low, other_high) = (each.interval(confidence) for each in (self.by_ranks, self.by_t))
        return min(low, other_low), max(high, other_high)

    def attained(self, confidence: float) -> float:
        return confidence

    def can_reach(self, confidence: float) -> bool:
        return not self.for_unlike or self.by_ranks.can_reach(confidence)

    def p_above(self, bound: float) -> float:
        return self._held(self.by_ranks.p_above(bound), self.by_t.p_above(bound))

    def p_below(self, bound: float) -> float:
        return self._held(self.by_ranks.p_below(bound), self.by_t.p_below(bound))

    def standard_error(self, confidence: float) -> float:
        """Of few that of t: their range says little of how they scatter."""
        return super().standard_error(confidence) if self.for_unlike else self.by_t.standard_error(confidence)

    def _held(self, by_ranks: float, by_t: float) -> float:
        """The larger; of few that of t where the bound is beyond the range of their ranks."""
        as_sure_as_few_can_be = not self.for_unlike and by_ranks <= self.by_ranks.least_p
        return by_t if as_sure_as_few_can_be else max(by_ranks, by_t)


def signed_rank(differences: Floats) -> RankShift:
    """Paired: the pseudo-median of the block differences."""
    n = len(differences)
    null = signed_rank_null(n)
    method = f"Hodges-Lehmann over blocks, {null.word} signed-rank interval"
    return RankShift(WalshAverages(differences), null, n - 1, method)


def mann_whitney(ours: Floats, theirs: Floats) -> RankShift:
    """Unpaired: the median of all pairwise differences."""
    null = mann_whitney_null(len(ours), len(theirs))
    method = f"Hodges-Lehmann of two samples, {null.word} Mann-Whitney interval"
    return RankShift(PairDifferences(ours, theirs), null, len(ours) + len(theirs) - 2, method)


def paired_t(differences: Floats) -> Shift:
    """Paired: the mean of the block differences."""
    error = _deviation(differences) / math.sqrt(len(differences))
    return StudentShift(_rounded_mean(differences), error, len(differences) - 1, "mean log-ratio of blocks, t interval")


def welch_t(ours: Floats, theirs: Floats) -> Shift:
    """Unpaired: the difference of the means, with unequal spreads allowed."""
    centre = round(_rounded_mean(ours) - _rounded_mean(theirs), DIGITS)
    parts = [_deviation(side) ** 2 / len(side) for side in (ours, theirs)]
    error = math.sqrt(sum(parts))
    spread = sum(part**2 / (len(side) - 1) for part, side in zip(parts, (ours, theirs), strict=True))
    freedom = sum(parts) ** 2 / spread if spread > 0 else float(len(ours) + len(theirs) - 2)
    return StudentShift(centre, error, freedom, "difference of mean logs, Welch t interval")


def wider(ours: Floats, theirs: Floats) -> Shift:
    """Unpaired: for sides so unlike that ranks alone would claim too much, and t alone would trust to normal noise."""
    method = "Hodges-Lehmann of two samples, the wider of the Mann-Whitney and the Welch t interval"
    return _wider_of(mann_whitney(ours, theirs), welch_t(ours, theirs), method, for_unlike=True)


def few_ranks(by_ranks: RankShift, by_t: Shift) -> Shift:
    method = f"{by_ranks.method.partition(',')[0]}, the wider of the range of ranks and the t interval"
    return _wider_of(by_ranks, by_t, method, for_unlike=False)


def _wider_of(by_ranks: RankShift, by_t: Shift, method: str, *, for_unlike: bool) -> Shift:
    return WiderShift(by_ranks.centre, by_t.freedom, by_ranks, by_t, method, for_unlike)


def paired_shift(differences: Floats, confidence: float) -> Shift:
    """Of block differences: by ranks, with t beside them where so few cannot reach the confidence."""
    by_ranks = signed_rank(differences)
    return by_ranks if by_ranks.can_reach(confidence) else few_ranks(by_ranks, paired_t(differences))


def _rounded_mean(values: Floats) -> float:
    return round(float(values.mean()), DIGITS)


def _deviation(values: Floats) -> float:
    """Exactly 0 where nothing varies by more than rounding."""
    return float(np.std(values, ddof=1)) if round(float(np.ptp(values)), DIGITS) > 0 else 0.0


UNLIKE_SPREADS = 2.0  # two samples whose spreads, or sizes, differ by this much: ranks alone would claim too much
UNLIKE_SIZES = 1.2
WIDEST_RATIO = 1e30  # between the least and the greatest value: beyond this no unit can be right


@dataclass(frozen=True)
class Sides:
    """Values of both sides; paired sides have one value a block, in the same order."""

    ours: Floats
    theirs: Floats
    paired: bool
    n: int  # blocks that hold both sides, or the smaller side
    notes: tuple[Ruling, ...] = ()

    @property
    def empty(self) -> bool:
        return len(self.ours) == 0 or len(self.theirs) == 0

    @cached_property
    def by_ranks(self) -> RankShift:
        ours, theirs = np.log(self.ours), np.log(self.theirs)
        return signed_rank(ours - theirs) if self.paired else mann_whitney(ours, theirs)

    def by_t(self) -> Shift:
        ours, theirs = np.log(self.ours), np.log(self.theirs)
        return paired_t(ours - theirs) if self.paired else welch_t(ours, theirs)

    def shift(self, confidence: float) -> Shift:
        """By ranks, with t beside them where the sides are unlike, or so few that ranks cannot reach."""
        if not self.by_ranks.can_reach(confidence):
            return few_ranks(self.by_ranks, self.by_t())
        return wider(np.log(self.ours), np.log(self.theirs)) if self.unlike else self.by_ranks

    @cached_property
    def unlike(self) -> bool:
        """Whether these are two samples that differ in spread or in size, which a rank test takes for a shift."""
        if self.paired:
            return False
        few, many = sorted((len(self.ours), len(self.theirs)))
        small, large = sorted(map(median_deviation, (np.log(self.ours), np.log(self.theirs))))
        return many >= UNLIKE_SIZES * few or round(large - UNLIKE_SPREADS * small, 9) > 0

    def deviation(self, standard_error: float) -> float:
        """Spread of block log-ratios, or of one side's log values, that a standard error of the shift speaks of."""
        if self.paired:
            return standard_error * math.sqrt(self.n)
        return standard_error / math.sqrt(1 / len(self.ours) + 1 / len(self.theirs))

    def without_far(self, times: float) -> tuple[Sides, int]:
        """The same without what is so many median deviations off the median, and how many are (of a side)."""

        def usual(logs: Floats) -> NDArray[np.bool_]:
            spread = median_deviation(logs)
            return np.asarray(np.abs(logs - median_of(logs)) <= (times * spread if spread > 0 else math.inf))

        ours, theirs = np.log(self.ours), np.log(self.theirs)
        left, right = (usual(ours - theirs),) * 2 if self.paired else (usual(ours), usual(theirs))
        kept = replace(self, ours=self.ours[left], theirs=self.theirs[right])
        kept = replace(kept, n=min(len(kept.ours), len(kept.theirs)))
        return kept, max(int(np.count_nonzero(~side)) for side in (left, right))

    @property
    def effective_n(self) -> int:
        """Trials a side of an even design that would say as much as this one."""
        if self.paired:
            return self.n
        return int(2 * len(self.ours) * len(self.theirs) / (len(self.ours) + len(self.theirs)))


def in_common(
    ours: Sequence[Measurement], theirs: Sequence[Measurement]
) -> tuple[list[Measurement], list[Measurement]]:
    """What a paired effect is made of: of both sides the trials of the blocks that hold both; else all there is."""
    left, right, _ = together(ours, theirs)
    both = {m.block for m in left} & {m.block for m in right}
    if None in {m.block for m in (*ours, *theirs)} or not both:
        return list(ours), list(theirs)
    return [m for m in left if m.block in both], [m for m in right if m.block in both]


def line_up(ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> Sides:
    """Pair by block where every trial has one; blocks that miss a side are left out and said so."""
    check_span([m.value for m in (*ours, *theirs)], " and ".join({repr(m.level): None for m in (*ours, *theirs)}))
    if not all(m.block is not None for m in (*ours, *theirs)):
        some = any(m.block is not None for m in (*ours, *theirs))
        return _two_samples(ours, theirs, (sentences.SOME_WITHOUT_BLOCK,) if some else ())
    ours, theirs, apart = together(ours, theirs)
    left, right = _by_block(ours), _by_block(theirs)
    both = [block for block in left if block in right]
    if not both and ours and theirs:
        samples = _two_samples(ours, theirs, (sentences.NO_COMMON_BLOCK,))
        return Sides(samples.ours, samples.theirs, paired=False, n=0, notes=samples.notes)
    return Sides(
        floats([median(left[block]) for block in both]),
        floats([median(right[block]) for block in both]),
        paired=True,
        n=len(both),
        notes=(
            *((apart,) if apart else ()),
            *_pairing_notes(left, right, both, _several_in_a_block(ours, theirs, both)),
        ),
    )


def _two_samples(ours: Sequence[Measurement], theirs: Sequence[Measurement], notes: tuple[Ruling, ...]) -> Sides:
    left, right = floats([m.value for m in ours]), floats([m.value for m in theirs])
    return Sides(left, right, paired=False, n=min(len(left), len(right)), notes=notes)


def _by_block(side: Iterable[Measurement]) -> dict[str, list[float]]:
    blocks = grouped(side, lambda measurement: str(measurement.block))
    return {block: [measurement.value for measurement in inside] for block, inside in blocks.items()}


def _several_in_a_block(ours: Sequence[Measurement], theirs: Sequence[Measurement], both: Sequence[str]) -> bool:
    """Whether a side has more than a trial and its A/A repeat in a block."""
    seen = [(side, str(m.block), m.twin) for side, found in ((0, ours), (1, theirs)) for m in found]
    paired = set(both)
    return any(count > 1 for (_, block, _), count in Counter(seen).items() if block in paired)


def _pairing_notes(
    left: Mapping[str, list[float]], right: Mapping[str, list[float]], both: Sequence[str], several: bool
) -> Iterable[Ruling]:
    missed = len(left.keys() | right.keys()) - len(both)
    if missed:
        yield sentences.blocks_left_out(missed)
    if several:
        yield sentences.SEVERAL_IN_A_BLOCK


def check_span(values: Sequence[float], where: str) -> None:
    """Refuse values so far apart that no ratio of them means anything (and that no float could hold)."""
    if values and math.log(max(values)) - math.log(min(values)) > math.log(WIDEST_RATIO):
        span = f"the values run from {min(values):.3g} to {max(values):.3g}"
        raise StudyError(f"{where}: {span}, too far apart for a ratio. Check their units.")


DRAWS = 200
_MOST_DRAWN = 2_000_000  # pairwise values of all draws together; beyond this normal noise is assumed
_WIDEN = 0.3  # n draws of n values vary less than the values do, by (n - 1) / n: this much of it is made up for
_SEED = 20_240_229


def resampled_shift(sides: Sides, alpha: float, power: float) -> float | None:
    """The smallest log shift that the rank test at `alpha` sees with this power, in noise such as these sides have.

    Blocks are drawn again about their own centre, each with either sign (shuffled blocks have no preferred one). A
    shift is seen where it exceeds the distance of the interval's lower end from zero, so that the shift which `power`
    of the draws see is that quantile of the distances. Noise of two states, which no standard deviation describes, is
    in it as it is: docs/decisions/0024. None where so many values would be drawn that normal noise must do.
    """
    ours, theirs = np.log(sides.ours), np.log(sides.theirs)
    if sides.paired:
        n = len(ours)
        k, size = signed_rank_null(n).critical(alpha / 2), n * (n + 1) // 2
        if k < 0 or size * DRAWS > _MOST_DRAWN:
            return None
        (draw,) = _draws(n)
        drawn = draw.of(ours - theirs - signed_rank(ours - theirs).centre)
        first, second = _pairs(n)
        values = (drawn[:, first] + drawn[:, second]) / 2
    else:
        k, size = mann_whitney_null(len(ours), len(theirs)).critical(alpha / 2), len(ours) * len(theirs)
        if k < 0 or size * DRAWS > _MOST_DRAWN:
            return None
        draws = _draws(len(ours), len(theirs))
        left, right = (draw.of(side - median_of(side)) for draw, side in zip(draws, (ours, theirs), strict=True))
        values = (left[:, :, None] - right[:, None, :]).reshape(DRAWS, size)
    values.partition(k, axis=1)
    return quantile_of(-np.round(values[:, k], DIGITS), power)


class _Draw(NamedTuple):
    """Which values are drawn, and by what each is multiplied: the same for every side of this size."""

    places: NDArray[np.int64]
    factors: Floats

    def of(self, residuals: Floats) -> Floats:
        return np.asarray(residuals[self.places] * self.factors)


@lru_cache(maxsize=32)
def _draws(*sizes: int) -> tuple[_Draw, ...]:
    """One for each side; all from the one seed."""
    generator = np.random.default_rng(_SEED)
    return tuple(
        _Draw(
            generator.integers(0, n, (DRAWS, n)),
            (n / (n - 1)) ** _WIDEN * generator.choice([-1.0, 1.0], (DRAWS, n)),
        )
        for n in sizes
    )


@lru_cache(maxsize=32)
def _pairs(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return np.triu_indices(n)
