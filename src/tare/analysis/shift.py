"""How far one side lies from the other, on the log scale: the estimate, its interval and the tests that match it.

An interval leaves out exactly those values that its own test rejects, so words and intervals cannot disagree.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import special

from tare.analysis.ranks import (
    DIGITS,
    Floats,
    Null,
    PairDifferences,
    PairValues,
    WalshAverages,
    mann_whitney_null,
    signed_rank_null,
)


class Shift(ABC):
    """The difference of the logs of two sides."""

    centre: float
    method: str
    freedom: float  # of the t distribution that its standard error goes with
    ranks: ClassVar[bool]  # by ranks, with no assumption of normal noise
    for_unlike: ClassVar[bool] = False  # meant for two samples that differ in size or spread

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
        return (high - low) / 2 / -float(special.stdtrit(self.freedom, (1 - self.attained(confidence)) / 2))

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
        reach = -float(special.stdtrit(self.freedom, (1 - confidence) / 2)) * self.error
        return self.centre - reach, self.centre + reach

    def attained(self, confidence: float) -> float:
        return confidence

    def p_above(self, bound: float) -> float:
        if self.error == 0 or math.isinf(bound):
            return 0.0 if self.centre > bound else 1.0
        return float(special.stdtr(self.freedom, (bound - self.centre) / self.error))

    def p_below(self, bound: float) -> float:
        return StudentShift(-self.centre, self.error, self.freedom, self.method).p_above(-bound)


@dataclass(frozen=True)
class WiderShift(Shift):
    """Ranks' estimate with the wider of two intervals: it leaves out only what both tests reject."""

    ranks: ClassVar[bool] = False
    for_unlike: ClassVar[bool] = True
    centre: float
    freedom: float
    by_ranks: Shift
    by_t: Shift
    method: str

    def interval(self, confidence: float) -> tuple[float, float]:
        (low, high), (other_low, other_high) = (each.interval(confidence) for each in (self.by_ranks, self.by_t))
        return min(low, other_low), max(high, other_high)

    def attained(self, confidence: float) -> float:
        return confidence

    def can_reach(self, confidence: float) -> bool:
        return self.by_ranks.can_reach(confidence)

    def p_above(self, bound: float) -> float:
        return max(self.by_ranks.p_above(bound), self.by_t.p_above(bound))

    def p_below(self, bound: float) -> float:
        return max(self.by_ranks.p_below(bound), self.by_t.p_below(bound))


def signed_rank(differences: Floats) -> Shift:
    """Paired: the pseudo-median of the block differences."""
    n = len(differences)
    null = signed_rank_null(n)
    method = f"Hodges-Lehmann over blocks, {null.word} signed-rank interval"
    return RankShift(WalshAverages(differences), null, n - 1, method)


def mann_whitney(ours: Floats, theirs: Floats) -> Shift:
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
    by_ranks, by_t = mann_whitney(ours, theirs), welch_t(ours, theirs)
    return WiderShift(by_ranks.centre, by_t.freedom, by_ranks, by_t, method)


def _rounded_mean(values: Floats) -> float:
    return round(float(values.mean()), DIGITS)


def _deviation(values: Floats) -> float:
    """Exactly 0 where nothing varies by more than rounding."""
    return float(np.std(values, ddof=1)) if round(float(np.ptp(values)), DIGITS) > 0 else 0.0
