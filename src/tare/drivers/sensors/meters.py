"""Rows of a power meter's table: watts from one column, and where there is a column for them, energy and the time."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from tare.base.host import Clock

UNIT_W = {"uW": 1e-6, "mW": 1e-3, "W": 1.0, "kW": 1e3}
UNIT_J = {"J": 1.0, "kJ": 1e3, "mWh": 3.6, "Wh": 3.6e3, "kWh": 3.6e6}
MOST_W, MOST_J = 1e6, 1e15
_NUMBER = re.compile(r"\s*([0-9]{1,12}(?:[.][0-9]{0,12})?)\s*([a-zA-Z]+)?\s*")


@dataclass(frozen=True)
class Layout:
    """How a row is read; columns by their name in the first row, or by their number from 1."""

    column: str | int
    unit: str
    time: str | int | None = None
    separator: str = ","
    energy: str | int | None = None
    energy_unit: str = "Wh"

    def needs_header(self) -> bool:
        return any(isinstance(column, str) for column in (self.column, self.time, self.energy))

    def placed(self, header: str) -> Layout:
        """The same with numbers in place of names. Raises ValueError, with the names that there are."""
        names = [cell.strip().strip('"') for cell in header.split(self.separator)]
        time, energy = (None if each is None else _place(each, names) for each in (self.time, self.energy))
        return replace(self, column=_place(self.column, names), time=time, energy=energy)

    def cells(self, row: str) -> list[str]:
        return [cell.strip().strip('"') for cell in row.split(self.separator)]

    def watts(self, row: str) -> float:
        """Raises ValueError where there is no such column, or no power in it; a unit in the cell itself counts."""
        return self._value(row, self.column, UNIT_W, self.unit, MOST_W)

    def joules(self, row: str) -> float:
        """What the meter has counted so far; raises as `watts` does."""
        return self._value(row, self.energy, UNIT_J, self.energy_unit, MOST_J)

    def _value(self, row: str, column: str | int | None, units: Mapping[str, float], unit: str, most: float) -> float:
        text = _cell(self.cells(row), column)
        found = _NUMBER.fullmatch(text.replace(",", ".") if self.separator != "," else text)
        if found is None or (found[2] or unit) not in units:
            raise ValueError(f"{text!r} is not a number of {unit}")
        value = float(found[1]) * units[found[2] or unit]
        if value > most:
            raise ValueError(f"{text!r} is more than any device draws")
        return value

    def wall_s(self, row: str) -> float:
        """The row's time as seconds of the wall clock: UNIX seconds (or ms), or a date and time in any ISO form."""
        text = _cell(self.cells(row), self.time)
        try:
            number = float(text)
        except ValueError:
            return datetime.fromisoformat(text).timestamp()
        if not math.isfinite(number) or number <= 0:
            raise ValueError(f"{text!r} is not a time")
        return number / 1000 if number > 1e11 else number


def _place(column: str | int, names: Sequence[str]) -> int:
    if not isinstance(column, str):
        return column
    if column not in names:
        raise ValueError(f"no column {column!r}. Available: {', '.join(names)}")
    return names.index(column) + 1


def _cell(cells: Sequence[str], column: str | int | None) -> str:
    if not isinstance(column, int) or len(cells) < column:
        raise ValueError("the row is too short")
    return cells[column - 1]


MOST_ZONE_W = 5_000.0  # of one zone: a step that would need more was no work, but a reset
_SLACK_UJ = 20_000_000  # counters are written in lumps, up to some milliseconds late


class EnergyCounter:
    """Microjoules since the first reading. An interval whose energy cannot be known is dropped and counted."""

    def __init__(self, range_uj: int | None) -> None:
        self._range_uj = range_uj  # the counter starts again at zero beyond it; None: it is not known
        self._last: tuple[int, int] | None = None  # t_ns, and what the counter said
        self._total_uj = 0
        self.dropped = 0  # intervals
        self.dropped_s = 0.0

    def __call__(self, t_ns: int, raw_uj: int) -> float | None:
        """Joules since the first reading; None at the end of an interval that had to be dropped."""
        last, self._last = self._last, (t_ns, raw_uj)
        if last is None:
            return 0.0
        seconds = (t_ns - last[0]) / 1e9
        step_uj = self._step_uj(raw_uj - last[1])
        if step_uj is None or step_uj > MOST_ZONE_W * 1e6 * seconds + _SLACK_UJ:
            self.dropped += 1
            self.dropped_s += seconds
            return None
        self._total_uj += step_uj
        return self._total_uj / 1e6

    def _step_uj(self, difference_uj: int) -> int | None:
        if difference_uj >= 0:
            return difference_uj
        if self._range_uj is None or difference_uj < -self._range_uj:
            return None
        return difference_uj + self._range_uj


MOST_LINES = 10_000  # kept while nobody asks for them
MOST_LINE_BYTES = 65_536
_LINGER_S = 2.0


class LineChild:
    """The program while it runs, in a group of its own; each line has the time at which it came."""

    def __init__(self, argv: Sequence[str], clock: Clock) -> None:
        self._clock = clock
        self._lines: deque[tuple[int, str]] = deque(maxlen=MOST_LINES)
        self._came = threading.Event()
        self._child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def lines(self) -> list[tuple[int, str]]:
        """What came since the last time: (t_ns, line)."""
        taken = []
        with suppress(IndexError):
            while True:
                taken.append(self._lines.popleft())
        return taken

    def wait_for_a_line(self, limit_s: float) -> None:
        """Until the first line is there, or the program has ended, or the limit is over."""
        self._came.wait(limit_s)

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs, or while what it said is still on its way."""
        return None if self._thread.is_alive() else self._child.poll()

    def close(self) -> None:
        """End it and its children; it is gone when this returns, unless even SIGKILL does not reach it."""
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_LINGER_S)
        self._thread.join(_LINGER_S)

    def _listen(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as pipe:
            while line := pipe.readline(MOST_LINE_BYTES):
                self._lines.append((self._clock.now_ns(), line.decode("utf-8", "replace").rstrip("\n")))
                self._came.set()
        self._child.wait()
        self._came.set()
