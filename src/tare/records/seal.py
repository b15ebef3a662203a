"""From a spool to a sealed trial: everything is on the disk before it gets its name."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from tare.base import strict_json
from tare.base.errors import StoreError
from tare.base.files import (
    HALF_MADE,
    explained,
    make_folder,
    publish,
    remove_folder,
    replace_file,
    settle_file,
    write_file,
)
from tare.base.rulings import Ruling
from tare.records.creation import Catalogue, CatalogueDamaged
from tare.records.model import Record
from tare.records.parquet import distributions, engine, write_marks, write_readings
from tare.records.schema import (
    CATALOGUE_FILE,
    CHANNELS_FILE,
    DRAFT_FILE,
    ERR_FILE,
    MANIFEST_FILE,
    MARKS_FILE,
    OUT_FILE,
    PLAN_FILE,
    RAW_FOLDER,
    READINGS_FILE,
    RECORD_FILE,
    SET_ASIDE,
    SPOOL_FILE,
    SPOOL_FOLDER,
    TABLES_FOLDER,
    TRIALS_FOLDER,
)
from tare.records.sealed import Key, Shelf, folder_name, keys_in, manifest_for, verify_sealed
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
        texts = len(self.out) + len(self.err) + len(strict_json.dump(self.record.as_json()))
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
        for path in sorted((spool / TABLES_FOLDER).glob("*.parquet")):
            path.rename(half_made / path.name)  # on the disk already; from here on part of the sealed trial
        sentence = f"some of its readings could not be read back ({damage})."
        record = plain(content.record, [Ruling("readings.damaged", "note", "", sentence)] if damage else ())
        write_file(half_made / OUT_FILE, content.out.encode("utf-8", "surrogatepass"))
        write_file(half_made / ERR_FILE, content.err.encode("utf-8", "surrogatepass"))
        write_file(half_made / RECORD_FILE, strict_json.dump(record.as_json()))
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
    write_file(half_made / CHANNELS_FILE, strict_json.dump(channels))
    return damage


def plain(record: Record, notes: Iterable[Ruling] = ()) -> Record:
    """The record as strict JSON can hold it: a figure that is no number is left out, and a note says so."""
    record = replace(record, notes=(*record.notes, *notes))
    try:
        strict_json.dump(record.as_json())
        return record
    except ValueError:
        data, left_out = strict_json.without_missing(record.as_json())
        sentence = f"left out, because it is not a finite number: {', '.join(left_out)}."
        note = Ruling("figures.not-finite", "note", "", sentence)
        return Record.from_json({**data, "notes": [*data["notes"], note]})


MarkRow: TypeAlias = tuple[int, str, str | int, int]  # t_ns, name, edge (begin, end, point; or 0, 1, 2), step


class Writer:
    """What `Store.begin` gives. `spool` is the file for the sampler; `seal` ends the attempt, once."""

    def __init__(self, root: Path, draft: Record, note: Callable[[Record], None]) -> None:
        self.attempt = draft.attempt
        self.spool = root / SPOOL_FOLDER / folder_name(draft.trial, draft.attempt) / SPOOL_FILE
        self._root = root
        self._trial = draft.trial
        self._note = note

    @property
    def raw(self) -> Path:
        """Where recorders write while the trial runs, each in a folder with its name."""
        return self.spool.parent / RAW_FOLDER

    @property
    def tables(self) -> Path:
        """Where the tables made of that wait for the seal."""
        return self.spool.parent / TABLES_FOLDER

    def keep(self, draft: Record) -> None:
        """Replace the draft: what is in it now is what an interrupted trial will be sealed with."""
        self._check(draft)
        draft = plain(replace(draft, attempt=self.attempt, state="running"))
        with explained(self._root, f"keeping the draft of trial {self._trial}"):
            replace_file(self.spool.parent / DRAFT_FILE, strict_json.dump(draft.as_json()))

    def seal(self, record: Record, marks: Iterable[MarkRow], out: str, err: str, lost_marks: int = 0) -> Record:
        """The end of the attempt: on the disk when this returns. Returns the record as it was kept."""
        self._check(record)
        if record.state in ("planned", "running"):
            raise StoreError(
                f"trial {self._trial}: a sealed record says how it ended, and this one is {record.state!r}."
            )
        content = Content(plain(replace(record, attempt=self.attempt)), list(marks), out, err, lost_marks)
        folder = self.spool.parent
        with explained(self._root, f"sealing trial {folder.name}", content.need_bytes(folder)):
            return seal(self._root, folder, content, self._note)

    def _check(self, record: Record) -> None:
        if record.trial != self._trial:
            raise StoreError(f"this writer is for trial {self._trial}, not for {record.trial}.")
        if not self.spool.parent.is_dir():
            raise StoreError(
                f"{self.spool.parent}: the spool of this attempt is not there any more: "
                "the attempt was sealed already, or the folder was removed while it ran."
            )


def start(root: Path, draft: Record) -> None:
    """Make the spool's folder with the draft in it, all or nothing."""
    folder = root / SPOOL_FOLDER / folder_name(draft.trial, draft.attempt)
    half_made = folder.with_name(HALF_MADE + folder.name)
    remove_folder(half_made)
    make_folder(half_made)
    write_file(half_made / DRAFT_FILE, strict_json.dump(draft.as_json()))
    publish(half_made, folder)


