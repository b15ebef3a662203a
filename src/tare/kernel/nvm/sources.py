"""Where traces of page writes come from: a file of someone's own, or the traced trials of a store."""

from __future__ import annotations

import csv
import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tare.base.errors import StudyError
from tare.ext.analysis import Record, Store, TableName, cells, coded, is_usable, usable_trials
from tare.kernel.nvm.model import (
    MOST_KEYS,
    MOST_TENANTS,
    PAGE_BYTES,
    POLICIES,
    Layer,
    Piece,
    Run,
    Trace,
    Writes,
    trace_of,
)
from tare.kernel.nvm.recency import Counted, Recency

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


# A trace of someone's own: CSV or Parquet with t_s, dev, inode, page and perhaps tenant, read in pieces.
#
# DuckDB makes one number of device, file and page, from the ranges that a Parquet file tells of itself; so a piece is
# two columns, or three with tenants. A CSV file is made into a Parquet file first: it has no place to begin a piece at.

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
        before, time = -math.inf, "t_s" if "t_s" in names else "t_ns"
        for row in rows:
            if not row:
                continue
            where = f"{path}:{rows.line_num}"
            if len(row) != len(names):
                return f"{where}: it has {len(row)} fields where the header has {len(names)}."
            for name in layout.chosen:
                if wrong := _wrong(layout.columns[name], row[names.index(name)]):
                    return f"{where}: column {name!r}: {wrong}"
            now = float(row[names.index(time)]) if time in names else 0.0
            if now < before:
                return f"{where}: column {time!r}: {_SORT}"
            before = now
    return None


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


PIECE_ROWS = 122_880 * 16  # whole row groups, as DuckDB writes them
NEEDED = ("dev", "inode", "page")
TIMES = {"t_s": 1e9, "t_ns": 1.0}
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")


@contextmanager
def trace_file(path: Path) -> Iterator[Trace]:
    """The trace in a CSV or Parquet file, looked through for what cannot be simulated."""
    import duckdb

    if not path.is_file():
        raise StudyError(f"{path}: no such file.")
    is_csv = path.suffix.lower() in (".csv", ".tsv")
    with tempfile.TemporaryDirectory(prefix="tare-simulate-") as folder, duckdb.connect(":memory:") as db:
        db.execute("SET threads = 1; SET python_enable_replacements = false")
        db.execute(f"SET temp_directory = '{folder}'")
        try:
            if is_csv:
                _to_parquet(db, path, Path(folder) / "trace.parquet")
            yield _trace(db, path, Path(folder) / "trace.parquet" if is_csv else path, is_csv)
        except duckdb.Error as error:
            if is_csv and (told := csv_fault(path)):
                raise StudyError(told) from None
            raise StudyError(f"{path}: it cannot be read as {'CSV' if is_csv else 'Parquet'}: {error}") from None


def _to_parquet(db: Any, path: Path, target: Path) -> None:
    layout = csv_layout(path)
    _refuse_without(path, layout.columns)
    columns = ", ".join(f"{_text(name)}: '{kind}'" for name, kind in layout.columns.items())
    chosen = ", ".join(f'"{name}"' for name in layout.chosen)
    db.execute(
        f"COPY (SELECT {chosen} FROM read_csv({_text(str(path.resolve()))}, auto_detect = false, header = true, "
        f"""delim = {_text(layout.delimiter)}, quote = '"', escape = '"', columns = {{{columns}}}))"""
        f" TO {_text(str(target))} (FORMAT PARQUET, ROW_GROUP_SIZE 122880)"
    )


def _refuse_without(path: Path, columns: Iterable[str]) -> str:
    """The column of times; a sentence with the file's own columns where one that is needed is not among them."""
    found = [name for name in columns if name != "file_row_number"]
    time = next((name for name in TIMES if name in found), None)
    missing = [name for name in NEEDED if name not in found] + ([] if time else ["t_s"])
    if time is None or missing:
        told = ", ".join(map(repr, missing))
        raise StudyError(f"{path}: no column {told}; available: {', '.join(found)}.")
    return time


