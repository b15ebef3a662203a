"""The text formats that the kernel uses in /proc and cgroup files, read without regular expressions: they are
parsed ten times a second beside someone's measurement.

Each parser is made from the first text of its file and declares only the channels found there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from tare.measures import Channel
from tare.parts.protocols import Reading

# Skips the Python frame of `Reading(...)`: half the cost, and there are some fifty a tick.
make_reading: Callable[[tuple[int, str, float]], Reading] = partial(tuple.__new__, Reading)


class Field(NamedTuple):
    """One value of a file: the kernel's name for it, our channel, and what to multiply with for the base unit."""

    key: str
    channel: Channel
    scale: float = 1


def whole(text: str) -> int:
    """A count as the kernel prints it: zero or more, in 64 bits. Anything else is garbage."""
    value = int(text)
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{value} is not a count")
    return value


class Keyed:
    """Chosen lines of a file made of `name value` lines, such as /proc/vmstat or memory.stat."""

    def __init__(self, fields: Sequence[Field], text: str, *, after: str = " ", unit: str = "") -> None:
        keys = [f"\n{field.key}{after}" for field in fields]
        found = [(key, field) for key, field in zip(keys, fields, strict=True) if key in "\n" + text]
        self.channels = tuple(field.channel for _, field in found)
        self._wanted = [(key, len(key), field.channel.name, field.scale) for key, field in found]
        self._unit = unit

    def __call__(self, t_ns: int, text: str) -> list[Reading]:
        lines = f"\n{text}\n"
        find, unit, unit_width = lines.find, self._unit, len(self._unit)
        readings = []
        end = 0
        for key, width, channel, scale in self._wanted:
            # The fields are listed in the kernel's order, so that all of them are found in one pass.
            found = find(key, end)
            if found < 0 and (found := find(key)) < 0:
                continue
            end = find("\n", found + width)
            if unit and not lines.startswith(unit, end - unit_width):
                raise ValueError(f"{lines[found:end]!r} is not in{unit}")
            value = whole(lines[found + width : end - unit_width])
            readings.append(make_reading((t_ns, channel, value * scale)))
        return readings


def keyed(*fields: Field, after: str = " ", unit: str = "") -> Callable[[str], Keyed]:
    """`Keyed`, waiting for the first text of its file."""
    return lambda text: Keyed(fields, text, after=after, unit=unit)


class Number:
    """A file that is one number."""

    def __init__(self, channel: Channel, scale: float) -> None:
        self.channels = (channel,)
        self._name, self._scale = channel.name, scale

    def __call__(self, t_ns: int, text: str) -> list[Reading]:
        return [make_reading((t_ns, self._name, whole(text) * self._scale))]


def number(channel: Channel, scale: float = 1) -> Callable[[str], Number]:
    """`Number`, in the same shape as `keyed`."""
    return lambda _text: Number(channel, scale)


class Pressure:
    """A pressure file: `some avg10=0.00 avg60=0.00 avg300=0.00 total=5796829`, the total in microseconds."""

    def __init__(self, channel: Channel) -> None:
        self.channels = (channel,)
        self._name = channel.name

    def __call__(self, t_ns: int, text: str) -> list[Reading]:
        some, _, _ = text.partition("\n")
        _, _, total = some.partition("total=")
        return [make_reading((t_ns, self._name, whole(total) / 1e6))]


def pressure(channel: Channel) -> Callable[[str], Pressure]:
    """`Pressure`, in the same shape as `keyed`."""
    return lambda _text: Pressure(channel)


class Rising:
    """Keeps a counter from falling: some of the kernel's are sums that may lose a little between two reads."""

    def __init__(self) -> None:
        self._highest = 0.0

    def __call__(self, value: float) -> float:
        self._highest = max(self._highest, value)
        return self._highest
