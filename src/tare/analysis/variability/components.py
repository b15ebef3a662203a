"""Components of variance of nested groups, balanced or not, by the method of moments.

The sums of squares of each level within the one above are set equal to what they are expected to be (the analysis
of variance, Henderson's first method). With n(g) samples in group g, the sum of squares of level j expects

    sum over levels i >= j of variance(i) * sum over groups g of i of n(g)^2 * (1/n(g's group at j) - 1/n(... at j-1))

which is solved from the lowest level upwards; a variance that comes out below zero is zero. Values are logs, so that
a deviation of 0.01 is about 1 %. Cells (configurations) are not compared: each has its own mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tare.analysis.ranks import Floats

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Nested:
    """Sums over each of the highest groups (units): drawing units again needs nothing but these."""

    cell_of: Ids  # unit -> cell
    sizes: Floats  # samples in each unit
    totals: Floats  # sum of the logs of each unit
    squares: Floats  # levels x units: sum of squares of the level below its parent; of the first, without the cell
    groups: Floats  # levels x units: groups in each unit
    coefficients: Floats  # levels x levels x units
    weights: Floats  # levels x units: sum of n(g)^2 over the level's groups

    @property
    def units(self) -> int:
        return len(self.sizes)


def nested(values: Floats, cells: Sequence[object], levels: Sequence[Sequence[object]]) -> Nested:
    """Sums for `values` in `cells`, within which `levels` (highest first) lie; a sample is the lowest level itself."""
    cell = _ids([cells])
    ids = [_ids([cells, *levels[: depth + 1]]) for depth in range(len(levels))] + [np.arange(len(values))]
    unit = ids[0]
    count = int(unit.max()) + 1
    sizes = [np.bincount(each).astype(np.float64) for each in ids]
    means = [np.bincount(each, values) / size for each, size in zip(ids, sizes, strict=True)]
    first = [_first(each) for each in ids]  # a sample of each group: through it, the group's parents
    depth = len(ids)
    squares, groups, weights = (np.zeros((depth, count)) for _ in range(3))
    coefficients = np.zeros((depth, depth, count))
    for i in range(depth):
        of_unit = unit[first[i]]
        groups[i] = np.bincount(of_unit, minlength=count)
        weights[i] = np.bincount(of_unit, sizes[i] ** 2, minlength=count)
        if i:
            parent = means[i - 1][ids[i - 1][first[i]]]
            squares[i] = np.bincount(of_unit, sizes[i] * (means[i] - parent) ** 2, minlength=count)
        for j in range(i + 1):
            share = 1 / sizes[j][ids[j][first[i]]]
            if j:
                share = share - 1 / sizes[j - 1][ids[j - 1][first[i]]]
            coefficients[j, i] = np.bincount(of_unit, sizes[i] ** 2 * share, minlength=count)
    totals = means[0] * sizes[0]
    return Nested(cell[_first(unit)], sizes[0], totals, squares, groups, coefficients, weights)


def variances(sums: Nested, draws: Floats) -> Floats:
    """Draws x levels: the variance of each level, when each unit counts as often as `draws` (draws x units) says.

    NaN where a draw leaves a level nothing to be told from.
    """
    square, expected, freedom = _expected(sums, draws)
    depth = square.shape[1]
    found = np.full((len(draws), depth), np.nan)
    for j in reversed(range(depth)):
        below = np.nansum(expected[:, j, j + 1 :] * found[:, j + 1 :], axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            estimate = (square[:, j] - below) / expected[:, j, j]
        found[:, j] = np.where(freedom[:, j] > 0, np.maximum(estimate, 0.0), np.nan)
    return found


def _expected(sums: Nested, draws: Floats) -> tuple[Floats, Floats, Floats]:
    """Sums of squares, their coefficients, and degrees of freedom, for each draw."""
    square = np.einsum("bu,ju->bj", draws, sums.squares)
    expected = np.einsum("bu,jiu->bji", draws, sums.coefficients)
    groups = np.einsum("bu,ju->bj", draws, sums.groups)
    freedom = np.diff(groups, axis=1, prepend=0.0)
    for cell in np.unique(sums.cell_of):
        mine = sums.cell_of == cell
        drawn, sizes, totals = draws[:, mine], sums.sizes[mine], sums.totals[mine]
        size = drawn @ sizes
        safe = np.where(size > 0, size, 1.0)
        mean = (drawn @ totals) / safe
        square[:, 0] += np.einsum("bu,bu->b", drawn, sizes * (totals / sizes - mean[:, None]) ** 2)
        expected[:, 0] -= np.einsum("bu,ju->bj", drawn, sums.weights[:, mine]) / safe[:, None]
        freedom[:, 0] -= size > 0
    return square, expected, freedom


def redrawn(sums: Nested, count: int, seed: int = 20_240_229) -> Floats:
    """How often each unit counts in each resample; as many are drawn in each cell as it has."""
    generator = np.random.default_rng(seed)
    draws = np.zeros((count, sums.units))
    for cell in np.unique(sums.cell_of):
        mine = np.flatnonzero(sums.cell_of == cell)
        draws[:, mine] = generator.multinomial(len(mine), np.full(len(mine), 1 / len(mine)), size=count)
    return draws


def _ids(labels: Sequence[Sequence[object]]) -> Ids:
    """A number for each combination of labels, in order of appearance."""
    known: dict[tuple[object, ...], int] = {}
    return np.array([known.setdefault(each, len(known)) for each in zip(*labels, strict=True)], dtype=np.int64)


def _first(ids: Ids) -> Ids:
    return np.unique(ids, return_index=True)[1].astype(np.int64)
