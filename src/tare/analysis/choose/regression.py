"""The method of the paper (S3 5.7): linear regression of time on the features, one energy model for all workloads.

Time: a x1 + b x2 + ... + e, fitted for each workload on its own measured modes. Energy: one linear model on the
features and the time, fitted over the measured modes of all workloads and fed with the predicted time. Solved by
singular values, the solution of least norm where the modes do not determine it (the paper has 5 unknowns on 4 modes).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tare.analysis.choose.law import Array, Rows
from tare.analysis.choose.modes import Workload

SOLVER = "least squares by singular values, least norm (numpy.linalg.pinv)"
PAPER_MODES = 4  # so many modes the paper measures: {e, f, i, j}
_MOST_SUBSETS = 100_000
_AT_ONCE = 8192


@dataclass(frozen=True)
class Regression:
    """Coefficients (..., unknowns), the last of them the constant, and how well the modes determine them."""

    coefficients: Array
    unknowns: int
    rank: Array
    condition: Array

    def at(self, inputs: Array) -> Array:
        """What it says of inputs (..., n, unknowns - 1)."""
        predicted: Array = (_with_one(inputs) @ self.coefficients[..., None])[..., 0]
        return predicted


def regress(inputs: Array, outputs: Array) -> Regression:
    """Fit inputs (..., n, features) to outputs (..., n)."""
    matrix = _with_one(inputs)
    coefficients = (np.linalg.pinv(matrix, rcond=_cutoff(matrix)) @ outputs[..., None])[..., 0]
    return Regression(coefficients, matrix.shape[-1], np.linalg.matrix_rank(matrix), np.linalg.cond(matrix))


def universal_energy(workloads: Sequence[Workload], chosen: Sequence[Rows]) -> Regression | None:
    """One energy model over the measured modes of all workloads: `chosen` (splits, k) of each. None without energy."""
    known = [
        (each.modes[rows], each.time[rows], each.energy[rows])
        for each, rows in zip(workloads, chosen, strict=True)
        if each.energy is not None
    ]
    if not known:
        return None
    inputs = [np.concatenate([modes, time[..., None]], axis=-1) for modes, time, _ in known]
    return regress(np.concatenate(inputs, axis=-2), np.concatenate([energy for _, _, energy in known], axis=-1))


def energy_at(model: Regression | None, modes: Array, time: Array) -> Array | None:
    """The universal model, fed with the features and the predicted time."""
    return None if model is None else model.at(np.concatenate([modes, time[..., None]], axis=-1))


def papers_choice(modes: Array, times: Sequence[Array], seed: int = 0) -> list[Rows]:
    """For each workload the four modes whose regressions have the least summed RMSE over the *other* workloads.

    The paper searches all subsets of its modes over all its workloads; where there are too many, a sample of them.
    """
    subsets = _subsets(len(modes), seed)
    errors = np.concatenate(
        [_errors_of_subsets(modes, times, subsets[at : at + _AT_ONCE]) for at in range(0, len(subsets), _AT_ONCE)]
    )
    total = errors.sum(axis=1)
    return [subsets[int(np.argmin(total - errors[:, place]))] for place in range(len(times))]


def _subsets(count: int, seed: int) -> Rows:
    if math.comb(count, PAPER_MODES) <= _MOST_SUBSETS:
        return np.array(list(itertools.combinations(range(count), PAPER_MODES)))
    draws = np.random.default_rng(seed).integers(0, count, (_MOST_SUBSETS // 4, PAPER_MODES))
    distinct = np.array([len(set(draw)) == PAPER_MODES for draw in draws.tolist()])
    return np.sort(draws[distinct], axis=1)


def _errors_of_subsets(modes: Array, times: Sequence[Array], subsets: Rows) -> Array:
    """The RMSE (subsets, workloads) over all modes."""
    matrix = _with_one(modes)
    chosen = matrix[subsets]
    solve = np.linalg.pinv(chosen, rcond=_cutoff(chosen))
    columns = []
    for time in times:
        predicted = (solve @ time[subsets][..., None])[..., 0] @ matrix.T
        columns.append(np.sqrt(((predicted - time) ** 2).mean(axis=1)))
    return np.stack(columns, axis=1)


def _with_one(inputs: Array) -> Array:
    return np.concatenate([inputs, np.ones((*inputs.shape[:-1], 1))], axis=-1)


def _cutoff(matrix: Array) -> float:
    return float(np.finfo(float).eps * max(matrix.shape[-2:]))  # as numpy.linalg.lstsq has it
