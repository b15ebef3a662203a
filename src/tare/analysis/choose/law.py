"""How time and power of a training step follow from its resources, and that law's constants from measured modes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tare.analysis.numeric.distributions import normal_quantile, t_quantile

# How time and power follow from the resources of a training step.
#
# A step has three stages that overlap: the device computes, the host launches, the loader's workers fetch. The step
# takes as long as the slowest, or a little longer where two are alike: a p-norm, whose p says how well they overlap (1:
# one after the other). Of the device's stage a part scales with 1/clock and a part does not; the loader's shrinks with
# cores; what runs on the host scales with its clock. Power is what the idle device draws, which grows with its clock,
# and more in the share of the step in which it computes. Energy is power times time. Where no power was measured the
# law is of time alone, without the constants of power.
#
# Constants are kept as logarithms (or slopes), each with a prior. The priors were set by hand from fits of six networks
# on one H200 (docs/how-to/predict-power-modes.md says what that means for the figures there); they are wide, so that a
# dozen modes overrule them.

Array = NDArray[np.float64]
Rows = NDArray[np.integer]  # which rows of an array
Role = Literal["device clock", "memory clock", "host clock", "parallelism", "other"]

_WORD = re.compile(r"[a-z]+")
_CLOCK_WORDS = frozenset({"hz", "khz", "mhz", "ghz", "clock", "clocks", "freq", "frequency"})
_PARALLEL_WORDS = frozenset({"core", "cores", "cpus", "vcpus", "threads", "workers"})
_CLOCK_ROLES: tuple[tuple[frozenset[str], Role], ...] = (
    (frozenset({"mem", "memory", "emc", "ram", "dram"}), "memory clock"),
    (frozenset({"cpu", "host"}), "host clock"),
)


@dataclass(frozen=True)
class Resource:
    """One feature: its role, and the values between which it was seen, by which it is scaled."""

    name: str
    role: Role
    low: float
    high: float

    def coordinate(self, values: Array) -> Array:
        """How scarce the resource is, as a logarithm: 0 at the highest clock, or on the fewest cores."""
        if self.role == "other":
            return 2 * (values - self.low) / (self.high - self.low) - 1
        return np.log((self.low if self.role == "parallelism" else self.high) / values)


def resources(names: Sequence[str], modes: Array) -> tuple[Resource, ...]:
    """The resources that these features are, scaled by the modes (rows) of the table."""
    found = []
    for name, values in zip(names, modes.T, strict=False):
        low, high = float(values.min()), float(values.max())
        role = _role(name) if low > 0 else "other"  # no workers at all is not a scarce worker
        found.append(Resource(name, role, low, high))
    return tuple(found)


def coordinates(known: Sequence[Resource], modes: Array) -> Array:
    """Modes (..., features) as the coordinates of a law, of the same shape."""
    return np.stack([resource.coordinate(modes[..., place]) for place, resource in enumerate(known)], axis=-1)


def _role(name: str) -> Role:
    words = set(_WORD.findall(name.lower()))
    if words & _CLOCK_WORDS:
        return next((role for owners, role in _CLOCK_ROLES if words & owners), "device clock")
    return "parallelism" if words & _PARALLEL_WORDS else "other"


@dataclass(frozen=True)
class Constant:
    """One constant of the law: what it is before anything is measured, and how far it may be from that."""

    name: str
    mean: float
    deviation: float


# Stages are relative to the workload's median time, powers to its median power.
_TIME = (
    Constant("device stage", -0.6, 0.6),
    Constant("launch stage", -0.5, 0.6),
    Constant("loader stage", 0.2, 0.8),
    Constant("overlap", 1.25, 0.45),
)
_POWER = (
    Constant("idle power", -0.6, 0.4),
    Constant("idle power by clock", -0.5, 0.7),
    Constant("busy power by clock", 0.3, 0.9),
    Constant("busy power", -1.3, 0.9),
    Constant("idle exponent", 1.4, 0.3),
    Constant("busy exponent", 0.25, 0.35),
)
_BY_ROLE: dict[Role, tuple[float, float]] = {
    "device clock": (-0.1, 0.9),  # the part that scales with 1/clock against the part that does not
    "memory clock": (-1.0, 1.0),
    "host clock": (0.5, 1.0),
    "parallelism": (0.1, 0.25),  # 0: twice the cores, half the loader's time
    "other": (0.0, 0.4),  # slope of log time over half the feature's span
}
_POWER_SLOPE = 0.08  # what a resource other than the device's clock may change about power, as a logarithm
_OVER_MEDIAN_TIME = (0, 1, 2)
_STAGES, _POWERS = len(_TIME), len(_POWER)

# Where fits start, in deviations of the three stages and of the overlap: each stage has its turn as the slowest.
_STARTS = (
    (0.0, 0.0, 0.0, 0.0),
    (0.5, -1.0, -1.5, 0.0),
    (-1.2, 0.0, 0.7, 0.0),
    (-1.0, 1.0, -1.0, 0.0),
    (0.3, -0.5, 0.5, 1.0),
    (-0.5, -1.0, 0.7, -1.0),
)


@dataclass(frozen=True)
class Law:
    """The law over these resources, with or without what other workloads have taught it."""

    resources: tuple[Resource, ...]
    taught: tuple[Constant, ...] | None = None
    powered: bool = True  # False: of time alone, since nothing tells the power

    @cached_property
    def constants(self) -> tuple[Constant, ...]:
        """Stages, then one for each resource, then power, then one for each resource that is not the device's clock."""
        if self.taught is not None:
            return self.taught
        by_resource = [Constant(f"time by {each.name}", *_BY_ROLE[each.role]) for each in self.resources]
        slopes = [Constant(f"power by {self.resources[place].name}", 0.0, _POWER_SLOPE) for place in self._others]
        return (*_TIME, *by_resource, *((*_POWER, *slopes) if self.powered else ()))

    @cached_property
    def deviations(self) -> Array:
        """How far each constant may be from its prior mean."""
        return np.array([each.deviation for each in self.constants])

    def means(self, logs: Array) -> Array:
        """The prior means (..., constants) of workloads of which these figures (..., figures, measured) are known."""
        typical = np.median(logs, axis=-1)
        shift = np.zeros((*typical.shape[:-1], len(self.constants)))
        shift[..., _OVER_MEDIAN_TIME] = typical[..., :1]
        shift[..., self._power_at : self._power_at + 1] = typical[..., 1:]  # nothing into nothing without power
        expected: Array = shift + np.array([each.mean for each in self.constants])
        return expected

    def starts(self, means: Array) -> Array:
        """Where the search starts (..., starts, constants)."""
        away = np.zeros((len(_STARTS), len(self.constants)))
        away[:, :_STAGES] = _STARTS
        return means[..., None, :] + away * self.deviations

    def log_figures(self, constants: Array, modes: Array, took: Array | None = None) -> list[Array]:
        """The logarithms of time and, where the law has it, of power; `took`: the time as measured, not by the law."""
        time, device = self.log_time(constants, modes)
        if not self.powered:
            return [time]
        return [time, self.log_power(constants, modes, busy_share(device, time if took is None else took))]

    def log_time(self, constants: Array, modes: Array) -> tuple[Array, Array]:
        """The logarithms of a step's time and of the device's stage, for constants (..., c) and modes (..., n, f)."""
        stage = [constants[..., place, None] for place in range(_STAGES)]
        weights = constants[..., _STAGES : self._power_at]
        common = self._slopes(weights, modes, self._at("other"))
        host = common + self._host(weights, modes)
        device = stage[0] + common + self._device(weights, modes)
        loader = stage[2] + host
        for place in self._at("parallelism"):
            loader = loader + np.exp(weights[..., place, None]) * modes[..., place]
        return _p_norm(np.exp(stage[3]), device, stage[1] + host, loader), device

    def log_power(self, constants: Array, modes: Array, busy: Array) -> Array:
        """The logarithm of power, where the device computes in this share of the time."""
        at = self._power_at
        base, idle, dynamic, steady, idle_exponent, busy_exponent = (
            constants[..., at + place, None] for place in range(_POWERS)
        )
        slowness = sum((modes[..., place] for place in self._at("device clock")), np.zeros(modes.shape[:-1]))
        at_rest = np.exp(idle - np.exp(idle_exponent) * slowness)
        at_work = np.exp(steady) + np.exp(dynamic - np.exp(busy_exponent) * slowness)
        slopes = constants[..., at + _POWERS :]
        drawn: Array = base + np.log1p(at_rest + busy * at_work)
        return drawn + self._slopes(slopes, modes, self._others, dense=True)

    @property
    def _power_at(self) -> int:
        return _STAGES + len(self.resources)

    @cached_property
    def _others(self) -> tuple[int, ...]:
        return tuple(place for place, each in enumerate(self.resources) if each.role != "device clock")

    def _at(self, *roles: Role) -> tuple[int, ...]:
        return tuple(place for place, each in enumerate(self.resources) if each.role in roles)

    def _device(self, weights: Array, modes: Array) -> Array:
        """The device's stage over what it is at the highest clocks."""
        parts, whole = np.ones(modes.shape[:-1]), np.ones((*weights.shape[:-1], 1))
        for place in self._at("device clock", "memory clock"):
            weight = np.exp(weights[..., place, None])
            parts, whole = parts + weight * np.exp(modes[..., place]), whole + weight
        scaled: Array = np.log(parts / whole)
        return scaled

    def _host(self, weights: Array, modes: Array) -> Array:
        """What runs on the host, over what it takes at the highest clock."""
        total = np.zeros(modes.shape[:-1])
        for place in self._at("host clock"):
            share = 1 / (1 + np.exp(-weights[..., place, None]))
            total = total + np.log1p(share * np.expm1(modes[..., place]))
        return total

    @staticmethod
    def _slopes(weights: Array, modes: Array, places: Sequence[int], *, dense: bool = False) -> Array:
        total = np.zeros(modes.shape[:-1])
        for order, place in enumerate(places):
            total = total + weights[..., order if dense else place, None] * modes[..., place]
        return total


def busy_share(log_device: Array, log_time: Array) -> Array:
    """The share of a step in which the device computes."""
    return np.exp(np.minimum(log_device - log_time, 0.0))


def _p_norm(p: Array, *logs: Array) -> Array:
    """The logarithm of the p-norm of numbers of which the logarithms are given."""
    top = np.maximum.reduce(np.broadcast_arrays(*logs))
    total: Array = top + np.log(sum(np.exp(p * (each - top)) for each in logs)) / p
    return total


# The constants of the law from measured modes: Levenberg-Marquardt with a prior, many problems at once.
#
# The noise of time and of power is not known: it is integrated out under a scaled inverse chi-squared prior, which
# makes the likelihood a Student one. So no noise level must be given, and where modes scatter much, the prior counts
# for more: four modes are enough. One scale is shared by all modes: a single wrong mode is not left out by itself.

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
