"""Exact rank statistics: how the counts behind two Hodges-Lehmann intervals are distributed when nothing differs.

Both intervals are read off a sorted list of pairwise values: the averages of every two block differences (paired),
or every difference between a trial of one side and one of the other (unpaired). Long lists are never written out.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tare.analysis.numeric.distributions import normal_cdf, normal_quantile
from tare.analysis.numeric.medians import Floats

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
