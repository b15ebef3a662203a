"""The readings of a trial while it runs: one blob a tick, safe from kill -9, readable beside the writer.

The writing half is what the sampler's process loads, so it needs nothing but SQLite and struct.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias
from urllib.parse import quote

from tare.base.errors import StoreError
from tare.base.files import explained, make_file
from tare.records.schema import SPOOL_SQL

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tare.base.units import Channel

    Times: TypeAlias = npt.NDArray[np.int64]
    Values: TypeAlias = npt.NDArray[np.float64]
    Ids: TypeAlias = npt.NDArray[np.uint32]


_CANNOT_SHARE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


def open_to_write(path: Path, synchronous: Literal["NORMAL", "FULL"]) -> sqlite3.Connection:
    """The database, made if it is not there; FULL survives the plug, NORMAL survives the process."""
    if not path.exists():
        make_file(path)
    # rw, not rwc: SQLite must not make a file anew that was removed under us.
    db = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=rw", uri=True, isolation_level=None, timeout=5)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {synchronous}")
    return db


def open_to_read(path: Path) -> sqlite3.Connection:
    """The database as it is now, also beside a live writer and on a read-only file system."""
    if not path.exists():
        raise FileNotFoundError(2, "No such file or directory", str(path))
    db = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, isolation_level=None, timeout=5)
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        db.close()
        if error.sqlite_errorcode & 0xFF not in _CANNOT_SHARE:
            raise
        return _copy(path)
    except sqlite3.DatabaseError:
        db.close()
        raise
    return db


def _copy(path: Path) -> sqlite3.Connection:
    """A copy in memory: on a read-only file system SQLite has nowhere to put its own notes on the log."""
    memory = sqlite3.connect(":memory:", isolation_level=None)
    with tempfile.TemporaryDirectory(prefix="tare-") as folder:
        copied = Path(folder) / "copy.db"
        shutil.copyfile(path, copied)
        log = path.with_name(path.name + "-wal")
        if log.exists() and os.access(log, os.R_OK):
            shutil.copyfile(log, copied.with_name("copy.db-wal"))
        db = sqlite3.connect(copied)
        try:
            db.backup(memory)
        finally:
            db.close()
    return memory


_READING_BYTES = 8 + 8 + 4
_CHUNK_TICKS = 4096
# 16 MiB of log: a trial of a few minutes never waits for the disk while it is watched.
_CHECKPOINT_PAGES = 4096
_INSERT = "INSERT INTO tick (t_ns, readings) VALUES (?, ?)"


class SpoolWriter:
    """Appends ticks; each is committed when `tick` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with explained(path.parent, "opening the spool"):
            self._db = open_to_write(path, "NORMAL")
            self._db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            self._db.executescript(f"BEGIN; {SPOOL_SQL} COMMIT;")
            self._ids = _Ids(self._db, self._db.execute("SELECT name, id FROM channel"))
        self._layouts: dict[int, struct.Struct] = {}

    def channels(self, channels: Sequence[Channel]) -> None:
        """Note the channels of a feed, before its first reading."""
        with explained(self._path.parent, "writing channels to the spool"):
            self._ids.declare(
                (each.name, each.unit, each.kind, each.about, json.dumps(each.declared())) for each in channels
            )

    def tick(self, t_ns: int, readings: Iterable[tuple[int, str, float]]) -> None:
        """Keep what was read at one tick, as one row."""
        try:
            self._db.execute(_INSERT, (t_ns, self._packed(readings)))
        except sqlite3.Error:
            with explained(self._path.parent, "writing readings to the spool"):
                raise

    def _packed(self, readings: Iterable[tuple[int, str, float]]) -> bytes:
        columns = tuple(zip(*readings, strict=True))
        if not columns:
            return b""
        times, names, values = columns
        layout = self._layouts.get(len(times))
        if layout is None:
            n = len(times)
            layout = self._layouts[n] = struct.Struct(f"<{n}q{n}d{n}I")
        try:
            return layout.pack(*times, *values, *map(self._ids.__getitem__, names))
        except (struct.error, OverflowError):
            raise StoreError(_culprit(times, names, values)) from None

    def close(self) -> None:
        with explained(self._path.parent, "closing the spool"):
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Ids(dict[str, int]):
    """Channel names to ids. A name that nobody declared gets one too: a reading is never lost for that."""

    def __init__(self, db: sqlite3.Connection, known: Iterable[tuple[str, int]]) -> None:
        super().__init__(known)
        self._db = db

    def declare(self, channels: Iterable[tuple[str, str, str, str, str]]) -> None:
        """Give an id to each (name, unit, kind, about, shown) that has none yet: all of them or none."""
        new = {channel[0]: channel for channel in channels if channel[0] not in self}
        ids = {name: len(self) + place for place, name in enumerate(new)}
        rows = [(ids[name], *(storable(text) for text in channel)) for name, channel in new.items()]
        with self._db:
            self._db.execute("BEGIN")
            self._db.executemany("INSERT INTO channel VALUES (?, ?, ?, ?, ?, ?)", rows)
        self.update(ids)

    def __missing__(self, name: str) -> int:
        self.declare([(name, "", "gauge", "not declared by its probe", "{}")])
        return self[name]


