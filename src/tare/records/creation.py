"""A new store. Its header is written last: until then the folder is no store, and can be begun again.

The index of a store: what is planned, what was begun, how it ended. The sealed trials are the truth, not this.
"""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tare.base import strict_json
from tare.base.errors import StoreError
from tare.base.files import HALF_MADE, explained, give_to_user, make_folder, make_folders, replace_file, sync_folder
from tare.records.model import Json, Record, State
from tare.records.schema import (
    CATALOGUE_FILE,
    CATALOGUE_SQL,
    LOCK_FILE,
    SPOOL_FOLDER,
    STORE_FILE,
    STUDY_FILE,
    TRIALS_FOLDER,
    VERSION,
    write_header,
)
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

    def attempts(self, trial: str | None = None) -> list[Attempt]:
        """Every attempt that was begun, or every one at this trial, in order."""
        which, given = ("", ()) if trial is None else ("WHERE trial = ?", (trial,))
        found = self._db.execute(f"SELECT trial, attempt, state, sealed FROM attempt {which} ORDER BY seq", given)
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


_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "lustre", "fuse.sshfs", "fuse.glusterfs"}
_ESCAPED = re.compile(r"\\([0-7]{3})")


def refuse_network_disk(path: Path, mounts: str | None = None) -> None:
    """StoreError where a store at `path` would be damaged sooner or later; reading one there is fine."""
    kind = file_system(path, _mounts() if mounts is None else mounts)
    if kind in _NETWORK:
        raise StoreError(
            f"{path}: this is on a network disk ({kind}), and a store that is written there gets damaged. "
            "Put the store on a local disk; a finished one can be copied anywhere."
        )


def refuse_name(root: Path) -> None:
    """StoreError where the tables of a store can be neither written nor read: DuckDB takes no other path than UTF-8."""
    try:
        str(root.absolute()).encode()
    except UnicodeEncodeError:
        raise StoreError(
            f"{root.absolute()}: this path is not UTF-8, and a store's tables need one that is: rename the folder, or "
            "name another."
        ) from None


def file_system(path: Path, mounts: str) -> str | None:
    """The kind of file system that holds `path`: that of the deepest mount point above it."""
    where, best, kind = path.absolute().resolve(), -1, None
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        point = Path(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4]))
        # A later line covers an earlier one of the same depth.
        if where.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), right.split(" ")[0]
    return kind


def _mounts() -> str:
    try:
        return _MOUNTS.read_text(errors="replace")
    except OSError:
        return ""


def identity(root: Path) -> tuple[int, int] | None:
    """Which folder this is, whatever stands at its path later; None where there is none."""
    try:
        found = root.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class WriteLock:
    """Held from `take` to `release`; it goes with the process, so a dead writer never blocks the next."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, root: Path) -> WriteLock:
        """The lock of this store, at once or not at all."""
        path = root / LOCK_FILE
        # Close-on-exec: a workload that outlives us must not hold the store.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode("ascii", "replace").strip() or "another process"
            os.close(descriptor)
            raise StoreError(
                f"{root}: this store is being written by {holder}. "
                "Wait until that run has ended, or write to another folder."
            ) from None
        give_to_user(path)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n".encode(), 0)
        return cls(descriptor)

    def release(self) -> None:
        os.close(self._descriptor)


def is_held(root: Path) -> bool:
    """Whether someone writes this store now; asked of the kernel's list, so that nobody's lock is disturbed."""
    try:
        status = (root / LOCK_FILE).stat()
        locks = Path("/proc/locks").read_text()
    except OSError:
        return False
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any(wanted in line.split() and "->" not in line for line in locks.splitlines())


_BEGUN = {STUDY_FILE, LOCK_FILE, SPOOL_FOLDER, TRIALS_FOLDER}


def lay_out(root: Path, study: Json, text: str) -> None:
    """Make an empty store in a folder that is new, empty, or left by a creation that was cut off."""
    strict_json.dump(study)  # refused before anything is made
    refuse_name(root)
    _make_root(root)
    refuse_network_disk(root)
    with explained(root, "making the store", need_bytes=256 * 1024):
        lock = WriteLock.take(root)
        try:
            _refuse_what_is_there(root)
            _fill(root, study, text)
        finally:
            lock.release()


def _make_root(root: Path) -> None:
    if root.exists() and not root.is_dir():
        raise StoreError(f"{root}: this is a file, and a store is a folder. Name another place.")
    try:
        make_folders(root)
        if any(root.iterdir()):
            _refuse_what_is_there(root)
    except OSError as error:
        raise StoreError(f"{root}: the folder cannot be made: {error.strerror} ({error.filename}).") from error


def _refuse_what_is_there(root: Path) -> None:
    names = {path.name for path in root.iterdir()}
    if STORE_FILE in names:
        raise StoreError(f"{root}: there is a store here already. Open it, or name another folder.")
    begun = {name for name in names if name in _BEGUN or name.startswith((HALF_MADE, CATALOGUE_FILE))}
    if foreign := sorted(names - begun):
        raise StoreError(f"{root}: the folder is not empty ({', '.join(foreign[:3])}). Name a new or an empty one.")


def _fill(root: Path, study: Json, text: str) -> None:
    replace_file(root / STUDY_FILE, text.encode("utf-8", "surrogatepass"))
    for name in (SPOOL_FOLDER, TRIALS_FOLDER):
        if not (root / name).is_dir():
            make_folder(root / name)
    for left_over in root.glob(f"{CATALOGUE_FILE}*"):
        left_over.unlink()
    Catalogue.create(root).close()
    sync_folder(root.absolute().parent)
    write_header(root, study)
