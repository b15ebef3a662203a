"""Series as Parquet, by DuckDB in memory: it writes and reads the files and is never a store itself.

One thread, so that a store that is read on the device under test does not disturb what is measured there.
"""

from __future__ import annotations

import errno
import glob
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from tare.base.errors import StoreError
from tare.base.files import settle_file
from tare.records.model import MadeWhenAsked
from tare.records.spool import storable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tare.records.column_codec import PlainColumns
    from tare.records.spool import Ids, Times, Values

    Texts: TypeAlias = npt.NDArray[np.object_]
    Tables: TypeAlias = Mapping[str, Mapping[str, npt.NDArray[Any]]]


EDGES = ("begin", "end", "point")
_PARQUET = "(FORMAT PARQUET, COMPRESSION ZSTD)"


_idle: list[Any] = []  # databases that a seal has used, and that have not spilled


@contextmanager
def engine(spill: Path) -> Iterator[Any]:
    """DuckDB for one seal; past half a GiB it spills into `spill`. Tables in it are temporary, and go with it.

    To start a database takes as long as to seal a short trial: that of the last seal is used again.
    """
    import duckdb

    base, usable = _idle.pop() if _idle else _connect({"memory_limit": "512MB"}), False
    try:
        base.execute("SET temp_directory = '{}'".format(str(spill).replace("'", "''")))
        with closing(base.cursor()) as db:
            yield db
        usable = not spill.exists()  # else it is bound to that folder now
    except duckdb.IOException as error:
        code = errno.ENOSPC if "No space left" in str(error) else errno.EIO
        raise OSError(code, str(error)) from error
    finally:
        if usable:
            _idle.append(base)
        else:  # an error may have made it unusable
            base.close()


@cache
def _reader() -> Any:
    """DuckDB for everything that this process reads: to start one takes longer than to read a file."""
    return _connect({"temp_directory": ""})


def _connect(limits: dict[str, str]) -> Any:
    """DuckDB without files of its own, without extensions and without a network."""
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,  # a table is only what we register, never one of our variables
        **limits,
    }
    return duckdb.connect(":memory:", config=config)


def write_readings(db: Any, path: Path, chunks: Iterable[tuple[Times, Ids, Values]], names: Sequence[str]) -> None:
    """The readings as one file: each chunk by channel, and each channel in the order in which it came."""
    import numpy as np

    db.execute("CREATE TEMP TABLE reading (t_ns BIGINT, id UINTEGER, value DOUBLE)")
    for times, ids, values in chunks:
        # Sorted here and not by the database: a chunk fits into memory whatever the length of the trial.
        order = np.argsort(ids, kind="stable")
        db.register("chunk", {"t_ns": times[order], "id": ids[order], "value": values[order]})
        db.execute("INSERT INTO reading SELECT t_ns, id, value FROM chunk")
        db.unregister("chunk")
    db.execute(
        "COPY (SELECT t_ns, coalesce(list_extract(?::VARCHAR[], id + 1), 'nameless.' || id) AS channel, value "
        f"FROM reading) TO ? {_PARQUET}",
        [list(names), str(path)],
    )


QUANTILES = tuple(place / 40 for place in range(41))

# Of a gauge its values; of a counter how fast it rose from one reading to the next. Quantiles are taken in memory: of a
# channel with more figures than there is room for, of every second one, or third.
_DISTRIBUTIONS = """
WITH sizes AS (SELECT id, 1 + (count(*) - 1) // $most AS every FROM reading GROUP BY id), ordered AS (
    SELECT id, t_ns, value, rowid AS place, list_contains($counters::UINTEGER[], id) AS counts FROM reading
), drawn AS (
    SELECT id, row_number() OVER each AS place, CASE WHEN counts
        THEN (value - lag(value) OVER each) / nullif((t_ns - lag(t_ns) OVER each) / 1e9, 0) ELSE value END AS figure
    FROM ordered WINDOW each AS (PARTITION BY id ORDER BY place)
)
SELECT id, count(figure), quantile_cont(figure, $places::DOUBLE[]) FILTER (WHERE place % every = 0)
FROM drawn JOIN sizes USING (id) WHERE isfinite(figure) GROUP BY id
"""
_MOST_FIGURES = 10_000_000  # of all channels together, whose quantiles are exact


def distributions(db: Any, counters: Sequence[int]) -> dict[int, tuple[int, list[float]]]:
    """Channel id -> how many figures, and their quantiles; after `write_readings`, from the same database.

    Worked out once, when the trial is sealed: a report of a thousand trials need not read their series again. To six
    digits, which is more than a sensor has: all seventeen were half of what a packed study weighs.
    """
    whole, channels = db.execute("SELECT count(*), count(DISTINCT id) FROM reading").fetchone()
    most = max(1, whole) if whole <= _MOST_FIGURES else _MOST_FIGURES // channels
    rows = db.execute(_DISTRIBUTIONS, {"most": most, "counters": list(counters), "places": list(QUANTILES)}).fetchall()
    return {channel: (count, [float(f"{value:.6g}") for value in places]) for channel, count, places in rows if places}


