"""What is found about the devices of a fleet. Effects and deviations are shares; a missing figure is None."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tare.analysis.model import Estimate, Word


@dataclass(frozen=True, slots=True)
class DeviceEffect:
    """What a level costs on one device."""

    device: str
    type: str
    effect: Estimate  # its n is the number of blocks


@dataclass(frozen=True, slots=True)
class Population:
    """The same over devices: each of them is one of the sample."""

    of: str  # the type, or "" for all devices
    mean: Estimate  # its n is the number of devices
    tau: Estimate  # between-device standard deviation of the effect
    next_low: float  # where the effect on one more device lies, with 95 % confidence
    next_high: float
    verdict: Word


@dataclass(frozen=True, slots=True)
class Effect:
    """One level against another, on each device and over them."""

    level: str
    against: str
    where: str  # what else is the same; "" where nothing else varies
    devices: tuple[DeviceEffect, ...]
    populations: tuple[Population, ...]  # none with fewer than three devices


@dataclass(frozen=True, slots=True)
class Component:
    """How much one kind of thing varies within the kind above it."""

    level: str  # "between devices of a type"
    deviation: Estimate  # coefficient of variation; its n is the number of groups
    share: Estimate  # of the whole variance


@dataclass(frozen=True, slots=True)
class Spread:
    """Where the scatter of one configuration comes from, highest level first."""

    where: str
    trials: int
    components: tuple[Component, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that a device does not share with its twins."""

    what: str  # "kernel"
    here: str
    twins: str

    def text(self) -> str:
        return f"{self.what} {self.here} (the others: {self.twins})"


@dataclass(frozen=True, slots=True)
class Standing:
    """One device among identical devices, those of its type."""

    device: str
    type: str
    trials: int
    deviation: float | None  # from the mean of its twins; None where it has none
    low: float | None
    high: float | None
    random_effect: float | None  # what of that is the device's own and not noise: drawn to the mean of its type
    p: float | None = None  # for those that lie farthest out: corrected for their twins
    unlike: bool = False


@dataclass(frozen=True, slots=True)
class Odd:
    """A device that is an outlier among identical devices, in what, and what might be why."""

    device: str
    type: str
    twins: int
    what: str  # "" for the figure itself, else the effect: "docker against bare"
    deviation: float  # from identical devices, as a share; of an effect, the difference
    p: float
    candidates: tuple[Candidate, ...]
    sentence: str
    effect: tuple[str, str] | None = None  # level and against, where it is an effect


@dataclass(frozen=True, slots=True)
class Quantity:
    """Everything about one figure."""

    metric: str
    effects: tuple[Effect, ...]
    spreads: tuple[Spread, ...]
    standings: tuple[Standing, ...]
    odd: tuple[Odd, ...] = ()
    could_see: dict[str, float] = field(default_factory=dict)  # type -> the distance at which a device stands out
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fleet:
    """What a store says about its devices."""

    study: str
    types: dict[str, tuple[str, ...]]  # type -> its devices
    margin: float
    by: str | None  # the factor whose effect is told
    quantities: tuple[Quantity, ...]
    notes: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(device for devices in self.types.values() for device in devices)

    def as_json(self) -> dict[str, Any]:
        return {"devices": list(self.devices), **asdict(self)}
