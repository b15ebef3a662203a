"""What a back end of `power_mode` is: one kind of hardware whose clocks, cores or watts can be set.

A back end is one file in this folder with one object `BACKEND`. It turns a `PowerRequest` (from the study) into
`Settings` (a flat dict of names and texts, such as `{"gpu.locked_mhz": "990"}`), reads those settings, and writes them.
The control journals, reads back and restores; a back end holds no state of its own.

Rules that make a restore safe:
- A name is a name, never a path: `write` looks each one up among those that it knows, and refuses others.
- The names depend on the request and on the hardware that is present, not on what is switched on at the moment; what is
  switched off (the clock of an offline core) reads as `OFF`.
- What `read` returns is what the kernel or the driver said, unrounded: `write` must be able to put exactly that back.
- A limit is raised before its lower end and lowered after it: see `in_safe_order`.
- Commands have a deadline; a device that takes the write and ignores it is found by the control's read-back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeAlias

from tare.base.errors import ControlNotHeld, TareError
from tare.base.host import Host
from tare.base.rulings import Ruling

Settings: TypeAlias = dict[str, str]

OFF = "off"  # the value of a setting whose hardware is switched off: it cannot be read, and is not written
NO_LIMIT = math.inf  # for any number of a request: as the hardware is without limits (unlocked, its default power)
TOLERANCE = 0.015  # people write 1200 for 1190.4 MHz and 670 for 675.75: the nearest that is supported is meant


@dataclass(frozen=True, slots=True)
class PowerRequest:
    """What is asked for: upper limits, in the units of the study. None: left as it is."""

    mode: str | None = None  # a name or an id that the board itself knows: `MAXN`, `15W`, `2`
    cores: float | None = None  # so many are online, the first ones; NO_LIMIT: all
    online: tuple[int, ...] | None = None  # exactly these: a board's mode names its cores
    cpu_mhz: float | None = None
    gpu_mhz: float | None = None
    mem_mhz: float | None = None
    power_w: float | None = None  # what the GPU or the board may draw
    governor: str | None = None  # of the CPU's clock
    boost: bool | None = None  # CPU clocks above the nominal one

    def asked(self) -> frozenset[str]:
        """The names of what is asked for."""
        return frozenset(field.name for field in fields(self) if getattr(self, field.name) is not None)

    def only(self, aspects: Iterable[str]) -> PowerRequest:
        """The same without what is not among `aspects`."""
        return PowerRequest(**{name: getattr(self, name) for name in self.asked() & frozenset(aspects)})


class Backend(Protocol):
    """One kind of hardware. Nothing here may change the device but `write`.

    A request may hold more than a back end offers: each looks at its own fields, and those of CPU clocks also at which
    cores will be online. Where two offer the same field, the one of the lower rank gets it; a `mode` concerns all that
    offer it.
    """

    @property
    def name(self) -> str:
        """In front of each of its settings: with `gpu`, they are called `gpu.…`."""

    @property
    def rank(self) -> int:
        """Its place when settings are written (faults.md D4): mode 10, cores 20, board 30, cpufreq 40, GPU 60."""

    def offers(self, host: Host) -> frozenset[str]:
        """Which fields of a request it can set on this host; empty where there is no such hardware. Never raises."""

    def obstacles(self, host: Host, request: PowerRequest) -> list[Ruling]:
        """Why it cannot set this here (no such clock, needs root)."""

    def target(self, host: Host, request: PowerRequest) -> Settings:
        """The settings that meet the request, exactly as `read` will return them once they hold."""

    def read(self, host: Host, request: PowerRequest) -> Settings:
        """The same settings (the same names as in `target`) as they stand; raises OSError or TareError if it cannot."""

    def write(self, host: Host, settings: Mapping[str, str]) -> None:
        """Put these in force, in an order that is safe. What stands right already is not written again."""

    def values(self, host: Host) -> dict[str, Sequence[Any]]:
        """What each field of a request can be here, for `tare device modes`: `{"gpu_mhz": [345.0, …]}`, ascending.

        A list holds all values; a tuple of two numbers means any value from the one to the other.
        """

    def fixed(self, host: Host) -> Settings:
        """The settings that hold its clocks at their present upper limit (`dvfs: off`); empty: nothing to fix."""

    def free(self, host: Host) -> Settings:
        """The settings with the same names as in `fixed` that let clocks move below the limit (`dvfs: on`)."""

    def clocks(self, host: Host) -> Settings:
        """The settings with the same names as in `fixed`, as they stand."""


class WithoutClocks:
    """The part of a back end that has no clocks: nothing to fix, to free, or to show."""

    def fixed(self, host: Host) -> Settings:
        return {}

    def free(self, host: Host) -> Settings:
        return {}

    def clocks(self, host: Host) -> Settings:
        return {}


def nearest(asked: float, supported: Sequence[float]) -> float | None:
    """The supported value that was meant: the nearest, if it is near; for NO_LIMIT the highest; else None."""
    if not supported:
        return None
    if asked == NO_LIMIT:
        return max(supported)
    best = min(supported, key=lambda value: (abs(value - asked), value))
    return best if abs(best - asked) <= TOLERANCE * asked else None


def unsupported(field: str, asked: float, supported: Sequence[float], what: str) -> str:
    """The sentence for a value that the hardware does not have: with the two beside it, and where to see all."""
    below = max((value for value in supported if value < asked), default=None)
    above = min((value for value in supported if value > asked), default=None)
    beside = " and ".join(f"{value:g}" for value in (below, above) if value is not None)
    return f"`{field}: {asked:g}`: {what} has no such value; nearest are {beside}. `tare device modes` lists all."


def in_safe_order(now: tuple[float, float], wanted: tuple[float, float]) -> list[tuple[str, float]]:
    """What to write to go from one (lower, upper) pair of limits to another, so that lower <= upper at each moment."""
    (now_min, now_max), (new_min, new_max) = now, wanted
    lower = [("min", new_min)] if new_min != now_min else []
    upper = [("max", new_max)] if new_max != now_max else []
    return upper + lower if new_max >= now_max else lower + upper


def known(name: str, settings: Mapping[str, str], names: Iterable[str]) -> None:
    """Refuse settings that this back end would never have written: they come from a file."""
    allowed = frozenset(names)
    for key, value in settings.items():
        if key not in allowed or not isinstance(value, str):
            raise TareError(f"{name}: {key!r} = {value!r} is no setting of this device")


def every(steps: Iterable[Callable[[], None]]) -> None:
    """Do all of them, and only then raise the first failure: one setting that is stuck does not keep the others so."""
    failures: list[Exception] = []
    for step in steps:
        try:
            step()
        except (TareError, OSError) as error:
            failures.append(error)
    if failures:
        raise failures[0]


def put(host: Host, key: str, path: str, text: str) -> None:
    """Write one kernel file, as `echo` does; a refusal is said with the setting's name and the file."""
    try:
        host.write(path, f"{text}\n")
    except OSError as error:
        if isinstance(error, PermissionError):
            raise
        raise ControlNotHeld(key, asked=f"{text} in {path}", found=error.strerror or error) from error
