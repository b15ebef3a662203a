"""Rows of a power meter's table: watts from one column, and where there is a column for it, the time."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

UNIT_W = {"uW": 1e-6, "mW": 1e-3, "W": 1.0, "kW": 1e3}
MOST_W = 1e6
_NUMBER = re.compile(r"\s*([0-9]{1,12}(?:[.][0-9]{0,12})?)\s*(uW|mW|W|kW)?\s*")


@dataclass(frozen=True)
class Layout:
    """How a row is read; columns by their name in the first row, or by their number from 1."""

    column: str | int
    unit: str
    time: str | int | None = None
    separator: str = ","

    def needs_header(self) -> bool:
        return isinstance(self.column, str) or isinstance(self.time, str)

    def placed(self, header: str) -> Layout:
        """The same with numbers in place of names. Raises ValueError, with the names that there are."""
        names = [cell.strip().strip('"') for cell in header.split(self.separator)]
        time = None if self.time is None else _place(self.time, names)
        return Layout(_place(self.column, names), self.unit, time, self.separator)

    def cells(self, row: str) -> list[str]:
        return [cell.strip().strip('"') for cell in row.split(self.separator)]

    def watts(self, row: str) -> float:
        """Raises ValueError where there is no such column, or no power in it; a unit in the cell itself counts."""
        text = _cell(self.cells(row), self.column)
        found = _NUMBER.fullmatch(text.replace(",", ".") if self.separator != "," else text)
        if found is None:
            raise ValueError(f"{text!r} is not a power")
        value = float(found[1]) * UNIT_W[found[2] or self.unit]
        if value > MOST_W:
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
        raise ValueError(f"there is no column {column!r}; there are {', '.join(names)}")
    return names.index(column) + 1


def _cell(cells: Sequence[str], column: str | int | None) -> str:
    if not isinstance(column, int) or len(cells) < column:
        raise ValueError("the row is too short")
    return cells[column - 1]