@dataclass(frozen=True)
class _Range:
    """Of one column: SQL for a number from 0 on, and how many there can be."""

    sql: str
    span: int


def _trace(db: Any, path: Path, source: Path, is_csv: bool) -> Trace:
    table = f"read_parquet({_text(_literal(source))}, file_row_number = true)"
    kinds = {row[0]: row[1] for row in db.execute(f"DESCRIBE SELECT * FROM {table}").fetchall()}
    time = _refuse_without(path, kinds)
    who = "tenant" if "tenant" in kinds else "role" if "role" in kinds else None
    refuse = _Refusal(db, table, path, is_csv)
    refuse.rows_that_cannot_be(kinds, time, who)
    rows, first, last = db.execute(f'SELECT count(*), min("{time}"), max("{time}") FROM {table}').fetchone()
    if not rows:
        raise StudyError(f"{path}: the trace has no rows.")
    tenants = ("",) if who is None else _words(db, table, path, who, "tenants", MOST_TENANTS)
    key = _key(db, table, path, kinds)
    chosen = [f"{key.sql} AS key", f'"{time}" AS t'] + ([_code("tenants", str(who)) + " AS who"] if who else [])

    def pieces() -> Iterator[Piece]:
        last_ns = None
        for begin in range(0, rows, PIECE_ROWS):
            where = f"file_row_number BETWEEN {begin} AND {begin + PIECE_ROWS - 1}"
            found = db.execute(f"SELECT {', '.join(chosen)} FROM {table} WHERE {where}").fetchnumpy()
            piece = _piece(found, TIMES[time])
            refuse.time_that_goes_back(piece.times_ns, last_ns, begin, time)
            last_ns = int(piece.times_ns[-1])
            yield piece

    span_s = (last - first) * TIMES[time] / 1e9
    return Trace(path.name, rows, tenants, key.span, pieces, float(span_s), _page_bytes(db, source))


def _piece(found: dict[str, Any], ns: float) -> Piece:
    import numpy as np

    times = found["t"]
    if ns != 1.0:
        times = times * ns
        np.rint(times, out=times)
    who = found["who"].astype(np.uint8) if "who" in found else np.zeros(len(times), np.uint8)
    return Piece(found["key"].view(np.uint64), who, times.astype(np.int64, copy=False))


@dataclass(frozen=True)
class _Refusal:
    """Says what is wrong with a trace, and in which row."""

    db: Any
    table: str
    path: Path
    is_csv: bool

    def rows_that_cannot_be(self, kinds: dict[str, str], time: str, who: str | None) -> None:
        """No cell may be empty, no number below zero, and a page is a whole number."""
        if kinds["page"] not in _WHOLE:
            raise StudyError(f"{self.path}: column 'page' holds {kinds['page']}, not whole numbers.")
        for column in (time, *NEEDED, *([who] if who else [])):
            wrong = f'"{column}" IS NULL'
            if self._is_number(kinds[column]):
                wrong += f' OR NOT isfinite("{column}"::DOUBLE)' if column == time else f' OR "{column}" < 0'
            # Looked for only where the file's own statistics leave it open: a look takes as long as reading a column.
            empty, low, high = self.db.execute(
                f'SELECT count(*) - count("{column}"), min("{column}"), max("{column}") FROM {self.table}'
            ).fetchone()
            numbers = [value for value in (low, high) if isinstance(value, int | float)]
            below = column != time and any(value < 0 for value in numbers)
            if empty or below or not all(map(math.isfinite, numbers)):
                row = self.db.execute(
                    f'SELECT file_row_number, "{column}" FROM {self.table} WHERE {wrong} LIMIT 1'
                ).fetchone()
                if row is not None:
                    self._refuse(row[0], column, "it is empty." if row[1] is None else f"{row[1]} cannot be.")

    def _is_number(self, kind: str) -> bool:
        return kind in (*_WHOLE, "DOUBLE", "FLOAT", "HUGEINT", "UHUGEINT") or kind.startswith("DECIMAL")

    def time_that_goes_back(
        self, times_ns: npt.NDArray[np.int64], last_ns: int | None, begin: int, column: str
    ) -> None:  # fmt: skip
        back = (times_ns[1:] < times_ns[:-1]).nonzero()[0]
        at = 0 if last_ns is not None and times_ns[0] < last_ns else int(back[0]) + 1 if len(back) else None
        if at is not None:
            self._refuse(begin + at, column, "the time goes back; sort the trace by it.")

    def _refuse(self, row: int, column: str, what: str) -> None:
        told = csv_fault(self.path) if self.is_csv else None
        raise StudyError(told or parquet_fault(self.path, row, column, what))


