"""Fans that can be set: the Jetson's pwm-fan of both kinds, and any hwmon fan with a switch between hand and automatic.

A fan has a speed file (0 to 255) and, mostly, one that says who sets it. Found by the name in hwmon, never by number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tare.host import Host

MOST = 255
_MOST_CHIPS = 32
_OLD = "/sys/devices/pwm-fan"  # L4T r32


@dataclass(frozen=True)
class Fan:
    """One fan: its files, and what the second one says when the device sets the speed itself."""

    name: str
    speed: str
    who: str | None
    by_itself: str
    by_hand: str


def fans(host: Host) -> Iterator[Fan]:
    """The fans of this device."""
    if _read(host, f"{_OLD}/target_pwm") is not None:
        yield Fan("pwm-fan", f"{_OLD}/target_pwm", f"{_OLD}/temp_control", by_itself="1", by_hand="0")
    for number in range(_MOST_CHIPS):
        folder = f"/sys/class/hwmon/hwmon{number}"
        chip = _read(host, f"{folder}/name")
        if chip is None or _read(host, f"{folder}/pwm1") is None:
            continue
        switch = f"{folder}/pwm1_enable"
        has_switch = _read(host, switch) is not None
        yield Fan(chip, f"{folder}/pwm1", switch if has_switch else None, by_itself="2", by_hand="1")


def hottest_c(host: Host) -> float | None:
    """The highest temperature that a thermal zone says; None where there is none."""
    found = []
    for number in range(_MOST_CHIPS):
        text = _read(host, f"/sys/class/thermal/thermal_zone{number}/temp")
        if text is not None and text.removeprefix("-").isdecimal():
            found.append(int(text) / 1000)
    return max(found, default=None)


def _read(host: Host, path: str) -> str | None:
    try:
        return host.read(path).strip()
    except OSError:
        return None
