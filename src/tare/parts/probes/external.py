"""Power from a meter of yours, such as one at the wall: a table that another program writes, or a command."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from tare.base.host import Host, Scope
from tare.base.rulings import Ruling, obstacle, probe_note
from tare.base.units import METER_J, METER_W, POWER, Channel, PositiveSeconds
from tare.drivers.sensors import Layout, LineChild
from tare.parts.protocols import Feed, Probe, Reading

_CHUNK_BYTES = 1 << 20
_FAILURES = 5  # of the command, one after another
_FIRST_WORD_S = 3.0


class External(Probe):
    """Power from a table that a meter's program appends to, or from a command that prints it: the whole device."""

    file: Path | None = None
    """A table (CSV) that another program writes during the trial, or has finished writing when the trial ends."""
    command: tuple[str, ...] = ()
    """Or a command: each line that it prints is a reading. One that prints once and ends is run again."""
    column: PositiveInt | str = 1
    """The column with the power, by its name in the first row or by its number from 1."""
    unit: Literal["uW", "mW", "W", "kW"] = "W"
    """The unit of that column."""
    energy: PositiveInt | str | None = None
    """The column with the meter's own count of energy, which goes on while the device is suspended; for that alone."""
    energy_unit: Literal["J", "kJ", "mWh", "Wh", "kWh"] = "Wh"
    """The unit of that one."""
    time: PositiveInt | str | None = None
    """The column with the time of a row (UNIX seconds, or date and time); without it a row counts when it comes."""
    offset_s: float = Field(0.0, allow_inf_nan=False)
    """What has to be added to the meter's clock to get that of this device."""
    separator: str = Field(",", min_length=1, max_length=1)
    """What lies between two columns."""
    period: PositiveSeconds = 1.0
    """How often a command that prints once and ends is run."""

    @model_validator(mode="after")
    def _one_source(self) -> External:
        if self.file is not None and self.command:
            raise ValueError("file and command are both given; a meter is read in one way")
        if self.command and (self.time is not None or isinstance(self.column, str) or isinstance(self.energy, str)):
            raise ValueError("what a command prints has no header and no times: give its column by a number")
        return self

    def obstacles(self, host: Host) -> list[Ruling]:
        if self.command:
            found = shutil.which(self.command[0])
            return [] if found else [obstacle("needs.program", f"no command {self.command[0]!r} on {host.name}.")]
        if self.file is None:
            sentence = "name the `file` that a meter's program writes, or a `command` that prints watts."
            return [obstacle("needs.value", sentence)]
        try:
            if first := _first_line(self.file):
                self._layout().placed(first)
        except OSError as error:
            return [obstacle("needs.file", f"{self.file} cannot be read: {error.strerror}.")]
        except ValueError as error:
            return [obstacle("needs.file", f"in {self.file} {error}.")]
        return []

    def open(self, host: Host, scope: Scope) -> Feed:
        if self.command:
            return CommandFeed(host, self.command, self._layout(), self.period)
        if self.file is None:
            return Nothing()
        return TableFeed(host, self.file, self._layout(), self.offset_s)

    def _layout(self) -> Layout:
        return Layout(self.column, self.unit, self.time, self.separator, self.energy, self.energy_unit)


def _first_line(file: Path) -> str:
    with file.open("rb") as table:
        return table.readline(65_536).decode("utf-8-sig", "replace").rstrip("\r\n")


def _slept_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


class Nothing:
    """The feed of a meter that nobody named."""

    channels: tuple[Channel, ...] = ()

    def poll(self) -> list[Reading]:
        return []

    def close(self) -> list[Reading]:
        return []


class _Rows:
    """Turns rows into readings, and counts those that are none."""

    def __init__(self, layout: Layout, about: str) -> None:
        counter = () if layout.energy is None else (Channel(METER_J, "J", "counter", about),)
        self.channels: tuple[Channel, ...] = (Channel(METER_W, "W", "gauge", about, group=POWER, rank=40), *counter)
        self.errors: Counter[str] = Counter()
        self.lost: list[Ruling] = []
        self._layout = layout

    def _reading(self, t_ns: int, row: str) -> list[Reading]:
        try:
            found = [Reading(t_ns, METER_W, self._layout.watts(row))]
            return found if len(self.channels) == 1 else [*found, Reading(t_ns, METER_J, self._layout.joules(row))]
        except ValueError:
            self.errors["rows"] += 1
            return []