def read_distributions(
    path: Path | PlainColumns, names: Sequence[str], counters: Sequence[int]
) -> dict[int, tuple[int, list[float]]]:
    """The same of a sealed file, worked out again; `names` in the order of their ids."""
    import duckdb

    source, given = "read_parquet($path)", {"names": list(names), "path": glob.escape(str(path))}
    cursor = _reader().cursor()
    try:
        if not isinstance(path, Path):
            source, given = "plain", {"names": list(names)}
            cursor.register(source, dict(path))
        cursor.execute(
            "CREATE TEMP TABLE reading AS SELECT t_ns, (list_position($names, channel) - 1)::UINTEGER AS id, value "
            f"FROM {source} WHERE list_contains($names, channel)",
            given,
        )
        return distributions(cursor, counters)
    except duckdb.Error as error:
        raise StoreError(f"{path}: it cannot be read: {error}") from error
    finally:
        cursor.close()


def read_readings(path: Path | PlainColumns) -> dict[str, tuple[Times, Values]]:
    """The reverse of `write_readings`; a channel without a reading is absent."""
    import numpy as np

    if not isinstance(path, Path) and path.by_channel is not None:
        return dict(path.by_channel)
    # A number in place of the channel's name: a text for each of ten million readings takes a gigabyte.
    named = _columns(path, "DISTINCT hash(channel) AS number, channel") if isinstance(path, Path) else {}
    numbers = dict(zip(named["number"], named["channel"], strict=True)) if named else {}
    is_told = bool(named) and len(numbers) == len(named["channel"])
    found = _columns(path, f"t_ns, {'hash(channel) AS channel' if is_told else 'channel'}, value")
    channel, times, values = found["channel"], found["t_ns"], found["value"]
    edges = [0, *(np.flatnonzero(channel[1:] != channel[:-1]) + 1).tolist(), len(channel)]
    runs: dict[str, list[slice]] = {}
    for begin, end in pairwise(edges):
        if begin < end:
            name = numbers[channel[begin]] if is_told else channel[begin]
            runs.setdefault(name, []).append(slice(begin, end))
    return {name: (_joined(times, its), _joined(values, its)) for name, its in runs.items()}


def _joined(column: npt.NDArray[Any], runs: Sequence[slice]) -> npt.NDArray[Any]:
    import numpy as np

    return column[runs[0]] if len(runs) == 1 else np.concatenate([column[run] for run in runs])


def write_marks(db: Any, path: Path, marks: Iterable[tuple[int, str, str | int, int]]) -> None:
    """The marks as one file, as they came."""
    import numpy as np

    times, names, edges, steps = zip(*marks, strict=True) if (marks := list(marks)) else ((), (), (), ())
    columns = {
        "t_ns": np.array(times, dtype=np.int64),
        "name": np.array([storable(name) for name in names], dtype=object),
        "edge": np.array([_edge(edge) for edge in edges], dtype=object),
        "step": np.array(steps, dtype=np.int64),
    }
    db.register("mark", columns)
    db.execute(
        f"COPY (SELECT t_ns, name::VARCHAR AS name, edge::VARCHAR AS edge, step FROM mark) TO ? {_PARQUET}", [str(path)]
    )


def read_marks(path: Path | PlainColumns) -> Mapping[str, npt.NDArray[Any]]:
    """The marks as columns: t_ns, name, edge, step."""
    return _columns(path, "t_ns, name, edge, step")


def insert(db: Any, table: str, columns: Mapping[str, Any], *, new: bool) -> int:
    """Add rows to a table of this database, which the first ones make; returns how many."""
    import numpy as np

    arrays = {name: _array(values) for name, values in columns.items()}
    lengths = {len(values) for values in arrays.values()}
    if len(lengths) != 1:
        raise StoreError(f"the columns of a table have one length, not {sorted(lengths)}.")
    texts = {name for name, values in arrays.items() if values.dtype == np.object_}
    chosen = ", ".join(f'"{name}"::VARCHAR AS "{name}"' if name in texts else f'"{name}"' for name in arrays)
    db.register("piece", arrays)
    begin = f"CREATE TEMP TABLE {table} AS" if new else f"INSERT INTO {table} BY NAME"
    db.execute(f"{begin} SELECT {chosen} FROM piece")
    db.unregister("piece")
    return int(lengths.pop())


def write_table(db: Any, table: str, path: Path) -> None:
    """A table of this database as one file, in the order in which its rows came."""
    db.execute(f"COPY {table} TO ? {_PARQUET}", [str(path)])


