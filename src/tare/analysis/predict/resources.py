"""What a feature is, told by its name; and modes as numbers that a law can use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
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
    return tuple(_resource(name, modes[:, place]) for place, name in enumerate(names))


def coordinates(known: Sequence[Resource], modes: Array) -> Array:
    """Modes (..., features) as the coordinates of a law, of the same shape."""
    return np.stack([resource.coordinate(modes[..., place]) for place, resource in enumerate(known)], axis=-1)


def _resource(name: str, values: Array) -> Resource:
    low, high = float(values.min()), float(values.max())
    role = _role(name)
    return Resource(name, role if low > 0 else "other", low, high)  # no workers at all is not a scarce worker


def _role(name: str) -> Role:
    words = set(_WORD.findall(name.lower()))
    if words & _CLOCK_WORDS:
        return next((role for owners, role in _CLOCK_ROLES if words & owners), "device clock")
    return "parallelism" if words & _PARALLEL_WORDS else "other"
