"""SQLite the way that tare uses it: write-ahead log, one writer, readers that never hold it up."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from tare.records.durable import make_file

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
