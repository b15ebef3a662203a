"""The device's fan: left to itself, or at a fixed speed, so that cooling is the same in every trial.

A fan has a speed file (0 to 255) and, mostly, one that says who sets it: the Jetson's pwm-fan of both kinds, and any
hwmon fan with a switch between hand and automatic. Found by the name in hwmon, never by number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tare.base.errors import TareError
from tare.base.host import Host, may_write
from tare.base.rulings import Ruling, obstacle
from tare.drivers.kernel_files import folders, sensors_by_word, temperatures_c, text_of, within
from tare.drivers.power.backend import put
from tare.parts.protocols import Control, Json

BY_ITSELF = "by itself"  # the speed of a fan that the device sets: whatever it is, it is not ours to put back
HOT_C = 75.0  # from here on the fan is put back before anything else
MOST = 255
_HWMON = "/sys/class/hwmon/hwmon{}"
_ANSWER_S = 3.0
_OLD = "/sys/devices/pwm-fan"  # L4T r32


@dataclass(frozen=True)
class Fan:
    """One fan: its files, what the second one says when we set the speed, and what to tell it for the device to.

    Some chips have several ways of their own (`5` is a curve): whatever is not by hand, is the device's affair.
    """

    name: str
    speed: str
    who: str | None
    by_itself: str
    by_hand: str


class FanSpeed(Control):
    """Sets the fan to a fixed share of its speed, or leaves it to the device."""

    short: ClassVar[str | None] = "speed"
    example: ClassVar[Mapping[str, Json]] = {"speed": "max"}
    restore_rank: ClassVar[int] = 90  # after the clocks, unless it is hot

    speed: Literal["auto", "max"] | Annotated[int, Field(ge=30, le=100)]
    """auto: as the device sees fit; max; or per cent, at least 30, so that no fan is left standing."""

    def knob(self) -> str:
        return "fan"

    def turns(self) -> frozenset[str]:
        return frozenset({"fan"})

    def urgent(self, host: Host) -> bool:
        return (hottest_c(host) or 0.0) >= HOT_C

    def obstacles(self, host: Host) -> list[Ruling]:
        there = list(fans(host))
        if not there:
            return [
                obstacle("needs.hardware", "this device has no fan that can be set (no pwm-fan, no pwm1 in hwmon).")
            ]
        if self.speed == "auto" and any(one.who is None for one in there):
            return [
                obstacle(
                    "needs.hardware", "this device's fan has no automatic mode of its own, so it cannot be left to one."
                )
            ]
        if not may_write(host, there[0].speed):
            return [obstacle("needs.root", "setting the fan needs root.")]
        return []

    def target(self, host: Host, inputs: Iterable[Path]) -> Json:
        """Under `auto` the speed is the device's own affair, and no part of the state."""
        made = {}
        for index, one in enumerate(fans(host)):
            if one.who is not None:
                made[f"fan{index}.who"] = one.by_itself if self.speed == "auto" else one.by_hand
            if self.speed != "auto":
                made[f"fan{index}.speed"] = str(MOST if self.speed == "max" else round(MOST * self.speed / 100))
        return made

    def read(self, host: Host) -> Json | None:
        made = {}
        for index, one in enumerate(fans(host)):
            if one.who is not None:
                made[f"fan{index}.who"] = host.read(one.who).strip()
            if self.speed != "auto":
                is_own_affair = made.get(f"fan{index}.who", one.by_hand) != one.by_hand
                made[f"fan{index}.speed"] = BY_ITSELF if is_own_affair else host.read(one.speed).strip()
        return made

    def detours(self, host: Host, state: Json) -> list[Json]:
        """A fan that was taken over, and not told its speed yet, runs as the device left it."""
        speeds = {f"fan{index}.speed": one.speed for index, one in enumerate(fans(host))}
        left = {name: host.read(path).strip() for name, path in speeds.items() if state.get(name) == BY_ITSELF}
        return [{**state, **left}] if left else []

    def write(self, host: Host, state: Json) -> None:
        """Speed and hand, or back to the device; only names and levels that a fan of this device has."""
        there = dict(enumerate(fans(host)))
        names = {f"fan{index}.{end}" for index in there for end in ("who", "speed")}
        if not isinstance(state, dict) or not state.keys() <= names or any(not _is_level(v) for v in state.values()):
            raise TareError(f"fan: {state!r} is no state of this device's fans")
        for index, one in there.items():
            _write(host, index, one, state)


def fans(host: Host) -> Iterator[Fan]:
    """The fans of this device."""
    if text_of(host, f"{_OLD}/target_pwm") is not None:
        yield Fan("pwm-fan", f"{_OLD}/target_pwm", f"{_OLD}/temp_control", by_itself="1", by_hand="0")
    for folder, chip in folders(host, _HWMON):
        if text_of(host, f"{folder}/pwm1") is None:
            continue
        switch = f"{folder}/pwm1_enable"
        has_switch = text_of(host, switch) is not None
        yield Fan(chip, f"{folder}/pwm1", switch if has_switch else None, by_itself="2", by_hand="1")


def hottest_c(host: Host) -> float | None:
    """The highest temperature that the probe `temperature` would tell; None where there is none, or no answer."""
    try:
        found = within(_ANSWER_S, lambda: temperatures_c(host, sensors_by_word(host)))
    except TimeoutError:
        return None
    return max(found.values(), default=None)


def _write(host: Host, index: int, one: Fan, state: Mapping[str, str]) -> None:
    who, speed = state.get(f"fan{index}.who"), state.get(f"fan{index}.speed", BY_ITSELF)
    if one.who is not None and who is not None and host.read(one.who).strip() != who:
        put(host, f"fan{index}.who", one.who, who)
    if speed != BY_ITSELF and host.read(one.speed).strip() != speed:
        put(host, f"fan{index}.speed", one.speed, speed)


def _is_level(value: object) -> bool:
    return isinstance(value, str) and (value == BY_ITSELF or (value.isdecimal() and int(value) <= MOST))
