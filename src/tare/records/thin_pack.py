"""A thinned pack: what proves the figures of a store, in a tenth of its bytes.

What is left out, and nothing else:

- times are rounded down to a microsecond: those of marks, readings and traced events, and readings in seconds; but
  not of a trial with figures that change then (a step that began in the same microsecond as a tenant's window);
- of a channel of which no figure needs all readings, every fifth is kept, with the first and the last;
- of a table of single events that are only counted (page faults, pages dirtied), the columns that tell them apart are
  kept, and each event stands at the mark before it, so that it still lies in the same stage of the workload;
- of a table whose order counts (page writes), the columns that figures need are kept, all rows in their order, and of
  their times tens of milliseconds, never across a moment at which a figure looks (the start of a write-back);
- of seconds in tables, digits behind the nanosecond;
- quantiles of channels are made again from the readings when they are asked for.

Records and what workloads printed are as they were sealed; no other row, column or channel is missing. The hashes of
every sealed file are kept in each trial's manifest: whoever has the whole store can tell that this pack was made of it.
Opening the pack makes ordinary trials of it (`expand`), which every verb reads. In such tables rows that are alike, or
are the pages of one stretch of a disk, are kept as one with their number (format 2; of format 1 are packs of before).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tare.base import strict_json
from tare.base.errors import StoreError
from tare.records.model import Json
from tare.records.parquet import EDGES, TableName, columns_of, engine, read_marks, read_readings, write_columns
from tare.records.schema import (
    CHANNELS_FILE,
    ERR_FILE,
    MANIFEST_FILE,
    MARKS_FILE,
    OUT_FILE,
    READINGS_FILE,
    RECORD_FILE,
    TRIALS_FOLDER,
)
from tare.records.sealed import Key, Manifest, Sealed, Thinned, entry_of, files_in, is_trial_folder, record_in

if TYPE_CHECKING:
    import numpy.typing as npt

    from tare.records.column_codec import PlainColumns, Stream, StreamReader, StreamWriter

    Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]
    Series: TypeAlias = Callable[[], PlainColumns]

FORMAT = 2
RESOLUTION_NS = 1000
EVERY = 5  # readings: one of so many is kept of a channel that no figure needs in full
_TEXTS = (MANIFEST_FILE, RECORD_FILE, CHANNELS_FILE, OUT_FILE, ERR_FILE)
_MADE_AGAIN = ("count", "quantiles")
_DESCRIBED = {"name", "unit", "kind"}
_COLUMN = re.compile(r"[A-Za-z0-9_]{1,80}")
_BETWEEN = "\n"  # a mark's name and its edge, as one word
_WHOLE = "int64"
_LONGEST_UNIT_NS = 10**9


@dataclass(frozen=True)
class InOrder:
    """What figures need of a table of single events in their order."""

    columns: tuple[str, ...]
    rises: str  # the column that rises by one from row to row of one stretch
    after: TableName  # the table of events at whose times figures look
    moments: Callable[[Columns], npt.NDArray[Any]]  # other times at which figures look
    unit_ns: int = 10**7  # times between are rounded down to this


@dataclass(frozen=True)
class TablesKept:
    """What is kept of the trace tables of some probes; tables that are not named go."""

    counted: Mapping[TableName, tuple[str, ...]]  # the columns that figures tell apart
    in_order: Mapping[TableName, InOrder]


@dataclass(frozen=True)
class Thinning:
    """What the figures need, as those say who make them."""

    in_full: Callable[[Mapping[str, Json]], bool]  # whether a figure is made of every reading of this channel
    counted: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)  # the columns that figures tell apart
    in_order: Mapping[TableName, InOrder] = field(default_factory=dict)
    exact: frozenset[str] = frozenset()  # TRIAL.ATTEMPT of trials with figures that need their times to the nanosecond

    def unit_ns(self, trial: Sealed) -> int:
        """What this trial's times are rounded down to; one that was thinned before stays as it is."""
        if trial.thinned is not None:
            return trial.thinned.resolution_ns
        return 1 if trial.folder.name in self.exact else RESOLUTION_NS


