"""After a crash: what a dead writer left is sealed as interrupted, tidied, and noted in the catalogue."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tare.records import strict
from tare.records.catalogue import Catalogue, CatalogueDamaged
from tare.records.durable import remove_folder
from tare.records.model import Record
from tare.records.schema import (
    CATALOGUE_FILE,
    DRAFT_FILE,
    HALF_MADE,
    PLAN_FILE,
    SET_ASIDE,
    SPOOL_FOLDER,
    TRIALS_FOLDER,
)
from tare.records.seal import Content, plain, seal, set_aside
from tare.records.sealed import Key, folder_name, keys_in, verify_sealed
from tare.records.shelf import Shelf

_REASON = "the run ended while this trial ran; what was seen until then is kept."


def readable_catalogue(root: Path, problems: list[str]) -> Catalogue:
    """The store's index for a reader; where it has none that can be used, one in memory."""
    catalogue = Catalogue.in_memory()
    try:
        if (root / CATALOGUE_FILE).exists() or not (root / PLAN_FILE).exists():
            return Catalogue.to_read(root)
        catalogue.plan(strict.load((root / PLAN_FILE).read_bytes()))  # a pack has its plan in place of an index
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
        interrupted = replace(draft, state="interrupted", reasons=(*draft.reasons, _REASON))
        records.append(seal(root, spool, Content(plain(interrupted)), note))
    return records


def read_draft(spool: Path, key: Key) -> Record | None:
    """What the runner had noted of the trial in this spool by now; None where it cannot be read."""
    try:
        draft = Record.from_json(strict.load((spool / DRAFT_FILE).read_bytes()))
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
