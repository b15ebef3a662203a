"""What a store looks like on disk, as commented text; a change here is a new VERSION and a line in the history.

    DIR/
      store.json            schema_version, tare_version, created_utc, study (plain data)
      study.yaml            the study, as it was written
      store.lock            locked by the one writer; its text only says who that is
      fleet.jsonl           of a run over devices: a line for each try, and for whatever went wrong; only appended to
      catalogue.db          an index: planned trials, attempts, states; can be rebuilt from trials/
      spool/TRIAL.ATTEMPT/  a trial that runs: draft.json, spool.db; raw/PROBE/ while a recorder writes, then tables/
      trials/TRIAL.ATTEMPT/ a sealed trial, never changed again:
        manifest.json         name, size and SHA-256 of each file below; lost_marks; a CRC of itself
        record.json           the record (`records.model.Record`)
        channels.json         name, unit, kind and about of each channel; count and quantiles (0, 1/40 .. 1) of its
                              values, of a counter: of how fast it rose in a second; to six digits
        readings.parquet      t_ns BIGINT, channel VARCHAR, value DOUBLE; in runs of one channel, as they came
        marks.parquet         t_ns BIGINT, name VARCHAR, edge VARCHAR (begin, end, point), step BIGINT
        out.txt, err.txt      what the workload printed
        trace-PROBE-TABLE.parquet   what a recorder kept (`parts.protocols.Recorder`): its docstring has the columns

A name that begins with `.tmp-` is half made, and is removed by the next writer. One that begins with `.damaged-`
was a spool that could not be read in full; it is kept for a closer look.

A pack (`tare store pack`) is store.json, study.yaml and trials/ of a store in one tar.xz, and plan.json in place of the
catalogue: the planned trials in order.

History
    1   tare 0.1.0: the first
        tare 0.2.0 adds trace-*.parquet, which readers of 1 do not look at: not a new version
"""

from __future__ import annotations

VERSION = 1

STORE_FILE = "store.json"
STUDY_FILE = "study.yaml"
PLAN_FILE = "plan.json"
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
HALF_MADE = ".tmp-"
SET_ASIDE = ".damaged-"
PACK_SUFFIX = ".tare"

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
    about TEXT NOT NULL
);
-- One row a tick. Its blob holds n readings as three little-endian columns: n x int64 t_ns, n x float64 value,
-- n x uint32 channel id.
CREATE TABLE IF NOT EXISTS tick (
    n        INTEGER PRIMARY KEY,
    t_ns     INTEGER NOT NULL,
    readings BLOB NOT NULL
);
"""
