"""How time and power of a training step follow from its resources.

A step has three stages that overlap: the device computes, the host launches, the loader's workers fetch. The step
takes as long as the slowest, or a little longer where two are alike: a p-norm, whose p says how well they overlap (1:
one after the other). Of the device's stage a part scales with 1/clock and a part does not; the loader's shrinks with
cores; what runs on the host scales with its clock. Power is what the idle device draws, which grows with its clock,
and more in the share of the step in which it computes. Energy is power times time. Where no power was measured the
law is of time alone, without the constants of power.

Constants are kept as logarithms (or slopes), each with a prior. The priors were set by hand from fits of six networks
on one H200 (docs/how-to/choose.md says what that means for the figures there); they are wide, so that a
dozen modes overrule them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

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
