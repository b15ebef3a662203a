"""Where a trace is wrong: line and column, found by a second, slower look at a file that could not be used."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.errors import StudyError

_DELIMITERS = ",;\t"
_USED = ("t_s", "t_ns", "dev", "inode", "page", "tenant", "role")
_SORT = "the time goes back; sort the trace by it."


@dataclass(frozen=True)
class CsvLayout:
    """How a CSV file is to be read: its delimiter, and the type of each column in order."""

    delimiter: str
    columns: Mapping[str, str]

    @property
    def chosen(self) -> list[str]:
        return [name for name in self.columns if name in _USED]


def csv_layout(path: Path) -> CsvLayout:
    """By the header and the first row; a device or file may be a number or a word."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            delimiter = "\t" if path.suffix.lower() == ".tsv" else max(_DELIMITERS, key=first.count)
            file.seek(0)
            rows = csv.reader(file, delimiter=delimiter)
            header, example = [name.strip() for name in next(rows, [])], next(rows, [])
    except UnicodeDecodeError:
        raise StudyError(f"{path}: the file is not UTF-8; save it as UTF-8 and try again.") from None
    if not any(header):
        raise StudyError(f"{path}: the file is empty; it needs a header line such as t_s,dev,inode,page,tenant.")
    if len(set(header)) < len(header):
        raise StudyError(f"{path}:1: two columns have the same name: {', '.join(header)}.")
    cells = dict(zip(header, example, strict=False))
    return CsvLayout(delimiter, {name: _kind(name, cells.get(name, "")) for name in header})


def _kind(name: str, example: str) -> str:
    if name == "t_s":
        return "DOUBLE"
    if name in ("t_ns", "page"):
        return "BIGINT"
    return "UBIGINT" if name in ("dev", "inode") and example.strip().isdigit() else "VARCHAR"


def csv_fault(path: Path) -> str | None:
    """The first thing that is wrong with a CSV trace, with its line; None where nothing is."""
    layout = csv_layout(path)
    names = list(layout.columns)
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, delimiter=layout.delimiter)
        next(rows, None)
        before = -math.inf
        for row in rows:
            if not row:
                continue
            where = f"{path}:{rows.line_num}"
            if len(row) != len(names):
                return f"{where}: it has {len(row)} fields where the header has {len(names)}."
            for name in layout.chosen:
                if wrong := _wrong(layout.columns[name], row[names.index(name)]):
                    return f"{where}: column {name!r}: {wrong}"
            now = _time(names, row)
            if now < before:
                return f"{where}: column {_time_name(names)!r}: {_SORT}"
            before = now
    return None


def _time_name(names: Sequence[str]) -> str:
    return "t_s" if "t_s" in names else "t_ns"


def _time(names: Sequence[str], row: Sequence[str]) -> float:
    name = _time_name(names)
    return float(row[names.index(name)]) if name in names else 0.0


def _wrong(kind: str, cell: str) -> str | None:
    cell = cell.strip()
    if not cell:
        return "it is empty."
    if kind == "VARCHAR":
        return None
    try:
        number = float(cell) if kind == "DOUBLE" else int(cell)
    except ValueError:
        return f"{cell!r} is not a {'number' if kind == 'DOUBLE' else 'whole number'}."
    if not math.isfinite(number):
        return f"{cell!r} is not a time."
    if kind != "DOUBLE" and number < 0:
        return f"{cell} is below zero."
    return None if abs(number) < 1 << 63 else f"{cell} is too large."


def parquet_fault(path: Path, row: int, column: str, what: str) -> str:
    """Rows count from 1."""
    return f"{path}, row {row + 1:,}, column {column!r}: {what}"