def write_columns(db: Any, path: Path, columns: PlainColumns) -> None:
    """Columns of arrays as one file."""
    texts = columns.coded
    named = [
        f'list_extract(?::VARCHAR[], "{name}" + 1) AS "{name}"' if name in texts else f'"{name}"' for name in columns
    ]
    db.register("piece", {name: texts[name][1] if name in texts else columns[name] for name in columns})
    db.execute(
        f"COPY (SELECT {', '.join(named)} FROM piece) TO ? {_PARQUET}",
        [*(texts[name][0] for name in columns if name in texts), str(path)],
    )
    db.unregister("piece")


def columns_of(path: Path | PlainColumns) -> Mapping[str, npt.NDArray[Any]]:
    """Every column of a file."""
    return _columns(path, "*")


def _array(values: Any) -> npt.NDArray[Any]:
    """Words as objects: DuckDB takes them so, and numpy's own kind of text has a fixed width."""
    import numpy as np

    array = np.asarray(values)
    if array.dtype == np.object_ and _are_storable(array.tolist()):
        return array
    if array.dtype.kind in "UO":
        return np.array([None if value is None else storable(str(value)) for value in values], dtype=object)
    return array


def _are_storable(values: list[Any]) -> bool:
    """Whether all are texts that a file can hold as they are: seen at once, which takes a tenth of looking at each."""
    try:
        "".join(values).encode()
    except (TypeError, UnicodeEncodeError):
        return False
    return True


def texts(path: Path) -> dict[str, list[str | None]]:
    """Every column of any Parquet file, as texts: of files that others have made."""
    import duckdb

    cursor = _reader().cursor()
    try:
        cursor.execute("SELECT COLUMNS(*)::VARCHAR FROM read_parquet(?)", [glob.escape(str(path))])
        names, rows = [column[0] for column in cursor.description], cursor.fetchall()
    except duckdb.Error as error:
        raise StoreError(f"{path}: this is not a Parquet file that can be read: {error}") from error
    finally:
        cursor.close()
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    return {name: list(column) for name, column in zip(names, columns, strict=True)}


def _columns(path: Path | PlainColumns, names: str) -> Mapping[str, npt.NDArray[Any]]:
    if not isinstance(path, Path):
        return path
    import duckdb

    cursor = _reader().cursor()
    try:
        # The path is a pattern to DuckDB; ours is one file, whatever characters are in its name.
        cursor.execute(f"SELECT {names} FROM read_parquet(?)", [glob.escape(str(path))])
        found: dict[str, npt.NDArray[Any]] = cursor.fetchnumpy()
    except duckdb.Error as error:
        raise StoreError(f"{path}: it cannot be read: {error}") from error
    finally:
        cursor.close()
    return found


def _edge(edge: str | int) -> str:
    word = EDGES[edge] if isinstance(edge, int) and 0 <= edge < len(EDGES) else edge
    if word not in EDGES:
        raise StoreError(f"a mark's edge is one of {', '.join(EDGES)}, not {edge!r}.")
    return word


# Tables that recorders keep

_FILE = re.compile(r"trace-([a-z0-9_]+)-([a-z0-9_]+)\.parquet")


class TableName(NamedTuple):
    """Which recorder kept it, and what it called it."""

    probe: str
    table: str

    @property
    def file(self) -> str:
        name = f"trace-{self.probe}-{self.table}.parquet"
        if not _FILE.fullmatch(name):
            raise StoreError(
                f"a table is named with small letters, digits and '_', not {self.probe!r}, {self.table!r}."
            )
        return name

    @classmethod
    def of(cls, file: str) -> Self | None:
        """The reverse of `file`; None for a file that is no table."""
        match = _FILE.fullmatch(file)
        return cls(match[1], match[2]) if match else None


class TableFiles(AbstractContextManager["TableFiles"]):
    """Tables on their way into `folder`; pieces of one are put together, past half a GiB on the disk."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._engine = engine(folder / "spill")
        self._db = self._engine.__enter__()
        self._rows: dict[TableName, int] = {}

    def add(self, name: TableName, columns: Mapping[str, Any]) -> None:
        """One piece of a table; the first one says which columns there are."""
        table = f"t{list(self._rows).index(name)}" if name in self._rows else f"t{len(self._rows)}"
        self._rows[name] = self._rows.get(name, 0) + insert(self._db, table, columns, new=name not in self._rows)

    def write(self) -> dict[TableName, int]:
        """Every table to its file; returns the rows of each."""
        for number, name in enumerate(self._rows):
            write_table(self._db, f"t{number}", self._folder / name.file)
            settle_file(self._folder / name.file)
        return self._rows

    def __exit__(self, *exc: Any) -> None:
        self._engine.__exit__(*exc)


def tables_in(folder: Path, probe: str) -> Tables:
    """The tables of one recorder in a folder, by name."""
    found = [TableName.of(path.name) for path in sorted(folder.iterdir())] if folder.is_dir() else []
    mine = [name for name in found if name is not None and name.probe == probe]
    return MadeWhenAsked({name.table: partial(columns_of, folder / name.file) for name in mine})