_CUT_OFF = Ruling("run.cut-off", "failed", "", "the run ended during this trial; the data until then is kept.")


def readable_catalogue(root: Path, problems: list[str]) -> Catalogue:
    """The store's index for a reader; where it has none that can be used, one in memory."""
    catalogue = Catalogue.in_memory()
    try:
        if (root / CATALOGUE_FILE).exists() or not (root / PLAN_FILE).exists():
            return Catalogue.to_read(root)
        catalogue.plan(strict_json.load((root / PLAN_FILE).read_bytes()))  # a pack has its plan in place of an index
    except (CatalogueDamaged, sqlite3.Error, OSError, ValueError, KeyError, TypeError) as error:
        problems.append(
            f"{CATALOGUE_FILE}: the index could not be used ({error}); it was rebuilt from the sealed trials."
        )
    return catalogue


def remove_half_made(root: Path) -> None:
    """Names that were never given: nothing in them was ever acknowledged."""
    for folder in (root, root / SPOOL_FOLDER, root / TRIALS_FOLDER):
        for path in folder.glob(f"{HALF_MADE}*"):
            if path.is_dir():
                remove_folder(path)
            else:
                path.unlink()


def seal_left_over(root: Path, shelf: Shelf, note: Callable[[Record], None], problems: list[str]) -> list[Record]:
    """Seal each spool that no one writes any more; returns the records, as interrupted."""
    whole, records = shelf.look(), []
    for key in sorted(keys_in(root / SPOOL_FOLDER)):
        spool = root / SPOOL_FOLDER / folder_name(*key)
        if key in whole:
            remove_folder(spool)  # the writer died between the seal and this
            continue
        if key in shelf.seen() or (draft := read_draft(spool, key)) is None:
            aside = set_aside(spool)
            problems.append(f"{SPOOL_FOLDER}/{aside.name}: it could not be sealed, and is kept for a closer look.")
            continue
        interrupted = replace(draft, state="interrupted", reasons=(*draft.reasons, _CUT_OFF))
        records.append(seal(root, spool, Content(plain(interrupted)), note))
    return records


def read_draft(spool: Path, key: Key) -> Record | None:
    """What the runner had noted of the trial in this spool by now; None where it cannot be read."""
    try:
        draft = Record.from_json(strict_json.load((spool / DRAFT_FILE).read_bytes()))
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return draft if (draft.trial, draft.attempt) == key else None


def adopt(root: Path, shelf: Shelf, catalogue: Catalogue) -> None:
    """Note sealed trials that the catalogue does not know, after a look at every byte of them."""
    known = {(row.trial, row.attempt) for row in catalogue.attempts() if row.sealed}
    found = []
    for key, sealed in list(shelf.look().items()):
        if key in known:
            continue
        if problems := verify_sealed(root / TRIALS_FOLDER / folder_name(*key)):
            shelf.leave_out(key, problems[0])
        else:
            found.append(sealed.record)
    catalogue.note(found, sealed=True)


def note_lost(root: Path, shelf: Shelf, catalogue: Catalogue) -> list[str]:
    """Attempts that were begun and of which nothing is left, neither spool nor folder; one sentence each."""
    there = shelf.seen() | keys_in(root / SPOOL_FOLDER)
    lost = [row for row in catalogue.attempts() if row.state == "running" and (row.trial, row.attempt) not in there]
    for row in lost:
        catalogue.note_lost(row.trial, row.attempt)
    return [f"trial {row.trial}, attempt {row.attempt}: it was begun, but its spool was removed." for row in lost]


def missing_folders(shelf: Shelf, catalogue: Catalogue) -> list[str]:
    """Trials that were sealed and whose folders are gone; one sentence each."""
    there = shelf.seen()
    return [
        f"{TRIALS_FOLDER}/{folder_name(row.trial, row.attempt)}: it was sealed as {row.state}, and its folder is gone."
        for row in catalogue.attempts()
        if row.sealed and (row.trial, row.attempt) not in there
    ]


def set_aside_earlier(root: Path) -> list[str]:
    """Spools that an earlier recovery could not read in full; one sentence each."""
    found = sorted(path.name for path in (root / SPOOL_FOLDER).glob(f"{SET_ASIDE}*"))
    return [f"{SPOOL_FOLDER}/{name}: it could not be read in full, and is kept for a closer look." for name in found]
