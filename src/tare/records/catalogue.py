"""The index of a store: what is planned, what was begun, how it ended. The sealed trials are the truth, not this."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tare.base import strict_json
from tare.base.errors import StoreError
from tare.base.files import sync_folder
from tare.records.model import Json, Record, State
from tare.records.schema import CATALOGUE_FILE, CATALOGUE_SQL, VERSION
from tare.records.spool import open_to_read, open_to_write

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR)
_SIDE_FILES = ("-wal", "-shm")
_PLAN_KEYS = ("block", "position", "twin", "settings")
_UPSERT = """
INSERT INTO attempt (trial, attempt, state, sealed, record) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (trial, attempt) DO UPDATE SET state = excluded.state, sealed = excluded.sealed, record = excluded.record
"""


class CatalogueDamaged(StoreError):
    """The index is missing or cannot be believed; it can be rebuilt."""


class Attempt(NamedTuple):
    """One row of the index."""

    trial: str
    attempt: int
    state: State
    sealed: bool


class Catalogue:
    """An open index. Each change is on the disk when the method returns."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    @classmethod
    def to_read(cls, root: Path) -> Catalogue:
        """The index as it is now; CatalogueDamaged where it cannot be believed."""
        with _believable():
            return cls._checked(open_to_read(root / CATALOGUE_FILE))

    @classmethod
    def to_write(cls, root: Path) -> Catalogue:
        with _believable():
            if not (root / CATALOGUE_FILE).exists():
                raise CatalogueDamaged("it is not there")
            return cls._checked(open_to_write(root / CATALOGUE_FILE, "FULL"))

    @classmethod
    def create(cls, root: Path) -> Catalogue:
        """A new, empty index; one that is there already is moved aside, never overwritten."""
        _move_aside(root / CATALOGUE_FILE)
        db = open_to_write(root / CATALOGUE_FILE, "FULL")
        db.executescript(f"BEGIN; {CATALOGUE_SQL} COMMIT;")
        sync_folder(root)
        return cls(db)

    @classmethod
    def in_memory(cls) -> Catalogue:
        """An empty index for a reader of a store that has lost its own."""
        db = sqlite3.connect(":memory:", isolation_level=None)
        db.executescript(CATALOGUE_SQL)
        return cls(db)

    @classmethod
    def _checked(cls, db: sqlite3.Connection) -> Catalogue:
        try:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            (health,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if health != "ok" or version != VERSION:
                raise CatalogueDamaged(health if health != "ok" else f"it has version {version}, not {VERSION}")
            catalogue = cls(db)
            catalogue.planned()
            catalogue.attempts()
        except BaseException:
            db.close()
            raise
        return catalogue

    def plan(self, rows: Iterable[Mapping[str, Json]]) -> None:
        """These are the planned trials now, in this order; attempts at others stay."""
        plans = [
            (row["trial"], strict_json.dump({key: row[key] for key in _PLAN_KEYS if key in row}).decode())
            for row in rows
        ]
        with self._transaction():
            self._db.execute("DELETE FROM planned")
            self._db.executemany("INSERT INTO planned (trial, plan) VALUES (?, ?)", plans)

    def planned(self) -> list[dict[str, Json]]:
        """The planned trials in order, each as `plan` was given it."""
        found = self._db.execute("SELECT trial, plan FROM planned ORDER BY seq")
        return [{"trial": trial, **strict_json.load(plan.encode())} for trial, plan in found]

    def attempts(self) -> list[Attempt]:
        """Every attempt that was begun, in order."""
        found = self._db.execute("SELECT trial, attempt, state, sealed FROM attempt ORDER BY seq")
        return [Attempt(trial, attempt, state, bool(sealed)) for trial, attempt, state, sealed in found]

    def note(self, records: Iterable[Record], *, sealed: bool) -> None:
        """These attempts are there now, in these states."""
        rows = [(r.trial, r.attempt, r.state, sealed, strict_json.dump(r.as_json()).decode()) for r in records]
        with self._transaction():
            self._db.executemany(_UPSERT, rows)

    def note_lost(self, trial: str, attempt: int) -> None:
        """This attempt was begun, and nothing of it is left."""
        change = "UPDATE attempt SET state = 'interrupted', sealed = 0 WHERE trial = ? AND attempt = ?"
        self._db.execute(change, (trial, attempt))

    def damage(self) -> str | None:
        """What SQLite's full check finds wrong, or None."""
        try:
            (health,) = self._db.execute("PRAGMA integrity_check(1)").fetchone()
        except sqlite3.Error as error:
            return str(error)
        return None if health == "ok" else str(health)

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise


@contextmanager
def _believable() -> Iterator[None]:
    """Damage becomes CatalogueDamaged; a full disk or a lack of rights is something else and passes."""
    try:
        yield
    except FileNotFoundError:
        raise CatalogueDamaged("it is not there") from None
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF not in _DAMAGE:
            raise
        raise CatalogueDamaged(str(error)) from error
    except (ValueError, TypeError) as error:
        raise CatalogueDamaged(str(error)) from error


def _move_aside(path: Path) -> None:
    if not path.exists():
        for side in _SIDE_FILES:  # a log without its database would be replayed into the new one
            path.with_name(path.name + side).unlink(missing_ok=True)
        return
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    path.rename(aside)
    for side in _SIDE_FILES:
        if (log := path.with_name(path.name + side)).exists():
            log.rename(aside.with_name(aside.name + side))