class TableFeed(_Rows):
    """A table while it grows. With a time column, all rows of the trial's time count, whenever they are written."""

    def __init__(self, host: Host, file: Path, layout: Layout, offset_s: float) -> None:
        super().__init__(layout, f"meter, from {file}: the whole device")
        self._clock, self._file, self._offset_s = host.clock, file, offset_s
        self._start_ns, self._slept_s = host.clock.now_ns(), _slept_s()
        self._at = 0
        self._rest = b""
        self._awaits_header = layout.needs_header()
        self._closed = self._spoilt = False
        if self._layout.time is None:
            self._skip_what_is_there()

    def poll(self) -> list[Reading]:
        return [] if self._closed else self._taken(self._lines(_CHUNK_BYTES))

    def close(self) -> list[Reading]:
        """The rest of it: a meter's program may write its table only when it ends."""
        readings: list[Reading] = []
        while lines := self._lines(_CHUNK_BYTES):
            readings += self._taken(lines)
        if self._rest:
            readings += self._taken([self._rest])
        self._closed = True
        return readings

    def _skip_what_is_there(self) -> None:
        try:
            self._at = self._file.stat().st_size
            if self._awaits_header and self._at:
                self._take_header(_first_line(self._file))
        except OSError:
            self._at = 0  # it is not there yet: all of it will be new

    def _lines(self, most_bytes: int) -> list[bytes]:
        try:
            descriptor = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            self.errors["file"] += 1
            return []
        try:
            if os.fstat(descriptor).st_size < self._at:  # begun anew
                self._at, self._rest = 0, b""
            data = os.pread(descriptor, most_bytes, self._at)
        except OSError:
            self.errors["file"] += 1
            return []
        finally:
            os.close(descriptor)
        self._at += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines

    def _taken(self, lines: Sequence[bytes]) -> list[Reading]:
        texts = [line.decode("utf-8", "replace").strip() for line in lines]
        if self._awaits_header and texts:
            self._take_header(texts.pop(0))
        if self._spoilt:
            return []
        now_ns, wall_s = self._clock.now_ns(), time.time()
        if (slept_s := _slept_s()) > self._slept_s + 1:  # a row of before then has no place on our clock
            self._start_ns, self._slept_s = now_ns, slept_s
        return [reading for text in texts if text for reading in self._timed(text, now_ns, wall_s)]

    def _take_header(self, text: str) -> None:
        self._awaits_header = False
        try:
            self._layout = self._layout.placed(text.removeprefix("\ufeff"))
        except ValueError as error:
            self._spoilt = True
            self.lost.append(probe_note("probe.file-unreadable", "external", f"in {self._file} {error}."))

    def _timed(self, row: str, now_ns: int, wall_s: float) -> list[Reading]:
        if self._layout.time is None:
            return self._reading(now_ns, row)
        try:
            age_s = wall_s - (self._layout.wall_s(row) + self._offset_s)
        except ValueError:
            self.errors["rows"] += 1
            return []
        t_ns = now_ns - round(age_s * 1e9)
        return self._reading(t_ns, row) if self._start_ns <= t_ns else []


class CommandFeed(_Rows):
    """A command that prints power: once and again, or line after line."""

    def __init__(self, host: Host, argv: Sequence[str], layout: Layout, period_s: float) -> None:
        super().__init__(layout, f"meter, from `{' '.join(argv)}`: the whole device")
        self._clock, self._argv, self._period_ns = host.clock, list(argv), round(period_s * 1e9)
        self._failures = 0
        self._child: LineChild | None = None
        self._due_ns = 0
        self._begin()
        if self._child is not None:
            self._child.wait_for_a_line(_FIRST_WORD_S)

    def poll(self) -> list[Reading]:
        readings = self._said()
        if self._child is None and self._failures < _FAILURES and self._clock.now_ns() >= self._due_ns:
            self._begin()
        return readings

    def close(self) -> list[Reading]:
        self._failures = _FAILURES
        if self._child is None:
            return []
        last = self._understood(self._child.lines())
        self._child.close()
        self._child = None
        return last

    def _begin(self) -> None:
        self._due_ns = self._clock.now_ns() + self._period_ns
        try:
            self._child = LineChild(self._argv, self._clock)
        except OSError as error:
            self._fail(f"cannot be started: {error.strerror}")

    def _said(self) -> list[Reading]:
        if self._child is None:
            return []
        code = self._child.code
        readings = self._understood(self._child.lines())
        if code is not None:
            self._child.close()
            self._child = None
            if code == 0:
                self._failures = 0
            else:
                self._fail(f"ended with code {code}")
        return readings

    def _understood(self, lines: Iterable[tuple[int, str]]) -> list[Reading]:
        return [reading for t_ns, line in lines for reading in self._reading(t_ns, line)]

    def _fail(self, why: str) -> None:
        self.errors["command"] += 1
        self._failures += 1
        if self._failures == _FAILURES:
            sentence = f"`{self._argv[0]}` {why}, {_FAILURES} times in a row; it is not run again."
            self.lost.append(probe_note("probe.ended", "external", sentence))
