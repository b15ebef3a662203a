"""The constants of the law from measured modes: Levenberg-Marquardt with a prior, many problems at once.

The noise of time and of power is not known: it is integrated out under a scaled inverse chi-squared prior, which
makes the likelihood a Student one. So no noise level must be given, and where modes scatter much, the prior counts
for more: four modes are enough. One scale is shared by all modes: a single wrong mode is not left out by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from tare.analysis.choose.law import Array, Law, Rows

NOISE_TIME, NOISE_POWER = 0.06, 0.04  # what modes measured for seconds on a shared host scatter by, as a logarithm
PRIOR_WEIGHT = 4.0  # how many modes the prior of the noise is worth
_STEPS = 40
_SMALL = 1e-4  # of the finite differences, in logarithms
_MOST_LEVERAGE = 0.8  # beyond this the linear step to "as if it had not been there" breaks down
_ENOUGH = 1e-4  # a gain in log probability that is none
_STUCK = 1e5  # damping at which no step is left

Residuals = Callable[[Array], Array]


@dataclass(frozen=True)
class Fit:
    """Problems x starts: constants, their covariance, the weight of each start, and what is left unexplained."""

    law: Law
    constants: Array  # (problems, starts, constants)
    covariance: Array  # (problems, starts, constants, constants)
    weights: Array  # (problems, starts); sums to 1
    residuals: Array  # (problems, figures, measured): measured less what the law says; time, then power if known
    foreseen: Array  # the same, had the mode not been fitted on (by its leverage): what the law is really off by
    modes: Array  # (problems, measured, features): the coordinates that it was fitted on


@dataclass(frozen=True)
class _Problems:
    """What was measured, one row for each problem and start, and what its constants are expected to be."""

    law: Law
    modes: Array  # (rows, measured, features)
    seen: Array  # (rows, figures x measured): log time, then log power if it is known
    means: Array  # (rows, constants)

    def residuals(self, constants: Array) -> Array:
        """What the law says less what was measured."""
        took = self.seen[:, : self.modes.shape[1]]  # busy is a share of the time that it took
        return np.concatenate(self.law.log_figures(constants, self.modes, took), axis=-1) - self.seen

    def take(self, rows: Rows) -> _Problems:
        return _Problems(self.law, self.modes[rows], self.seen[rows], self.means[rows])


@dataclass(frozen=True)
class _State:
    constants: Array
    residuals: Array
    variance: Array
    cost: Array


def fit(law: Law, modes: Array, logs: Array) -> Fit:
    """Fit each problem: modes (problems, measured, features), log figures (problems, figures, measured)."""
    means = law.means(logs)
    starts = law.starts(means)
    count, each = starts.shape[:2]
    rows = np.repeat(np.arange(count), each)
    problems = _Problems(law, modes, logs.reshape(count, -1), means).take(rows)
    state = _search(problems, starts.reshape(count * each, -1))
    by_constant = jacobian(problems.residuals, state.constants)
    hessian = _curvature(by_constant, state, law.deviations)
    covariance = np.linalg.inv(hessian).astype(float)
    evidence = (-state.cost - 0.5 * np.linalg.slogdet(hessian)[1]).reshape(count, each)
    weights = np.exp(evidence - evidence.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    leverage = ((by_constant @ covariance) * by_constant).sum(axis=-1) / state.variance
    foreseen = state.residuals / (1 - np.clip(leverage, 0.0, _MOST_LEVERAGE))
    left, left_out = (
        -np.einsum("bs,bsn->bn", weights, part.reshape(count, each, -1)).reshape(logs.shape)
        for part in (state.residuals, foreseen)
    )
    shape = (count, each, len(law.constants))
    constants = state.constants.reshape(shape)
    return Fit(law, constants, covariance.reshape((*shape, shape[-1])), weights, left, left_out, modes)


def noise_variance(residuals: Array, prior: float) -> Array:
    """The variance (...) of residuals (..., n), drawn towards what the prior says."""
    count = residuals.shape[-1]
    variance: Array = (PRIOR_WEIGHT * prior**2 + (residuals**2).sum(axis=-1)) / (PRIOR_WEIGHT + count)
    return variance


def jacobian(of: Residuals, constants: Array) -> Array:
    """Derivatives (..., n, constants) of `of` by each constant, in one call."""
    count = constants.shape[-1]
    moves = np.vstack([np.zeros(count), _SMALL * np.eye(count)]).reshape(-1, *(1,) * (constants.ndim - 1), count)
    values = of(constants + moves)
    return np.moveaxis((values[1:] - values[0]) / _SMALL, 0, -1)


def _search(problems: _Problems, starts: Array) -> _State:
    """The most probable constants from each start; rows that have arrived are not worked on any more."""
    state = _state(problems, starts)
    damping = np.ones(len(starts))
    going = np.arange(len(starts))
    for _ in range(_STEPS):
        part = problems.take(going)
        old = _State(*(getattr(state, field)[going] for field in _STATE_FIELDS))
        new = _state(part, old.constants - _step(part, old, damping[going]))
        gain = old.cost - new.cost
        better = gain > 0
        for field in _STATE_FIELDS:
            getattr(state, field)[going[better]] = getattr(new, field)[better]
        damping[going] = np.maximum(np.where(better, damping[going] * 0.3, damping[going] * 4), 1e-6)
        going = going[~((better & (gain < _ENOUGH)) | (damping[going] > _STUCK))]
        if not len(going):
            break
    return state


def _step(problems: _Problems, state: _State, damping: Array) -> Array:
    """The damped Gauss-Newton step, at most two deviations of each constant."""
    deviations = problems.law.deviations
    by_constant = jacobian(problems.residuals, state.constants)
    gradient = np.einsum("bnp,bn->bp", by_constant, state.residuals / state.variance)
    gradient += (state.constants - problems.means) / deviations**2
    damped = _curvature(by_constant, state, deviations) + damping[:, None, None] * np.diag(deviations**-2)
    step: Array = np.linalg.solve(damped, gradient[..., None])[..., 0]
    return np.clip(step, -2 * deviations, 2 * deviations)


def _state(problems: _Problems, constants: Array) -> _State:
    residuals = problems.residuals(constants)
    count = problems.modes.shape[1]
    cost = 0.5 * (((constants - problems.means) / problems.law.deviations) ** 2).sum(axis=-1)
    variances = []
    blocks = np.split(residuals, residuals.shape[-1] // count, axis=-1)
    for block, prior in zip(blocks, (NOISE_TIME, NOISE_POWER), strict=False):  # of time, and of power if it is known
        variance = noise_variance(block, prior)
        cost = cost + 0.5 * (PRIOR_WEIGHT + count) * np.log(variance)
        variances.append(np.repeat(variance[..., None], count, axis=-1))
    return _State(constants, residuals, np.concatenate(variances, axis=-1), cost)


def _curvature(by_constant: Array, state: _State, deviations: Array) -> Array:
    """The second derivatives of the log probability (Gauss-Newton)."""
    likelihood: Array = np.swapaxes(by_constant, -1, -2) @ (by_constant / state.variance[..., None])
    return likelihood + np.diag(deviations**-2)


_STATE_FIELDS = tuple(field.name for field in fields(_State))