def thinned_content(trials: Iterable[Sealed], thinning: Thinning) -> bytes:
    """The trials as the content of one file."""
    from tare.records.column_codec import StreamWriter

    sealed = sorted(trials, key=lambda each: each.folder.name)
    streams = StreamWriter()
    units = [thinning.unit_ns(each) for each in sealed]
    header: dict[str, Json] = {
        "format": FORMAT,
        "resolution_ns": units,
        "trials": [each.folder.name for each in sealed],
        "texts": {},
    }
    texts = bytearray()
    for name in _TEXTS:
        found = [_text(each, name) for each in sealed]
        header["texts"][name] = [len(text) for text in found]
        texts += b"".join(found)
    marks = [_thin_marks(each, unit) for each, unit in zip(sealed, units, strict=True)]
    header["marks"] = _add_marks(streams, marks, units)
    header["readings"] = _add_readings(streams, [_thin_readings(each, thinning) for each in sealed], units)
    header["tables"] = {}
    names = {table for each in sealed for file in each.files if (table := TableName.of(file)) is not None}
    for table in sorted(names, key=lambda name: name.file):
        chosen = [number for number, each in enumerate(sealed) if table.file in each.files]
        thinned = (_thin_table(sealed[number], table, marks[number], thinning) for number in chosen)
        header["tables"][table.file] = {"trials": chosen, **_add_table(streams, table, thinned, thinning)}
    about = strict_json.dump(header)
    return len(about).to_bytes(8, "little") + about + bytes(texts) + bytes(streams.body)


def _text(trial: Sealed, name: str) -> bytes:
    if name == MANIFEST_FILE:
        files = trial.thinned.sealed if trial.thinned is not None else trial.files
        return Manifest(files, trial.lost_marks).as_json()
    if name == CHANNELS_FILE:
        channels = strict_json.load(trial.data(name))
        return strict_json.dump([{key: each[key] for key in each if key not in _MADE_AGAIN} for each in channels])
    return trial.data(name)


def _thin_marks(trial: Sealed, unit_ns: int) -> dict[str, Any]:
    marks = read_marks(trial.checked(MARKS_FILE))
    return {**marks, "t_ns": _rounded(marks["t_ns"], unit_ns)}


def _rounded(t_ns: Any, unit_ns: int) -> Any:
    return t_ns // unit_ns * unit_ns


def _thin_readings(trial: Sealed, thinning: Thinning) -> dict[str, tuple[Any, Any]]:
    import numpy as np

    channels = {channel["name"]: channel for channel in strict_json.load(trial.data(CHANNELS_FILE))}
    found, unit_ns = {}, thinning.unit_ns(trial)
    for name, (t_ns, values) in read_readings(trial.checked(READINGS_FILE)).items():
        channel = channels.get(name, {"name": name, "unit": "", "kind": "gauge"})
        chosen = np.ones(len(t_ns), bool)
        if trial.thinned is None and not thinning.in_full(channel):
            chosen = np.arange(len(t_ns)) % EVERY == 0
            chosen[-1:] = True
        values = values[chosen]
        if channel["unit"] == "s" and unit_ns > 1:
            whole = np.round(values * (1e9 / unit_ns)) / (1e9 / unit_ns)
            values = np.where(np.isfinite(values), whole, values)
        found[name] = (_rounded(t_ns[chosen], unit_ns), values)
    return found


