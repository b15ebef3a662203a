"""What a store looks like on disk, as commented text; a change here is a new VERSION and a line in the history.

    DIR/
      store.json            schema_version, tare_version, created_utc, study (plain data)
      study.yaml            the study, as it was written
      store.lock            locked by the one writer; its text only says who that is
      fleet.jsonl           of a run over devices: a line for each try, and for whatever went wrong; only appended to
      catalogue.db          an index: planned trials, attempts, states; can be rebuilt from trials/
      spool/TRIAL.ATTEMPT/  a trial that runs: draft.json, spool.db; raw/PROBE/ while a recorder writes, then tables/
      trials/TRIAL.ATTEMPT/ a sealed trial, never changed again:
        manifest.json         name, size and SHA-256 of each file below; lost_marks; a CRC of itself; of a thinned
                              trial also `thinned`: resolution_ns, and the same list of the files as they were sealed
        record.json           the record (`records.model.Record`)
        channels.json         name, unit, kind and about of each channel; words, group, rank, takes and better where its
                              probe declares them; count and quantiles (0, 1/40 .. 1) of its values, of a counter: of
                              how fast it rose in a second; to six digits
        readings.parquet      t_ns BIGINT, channel VARCHAR, value DOUBLE; in runs of one channel, as they came
        marks.parquet         t_ns BIGINT, name VARCHAR, edge VARCHAR (begin, end, point), step BIGINT
        out.txt, err.txt      what the workload printed
        trace-PROBE-TABLE.parquet   what a recorder kept (`parts.protocols.Recorder`): its docstring has the columns

A name that begins with `.tmp-` is half made, and is removed by the next writer. One that begins with `.damaged-`
was a spool that could not be read in full; it is kept for a closer look.

A pack (`tare store pack`) is store.json, study.yaml and trials/ of a store in one tar.xz, and plan.json in place of the
catalogue: the planned trials in order. A thinned pack (`tare store pack --thin`) has thinned.bin in place of trials/,
from which they are made when it is opened (thin_pack.py).

History
    1   tare 0.1.0: the first
        tare 0.2.0 adds trace-*.parquet, which readers of 1 do not look at: not a new version
        tare 0.2.0 adds thinned packs, which readers of before refuse, and `thinned` in manifests, which they ignore;
        those of format 2 have rows of single events in runs, and readers of format 1 refuse them
        tare 0.2.0 adds what probes declare: words, group, rank, takes and better in channels.json, and `declared` in
        records; readers of 1 ignore these keys
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tare import __version__
from tare.base import strict_json
from tare.base.errors import NoSuchInput, StoreError
from tare.records.model import Json

VERSION = 1

STORE_FILE = "store.json"
STUDY_FILE = "study.yaml"
ANSWER_FILE = "why.txt"  # beside the stores of a `tare why`: its answer in full
PLAN_FILE = "plan.json"
THINNED_FILE = "thinned.bin"
LOCK_FILE = "store.lock"
LEDGER_FILE = "fleet.jsonl"
CATALOGUE_FILE = "catalogue.db"
SPOOL_FOLDER = "spool"
TRIALS_FOLDER = "trials"
DRAFT_FILE = "draft.json"
SPOOL_FILE = "spool.db"
MANIFEST_FILE = "manifest.json"
RECORD_FILE = "record.json"
CHANNELS_FILE = "channels.json"
READINGS_FILE = "readings.parquet"
MARKS_FILE = "marks.parquet"
OUT_FILE = "out.txt"
ERR_FILE = "err.txt"
RAW_FOLDER = "raw"
TABLES_FOLDER = "tables"
SET_ASIDE = ".damaged-"
PACK_SUFFIX = ".tare"
_MAGIC = b"\xfd7zXZ\x00"  # of packs

CATALOGUE_SQL = f"""
-- What the study asks for, in the order of the plan.
CREATE TABLE planned (
    seq   INTEGER PRIMARY KEY,
    trial TEXT NOT NULL UNIQUE,
    plan  TEXT NOT NULL             -- JSON: block, position, twin, settings
);
-- Every attempt that was begun, in order. A rerun is a new row; it never replaces one.
CREATE TABLE attempt (
    seq     INTEGER PRIMARY KEY,
    trial   TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    state   TEXT NOT NULL,
    sealed  INTEGER NOT NULL,       -- 1: its folder is in trials/
    record  TEXT NOT NULL,          -- JSON: the record (the draft until it is sealed), with settings and metrics
    UNIQUE (trial, attempt)
);
PRAGMA user_version = {VERSION};
"""

SPOOL_SQL = """
-- The channels, appended as feeds declare them.
CREATE TABLE IF NOT EXISTS channel (
    id    INTEGER PRIMARY KEY,
    name  TEXT NOT NULL UNIQUE,
    unit  TEXT NOT NULL,
    kind  TEXT NOT NULL,
    about TEXT NOT NULL,
    shown TEXT NOT NULL             -- JSON: words, group, rank, takes and better, where the probe declares them
);
-- One row a tick. Its blob holds n readings as three little-endian columns: n x int64 t_ns, n x float64 value,
-- n x uint32 channel id.
CREATE TABLE IF NOT EXISTS tick (
    n        INTEGER PRIMARY KEY,
    t_ns     INTEGER NOT NULL,
    readings BLOB NOT NULL
);
"""


_ADVICE = "Give the folder that `tare run` wrote, the one that holds store.json."


@dataclass(frozen=True, slots=True)
class Header:
    """store.json, as a value."""

    schema_version: int
    tare_version: str
    created_utc: str
    study: Json


def write_header(root: Path, study: Json, made: Header | None = None) -> None:
    """Written last of all when a store is made: a folder that has it is a whole store. `made`: its header."""
    data = {
        "schema_version": VERSION if made is None else made.schema_version,
        "tare_version": __version__ if made is None else made.tare_version,
        "created_utc": datetime.now(UTC).isoformat(timespec="seconds") if made is None else made.created_utc,
        "study": study,
    }
    from tare.base.files import replace_file  # with SQLite and more, which a reader of tables needs not

    replace_file(root / STORE_FILE, strict_json.dump(data))


def read_header(root: Path) -> Header:
    """The header of the store at `root`, or a sentence about what is there instead. Nothing is touched."""
    path = root / STORE_FILE
    try:
        data = path.read_bytes()
    except PermissionError:
        raise StoreError(f"{root}: no permission to read this store. Run as its owner.") from None
    except (FileNotFoundError, NotADirectoryError):
        if not root.exists():
            raise NoSuchInput(f"{root}: no such file or folder. {_ADVICE}") from None
        raise StoreError(what_is_there(root)) from None
    except OSError as error:
        raise StoreError(f"{path}: it cannot be read: {error.strerror}.") from error
    return _parsed(root, path, data)


def is_pack(path: Path) -> bool:
    """Whether this file is compressed as packs are; what is in it is another question."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def is_store(path: Path) -> bool:
    """Whether this can be a store, by its looks: a folder or a pack. What it is else is a table."""
    try:
        return path.is_dir() or is_pack(path) or (path.suffix == PACK_SUFFIX and path.is_file())
    except PermissionError:
        return True  # who opens it as a store says that it may not be read


