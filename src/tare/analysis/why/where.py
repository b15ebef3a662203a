"""What grew, by two runs that were looked at and not timed: the functions, or the waits in the kernel."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tare.records.model import Record

_HALF = 0.5  # of what all grew by: a function in which as much grew tells where it is
_NAMED = 0.1
_MOST = 3


@dataclass(frozen=True, slots=True)
class Grown:
    """Something that took longer on the slow side."""

    name: str
    quick_s: float
    slow_s: float

    @property
    def more_s(self) -> float:
        return self.slow_s - self.quick_s


@dataclass(frozen=True, slots=True)
class Where:
    """The innermost function in which most of the cost is, those that grew in themselves, and waits in the kernel."""

    function: Grown | None = None
    inside: tuple[Grown, ...] = ()
    kernel: tuple[Grown, ...] = ()


def where(slow: Iterable[Record], quick: Iterable[Record]) -> Where:
    """What both sides' runs say; empty where nobody could look."""
    stacks = [_stacks(records) for records in (slow, quick)]
    waits = [_waits(records) for records in (slow, quick)]
    return Where(_innermost(*stacks), _largest(*({name: own for name, (own, _) in each.items()} for each in stacks)),
                 _largest(*waits))  # fmt: skip


def touched(records: Iterable[Record]) -> list[str]:
    """The files that these runs opened, mapped or imported, or wanted to."""
    listed = [_object(record.facts.get("touched")).get("files") for record in records]
    return sorted({path for each in listed if isinstance(each, list) for path in each if _is_path(path)})


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("/") and ".." not in value


def _innermost(slow: Mapping[str, tuple[float, float]], quick: Mapping[str, tuple[float, float]]) -> Grown | None:
    """Of functions with about the same, the one that took most in itself."""
    grown = [Grown(name, quick.get(name, (0.0, 0.0))[1], whole) for name, (_, whole) in slow.items()]
    most = max((each.more_s for each in grown), default=0.0)
    if most <= 0 or not quick:
        return None
    held = [each for each in grown if each.more_s >= _HALF * most]
    least = min(each.more_s for each in held)
    return max((each for each in held if each.more_s <= 1.1 * least), key=lambda each: slow[each.name][0])


def _largest(slow: Mapping[str, float], quick: Mapping[str, float]) -> tuple[Grown, ...]:
    grown = [Grown(name, quick.get(name, 0.0), seconds) for name, seconds in slow.items()] if quick else []
    whole = sum(max(0.0, each.more_s) for each in grown)
    named = [each for each in grown if each.more_s > max(_NAMED * whole, 0.0)]
    return tuple(sorted(named, key=lambda each: -each.more_s)[:_MOST])


def _stacks(records: Iterable[Record]) -> dict[str, tuple[float, float]]:
    """A program may write what it likes there: what is no pair of seconds is left out."""
    found = {}
    for record in records:
        for name, seconds in _object(record.facts.get("stacks")).items():
            if isinstance(seconds, list) and len(seconds) == 2 and all(map(_is_time, seconds)):
                found[name] = (float(seconds[0]), float(seconds[1]))
    return found


def _waits(records: Iterable[Record]) -> dict[str, float]:
    seen = [_object(_object(record.facts.get("counted")).get("sampled")) for record in records]
    return {name: float(seconds) for each in seen for name, seconds in each.items() if _is_time(seconds)}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