def _thin_table(trial: Sealed, name: TableName, marks: Columns, thinning: Thinning) -> dict[str, Any]:
    import numpy as np

    table = {key: _to_a_nanosecond(column) for key, column in columns_of(trial.checked(name.file)).items()}
    if "t_ns" not in table:
        return table
    unit_ns = thinning.unit_ns(trial)
    if name in thinning.in_order:
        return _in_order(trial, table, thinning.in_order[name], unit_ns)
    t_ns = _rounded(table["t_ns"], unit_ns)
    if name not in thinning.counted:
        return {**table, "t_ns": t_ns}
    told_apart = [key for key in thinning.counted[name] if key in table]
    moments = np.unique(np.append(marks["t_ns"], [0, _rounded(trial.record.start_ns, unit_ns)]))
    places = np.searchsorted(moments, t_ns, side="right") - 1
    kept = {"t_ns": moments[places], **{key: _plain(table[key]) for key in told_apart}}
    order = np.lexsort([*(np.asarray(kept[key], dtype=str) for key in reversed(told_apart)), kept["t_ns"]])
    return {key: values[order] for key, values in kept.items()}


def _in_order(trial: Sealed, table: Columns, needed: InOrder, unit_ns: int) -> dict[str, Any]:
    import numpy as np

    order = np.argsort(table["t_ns"], kind="stable")
    kept = {key: _plain(table[key])[order] for key in ("t_ns", *needed.columns) if key in table}
    kept["t_ns"] = t_ns = _rounded(kept["t_ns"], unit_ns)
    looks = columns_of(trial.checked(needed.after.file))["t_ns"] if needed.after.file in trial.files else t_ns[:0]
    others = -_rounded(-needed.moments(kept), unit_ns)  # up: what was before one is before it still
    moments = np.unique(np.concatenate([[0], _rounded(looks, unit_ns), others]))
    places = np.searchsorted(moments, t_ns, side="right") - 1
    return {**kept, "t_ns": np.maximum(_rounded(t_ns, needed.unit_ns), moments[places])}


def _to_a_nanosecond(column: Any) -> Any:
    """Sums of nanoseconds, in seconds, without what adding them up as floats has left behind the last digit."""
    import numpy as np

    if column.dtype.kind != "f" or not np.isfinite(column).all():
        return column
    rounded = np.round(column * 1e9) / 1e9
    return rounded if np.allclose(rounded, column, rtol=1e-12, atol=1e-12) else column


def _plain(column: Any) -> Any:
    """A column without a mask: a text that is missing is None, and a number of a table never is."""
    import numpy as np

    if not np.ma.isMaskedArray(column):
        return column
    if column.dtype != np.object_ and np.ma.is_masked(column):
        raise StoreError("a table with missing numbers cannot be thinned.")
    values = column.data.copy()
    if column.dtype == np.object_:
        values[np.ma.getmaskarray(column)] = None
    return values


def _add_table(streams: StreamWriter, name: TableName, tables: Iterable[dict[str, Any]], thinning: Thinning) -> Json:
    """Its columns; of single events the rows that are alike are one, with how many they were."""
    if name not in thinning.counted and name not in thinning.in_order:
        found = _alike(name, list(tables))
        return {"columns": {key: streams.add([_plain(table[key]) for table in found]) for key in found[0]}}
    rises = thinning.in_order[name].rises if name in thinning.in_order else ""
    pairs = [_runs(table, rises) for table in tables]
    _alike(name, [table for table, _ in pairs])
    columns = {key: streams.add([table[key] for table, _ in pairs]) for key in pairs[0][0]}
    return {"columns": columns, "rises": rises, "runs": streams.add([runs for _, runs in pairs])}