def what_is_there(root: Path) -> str:
    """What lies where a store was looked for, and what to do: one sentence or two."""
    if root.suffix == PACK_SUFFIX and root.is_file():
        return _what_is_no_pack(root)
    if not root.is_dir():
        return f"{root}: this is a file, and a store is a folder, or a pack that `tare store pack` made. {_ADVICE}"
    try:
        empty = not any(root.iterdir())
        stores = sorted(path.parent.name for path in root.glob("*/store.json"))
    except PermissionError:
        return f"{root}: no permission to look into this folder. Run as its owner."
    if stores:
        return f"{root}: this folder is not a store, but holds some: {', '.join(stores)}. Give one of them."
    return f"{root}: this folder is {'empty' if empty else 'not a store (it has no store.json)'}. {_ADVICE}"


def _what_is_no_pack(file: Path) -> str:
    """Called like a pack, and does not begin like one."""
    if not os.access(file, os.R_OK):
        return f"{file}: no permission to read this file. Run as its owner."
    what = "it is empty" if not file.stat().st_size else "it does not begin as packs do"
    return (
        f"{file}: this file is called like a pack, and is none: {what}. Copy it again from where it came, or make it "
        "again with `tare store pack STORE -o FILE`; where it was never a pack, give it another name."
    )


def _parsed(root: Path, path: Path, data: bytes) -> Header:
    try:
        found = strict_json.load(data)
        version = found["schema_version"]
        if type(version) is not int or version < 1:
            raise ValueError(f"schema_version is {version!r}")
        if version > VERSION:
            raise StoreError(
                f"{root}: written by tare {found.get('tare_version', '?')} (schema {version}); "
                f"this is tare {__version__} (schema {VERSION}): upgrade tare. Nothing was touched."
            )
        if not isinstance(found["study"], dict):
            raise ValueError("its study is no mapping")
        return Header(version, str(found["tare_version"]), str(found["created_utc"]), found["study"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{path}: damaged ({error}). Restore this file from a copy; the trials were not touched."
        ) from error
