"""Sealed trials of other stores, taken into one: each is looked at byte by byte, and never replaces another."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tare.errors import StoreError
from tare.records.durable import explained, make_folder, publish, remove_folder, settle_file
from tare.records.header import read_header
from tare.records.schema import HALF_MADE, MANIFEST_FILE, SPOOL_FOLDER, TRIALS_FOLDER
from tare.records.sealed import folder_name, keys_in, open_sealed, verify_sealed
from tare.records.store import Store

_STAGING = f"{HALF_MADE}merge"


@dataclass(frozen=True, slots=True)
class Merged:
    """What came of it."""

    copied: tuple[str, ...] = ()  # TRIAL.ATTEMPT
    there: tuple[str, ...] = ()  # the very same was there already
    refused: tuple[str, ...] = ()  # sentences
    notes: tuple[str, ...] = ()

    def __add__(self, other: Merged) -> Merged:
        return Merged(
            self.copied + other.copied,
            self.there + other.there,
            self.refused + other.refused,
            self.notes + other.notes,
        )


def merge(into: Store, others: Iterable[Path]) -> Merged:
    """Take in what other stores of the same study have; done twice, it is as done once."""
    found = Merged()
    for root in others:
        if root.resolve() == into.root.resolve():
            raise StoreError(f"{root}: a store cannot be merged into itself.")
        header = read_header(root)
        if header.study.get("study") != into.study.get("study"):
            raise StoreError(
                f"{root}: this store is of the study {header.study.get('study')!r}, and {into.root} "
                f"of {into.study.get('study')!r}. Nothing of it was merged."
            )
        found += take_in(into, root / TRIALS_FOLDER)
        if left := len(_spooled(root)):
            what = "an attempt runs there, or was" if left == 1 else f"{left} attempts run there, or were"
            found += Merged(notes=(f"{root}: {what} cut off; the next `tare run` there seals it, then merge again.",))
    return found


def take_in(into: Store, folder: Path) -> Merged:
    """Take in the sealed trials that lie in a folder, each under its name TRIAL.ATTEMPT."""
    into.recover()  # ours alone from here on, and tidy
    found = Merged()
    with explained(into.root, "merging", need_bytes=_size_bytes(folder)):
        for key in sorted(keys_in(folder)):
            found += _take(into.root, folder / folder_name(*key))
    into.recover()  # notes them in the catalogue
    return found


def _take(root: Path, source: Path) -> Merged:
    final = root / TRIALS_FOLDER / source.name
    if problems := verify_sealed(source):
        return Merged(refused=(f"{source}: not merged: {problems[0]}",))
    if final.exists():
        if _manifest(final) == _manifest(source):
            return Merged(there=(source.name,))
        return Merged(refused=(f"{source}: not merged: {final} has the same trial and attempt, and says otherwise.",))
    copy = root / _STAGING / source.name
    remove_folder(copy.parent)
    make_folder(copy.parent)
    make_folder(copy)
    for name in (*open_sealed(source).files, MANIFEST_FILE):
        shutil.copyfile(source / name, copy / name)
        settle_file(copy / name)
    if problems := verify_sealed(copy):  # what was read a moment ago was not what was copied
        return Merged(refused=(f"{source}: not merged: it changed while it was copied: {problems[0]}",))
    publish(copy, final)
    return Merged(copied=(source.name,))


def _manifest(folder: Path) -> bytes:
    """The manifest has the digest of every other file."""
    try:
        return (folder / MANIFEST_FILE).read_bytes()
    except OSError:
        return b""


def _spooled(root: Path) -> set[tuple[str, int]]:
    spool = root / SPOOL_FOLDER
    return keys_in(spool) if spool.is_dir() else set()


def _size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*/*") if path.is_file())
