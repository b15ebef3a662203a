"""The constants of the law from measured modes: Levenberg-Marquardt with a prior, many problems at once.

The noise of time and of power is not known: it is integrated out under a scaled inverse chi-squared prior, which makes
the likelihood a Student one. So no noise level must be given, and where modes scatter much, the prior counts for more:
four modes are enough. One scale is shared by all modes: a single wrong mode is not left out by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import numpy as np

from tare.analysis.choose.predict.law import Array, Law, Rows
from tare.analysis.distributions import normal_quantile, t_quantile

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
    evidence = -state.cost - 0.5 * np.linalg.slogdet(hessian)[1]
    weights = _start_weights(evidence.reshape(count, each))
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


def _start_weights(evidence: Array) -> Array:
    weights = np.exp(evidence - evidence.max(axis=1, keepdims=True))
    shares: Array = weights / weights.sum(axis=1, keepdims=True)
    return shares


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


LEVEL = 0.9  # an interval holds the mode's next measurement this often
FIGURES = ("time", "power", "energy")
_PRIORS = (NOISE_TIME, NOISE_POWER, float(np.hypot(NOISE_TIME, NOISE_POWER)))
_REACH = 1.0  # how far a deviation from the law reaches, in logarithms of a resource
_LOCAL_SHARE = 0.5  # of the scatter about the law: what is the mode's own and its neighbours', the rest is noise
# The law's own intervals hold 83 to 97 % of held-out modes of simulated and real networks, power least and energy most:
# these factors make it 90 % or more on average. Other workloads of the same source know better: linear.calibrate.
WIDER = np.array([1.1, 1.25, 1.0])
_AT_ONCE = 4096  # modes; more would not stay in the processor's cache
_NO_WEIGHT = 1e-3  # a start that is this improbable says nothing


@dataclass(frozen=True)
class Surface:
    """Logarithms of time, power and energy (figures, modes), or of time alone, and their standard deviations."""

    centre: Array
    deviation: Array
    freedom: float  # degrees of freedom of the deviations

    def reach(self, wider: Array = WIDER, level: float = LEVEL) -> Array:
        """How far from the centre, as a logarithm, a new measurement lies at the most with this probability."""
        quantile = t_quantile(self.freedom, 0.5 + level / 2)
        return np.asarray(quantile * self.deviation * wider[: len(self.deviation), None])

    def interval(self, wider: Array = WIDER) -> tuple[Array, Array]:
        """Between which logarithms a new measurement lies with the probability LEVEL."""
        reach = self.reach(wider)
        return self.centre - reach, self.centre + reach

    def expected_error(self, wider: Array = WIDER) -> Array:
        """The mean absolute error (figures) that such intervals promise, as a share: that of normal logarithms."""
        normal = normal_quantile(0.5 + LEVEL / 2)
        return np.asarray(np.sqrt(2 / np.pi) * (self.reach(wider) / normal).mean(axis=1))


def centre(fitted: Fit, modes: Array) -> Array:
    """Logarithms (problems, figures, modes) of the figures at these coordinates (problems, modes, features)."""
    law: Array = np.einsum("bs,bsin->bin", fitted.weights, _figures(fitted, fitted.constants, modes))
    return law + local_centre(fitted, modes)


def surface(fitted: Fit, modes: Array) -> Surface:
    """The same with deviations. The modes (modes, features) are for the one problem of this fit."""
    parts = [_piece(fitted, part[None]) for part in _pieces(modes)]
    centres, variances = (np.concatenate(each, axis=-1) for each in zip(*parts, strict=True))
    measured = fitted.modes.shape[1]
    return Surface(centres, np.sqrt(variances), PRIOR_WEIGHT + measured)


def joint_covariance(fitted: Fit, modes: Array) -> tuple[Array, Array]:
    """Covariances (figures, modes, modes) of the logarithms at modes (modes, features), and the noise of each."""
    weights, constants, covariance = _probable(fitted)
    here = modes[None]
    slopes = _slopes(fitted, constants, here)[0]  # (starts, figures, modes, constants)
    within = np.einsum("s,sinm->inm", weights, slopes @ covariance[:, None] @ np.swapaxes(slopes, -1, -2))
    centres = _figures(fitted, constants[None], here)[0]
    apart = centres - np.einsum("s,sin->in", weights, centres)
    within += np.einsum("s,sin,sim->inm", weights, apart, apart)
    scatter = _scatter(fitted)[0]
    near = _kernel(modes, modes)
    to_measured = _kernel(modes, fitted.modes[0])
    left = near - to_measured @ np.linalg.solve(_noisy_kernel(fitted.modes[0]), to_measured.T)
    noise: Array = scatter * (1 - _LOCAL_SHARE)
    return within + (scatter * _LOCAL_SHARE)[:, None, None] * left, noise


def _piece(fitted: Fit, modes: Array) -> tuple[Array, Array]:
    weights, constants, covariance = _probable(fitted)
    slopes = _slopes(fitted, constants, modes)[0]
    variance = np.einsum("s,sin->in", weights, ((slopes @ covariance[:, None]) * slopes).sum(axis=-1))
    centres = _figures(fitted, constants[None], modes)[0]
    mean = np.einsum("s,sin->in", weights, centres)
    variance += np.einsum("s,sin->in", weights, (centres - mean) ** 2)
    scatter = _scatter(fitted)[0]
    to_measured = _kernel(modes[0], fitted.modes[0])
    known = np.einsum("nk,nk->n", to_measured, np.linalg.solve(_noisy_kernel(fitted.modes[0]), to_measured.T).T)
    local = _LOCAL_SHARE * np.clip(1 - known, 0, None) + (1 - _LOCAL_SHARE)
    return mean + local_centre(fitted, modes)[0], variance + scatter[:, None] * local


def _pieces(modes: Array) -> Iterator[Array]:
    for first in range(0, len(modes), _AT_ONCE):
        yield modes[first : first + _AT_ONCE]


def _probable(fitted: Fit) -> tuple[Array, Array, Array]:
    """The starts of the only problem that are worth their time; several that ended at one place count as one."""
    weights, constants, covariance = fitted.weights[0], fitted.constants[0], fitted.covariance[0]
    kept: list[int] = []
    share = np.zeros(len(weights))
    for start in np.argsort(-weights, kind="stable"):
        twin = next((other for other in kept if np.allclose(constants[start], constants[other], atol=1e-2)), None)
        if twin is None and (not kept or weights[start] > _NO_WEIGHT):
            kept.append(int(start))
        share[start if twin is None else twin] += weights[start]
    total = share[kept] / share[kept].sum()
    return total, constants[kept], covariance[kept]


def _figures(fitted: Fit, constants: Array, modes: Array) -> Array:
    """Time, power, energy (problems, starts, figures, modes) by the law alone."""
    return with_energy(np.stack(fitted.law.log_figures(constants, modes[:, None]), axis=-2))


def with_energy(logs: Array) -> Array:
    """Energy after time and power (..., 2, n): as logarithms it is their sum. Time alone (..., 1, n) stays alone."""
    return logs if logs.shape[-2] == 1 else np.concatenate([logs, logs.sum(axis=-2, keepdims=True)], axis=-2)


def _slopes(fitted: Fit, constants: Array, modes: Array) -> Array:
    return jacobian(lambda moved: _figures(fitted, moved, modes), constants[None])


def _scatter(fitted: Fit) -> Array:
    """The variance (problems, figures) about the law of time, of power and of energy."""
    each = zip(np.moveaxis(with_energy(fitted.foreseen), 1, 0), _PRIORS, strict=False)  # time may be alone
    return np.stack([noise_variance(residuals, prior) for residuals, prior in each], axis=-1)


def local_centre(fitted: Fit, modes: Array) -> Array:
    """What the measured modes say against the law, carried to modes near them: a Gaussian process on the residuals."""
    answered = np.linalg.solve(_noisy_kernel(fitted.modes), np.swapaxes(fitted.residuals, 1, 2))
    return with_energy(np.swapaxes(_kernel(modes, fitted.modes) @ answered, 1, 2))


def _noisy_kernel(modes: Array) -> Array:
    return _kernel(modes, modes) + (1 - _LOCAL_SHARE) / _LOCAL_SHARE * np.eye(modes.shape[-2])


def _kernel(modes: Array, others: Array) -> Array:
    """Matern 3/2 between coordinates (..., n, f) and (..., m, f)."""
    apart = (modes[..., :, None, :] - others[..., None, :, :]) / _REACH
    distance = np.sqrt(3 * (apart**2).sum(axis=-1))
    kernel: Array = (1 + distance) * np.exp(-distance)
    return kernel
