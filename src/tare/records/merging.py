"""Sealed trials of other stores, taken into one: each is looked at byte by byte, and never replaces another."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tare.base.errors import StoreError
from tare.base.files import HALF_MADE, explained, give_to_user, make_folder, publish_all, remove_folder, settle_file
from tare.records.model import Record
from tare.records.schema import MANIFEST_FILE, TRIALS_FOLDER
from tare.records.sealed import folder_name, keys_in, open_sealed, verify_sealed
from tare.records.store import Store
from tare.records.trials import usable_trials

_STAGING = f"{HALF_MADE}merge"
_AT_ONCE = 16  # files that the disk is asked for
_TOGETHER = 100  # trials that are waited for together: so many are done again after a crash


@dataclass(frozen=True, slots=True)
class Merged:
    """What came of it."""

    copied: tuple[str, ...] = ()  # TRIAL.ATTEMPT
    there: tuple[str, ...] = ()  # the very same was there already
    refused: tuple[str, ...] = ()  # sentences
    notes: tuple[str, ...] = ()
    records: tuple[Record, ...] = ()  # of those that were copied

    def __add__(self, other: Merged) -> Merged:
        return Merged(
            self.copied + other.copied,
            self.there + other.there,
            self.refused + other.refused,
            self.notes + other.notes,
            self.records + other.records,
        )


def merge(into: Store, others: Iterable[Path]) -> Merged:
    """Take in what other stores of the same study have; done twice, it is as done once."""
    found = Merged()
    for root in others:
        if root.resolve() == into.root.resolve():
            raise StoreError(f"{root}: a store cannot be merged into itself.")
        with Store.open(root) as other:
            if other.study.get("study") != into.study.get("study"):
                raise StoreError(
                    f"{root}: this store is of the study {other.study.get('study')!r}, and {into.root} "
                    f"of {into.study.get('study')!r}. Nothing of it was merged."
                )
            found += take_in(into, other.root / TRIALS_FOLDER)
            left = len(other.spooled())
        if left:
            what = "an attempt runs there, or was" if left == 1 else f"{left} attempts run there, or were"
            found += Merged(notes=(f"{root}: {what} cut off; the next `tare run` there seals it, then merge again.",))
    return found


def take_in(into: Store, folder: Path) -> Merged:
    """Take in the sealed trials that lie in a folder, each under its name TRIAL.ATTEMPT."""
    return Intake(into).take(folder)


class Intake:
    """Takes sealed trials into one store, as they come.

    It is tidied once: a look at all of it each time would cost the more, the fuller it is. Those that come together go
    to the disk together: waiting for it is what takes most of the time, and it is waited for once.
    """

    def __init__(self, into: Store) -> None:
        into.recover()  # ours alone from here on, and tidy
        self._into = into

    def take(self, folder: Path) -> Merged:
        """Those that lie in a folder, each under its name TRIAL.ATTEMPT; on the disk, and known, when this returns."""
        return self.take_all([folder])[0]

    def take_all(self, folders: Sequence[Path], *, move: bool = False) -> list[Merged]:
        """The same for several folders at once: what came of each. With `move` they are ours, and are used up."""
        found = [Merged() for _ in folders]
        sources = [
            (place, folder / folder_name(*key))
            for place, folder in enumerate(folders)
            for key in sorted(keys_in(folder))
        ]
        for start in range(0, len(sources), _TOGETHER):
            some = sources[start : start + _TOGETHER]
            for (place, _), merged in zip(some, self._take_some([path for _, path in some], move), strict=True):
                found[place] += merged
        return found

    def _take_some(self, sources: Sequence[Path], move: bool) -> list[Merged]:
        """As many as are waited for together."""
        root, staging = self._into.root, self._into.root / _STAGING
        with explained(root, "merging", need_bytes=sum(map(_size_bytes, sources))):
            remove_folder(staging)
            make_folder(staging)
            found = [
                _staged(source, root / TRIALS_FOLDER / source.name, staging / source.name, move) for source in sources
            ]
            copied = [name for each in found for name in each.copied]
            _settle([path for name in copied for path in (staging / name).iterdir()])
            if not move:
                found = [_unchanged(merged, staging) for merged in found]
                copied = [name for each in found for name in each.copied]
            publish_all({staging / name: root / TRIALS_FOLDER / name for name in copied})
            remove_folder(staging)
        self._into.adopt([record for each in found for record in each.records])
        return found


def _staged(source: Path, final: Path, copy: Path, move: bool) -> Merged:
    """The trial beside the store's others, if it is whole and new; else why not."""
    if problems := verify_sealed(source):
        return Merged(refused=(f"{source}: not merged: {problems[0]}",))
    for other in (final, copy):
        if other.exists():
            if _manifest(other) == _manifest(source):
                return Merged(there=(source.name,))
            reported = f"{source}: not merged: {other} has the same trial and attempt, and says otherwise."
            return Merged(refused=(reported,))
    sealed = open_sealed(source)
    if move:
        source.rename(copy)
        give_to_user(copy)
    else:
        make_folder(copy)
        for name in (*sealed.files, MANIFEST_FILE):
            shutil.copyfile(source / name, copy / name)
    return Merged(copied=(source.name,), records=(sealed.record,))


def _unchanged(merged: Merged, staging: Path) -> Merged:
    """Whether what was copied is what was read a moment before."""
    for name in merged.copied:
        if problems := verify_sealed(staging / name):
            return Merged(refused=(f"{name}: not merged: it changed while it was copied: {problems[0]}",))
    return merged


def _settle(paths: Sequence[Path]) -> None:
    """All of them on the disk: at once, for a disk that is asked by many at once answers them together."""
    if paths:
        with ThreadPoolExecutor(min(_AT_ONCE, len(paths))) as pool:
            list(pool.map(settle_file, paths))


def _manifest(folder: Path) -> bytes:
    """The manifest has the digest of every other file."""
    try:
        return (folder / MANIFEST_FILE).read_bytes()
    except OSError:
        return b""


def _size_bytes(sealed: Path) -> int:
    return sum(path.stat().st_size for path in sealed.iterdir() if path.is_file())


def changed_since(records: Iterable[Record], begun: str, now: Mapping[str, str | None]) -> list[str]:
    """A sentence for each of `kernel` and `tare` that was another in these records; what is unknown has not changed."""
    before = usable_trials(records)
    kernels = {str(found["kernel"]) for each in before if "kernel" in (found := each.facts.get("device") or {})}
    versions = {each.tare_version for each in before if each.tare_version}
    pairs = (("the kernel", kernels, now.get("kernel")), ("tare", versions, now.get("tare")))
    return [
        f"{what} has changed since {begun} was begun: {', '.join(sorted(then))} then, {today} now."
        for what, then, today in pairs
        if today is not None and then - {today}
    ]
