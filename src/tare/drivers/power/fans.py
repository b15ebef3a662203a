"""Fans that can be set: the Jetson's pwm-fan of both kinds, and any hwmon fan with a switch between hand and automatic.

A fan has a speed file (0 to 255) and, mostly, one that says who sets it. Found by the name in hwmon, never by number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tare.base.host import Host
from tare.drivers.sensors.folders import folders, sensors_by_word, temperatures_c, text_of, within

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
