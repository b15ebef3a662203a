"""What a place in a virtual machine says in a time of its own, moved to the device's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tare.host import Host
from tare.parts.protocols import Mark

_MOMENTS = ("start_ns", "end_ns")


def in_device_time(marks: Iterable[Mark], place: Host) -> list[Mark]:
    """The marks in device time; where the place has the device's own clock, as they are."""
    clock = getattr(place, "guest_clock", None)
    if clock is None:
        return list(marks)
    return [mark._replace(t_ns=clock.to_device_ns(mark.t_ns)) for mark in marks]


def result_in_device_time(result: Mapping[str, Any], place: Host) -> dict[str, Any]:
    """What the launcher counted, with its begin and end in device time."""
    clock = getattr(place, "guest_clock", None)
    moved = {} if clock is None else {key: clock.to_device_ns(result[key]) for key in _MOMENTS if key in result}
    return {**result, **moved}


def place_facts(place: Host) -> dict[str, Any]:
    """What a place says of itself, with its clock's offset, drift and bound where it has one of its own."""
    clock = getattr(place, "guest_clock", None)
    return {**getattr(place, "facts", {}), **({} if clock is None else {"clock": clock.facts()})}
