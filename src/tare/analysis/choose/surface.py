"""Time, power and energy of any mode by a fitted law, corrected by the measured modes near it, with intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tare.analysis.choose.fit import NOISE_POWER, NOISE_TIME, PRIOR_WEIGHT, Fit, jacobian, noise_variance
from tare.analysis.choose.law import Array
from tare.analysis.numeric.distributions import normal_quantile, t_quantile

LEVEL = 0.9  # an interval holds the mode's next measurement this often
FIGURES = ("time", "power", "energy")
_PRIORS = (NOISE_TIME, NOISE_POWER, float(np.hypot(NOISE_TIME, NOISE_POWER)))
_REACH = 1.0  # how far a deviation from the law reaches, in logarithms of a resource
_LOCAL_SHARE = 0.5  # of the scatter about the law: what is the mode's own and its neighbours', the rest is noise
# The law's own intervals hold 83 to 97 % of held-out modes of simulated and real networks, power least and energy most:
# these factors make it 90 % or more on average. Other workloads of the same source know better: learning.calibrate.
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
    parts = [_piece(fitted, modes[None, first : first + _AT_ONCE]) for first in range(0, len(modes), _AT_ONCE)]
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
