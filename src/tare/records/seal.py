"""From a spool to a sealed trial: everything is on the disk before it gets its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tare.records import strict
from tare.records.durable import make_folder, publish, remove_folder, settle_file, write_file
from tare.records.model import Record
from tare.records.parquet import distributions, engine, write_marks, write_readings
from tare.records.schema import (
    CHANNELS_FILE,
    ERR_FILE,
    HALF_MADE,
    MANIFEST_FILE,
    MARKS_FILE,
    OUT_FILE,
    READINGS_FILE,
    RECORD_FILE,
    SET_ASIDE,
    SPOOL_FILE,
    TABLES_FOLDER,
    TRIALS_FOLDER,
)
from tare.records.sealed import folder_name, manifest_for
from tare.records.spool import SpoolReader

_MARK_BYTES = 40


@dataclass(frozen=True)
class Content:
    """What goes into a sealed trial beside the readings in its spool."""

    record: Record
    marks: list[Any] = field(default_factory=list)
    out: str = ""
    err: str = ""
    lost_marks: int = 0

    def need_bytes(self, spool: Path) -> int:
        """About what sealing will write, at most; for the message when there is no room for it."""
        spooled = sum(path.stat().st_size for path in spool.glob(f"{SPOOL_FILE}*"))
        texts = len(self.out) + len(self.err) + len(strict.dump(self.record.as_json()))
        return spooled + texts + _MARK_BYTES * len(self.marks) + 32768


def seal(root: Path, spool: Path, content: Content, note: Callable[[Record], None]) -> Record:
    """The sealed folder first, then the catalogue (`note`), then the spool goes. Returns the record as it was kept."""
    record, damage = _make_sealed(root, spool, content)
    note(record)
    if damage is None:
        remove_folder(spool)
    else:
        set_aside(spool)
    return record


def set_aside(spool: Path) -> Path:
    """Keep what could not be read for a closer look, where no one takes it for a trial that runs."""
    number = 1
    while (aside := spool.with_name(f"{SET_ASIDE}{spool.name}-{number}")).exists():
        number += 1
    spool.rename(aside)
    return aside


def _make_sealed(root: Path, spool: Path, content: Content) -> tuple[Record, str | None]:
    trials = root / TRIALS_FOLDER
    name = folder_name(content.record.trial, content.record.attempt)
    half_made = trials / (HALF_MADE + name)
    remove_folder(half_made)
    make_folder(half_made)
    try:
        damage = _write_series(half_made, spool, content)
        _move_tables(spool / TABLES_FOLDER, half_made)
        record = plain(content.record, [f"some of its readings could not be read back ({damage})."] if damage else ())
        write_file(half_made / OUT_FILE, content.out.encode("utf-8", "surrogatepass"))
        write_file(half_made / ERR_FILE, content.err.encode("utf-8", "surrogatepass"))
        write_file(half_made / RECORD_FILE, strict.dump(record.as_json()))
        write_file(half_made / MANIFEST_FILE, manifest_for(half_made, content.lost_marks))
        publish(half_made, trials / name)
    except BaseException:
        remove_folder(half_made)
        raise
    return record, damage


def _write_series(half_made: Path, spool: Path, content: Content) -> str | None:
    with SpoolReader(spool / SPOOL_FILE) as reader, engine(half_made / "spill") as db:
        channels: list[dict[str, Any]] = [dict(channel) for channel in reader.channels()]
        names = [channel["name"] for channel in channels]
        write_readings(db, half_made / READINGS_FILE, reader.chunks(), names)
        counters = [place for place, channel in enumerate(channels) if channel["kind"] == "counter"]
        for place, (count, quantiles) in distributions(db, counters).items():
            if place < len(channels):
                channels[place] |= {"count": count, "quantiles": quantiles}
        write_marks(db, half_made / MARKS_FILE, content.marks)
        damage = reader.damage
    remove_folder(half_made / "spill")
    settle_file(half_made / READINGS_FILE)
    settle_file(half_made / MARKS_FILE)
    write_file(half_made / CHANNELS_FILE, strict.dump(channels))
    return damage


def _move_tables(tables: Path, half_made: Path) -> None:
    """They are on the disk already; from here on they belong to the sealed trial."""
    for path in sorted(tables.glob("*.parquet")):
        path.rename(half_made / path.name)


def plain(record: Record, notes: Iterable[str] = ()) -> Record:
    """The record as strict JSON can hold it: a figure that is no number is left out, and a note says so."""
    record = replace(record, notes=(*record.notes, *notes))
    try:
        strict.dump(record.as_json())
        return record
    except ValueError:
        data, left_out = strict.without_missing(record.as_json())
        said = f"left out, because it is not a finite number: {', '.join(left_out)}."
        return Record.from_json({**data, "notes": [*data["notes"], said]})