def _alike(name: TableName, tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """These tables, if all have the same columns."""
    if len({frozenset(table) for table in tables}) > 1:
        raise StoreError(f"the trials have different columns in {name.file}, and cannot be thinned together.")
    return tables


def _runs(table: dict[str, Any], rises: str) -> tuple[dict[str, Any], Any]:
    """The first of the rows that are alike, and how many follow with it; `rises` is counted from the row's number."""
    import numpy as np

    rows = len(table["t_ns"])
    if rises:
        table = {**table, rises: table[rises].astype(np.int64) - np.arange(rows)}
    differs = [column[1:] != column[:-1] for column in table.values()]
    begins = np.flatnonzero(np.append(True, np.logical_or.reduce(differs))[:rows])
    return {key: column[begins] for key, column in table.items()}, np.diff(np.append(begins, rows))


def _add_marks(streams: StreamWriter, marks: Sequence[Columns], units: Sequence[int]) -> Json:
    """Each mark's distance from the one before; those of one name together, since they are alike."""
    import numpy as np

    words = [
        np.array([f"{name}{_BETWEEN}{edge}" for name, edge in zip(m["name"], m["edge"], strict=True)], dtype=object)
        for m in marks
    ]
    kinds = streams.add(words)
    places = {word: place for place, word in enumerate(kinds["words"], 1)}
    codes = np.array([places[word] for each in words for word in each.tolist()], np.int64)
    steps = streams.add([m["step"].astype(np.int64) for m in marks])
    apart = [np.diff(m["t_ns"] // unit_ns, prepend=0) for m, unit_ns in zip(marks, units, strict=True)]
    together = np.concatenate(apart)[np.argsort(codes, kind="stable")] if apart else np.empty(0, np.int64)
    return {"kinds": kinds, "steps": steps, "times": streams.add([together])}


def _add_readings(
    streams: StreamWriter, readings: Sequence[Mapping[str, tuple[Any, Any]]], units: Sequence[int]
) -> Json:
    """Of each channel the values of all trials; channels of one feed have the same times, which are kept once."""
    channels = []
    clocks: list[dict[bytes, str]] = [{} for _ in readings]
    for name in sorted({name for each in readings for name in each}):
        here = [number for number, each in enumerate(readings) if name in each]
        clock = [clocks[number].setdefault(readings[number][name][0].tobytes(), name) for number in here]
        own = [number for number, of in zip(here, clock, strict=True) if of == name]
        channels.append(
            {
                "name": name,
                "trials": here,
                "clock": clock,
                "times": streams.add([readings[number][name][0] // units[number] for number in own]),
                "values": streams.add([readings[number][name][1] for number in here]),
            }
        )
    return channels


@dataclass(frozen=True, slots=True)
class HeldTrial(Sealed):
    """A trial of a thinned pack, read where it lies: it has no files, but for those that `expanded` makes."""

    texts: Mapping[str, bytes] = field(default_factory=dict)
    series: Mapping[str, Series] = field(default_factory=dict)

    def data(self, name: str) -> bytes:
        return self.texts[name]

    def checked(self, name: str) -> PlainColumns:
        return self.series[name]()


def held(content: memoryview, folder: Path, most_bytes: int) -> Iterator[HeldTrial]:
    """The trials in the content of a thinned pack, as if they lay in `folder`; ValueError and its kin where it is none.

    Marks and readings are taken from it at once, tables of events, which may be large, when they are asked for.
    """
    from tare.records.column_codec import StreamReader

    size = int.from_bytes(content[:8], "little")
    header = strict_json.load(bytes(content[8 : 8 + size]))
    if header["format"] not in (1, FORMAT):
        raise ValueError(f"a thinned pack of format {header['format']!r}, which this tare does not know")
    names, units = header["trials"], [int(unit_ns) for unit_ns in header["resolution_ns"]]
    if strange := [name for name in names if not is_trial_folder(name)]:
        raise ValueError(f"{strange[0]!r} is no name of a trial")
    if len(set(names)) < len(names) or not all(1 <= unit_ns <= _LONGEST_UNIT_NS for unit_ns in units):
        raise ValueError("a trial that is in it twice, or has times of an unknown unit")
    content, texts = _texts_in(content[8 + size :], header["texts"], len(names))
    reader = StreamReader(content, most_bytes // 8)
    of_all = zip(
        _marks_in(reader, header["marks"], units), _readings_in(reader, header["readings"], units), strict=True
    )
    series = [dict(zip((MARKS_FILE, READINGS_FILE), each, strict=True)) for each in of_all]
    for name, table in header["tables"].items():
        for number, its in _table_in(reader, name, table, len(names)):
            series[number][name] = its
    reader.end()
    known: set[bytes] = set()
    for name, unit_ns, text, columns in zip(names, units, texts, series, strict=True):
        sealed = Manifest.from_json(text.pop(MANIFEST_FILE))
        for file in (RECORD_FILE, OUT_FILE, ERR_FILE):
            if sealed.files[file].sha256 != entry_of(text[file]).sha256:
                raise ValueError(f"{TRIALS_FOLDER}/{name}/{file} is not what was sealed (the checksum differs)")
        channels = text[CHANNELS_FILE]  # most trials of a pack have the same
        if channels not in known and any(not each.keys() >= _DESCRIBED for each in strict_json.load(channels)):
            raise ValueError(f"{TRIALS_FOLDER}/{name}/{CHANNELS_FILE} has a channel without a name, a unit or a kind")
        known.add(channels)
        record = record_in(folder / name, text[RECORD_FILE])
        files = {file: sealed.files[file] for file in (*text, *columns)}
        thinned = Thinned(unit_ns, sealed.files)
        yield HeldTrial(folder / name, record, files, sealed.lost_marks, thinned, text, columns)


def expanded(trials: Mapping[Key, HeldTrial], spill: Path) -> dict[Key, Sealed]:
    """The same trials with files like any other's, in their folders."""
    made = {}
    with engine(spill) as db:
        for key, each in trials.items():
            each.folder.mkdir(mode=0o700)
            for file, text in each.texts.items():
                (each.folder / file).write_bytes(text)
            for file in each.series:
                write_columns(db, each.folder / file, each.checked(file))
            files = files_in(each.folder)
            made[key] = Sealed(each.folder, each.record, files, each.lost_marks, each.thinned)
            (each.folder / MANIFEST_FILE).write_bytes(Manifest(files, each.lost_marks, each.thinned).as_json())
    return made


def _texts_in(content: memoryview, sizes: Json, count: int) -> tuple[memoryview, list[dict[str, bytes]]]:
    """What comes after the texts, and those of each trial."""
    found: list[dict[str, bytes]] = [{} for _ in range(count)]
    for name in _TEXTS:
        for text, size in zip(found, sizes[name], strict=True):
            if not 0 <= size <= len(content):
                raise EOFError
            text[name], content = bytes(content[:size]), content[size:]
    return content, found


def _marks_in(reader: StreamReader, about: Json, units: Sequence[int]) -> Iterator[Series]:
    import numpy as np

    from tare.records.column_codec import PlainColumns

    kinds, steps, times = (reader.take(about[name]) for name in ("kinds", "steps", "times"))
    pairs = [word.rpartition(_BETWEEN) for word in kinds.words]
    is_named = kinds.is_text and kinds.whole.all() and all(edge in EDGES for _, _, edge in pairs)
    are_alike = kinds.lengths == steps.lengths and [sum(kinds.lengths)] == times.lengths
    if not (is_named and are_alike and {steps.kind, times.kind} == {_WHOLE}):
        raise ValueError("marks without a name, or with another edge, step or time than marks have")
    together = times.whole
    apart = np.empty_like(together)
    apart[np.argsort(kinds.whole, kind="stable")] = together
    words = {"name": [name for name, _, _ in pairs], "edge": [edge for _, _, edge in pairs]}
    split = np.split(apart, np.cumsum(kinds.lengths)[:-1]) if units else []
    for unit_ns, kind, step, t in zip(units, kinds.each(), steps.each(), split, strict=True):
        t_ns = np.cumsum(t) * unit_ns
        columns = {"t_ns": t_ns, "name": kind, "edge": kind, "step": step}
        yield partial(PlainColumns, {name: partial(np.asarray, column) for name, column in columns.items()}, words)


def _readings_in(reader: StreamReader, about: Json, units: Sequence[int]) -> Iterator[Series]:

    from tare.records.column_codec import refuse_strange

    clocks: list[dict[str, Any]] = [{} for _ in units]
    found: list[list[tuple[int, Any, Any]]] = [[] for _ in units]
    for place, channel in enumerate(about, 1):
        name, times, values = channel["name"], reader.take(channel["times"]), reader.take(channel["values"])
        if (times.kind, values.kind) != (_WHOLE, "float64"):
            raise ValueError(f"{name!r} has other times or values than readings have")
        own, numbers = iter(times.each()), _numbers_in(channel, len(units))
        for number, clock, value in zip(numbers, channel["clock"], values.each(), strict=True):
            if clock == name:
                clocks[number][name] = next(own) * units[number]
            else:
                reader.count(len(value))  # its times are those of another, and are made again
            if len(value) != len(clocks[number][clock]):
                raise ValueError(f"{name!r} has not as many values as times")
            value.flags.writeable = clocks[number][clock].flags.writeable = False  # whoever asks next is given the same
            found[number].append((place, clocks[number][clock], value))
    words = {"channel": [channel["name"] for channel in about]}
    refuse_strange(words["channel"])
    for series in found:
        yield partial(_readings_of, series, words)


def _readings_of(series: Sequence[tuple[int, Any, Any]], words: Mapping[str, Sequence[str]]) -> PlainColumns:
    """One trial's: the place of each channel's name, its times and its values, one channel after another."""
    import numpy as np

    from tare.records.column_codec import PlainColumns

    sizes = [len(t_ns) for _, t_ns, _ in series]
    made = {
        "t_ns": lambda: np.concatenate([t_ns for _, t_ns, _ in series] or [np.empty(0, np.int64)]),
        "channel": lambda: np.repeat(np.array([place for place, _, _ in series], np.int64), sizes),
        "value": lambda: np.concatenate([values for _, _, values in series] or [np.empty(0, np.float64)]),
    }
    names = words["channel"]
    return PlainColumns(made, words, {names[place - 1]: (t_ns, values) for place, t_ns, values in series if len(t_ns)})


def _numbers_in(about: Json, count: int) -> list[int]:
    """Which of so many trials have it."""
    numbers: list[int] = about["trials"]
    if len(set(numbers)) < len(numbers) or not set(numbers) <= set(range(count)):
        raise ValueError("a series of a trial that is not in it, or twice of one")
    return numbers


def _table_in(reader: StreamReader, name: str, about: Json, count: int) -> Iterator[tuple[int, Series]]:
    from tare.records.column_codec import PlainColumns

    different = {column.lower() for column in about["columns"] if _COLUMN.fullmatch(column)}  # as DuckDB tells them
    if TableName.of(name) is None or len(different) < len(about["columns"]):
        raise ValueError(f"{name!r} is no table of a trial")
    columns = {column: reader.take(stream) for column, stream in about["columns"].items()}
    runs = reader.take(about["runs"]) if "runs" in about else None
    [lengths] = {tuple(stream.lengths) for stream in (*columns.values(), *([runs] if runs else []))}
    if len(lengths) != len(about["trials"]):
        raise ValueError(f"{name!r} is not of as many trials as it says")
    words = {column: stream.words for column, stream in columns.items() if stream.is_text}
    rises = about.get("rises", "")
    if rises and runs is None:
        raise ValueError(f"{name!r} has a column that rises, but no runs")
    if runs is not None:
        counts = runs.whole.tolist()
        if runs.kind != _WHOLE or min(counts, default=1) < 1 or (rises and columns[rises].kind != _WHOLE):
            raise ValueError(f"{name!r} has rows of an unknown number")
        reader.count(sum(counts) * len(columns))
    for place, number in enumerate(_numbers_in(about, count)):
        made = {column: partial(_rows_of, each, place, runs, column == rises) for column, each in columns.items()}
        yield number, partial(PlainColumns, made, words)


def _rows_of(stream: Stream, place: int, runs: Stream | None, rises: bool) -> npt.NDArray[Any]:
    """One column of one trial; where it is kept in runs, the reverse of `_runs`."""
    import numpy as np

    values = stream.of(place) if runs is None else np.repeat(stream.of(place), runs.of(place))
    return values + np.arange(len(values)) if rises else values