def _words(db: Any, table: str, path: Path, column: str, name: str, most: float = math.inf) -> tuple[str, ...]:
    """Make a type of a column's words, so that each has a number."""
    found = db.execute(f'SELECT DISTINCT "{column}"::VARCHAR FROM {table} ORDER BY 1').fetchall()
    if len(found) > most:
        told = f"column {column!r} has {len(found):,} different values"
        raise StudyError(f"{path}: {told}; at most {most:,} are told apart.")
    words = tuple(row[0] for row in found)
    db.execute(f"CREATE TYPE {name} AS ENUM ({', '.join(map(_text, words))})")
    return words


def _code(name: str, column: str) -> str:
    return f'enum_code("{column}"::VARCHAR::{name})'


def _key(db: Any, table: str, path: Path, kinds: dict[str, str]) -> _Range:
    """One number for device, file and page: by their ranges, or by their different values where those are too wide."""
    ranges = {name: _range(db, table, path, name, kinds[name]) for name in NEEDED}
    for name in ("dev", "inode"):
        if math.prod(each.span for each in ranges.values()) > MOST_KEYS and kinds[name] in _WHOLE:
            ranges[name] = _range(db, table, path, name, "VARCHAR")
    span = math.prod(each.span for each in ranges.values())
    if span > MOST_KEYS:
        raise StudyError(f"{path}: its devices, files and pages lie too far apart to be numbered in 63 bits.")
    first, *others = [each for each in ranges.values() if each.span > 1] or [_Range("0::BIGINT", 1)]
    sql = first.sql
    for each in others:  # a column that is the same everywhere is not even read
        sql = f"({sql} * {each.span} + {each.sql})"
    return _Range(sql, span)


def _range(db: Any, table: str, path: Path, column: str, kind: str) -> _Range:
    if kind not in _WHOLE:
        words = _words(db, table, path, column, f"{column}_words")
        return _Range(f"{_code(f'{column}_words', column)}::BIGINT", len(words))
    low, high = db.execute(f'SELECT min("{column}"), max("{column}") FROM {table}').fetchone()
    return _Range(f'("{column}" - {low}::{kind})::BIGINT', int(high) - int(low) + 1)


def _page_bytes(db: Any, source: Path) -> int | None:
    """The size of a page, where the file says so in its own words (key `page_bytes`)."""
    said = db.execute(f"SELECT key, value FROM parquet_kv_metadata({_text(_literal(source))})").fetchall()
    found = next((bytes(value) for key, value in said if bytes(key) == b"page_bytes"), b"")
    return int(found) if found.isdigit() and int(found) else None


