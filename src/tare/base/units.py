"""Quantities: what a study may write (`10 ms`, `2 GiB`, `5 %`) becomes a base unit here, and nowhere else.

Inside tare a number has no unit; its name has (`period_s`, `size_bytes`, `share`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypeAlias, get_args

_TIME_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE_BYTES = {
    "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
    "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40,
}  # fmt: skip
_SHARE = {"%": 0.01}
BYTES_PER_SECOND = {f"{unit}/s": size for unit, size in _SIZE_BYTES.items()}
PER_SECOND = {"/s": 1.0, "/min": 1 / 60, "/h": 1 / 3600}

_QUANTITY = re.compile(r"^\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\s\d].*?)?\s*$")


def parse_quantity(text: object, units: dict[str, float], what: str, *, bare_unit: str | None = None) -> float:
    """`text` in the base unit of `units`; a number without a unit only where `bare_unit` says which it is."""
    example = next(iter(units))
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise ValueError(f"a {what} is written like '10 {example}', not {text!r}")
    match = _QUANTITY.match(str(text))
    if match is None:
        raise ValueError(f"{text!r} is not a {what}; write it like '10 {example}'")
    number, unit = float(match[1]), match[2] or bare_unit
    if unit is None:
        raise ValueError(f"{text!r} has no unit; write one of {', '.join(units)} after the number")
    if unit not in units:
        raise ValueError(f"{unit!r} is not a unit of {what}; the units are {', '.join(units)}")
    value = number * units[unit]
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"a {what} is a finite number, zero or more, not {text!r}")
    return value


def parse_seconds(value: Any) -> float:
    """`10 ms` as 0.01."""
    return parse_quantity(value, _TIME_S, "time")


def parse_size(value: Any) -> int:
    """`2 GiB` as 2147483648."""
    return round(parse_quantity(value, _SIZE_BYTES, "size"))


def parse_share(value: Any) -> float:
    """`5 %` or `0.05` as 0.05."""
    if isinstance(value, str) and "%" in value:
        return parse_quantity(value, _SHARE, "share")
    try:
        return parse_quantity(value, {"": 1.0}, "share", bare_unit="")
    except ValueError:
        raise ValueError(f"{value!r} is not a share; write it like 5% or 0.05") from None


def positive(value: float) -> float:
    """Itself; zero is refused."""
    if value <= 0:
        raise ValueError("must be more than zero")
    return value


def _unless_number(parse: Any) -> Any:
    """Parts are also made in code and read back from records, in base units: a plain float passes as it is."""

    def convert(value: Any) -> Any:
        return value if isinstance(value, float) and math.isfinite(value) and value >= 0 else parse(value)

    return convert


@dataclass(frozen=True, slots=True)
class _Before:
    """pydantic's BeforeValidator, which is imported by whoever validates: most verbs need no model."""

    convert: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core.core_schema import no_info_before_validator_function

        return no_info_before_validator_function(self.convert, handler(source))


Seconds = Annotated[float, _Before(_unless_number(parse_seconds))]
PositiveSeconds = Annotated[float, _Before(lambda value: positive(_unless_number(parse_seconds)(value)))]
SizeBytes = Annotated[int, _Before(lambda value: value if type(value) is int else parse_size(value))]
# YAML reads `on` and `off` as true and false.
OnOff = Annotated[Literal["on", "off"], _Before(lambda said: ("off", "on")[said] if isinstance(said, bool) else said)]


METER_W, METER_J = "external.power_w", "external.counter_j"  # channels of a meter at the wall, if there is one
POWER, CLOCK, GPU_USE = "Power", "Clock", "GPU in use"  # groups to which channels of several probes belong
LAST_RANK = 100
LONGEST_WORDS = 80  # characters
Better: TypeAlias = Literal["lower", "higher", "neutral"]
Take: TypeAlias = Literal["mean", "max", "rate"]
_PER_SECOND_UNITS = {"s": "1", "J": "W", "1": "1/s"}


@dataclass(frozen=True, slots=True)
class Channel:
    """One series that a probe can deliver, and how it is shown: plain data, which is sealed with the trial."""

    name: str  # dotted, with the unit last: "cpu.busy_share", "disk.vda.read_bytes"
    unit: str  # s, ns, bytes, share, 1 (a count), Hz, W, J, C
    kind: Literal["gauge", "counter"]  # a counter only grows: its difference is what matters
    about: str = ""
    words: str = ""  # what is drawn of it, where the unit does not say so: "load average", "cores"
    group: str = ""  # the title of its panel on the live page and of its charts; without one it has none
    rank: int = LAST_RANK  # the order of the groups; of the channels of a group the lowest stands for all
    takes: tuple[
        Take, ...
    ] = ()  # metrics of it over the measured steps: `mean` and `max` of a gauge, `rate` of a counter
    better: Better = "neutral"  # which way these are better

    @property
    def drawn_unit(self) -> str:
        """The unit of what is drawn: of a counter that of its growth in a second."""
        return self.unit if self.kind == "gauge" else _PER_SECOND_UNITS.get(self.unit, f"{self.unit}/s")

    def declared(self) -> dict[str, Any]:
        """What it declares beyond name, unit, kind and about, as plain data; what is as usual is left out."""
        own = {each.name: (getattr(self, each.name), each.default) for each in fields(self)[4:]}
        return {name: value for name, (value, usual) in own.items() if value != usual}

    @classmethod
    def of(cls, sealed: Mapping[str, Any]) -> Channel:
        """The channel of a sealed trial, whoever wrote that: what is not of its type is as if it were not there."""
        name, unit, about, words, group = (
            str(sealed.get(key, "")) for key in ("name", "unit", "about", "words", "group")
        )
        rank, takes, better = sealed.get("rank"), sealed.get("takes"), sealed.get("better")
        return cls(
            name, unit, "counter" if sealed.get("kind") == "counter" else "gauge", about,
            words[:LONGEST_WORDS], group[:LONGEST_WORDS], rank if isinstance(rank, int) else LAST_RANK,
            tuple(each for each in get_args(Take) if isinstance(takes, list | tuple) and each in takes),
            next((each for each in get_args(Better) if each == better), "neutral"),
        )  # fmt: skip


MOST_CORES = 8192  # the largest that Linux is built for
_PIECE = re.compile(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*")


def cores(text: str) -> list[int]:
    """`0-2,5` as numbers in order, each once; nothing for an empty text, as the kernel writes it."""
    named: set[int] = set()
    for piece in text.split(",") if text.strip() else ():
        found = _PIECE.fullmatch(piece)
        if found is None:
            raise ValueError(f"{text!r} is not a list of cores; write it like '0-1' or '0,2'")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise ValueError(f"{piece!r} counts backwards; write the lower core first")
        if last >= MOST_CORES:
            raise ValueError(f"{text!r} names a core that no machine has")
        named |= set(range(first, last + 1))
    return sorted(named)


def core_text(numbers: Iterable[int]) -> str:
    """Cores as the kernel writes them: 0, 1, 2, 5 as `0-2,5`."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
