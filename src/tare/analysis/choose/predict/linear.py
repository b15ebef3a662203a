"""The method of the paper (S3 5.7): linear regression of time on the features, one energy model for all workloads.

Time: a x1 + b x2 + ... + e, fitted for each workload on its own measured modes. Energy: one linear model on the
features and the time, fitted over the measured modes of all workloads and fed with the predicted time. Solved by
singular values, the solution of least norm where the modes do not determine it (the paper has 5 unknowns on 4 modes).
`linear-own` is kinder: the energy of each workload has a regression of its own on the features.

What workloads that were measured before on the same device say about the next one.

Two things carry over: where the constants of the law lie on this device (the prior moves there and narrows), and where
the device itself departs from the law (a clock at which every workload draws more than it should).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tare.analysis.choose.predict.fit import Fit, Surface, fit, local_centre, surface, with_energy
from tare.analysis.choose.predict.law import Array, Constant, Law, Rows
from tare.analysis.choose.predict.modes import Workload

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
        [_errors(modes, times, subsets[at : at + _AT_ONCE]) for at in range(0, len(subsets), _AT_ONCE)]
    )
    total = errors.sum(axis=1)
    return [subsets[int(np.argmin(total - errors[:, place]))] for place in range(len(times))]


def _subsets(count: int, seed: int) -> Rows:
    if math.comb(count, PAPER_MODES) <= _MOST_SUBSETS:
        return np.array(list(itertools.combinations(range(count), PAPER_MODES)))
    draws = np.random.default_rng(seed).integers(0, count, (_MOST_SUBSETS // 4, PAPER_MODES))
    distinct = np.array([len(set(draw)) == PAPER_MODES for draw in draws.tolist()])
    return np.sort(draws[distinct], axis=1)


def _errors(modes: Array, times: Sequence[Array], subsets: Rows) -> Array:
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


FEWEST_MODES = 12  # a workload with fewer has too little to teach
_PRIOR_WORKLOADS = 1.0  # how many workloads the prior of the law is worth
_FLOOR = 0.3  # of the deviation before: another workload may always be unlike those known
_SPLITS = 6
_HELD_OUT = 60
_HELD_LEVEL = 0.91  # of what was held out, for 0.9 of what is to come: a few workloads do not tell all


@dataclass(frozen=True)
class Lesson:
    """The law as others have taught it, and the fits by which they did."""

    law: Law
    fits: tuple[Fit, ...]

    def departure(self, modes: Array) -> Array:
        """By how much the device departs from the law at these coordinates (modes, features): (figures, modes)."""
        each = [local_centre(fitted, modes[None])[0] for fitted in self.fits]
        total: Array = np.sum(each, axis=0) / (len(each) + 1)
        return total


def lesson(law: Law, others: Sequence[tuple[Array, Array]], fits: Sequence[Fit] | None = None) -> Lesson:
    """What other workloads teach; of each its coordinates (modes, features) and its log figures (figures, modes)."""
    fits = tuple(_fitted(law, each) for each in others) if fits is None else tuple(fits)
    seen = np.stack(
        [
            np.einsum("s,sc->c", fitted.weights[0], fitted.constants[0]) - law.means(logs)
            for fitted, (_, logs) in zip(fits, others, strict=True)
        ]
    )
    return Lesson(replace(law, taught=tuple(_taught(law, seen))), fits)


def predicted(law: Law, taught: Lesson | None, known: tuple[Array, Array], there: Array) -> tuple[Fit, Surface]:
    """The fit of one workload, of which coordinates and log figures are known, and what it says of other modes."""
    modes, logs = known
    off, off_there = (taught.departure(each) if taught else np.zeros((1, len(each))) for each in (modes, there))
    fitted = fit(taught.law if taught else law, modes[None], (logs - off[: len(logs)])[None])
    found = surface(fitted, there)
    return fitted, replace(found, centre=found.centre + off_there)


@dataclass(frozen=True)
class Calibration:
    """What happened to workloads that were held out: by what intervals must be wider, and the error, of each figure."""

    wider: Array
    errors: Array  # mean absolute error as a share: the median over workloads


def calibrate(law: Law, others: Sequence[tuple[Array, Array]], k: int) -> Calibration:
    """Each of the others as if `k` random modes of it were known and the rest of them had taught."""
    fits = [_fitted(law, each) for each in others]
    off, errors = [], []
    for place, (modes, logs) in enumerate(others):
        rest = [*range(place), *range(place + 1, len(others))]
        taught = lesson(law, [others[each] for each in rest], [fits[each] for each in rest]) if rest else None
        shares = []
        for split in range(_SPLITS):
            order = np.random.default_rng([split, len(modes)]).permutation(len(modes))
            count = min(k, len(modes) - FEWEST_MODES // 3)
            known, held = order[:count], order[count : count + _HELD_OUT]
            _, found = predicted(law, taught, (modes[known], logs[:, known]), modes[held])
            apart = with_energy(logs[:, held]) - found.centre
            shares.append(np.abs(np.expm1(-apart)).mean(axis=1))
            off.append(np.abs(apart) / found.reach(np.ones(len(apart))))
        errors.append(np.mean(shares, axis=0))
    beyond = np.quantile(np.concatenate(off, axis=1), _HELD_LEVEL, axis=1)
    return Calibration(np.asarray(beyond), np.median(errors, axis=0))


def _fitted(law: Law, known: tuple[Array, Array]) -> Fit:
    modes, logs = known
    return fit(law, modes[None], logs[None])


def _taught(law: Law, seen: Array) -> list[Constant]:
    """Each constant with the mean and the spread over workloads, of which the prior is a few."""
    weight = _PRIOR_WORKLOADS + len(seen)
    constants = []
    for place, before in enumerate(law.constants):
        moved = float(seen[:, place].sum() / weight)
        variance = (_PRIOR_WORKLOADS * before.deviation**2 + ((seen[:, place] - moved) ** 2).sum()) / weight
        deviation = max(float(np.sqrt(variance)), _FLOOR * before.deviation)
        constants.append(Constant(before.name, before.mean + moved, deviation))
    return constants