def _literal(path: Path) -> str:
    """A path that DuckDB takes as it is, not as a pattern."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in str(path.resolve()))


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


# The traced trials of a store as traces; and their flush latencies, worked out when they are asked for.
#
# A sealed record is not written to: what is simulated depends on assumptions that the next person may not share.

PAGE_WRITES = TableName("ftrace", "page_writes")
OURSELVES = "tare"  # the role of runner and sampler: what they write is not the workload's
CLAIMED_SHARE = 0.1  # of the pages that a trial wrote back: the layer that the claim is decided with, by LRU
NO_TRACE = (
    "no usable trial of this store has page writes: they take the ftrace probe with its write-back events "
    "(`probes: [ftrace]` in the study)"
)


def has_page_writes(store: Store, record: Record) -> bool:
    """Whether it ended well and has page writes."""
    return is_usable(record) and PAGE_WRITES in store.traces(record.trial, record.attempt)


def store_traces(store: Store) -> Iterator[Trace]:
    """One trace a trial, under the settings that tell it from others."""
    records = usable_trials(store.records(), partial(has_page_writes, store))
    if not records:
        return
    label = cells(records, "platform") if all("platform" in record.settings for record in records) else None
    for record in records:
        yield _trace_of_trial(store, record, label.label(record) if label else record.trial)


def _trace_of_trial(store: Store, record: Record, name: str) -> Trace:
    columns = store.trace(record.trial, record.attempt, *PAGE_WRITES)
    roles, role = coded(columns, "role")
    kept = np.flatnonzero(np.isin(role, [at for at, each in enumerate(roles) if each == OURSELVES], invert=True))
    rows = kept[np.argsort(columns["t_ns"][kept], kind="stable")]
    # A page is one of the device here (`kernel.traces.writeback`): which file it was written for need not be known.
    placed = {name: columns[name][rows] for name in ("t_ns", "dev", "page")}
    who = roles, role[rows]
    return trace_of(name, placed, who, settings={"trial": record.trial, **record.settings})


class FlushLatencies(NamedTuple):
    """What a page that is written back waits for, without the layer and with it."""

    disk_only_s: float
    nvm_s: float


def flush_latencies(store: Store, record: Record) -> FlushLatencies | None:
    """What a flushing layer would make of the latency of a write-back; None where the trial has no page writes.

    The pages are counted before the layer is made: its size is a share of them.
    """
    if not has_page_writes(store, record):
        return None
    trace = _trace_of_trial(store, record, record.trial)
    if not trace.writes:
        return None
    [piece] = trace.pieces()
    recency = Recency(most=0)  # there is no part after this one
    part = recency.part(piece.keys)
    size_bytes = max(1, round(CLAIMED_SHARE * recency.known)) * PAGE_BYTES
    layer = Counted(Layer(POLICIES["lru"], size_bytes), trace, PAGE_BYTES, shares=1)
    layer.shares[0].feed(part, recency.known, piece.tenants)
    latency = layer.run().latency
    return FlushLatencies(latency.disk_only_s / trace.writes, latency.total_s / trace.writes)


LOW, HIGH = 0.77, 0.90  # of the disk-only latency; the mean of its eight cases is 82 %


@dataclass(frozen=True)
class Band:
    """Where a policy's improvements cross the paper's, from the smallest buffer to the largest."""

    policy: str
    destage: str
    below: Run | None  # the largest buffer that does not reach them
    within: tuple[Run, ...]
    above: Run | None  # the smallest one that is beyond them


def bands(runs: Sequence[Run]) -> list[Band]:
    """One for each policy and way to destage."""
    found = []
    for policy, destage in dict.fromkeys((run.layer.policy.name, run.layer.destage.name) for run in runs):
        ours = [run for run in runs if (run.layer.policy.name, run.layer.destage.name) == (policy, destage)]
        ours = sorted((run for run in ours if run.layer.policy.buffers), key=capacity)
        if ours:
            below = [run for run in ours if run.latency.improvement < LOW]
            within = [run for run in ours if LOW <= run.latency.improvement <= HIGH]
            above = [run for run in ours if run.latency.improvement > HIGH]
            found.append(
                Band(policy, destage, below[-1] if below else None, tuple(within), above[0] if above else None)
            )
    return found


def capacity(run: Run) -> float:
    """Bytes of the buffer; one without a limit is larger than any."""
    return float("inf") if run.layer.nvm_bytes is None else run.layer.nvm_bytes


def pooled(runs: Sequence[Run], trace: str) -> Run:
    """The same layer over several traces, as one: their write-backs together."""
    tenants: dict[str, Writes] = {}
    for run in runs:
        for name, writes in run.tenants.items():
            tenants[name] = tenants.get(name, Writes()) + writes
    return Run(
        runs[0].layer,
        tenants,
        destaged=sum(run.destaged for run in runs),
        left=sum(run.left for run in runs),
        pages=runs[0].pages,
        trace=trace,
        duration_s=sum(run.duration_s for run in runs),
    )
