"""When the kernel writes dirty pages back: the vm.dirty_* values."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, model_validator

from tare.base.errors import ControlNotHeld, TareError
from tare.base.host import Host, LocalHost
from tare.base.rulings import Ruling, obstacle
from tare.base.units import PositiveSeconds, Seconds, SizeBytes, parse_share
from tare.parts.protocols import Control, Json

_FOLDER = "/proc/sys/vm"
_PAIRS = (("dirty_ratio", "dirty_bytes"), ("dirty_background_ratio", "dirty_background_bytes"))
_TIMES = ("dirty_expire_centisecs", "dirty_writeback_centisecs")
_NAMES = (*(name for pair in _PAIRS for name in pair), *_TIMES)
_LEAST_BYTES = 2 * os.sysconf("SC_PAGE_SIZE")  # the kernel refuses a dirty_bytes below two pages


def _percent(value: Any) -> Any:
    """`20 %` as 0.2; the kernel knows whole percents only."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError(f"{value} has no unit; write '{value} %'")
    share = parse_share(value)
    if share > 1 or abs(share * 100 - round(share * 100)) > 1e-9:
        raise ValueError(f"{value!r} is not a whole percentage between 0 % and 100 %, and the kernel knows no other")
    return share


Percent = Annotated[float, BeforeValidator(_percent)]


class Dirty(Control):
    """How much may wait to be written to disk, and for how long; what is not named stays as the device has it."""

    example: ClassVar[Mapping[str, Json]] = {"ratio": "20 %"}

    ratio: Percent | None = None
    """Of the memory that can hold dirty pages: at so much a writer has to write itself (vm.dirty_ratio), like 20 %."""
    background_ratio: Percent | None = None
    """At so much the kernel begins to write in the background (vm.dirty_background_ratio)."""
    bytes: SizeBytes | None = None
    """The same as `ratio` in bytes (vm.dirty_bytes), like 64 MiB; the kernel knows one of the two at a time."""
    background_bytes: SizeBytes | None = None
    """The same as `background_ratio` in bytes (vm.dirty_background_bytes)."""
    expire: PositiveSeconds | None = None
    """A page that is dirty for so long is written next time (vm.dirty_expire_centisecs), like 30 s."""
    writeback: Seconds | None = None
    """How often the kernel looks for such pages (vm.dirty_writeback_centisecs); 0 s: never."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        for sentence in self._complaints():
            raise ValueError(sentence)
        return self

    def _complaints(self) -> Iterator[str]:
        """Why the kernel would not do what is written."""
        if all(value is None for value in self.fields().values()):
            yield "name at least one value, like {ratio: 20 %}"
        if self.ratio is not None and self.bytes is not None:
            yield "`ratio` and `bytes` are one limit in two units, and the kernel knows one of them at a time"
        if self.background_ratio is not None and self.background_bytes is not None:
            yield "`background_ratio` and `background_bytes` are one limit in two units"
        if self.bytes is not None and self.bytes < _LEAST_BYTES:
            yield f"`bytes` is at least two pages, {_LEAST_BYTES} B"
        if self.background_bytes is not None and self.background_bytes < 1:
            yield "`background_bytes` is more than zero"
        for below, above in (("background_ratio", "ratio"), ("background_bytes", "bytes")):
            low, high = getattr(self, below), getattr(self, above)
            if low is not None and high is not None and low >= high:
                yield f"`{below}` is below `{above}`: otherwise the kernel quietly takes half of that"
        for name in ("expire", "writeback"):
            seconds = getattr(self, name)
            if seconds is not None and abs(seconds * 100 - round(seconds * 100)) > 1e-6:
                yield f"`{name}` is a whole number of hundredths of a second, and {seconds} s is not"

    def knob(self) -> str:
        return "dirty"

    def obstacles(self, host: Host) -> list[Ruling]:
        try:
            _values(host)
        except OSError:
            return [obstacle("needs.kernel", f"{host.name} has no {_FOLDER}/{_NAMES[0]} and its like.")]
        if isinstance(host, LocalHost) and not os.access(host.root / _FOLDER[1:] / _NAMES[0], os.W_OK):
            return [obstacle("needs.root", "setting vm.dirty_* needs root.")]
        return []

    def target(self, host: Host, inputs: Iterable[Path]) -> Json:
        """What the device has, with what the study names; a limit in the one form switches the other off."""
        wanted = _values(host)
        for shares, sizes in _PAIRS:
            share, size = getattr(self, shares.removeprefix("dirty_")), getattr(self, sizes.removeprefix("dirty_"))
            if share is not None:
                wanted |= {shares: str(round(share * 100)), sizes: "0"}
            if size is not None:
                wanted |= {shares: "0", sizes: str(size)}
        for name, seconds in zip(_TIMES, (self.expire, self.writeback), strict=True):
            if seconds is not None:
                wanted[name] = str(round(seconds * 100))
        return wanted

    def read(self, host: Host) -> Json | None:
        return _values(host)

    def write(self, host: Host, state: Json) -> None:
        wanted = _checked(state)
        now = _values(host)
        for pair in _PAIRS:
            if [now[name] for name in pair] != [wanted[name] for name in pair]:
                _write_pair(host, pair, wanted)
        for name in _TIMES:
            if now[name] != wanted[name]:
                host.write(f"{_FOLDER}/{name}", wanted[name])
        if (found := _values(host)) != wanted:
            wrong = next(name for name in _NAMES if found[name] != wanted[name])
            raise ControlNotHeld(f"dirty: vm.{wrong}", asked=wanted[wrong], found=found[wrong])


def _values(host: Host) -> dict[str, str]:
    return {name: host.read(f"{_FOLDER}/{name}").strip() for name in _NAMES}


def _write_pair(host: Host, pair: tuple[str, str], wanted: Mapping[str, str]) -> None:
    """Write the one that counts: the kernel then zeroes the other, but only if the value changes."""
    shares, sizes = pair
    if wanted[sizes] != "0":
        host.write(f"{_FOLDER}/{sizes}", wanted[sizes])
        return
    host.write(f"{_FOLDER}/{shares}", wanted[shares])
    if host.read(f"{_FOLDER}/{sizes}").strip() != "0":
        # Both are to be zero, and the share was already: only a change of it takes the bytes away.
        host.write(f"{_FOLDER}/{shares}", "1")
        host.write(f"{_FOLDER}/{shares}", wanted[shares])


def _checked(state: Json) -> dict[str, str]:
    """A state from the journal is data from a file: these names, whole numbers, and not both forms of one limit."""
    good = isinstance(state, dict) and state.keys() == set(_NAMES)
    if not good or not all(isinstance(text, str) and text.isdecimal() for text in state.values()):
        raise TareError(f"dirty: {state!r} is not a set of vm.dirty_* values")
    if any(state[shares] != "0" and state[sizes] != "0" for shares, sizes in _PAIRS):
        raise TareError(f"dirty: {state!r} has one limit in both forms, and the kernel knows one at a time")
    return dict(state)
