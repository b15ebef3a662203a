"""A user's own measurements: CSV, TSV, Parquet or JSON lines, without a store.

Every cell arrives as text, as written, so that a level may be called `1`, `true` or `docker`; only the value
column is turned into numbers, here, so that an error can name the row.
"""

from __future__ import annotations

import csv
import json
import math
import os
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count, repeat
from pathlib import Path
from typing import Any
from warnings import catch_warnings

import numpy as np

from tare.analysis.directions import words_of
from tare.analysis.estimators import check_span
from tare.analysis.numeric.medians import Floats
from tare.analysis.tables.foreign import Foreign, recognised, together
from tare.base.errors import NoSuchInput, StoreError, StudyError, unknown_name
from tare.records.model import Record, State, TrialRow

_FIELD_BYTES = 10_000_000  # one cell of a table: more is not a table
_MOST_LINE = 32_000_000
_MOST_CELLS = 20_000_000  # of lines that each name what they hold: names of their own make a table of mostly nothing
_DELIMITERS = ",;\t"


@dataclass(frozen=True)
class Table:
    """Columns of text; None where a cell is empty. Row 1 is the first after the header."""

    path: Path
    columns: Mapping[str, Sequence[str | None]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def column(self, name: str) -> Sequence[str | None]:
        if name not in self.columns:
            raise StudyError(f"{self.path}: {unknown_name('column', name, list(self.columns))}")
        return self.columns[name]

    def error(self, row: int, column: str, what: str) -> StudyError:
        return StudyError(f"{self.path}, row {row}, column {column!r}: {what}")


def read_table(path: Path | str | Table) -> Table:
    """The whole table: a file of another benchmark tool by what is in it, any other by how its name ends."""
    if isinstance(path, Table):
        return path
    try:
        found = Path(path).stat()
    except OSError:
        return _read_table(Path(path), None)
    return _read_table(Path(path), (found.st_ino, found.st_size, found.st_mtime_ns))


@lru_cache(maxsize=2)  # a verb asks several times: for the columns, the rows, their order
def _read_table(path: Path, identity: tuple[int, int, int] | None) -> Table:
    if (foreign := recognised(path)) is not None:
        return Table(path, foreign.columns)
    if not path.exists():
        raise NoSuchInput(f"{path}: there is no such file or folder.")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise StudyError(
            f"{path}: a table ends in one of {', '.join(READERS)}, and this is no file of a benchmark tool that tare "
            "knows (hyperfine, pyperf, pytest-benchmark, Google Benchmark, Criterion, optimum-benchmark, MLPerf "
            "LoadGen, perf stat, AIPerf, vLLM bench serve, llama-bench; a number a line)."
        )
    if not path.is_file():
        raise StudyError(f"{path}: this is not a file.")
    try:
        table = Table(path, reader(path))
    except UnicodeDecodeError:
        raise StudyError(f"{path}: the file is not UTF-8; save it as UTF-8 and try again.") from None
    except OSError as error:
        raise StudyError(f"{path}: it cannot be read: {error.strerror or error}.") from error
    if not len(table):
        raise StudyError(f"{path}: the table has no rows.")
    return table


def numeric_columns(path: Path) -> dict[str, Floats] | None:
    """The columns of a plain CSV of finite numbers and nothing else; None of any other table, which `read_table` reads.

    It is read without a text for each cell, in a fifth of the time.
    """
    if READERS.get(path.suffix.lower()) is not _read_csv or not os.access(path, os.R_OK) or not path.is_file():
        return None
    if path.stat().st_size > _MOST_LINE or recognised(path) is not None:
        return None
    first, _, body = path.read_bytes().removeprefix(BOM_UTF8).removesuffix(b"\n").partition(b"\n")
    try:
        delimiter = _delimiter(path, first.decode())
        header = [name.strip() for name in first.decode().split(delimiter)]
        line = (delimiter * (len(header) - 1) + "\n").encode()
        ends = body.translate(None, b"0123456789.+-eE") + b"\n"  # of cells: all else is in no number
        is_plain = ends == line * (len(ends) // len(line)) and b'"' not in first and b"\r" not in first
        if not is_plain or not 1 < len(header) == len(set(header)):
            return None
        with catch_warnings(action="error"):  # numpy warns of what is no number, or refuses it
            found = np.fromstring(body.replace(b"\n", delimiter.encode()), sep=delimiter)
    except (ValueError, DeprecationWarning):
        return None
    if len(found) != len(ends) or not np.isfinite(found).all():
        return None
    return dict(zip(header, found.reshape(-1, len(header)).T, strict=True))


def several_files(paths: Sequence[Path]) -> tuple[Table, Foreign]:
    """Files of one benchmark tool as one table, each file a level."""
    found = {path: recognised(path) for path in paths}
    if unknown := [path for path, foreign in found.items() if foreign is None]:
        raise StudyError(
            f"{unknown[0]}: only files of a benchmark tool can be compared several at once, each as one level. Name "
            "one store or table; `tare store merge` joins stores of a study, `tare why A B` compares two."
        )
    whole = together({path: foreign for path, foreign in found.items() if foreign is not None})
    return Table(paths[0].with_name(" ".join(path.name for path in paths)), whole.columns), whole


RUN_ORDER = ("started_utc", "timestamp", "order")  # columns that tell it, where --order names none
SHUFFLED = "shuffled"  # --order: the runs were shuffled, though the table is sorted


def run_order(path: Path | str | Table, order: str | None = None) -> list[float] | None:
    """The place of each row in the order of running: by a column, else as the rows stand; None where it was shuffled.

    Numbers go by their size, anything else by its letters, as dates do; equal ones (a day) as the rows stand.
    """
    if order == SHUFFLED:
        return None
    table = read_table(path)
    known = next((name for name in RUN_ORDER if name in table.columns and all(table.columns[name])), None)
    name = order or known
    if name is None:
        return [float(row) for row in range(len(table))]
    cells = label_column(table, name)
    try:
        keys: Sequence[Any] = [float(cell) for cell in cells]
    except ValueError:
        keys = cells
    places = {row: float(place) for place, row in enumerate(sorted(range(len(keys)), key=lambda row: keys[row]))}
    return [places[row] for row in range(len(keys))]


def rows_to_compare(path: Path | str | Table, by: str, value: str, block: str | None = None) -> list[TrialRow]:
    """One trial a row: `by` names the levels, `value` the figure, `block` (if any) what was run together."""
    table = read_table(path)
    levels = label_column(table, by)
    blocks = label_column(table, block) if block is not None else [None] * len(table)
    values = _positive_numbers(table, value)
    return [
        TrialRow.foreign({by: level}, {value: number}, f"row {row}", block=together)
        for row, (level, number, together) in enumerate(zip(levels, values, blocks, strict=True), start=1)
    ]


# Shares of right answers. Columns of other names are compared as they are.
QUALITIES = frozenset({
    "accuracy", "acc", "acc1", "acc5", "top1", "top5", "auc", "auroc", "f1", "precision", "recall", "map", "iou",
    "miou",
})  # fmt: skip
ALSO_OTHERS = frozenset({"precision", "map"})  # bits, or a map: of these only what is 1 or less is a share


def with_error_rates(rows: Sequence[TrialRow], value: str) -> tuple[list[TrialRow], str]:
    """Where the column is a share of right answers, the share of wrong ones: 0.95 has five times the errors of 0.99.

    Values above 1 are per cent. A column that has all right somewhere, or more, stays: no ratio can be made of zero.
    """
    values = [row.metrics[value] for row in rows]
    whole = 1.0 if max(values, default=0.0) <= 1 else 100.0
    last = value.lower() if value.lower() in QUALITIES else "".join(words_of(value)[-1:])  # mAP is one word
    is_share = last in QUALITIES and (whole == 1 or last not in ALSO_OTHERS)
    if not is_share or max(values, default=whole) >= whole:
        return list(rows), value
    name = f"{value}_error"
    return [replace(row, metrics={name: round(1 - row.metrics[value] / whole, ERROR_DIGITS)}) for row in rows], name


ERROR_DIGITS = 12  # decimals: what a subtraction of floats leaves behind these is no figure
JOINED = "level"  # of two columns


def joined(group: str, level: str) -> str:
    return f"{group}, {level}"


def with_joined(table: Table, within: str, by: str) -> Table:
    """With one more column, whose levels are those of `by` for each of `within`."""
    both = zip(label_column(table, within), label_column(table, by), strict=True)
    return replace(table, columns={**table.columns, JOINED: [joined(*each) for each in both]})


def label_column(table: Table, name: str) -> list[str]:
    """A column that says where each row belongs, so that no cell of it may be empty."""
    labels = []
    for row, cell in enumerate(table.column(name), start=1):
        if cell is None or not cell.strip():
            raise table.error(row, name, "it is empty; every row needs one, or leave the row out.")
        labels.append(cell.strip())  # as the header is: `bare, docker` holds no level called " docker"
    return labels


def _positive_numbers(table: Table, column: str) -> list[float]:
    numbers = []
    for row, cell in enumerate(table.column(column), start=1):
        if cell is None or not cell.strip():
            raise table.error(row, column, "it is empty; a trial without a figure is a row to leave out.")
        try:
            number = float(cell)
        except ValueError:
            raise table.error(row, column, f"{cell!r} is not a number.{_number_hint(cell)}") from None
        if not (math.isfinite(number) and number > 0) or "_" in cell:
            raise table.error(row, column, f"{cell!r} cannot be compared; values must be finite and more than zero.")
        numbers.append(number)
    check_span(numbers, f"{table.path}, column {column!r}")
    return numbers


def _number_hint(cell: str) -> str:
    with_point = cell.replace(",", ".")
    if with_point != cell and with_point.replace(".", "", 1).strip().isdigit():
        return f" Did you mean {with_point.strip()}?"
    return ""


def _read_csv(path: Path) -> dict[str, list[str | None]]:
    """The standard library reads CSV exactly as written and knows the row; a sniffing reader knows neither."""
    csv.field_size_limit(_FIELD_BYTES)
    with _opened(path) as file:
        first = file.readline(_MOST_LINE)
        file.seek(0)
        delimiter = _delimiter(path, first)
        if (columns := _plain_columns(path, file, first, delimiter)) is not None:
            return columns
        rows = csv.reader(_lines(path, file), delimiter=delimiter, strict=True)
        try:
            return _csv_columns(path, rows)
        except csv.Error as error:
            raise StudyError(f"{path}:{rows.line_num}: this is not CSV: {error}.") from None


def _delimiter(path: Path, first: str) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else max(_DELIMITERS, key=first.count)


def _plain_columns(path: Path, file: Any, first: str, delimiter: str) -> dict[str, list[str | None]] | None:
    """The columns of a table without quotes and with as many fields in every line; None of any other, to be read anew.

    Such a table is cut at its delimiters and ends of lines, which takes a fifth of the time.
    """
    width = first.count(delimiter) + 1
    if width < 2 or os.fstat(file.fileno()).st_size > _MOST_LINE:
        return None
    text = file.read().removesuffix("\n")
    file.seek(0)
    lines = text.split("\n")
    if '"' in text or "\r" in text or max(map(len, lines)) > _FIELD_BYTES:
        return None
    if set(map(str.count, lines, repeat(delimiter))) != {width - 1}:
        return None
    cells = text.replace("\n", delimiter).split(delimiter)
    header = [name.strip() for name in cells[:width]]
    _check_header(path, header)
    whole: list[str | None] = [cell or None for cell in cells]
    return {name: whole[width + place :: width] for place, name in enumerate(header)}


def _csv_columns(path: Path, rows: Iterator[list[str]]) -> dict[str, list[str | None]]:
    header = [name.strip() for name in next(rows, [])]
    _check_header(path, header)
    cells: list[list[str]] = []
    for row in rows:
        if not row:
            continue  # a blank line
        if len(row) != len(header):
            where = f"{path}, row {len(cells) + 1}"
            raise StudyError(f"{where}: it has {len(row)} fields where the header has {len(header)}.")
        cells.append(row)
    columns = zip(*cells, strict=True) if cells else ([] for _ in header)
    return {name: [cell or None for cell in column] for name, column in zip(header, columns, strict=True)}


def _check_header(path: Path, header: Sequence[str]) -> None:
    if not any(header):
        raise StudyError(f"{path}: the file is empty; it needs a header line with the names of the columns.")
    name, times = Counter(header).most_common(1)[0]
    if times > 1:
        raise StudyError(f"{path}:1: there are two columns named {name!r}; it is unclear which one is meant.")


def _read_json_lines(path: Path) -> dict[str, list[str | None]]:
    rows: list[dict[str, str | None]] = []
    with _opened(path) as file:
        for number, line in enumerate(_lines(path, file), start=1):
            if line.strip():
                rows.append(_json_row(path, number, line))
    names = dict.fromkeys(name for row in rows for name in row)
    if len(names) * len(rows) > _MOST_CELLS:
        raise StudyError(
            f"{path}: {len(names):,} names in {len(rows):,} lines make more than {_MOST_CELLS:,} cells; give each "
            "line the same names."
        )
    return {name: [row.get(name) for row in rows] for name in names}


def _json_row(path: Path, number: int, line: str) -> dict[str, str | None]:
    try:  # numbers stay as they are written: a level called 1.50 is not one called 1.5
        row = json.loads(line, parse_int=str, parse_float=str, parse_constant=str)
    except (json.JSONDecodeError, RecursionError) as error:
        raise StudyError(f"{path}:{number}: this is not JSON: {error}.") from None
    if not isinstance(row, dict):
        raise StudyError(f"{path}:{number}: each line must be an object such as {{'platform': 'bare', 'step_s': 0.1}}.")
    return {name: _json_text(cell) for name, cell in row.items()}


def _json_text(cell: Any) -> str | None:
    return cell if cell is None or isinstance(cell, str) else json.dumps(cell)


def _read_parquet(path: Path) -> dict[str, list[str | None]]:
    from tare.records.parquet import texts  # heavy, and only Parquet needs it

    try:
        return texts(path.resolve())
    except StoreError as error:
        raise StudyError(str(error)) from None


def _lines(path: Path, file: Any) -> Iterator[str]:
    """Its lines; a file without any (zeros, one row of a whole database) is not taken into memory."""
    for number in count(1):
        if len(line := file.readline(_MOST_LINE)) >= _MOST_LINE:
            raise StudyError(f"{path}:{number}: this line has more than {_MOST_LINE:,} characters: this is no table.")
        if not line:
            return
        yield line


def _opened(path: Path) -> Any:
    return path.open(encoding="utf-8-sig", newline="")  # utf-8-sig: a spreadsheet's byte-order mark is no column name


READERS: Mapping[str, Callable[[Path], dict[str, list[str | None]]]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
}


# tare's own export

_OWN = ("trial", "attempt", "block", "position", "twin", "state", "traced")
# A spreadsheet would run what begins so (faults.md S22); one for Chinese or Japanese takes the wide signs as well.
FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_SETTING, _METRIC, _DESIGN = "setting.", "metric.", "design"


@dataclass(frozen=True)
class ExportedTrials:
    """What `tare report --format csv` wrote of a store: enough of it to be weighed as the store itself is."""

    study: Mapping[str, Any]
    kept: Sequence[Record]

    def records(self) -> list[Record]:
        return list(self.kept)

    def rehearsals(self) -> list[Record]:
        return []

    def states(self) -> dict[str, State]:
        return {record.trial: record.state for record in self.kept}


def exported_trials(path: Path | str) -> ExportedTrials | None:
    """The trials of a store, out of a table that tare wrote; None where the table is another's."""
    table = read_table(path)
    if not set(_OWN) <= set(table.columns):
        return None
    cells = [dict(zip(table.columns, row, strict=True)) for row in zip(*table.columns.values(), strict=True)]
    design = next((cell for row in cells if (cell := row.get(_DESIGN))), None)
    try:
        records = [_exported(row) for row in cells if any(row.values())]
        return ExportedTrials(json.loads(design) if design else {}, records)
    except (ValueError, TypeError) as error:
        raise StudyError(f"{path}: this table of trials was changed since tare wrote it: {error}.") from None


def _exported(row: Mapping[str, str | None]) -> Record:
    figures = {
        name.removeprefix(_METRIC): float(cell) for name, cell in row.items() if name.startswith(_METRIC) and cell
    }
    settings = {
        name.removeprefix(_SETTING): _setting(cell)
        for name, cell in row.items()
        if name.startswith(_SETTING) and cell is not None
    }
    numbers = {name: int(float(row[name] or 0)) for name in ("attempt", "block", "position", "twin")}
    return Record.from_json(
        {
            "trial": row["trial"], "study": row.get("study") or "", **numbers, "settings": settings,
            "state": row["state"], "reasons": [row["reasons"]] if row.get("reasons") else [],
            "metrics": figures, "started_utc": row.get("started_utc") or "",
            "facts": {"traced": {}} if str(row["traced"]).lower() == "true" else {},
        }
    )  # fmt: skip


def _setting(cell: str) -> Any:
    """As it was before it became text; a quote that keeps a spreadsheet from running it goes."""
    if cell.startswith("'") and cell[1:].startswith(FORMULA):
        return cell[1:]
    try:
        return json.loads(cell)
    except ValueError:
        return cell
