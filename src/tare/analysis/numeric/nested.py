"""Components of variance of nested groups, balanced or not, by the method of moments.

The sums of squares of each level within the one above are set equal to what they are expected to be (the analysis
of variance, Henderson's first method). With n(g) samples in group g, the sum of squares of level j expects

    sum over levels i >= j of variance(i) * sum over groups g of i of n(g)^2 * (1/n(g's group at j) - 1/n(... at j-1))

which is solved from the lowest level upwards; a variance that comes out below zero is zero. Values are logs, so that
a deviation of 0.01 is about 1 %. Cells (configurations) are not compared: each has its own mean.

The uncertainty of a variance is estimated by generalised pivots (Weerahandi): each sum of squares is divided by draws
from the chi-squared distribution that it would follow. Resampled groups would show too little with few of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tare.analysis.numeric.medians import _SEED, Floats

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