def storable(text: str) -> str:
    """The text as a file can hold it: half a surrogate pair is written out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _culprit(times: Sequence[object], names: Sequence[str], values: Sequence[object]) -> str:
    for t_ns, name, value in zip(times, names, values, strict=True):
        try:
            struct.pack("<qd", t_ns, value)
        except (struct.error, OverflowError):
            return f"a reading of {name} cannot be kept: {value!r} at {t_ns!r} ns."
    return "a reading cannot be kept."


class SpoolReader:
    """One moment of a spool. What cannot be read is named in `damage`; the rest is delivered."""

    def __init__(self, path: Path) -> None:
        self.damage: str | None = None
        self._db: sqlite3.Connection | None = None
        try:
            self._db = open_to_read(path)
            self._db.execute("BEGIN")  # ticks and channels of the same moment, while the writer goes on
            (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not tables:  # the sampler died before its first breath
                self.close()
        except FileNotFoundError:
            pass  # nothing was watched
        except (sqlite3.Error, OSError) as error:
            self.damage = str(error)

    def channels(self) -> list[dict[str, Any]]:
        """Every channel; its place in the list is its id."""
        found: dict[int, dict[str, Any]] = {}
        for place, name, unit, kind, about, *shown in self._rows("SELECT * FROM channel ORDER BY id"):
            declared = json.loads(shown[0]) if shown else {}  # a spool of an older tare has no such column
            found[place] = {"name": name, "unit": unit, "kind": kind, "about": about, **declared}
        lost = {"unit": "", "kind": "gauge", "about": "its name was lost"}
        return [found.get(place, {"name": nameless(place), **lost}) for place in range(max(found, default=-1) + 1)]

    def chunks(self) -> Iterator[tuple[Times, Ids, Values]]:
        """The readings as they came, some thousand ticks at a time; a value that is no number is left out."""
        blobs = (blob for (blob,) in self._rows("SELECT readings FROM tick ORDER BY n") if self._is_whole(blob))
        while some := list(islice(blobs, _CHUNK_TICKS)):
            yield _unpacked(some)

    def _is_whole(self, blob: object) -> bool:
        whole = isinstance(blob, bytes) and len(blob) % _READING_BYTES == 0
        if not whole:
            self.damage = "a tick is not whole"
        return whole

    def _rows(self, query: str) -> Iterator[Any]:
        try:
            yield from self._db.execute(query) if self._db is not None else ()
        except sqlite3.Error as error:
            self.damage = str(error)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_channels(path: Path) -> list[dict[str, Any]]:
    """Name, unit, kind and about of each channel, and how it is shown; empty where nothing was watched."""
    with SpoolReader(path) as spool:
        return spool.channels()


def read_spool(path: Path) -> dict[str, tuple[Times, Values]]:
    """The readings so far by channel, in the order in which they came; a channel without one is absent."""
    import numpy as np

    with SpoolReader(path) as spool:
        chunks = list(spool.chunks())
        names = [channel["name"] for channel in spool.channels()]
    if not any(len(times) for times, _, _ in chunks):
        return {}
    times, ids, values = (np.concatenate(column) for column in zip(*chunks, strict=True))
    order = np.argsort(ids, kind="stable")
    present, starts = np.unique(ids[order], return_index=True)
    named = [names[place] if place < len(names) else nameless(place) for place in present.tolist()]
    groups = np.split(order, starts[1:])
    return {name: (times[group], values[group]) for name, group in zip(named, groups, strict=True)}


def _unpacked(blobs: Sequence[bytes]) -> tuple[Times, Ids, Values]:
    import numpy as np

    counts = [len(blob) // _READING_BYTES for blob in blobs]
    times, values, ids = (
        np.concatenate([np.frombuffer(blob, kind, n, at * n) for blob, n in zip(blobs, counts, strict=True)])
        for kind, at in (("<i8", 0), ("<f8", 8), ("<u4", 16))
    )
    real = np.isfinite(values)
    return times[real], ids[real], values[real]


def nameless(place: int) -> str:
    """A channel whose row was lost with a damaged page; its readings were not."""
    return f"nameless.{place}"
