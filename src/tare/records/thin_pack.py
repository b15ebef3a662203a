"""A thinned pack: what proves the figures of a store, in a tenth of its bytes.

What is left out, and nothing else:

- times are rounded down to a microsecond: those of marks, readings and traced events, and readings in seconds; but
  not of a trial with figures that change then (a step that began in the same microsecond as a tenant's window);
- of a channel of which no figure needs all readings, every fifth is kept, with the first and the last;
- of a table of single events that are only counted (page faults), the columns that tell them apart are kept, and each
  event stands at the mark before it, so that it still lies in the same stage of the workload;
- of seconds in tables, digits behind the nanosecond;
- quantiles of channels are made again from the readings when they are asked for.

Records and what workloads printed are as they were sealed; no other row, column or channel is missing. The hashes of
every sealed file are kept in each trial's manifest: whoever has the whole store can tell that this pack was made of it.
Opening the pack makes ordinary trials of it (`expand`), which every verb reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tare.base import strict_json
from tare.base.errors import StoreError
from tare.records.model import Json
from tare.records.parquet import TableName, columns_of, engine, read_marks, read_readings, write_columns
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
from tare.records.sealed import Entry, Manifest, Sealed, Thinned, entry_of, files_in, is_trial_folder

if TYPE_CHECKING:
    import numpy.typing as npt

    from tare.records.column_codec import StreamReader, StreamWriter

    Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]
    Made: TypeAlias = dict[Path, dict[str, Entry]]
    Write: TypeAlias = Callable[[Path, Columns, Mapping[str, Sequence[str]]], None]

FORMAT = 1
RESOLUTION_NS = 1000
EVERY = 5  # readings: one of so many is kept of a channel that no figure needs in full
_TEXTS = (MANIFEST_FILE, RECORD_FILE, CHANNELS_FILE, OUT_FILE, ERR_FILE)
_MADE_AGAIN = ("count", "quantiles")
_COLUMN = re.compile(r"[A-Za-z0-9_]{1,80}")
_BETWEEN = "\n"  # a mark's name and its edge, as one word


@dataclass(frozen=True)
class Thinning:
    """What the figures need, as those say who make them."""

    in_full: Callable[[Mapping[str, Json]], bool]  # whether a figure is made of every reading of this channel
    counted: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)  # the columns that figures tell apart
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
    files = sorted({file for each in sealed for file in each.files if TableName.of(file) is not None})
    for file in files:
        chosen = [number for number, each in enumerate(sealed) if file in each.files]
        tables = [_thin_table(sealed[number], file, marks[number], thinning) for number in chosen]
        names = list(tables[0])
        columns = {name: streams.add([_plain(table[name]) for table in tables]) for name in names}
        header["tables"][file] = {"trials": chosen, "columns": columns}
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


def _thin_table(trial: Sealed, file: str, marks: Columns, thinning: Thinning) -> dict[str, Any]:
    import numpy as np

    table = {key: _to_a_nanosecond(column) for key, column in columns_of(trial.checked(file)).items()}
    if "t_ns" not in table:
        return table
    name, t_ns = TableName.of(file), _rounded(table["t_ns"], thinning.unit_ns(trial))
    if name is None or name not in thinning.counted:
        return {**table, "t_ns": t_ns}
    moments = np.unique(np.append(marks["t_ns"], [0, trial.record.start_ns]))
    places = np.searchsorted(moments, t_ns, side="right") - 1
    kept = {"t_ns": moments[places], **{key: _plain(table[key]) for key in thinning.counted[name]}}
    order = np.lexsort([*(np.asarray(kept[key], dtype=str) for key in reversed(thinning.counted[name])), kept["t_ns"]])
    return {key: values[order] for key, values in kept.items()}


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


def expand(file: Path, folder: Path, most_bytes: int, *, plain: bool = False) -> dict[str, Manifest]:
    """Ordinary trials from the content of a thinned pack, in `folder`; ValueError and its kin where it is none.

    `plain`: with arrays in place of Parquet, for one who only reads them. Returns the manifest of each.
    """
    from tare.records.column_codec import StreamReader, write_plain

    content = memoryview(file.read_bytes())
    size = int.from_bytes(content[:8], "little")
    header = strict_json.load(bytes(content[8 : 8 + size]))
    if header["format"] != FORMAT:
        raise ValueError(f"a thinned pack of format {header['format']!r}, which this tare does not know")
    if strange := [name for name in header["trials"] if not is_trial_folder(name)]:
        raise ValueError(f"{strange[0]!r} is no name of a trial")
    folders = [folder / TRIALS_FOLDER / name for name in header["trials"]]
    for each in folders:
        each.mkdir(mode=0o700, parents=True)
    made: Made = {each: {} for each in folders}  # files whose bytes were at hand
    content, sealed = _write_texts(content[8 + size :], header["texts"], made)
    reader = StreamReader(content, most_bytes // 8)

    def write_and_note(path: Path, columns: Columns, words: Mapping[str, Sequence[str]]) -> None:
        made[path.parent][path.name] = entry_of(write_plain(path, columns, words))

    with nullcontext() if plain else engine(folder / "spill") as db:
        write = write_and_note if db is None else partial(write_columns, db)
        _write_marks(write, reader, header["marks"], folders, header["resolution_ns"])
        _write_readings(write, reader, header["readings"], folders, header["resolution_ns"])
        for name, table in header["tables"].items():
            _write_table(write, reader, name, table, folders)
    reader.end()
    renewed = {}
    for each, unit_ns in zip(folders, header["resolution_ns"], strict=True):
        for name in (RECORD_FILE, OUT_FILE, ERR_FILE):
            if sealed[each].files[name].sha256 != made[each][name].sha256:
                raise ValueError(f"{TRIALS_FOLDER}/{each.name}/{name} is not what was sealed (the checksum differs)")
        files = dict(sorted(made[each].items())) if plain else files_in(each)
        renewed[each.name] = Manifest(files, sealed[each].lost_marks, Thinned(int(unit_ns), sealed[each].files))
        (each / MANIFEST_FILE).write_bytes(renewed[each.name].as_json())
    return renewed


def _write_texts(content: memoryview, texts: Json, made: Made) -> tuple[memoryview, dict[Path, Manifest]]:
    """The texts to their files, and the manifests as they were sealed; what comes after them."""
    sealed = {}
    for name in _TEXTS:
        for folder, size in zip(made, texts[name], strict=True):
            if not 0 <= size <= len(content):
                raise EOFError
            text, content = bytes(content[:size]), content[size:]
            if name == MANIFEST_FILE:
                sealed[folder] = Manifest.from_json(text)
            else:
                (folder / name).write_bytes(text)
                made[folder][name] = entry_of(text)
    return content, sealed


def _write_marks(
    write: Write, reader: StreamReader, about: Json, folders: Sequence[Path], units: Sequence[int]
) -> None:
    import numpy as np

    kinds, steps = reader.take(about["kinds"]), reader.take(about["steps"])
    [together] = reader.take(about["times"])
    codes = np.concatenate(kinds) if kinds else np.empty(0, np.int64)
    apart = np.empty_like(together)
    apart[np.argsort(codes, kind="stable")] = together
    times = np.split(apart, np.cumsum([len(each) for each in kinds])[:-1]) if kinds else []
    pairs = [word.partition(_BETWEEN) for word in about["kinds"]["words"]]
    words = {"name": [name for name, _, _ in pairs], "edge": [edge for _, _, edge in pairs]}
    for folder, unit_ns, kind, step, t in zip(folders, units, kinds, steps, times, strict=True):
        columns = {"t_ns": np.cumsum(t) * unit_ns, "name": kind, "edge": kind, "step": step}
        write(folder / MARKS_FILE, columns, words)


def _write_readings(
    write: Write, reader: StreamReader, about: Json, folders: Sequence[Path], units: Sequence[int]
) -> None:
    import numpy as np

    clocks: list[dict[str, Any]] = [{} for _ in folders]
    found: list[list[tuple[int, Any, Any]]] = [[] for _ in folders]
    for place, channel in enumerate(about, 1):
        name, own = channel["name"], iter(reader.take(channel["times"]))
        values = reader.take(channel["values"])
        for number, clock, value in zip(channel["trials"], channel["clock"], values, strict=True):
            if clock == name:
                clocks[number][name] = next(own) * units[number]
            found[number].append((place, clocks[number][clock], value))
    words = {"channel": [str(channel["name"]) for channel in about]}
    for folder, series in zip(folders, found, strict=True):
        columns = {
            "t_ns": np.concatenate([t_ns for _, t_ns, _ in series] or [np.empty(0, np.int64)]),
            "channel": np.repeat([place for place, _, _ in series], [len(t_ns) for _, t_ns, _ in series]).astype(
                np.int64
            ),
            "value": np.concatenate([values for _, _, values in series] or [np.empty(0, np.float64)]),
        }
        write(folder / READINGS_FILE, columns, words)


def _write_table(write: Write, reader: StreamReader, name: str, about: Json, folders: Sequence[Path]) -> None:
    if TableName.of(name) is None or any(not _COLUMN.fullmatch(column) for column in about["columns"]):
        raise ValueError(f"{name!r} is no table of a trial")
    columns = {column: reader.take(stream) for column, stream in about["columns"].items()}
    words = {column: stream["words"] for column, stream in about["columns"].items() if "words" in stream}
    for place, number in enumerate(about["trials"]):
        write(folders[number] / name, {column: arrays[place] for column, arrays in columns.items()}, words)
