"""Sealed trials of other stores, taken into one: each is looked at byte by byte, and never replaces another."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from tare.base.errors import StoreError
from tare.base.files import HALF_MADE, explained, make_folder, publish_all, remove_folder, settle_file, write_files
from tare.records.model import Record, usable_trials
from tare.records.schema import MANIFEST_FILE, TRIALS_FOLDER
from tare.records.sealed import Sealed, folder_name, keys_in, open_sealed, verify_sealed
from tare.records.store import Store

Arrived: TypeAlias = tuple[Sealed, Mapping[str, memoryview]]  # a trial that came as bytes, and its files
_STAGING = f"{HALF_MADE}merge"
_AT_ONCE = 4  # files, or trials, that the disk is asked for; more only wait for each other
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
        self._pool = ThreadPoolExecutor(_AT_ONCE)  # for a disk that is asked by many at once answers them together

    def take(self, folder: Path) -> Merged:
        """Those that lie in a folder, each under its name TRIAL.ATTEMPT; on the disk, and known, when this returns."""
        found, sources = Merged(), [folder / folder_name(*key) for key in sorted(keys_in(folder))]
        for start in range(0, len(sources), _TOGETHER):
            some = sources[start : start + _TOGETHER]
            need_bytes = sum(path.stat().st_size for each in some for path in each.iterdir() if path.is_file())
            for merged in self._together(need_bytes, partial(self._copied, some)):
                found += merged
        return found

    def take_bytes(self, arrived: Sequence[Arrived]) -> list[Merged]:
        """Those that came as bytes, looked at by `sealed_in`: what came of each; on the disk when this returns."""
        found: list[Merged] = []
        for start in range(0, len(arrived), _TOGETHER):
            some = arrived[start : start + _TOGETHER]
            need_bytes = sum(entry.size_bytes for sealed, _ in some for entry in sealed.files.values())
            found += self._together(need_bytes, partial(self._written, some))
        return found

    def _together(self, need_bytes: int, stage: Callable[[Path], list[Merged]]) -> list[Merged]:
        """As many as are waited for together: `stage` puts them into a folder, and on the disk."""
        root, staging = self._into.root, self._into.root / _STAGING
        with explained(root, "merging", need_bytes=need_bytes):
            remove_folder(staging)
            make_folder(staging)
            found = stage(staging)
            publish_all({staging / name: root / TRIALS_FOLDER / name for each in found for name in each.copied})
            remove_folder(staging)
        self._into.adopt([record for each in found for record in each.records])
        return found

    def _copied(self, sources: Sequence[Path], staging: Path) -> list[Merged]:
        found = [_staged(source, self._into.root / TRIALS_FOLDER / source.name, staging) for source in sources]
        paths = [path for each in found for name in each.copied for path in (staging / name).iterdir()]
        list(self._pool.map(settle_file, paths))
        return [_unchanged(merged, staging) for merged in found]

    def _written(self, arrived: Sequence[Arrived], staging: Path) -> list[Merged]:
        """What is refused here, the disk's refusals too, is one trial's: the others are kept."""
        finals = {each.folder.name: self._into.root / TRIALS_FOLDER / each.folder.name for each, _ in arrived}
        there = {name: _manifest(final) for name, final in finals.items() if final.exists()}
        new: dict[str, Arrived] = {}
        for each in arrived:
            if each[0].folder.name not in there:
                new.setdefault(each[0].folder.name, each)
        write = self._pool.map if len(new) > 1 else map
        written = dict(zip(new, write(partial(_write, staging), new.values()), strict=True))
        there |= {name: bytes(new[name][1][MANIFEST_FILE]) for name, merged in written.items() if merged.copied}
        found = []
        for each in arrived:
            name = each[0].folder.name
            is_first = new.get(name) is each
            same = name in there and there[name] == each[1][MANIFEST_FILE]
            found.append(written[name] if is_first or name not in there else _not_new(name, name, finals[name], same))
        return found


def _write(staging: Path, arrived: Arrived) -> Merged:
    """The files of one trial, on the disk."""
    (sealed, held), name = arrived, arrived[0].folder.name
    try:
        write_files(staging / name, {file: held[file] for file in (*sealed.files, MANIFEST_FILE)})
    except OSError as error:
        return Merged(refused=(f"{name}: not merged: it cannot be kept: {error}",))
    return Merged(copied=(name,), records=(sealed.record,))


def _staged(source: Path, final: Path, staging: Path) -> Merged:
    """The trial beside the store's others, if it is whole and new; else why not."""
    if problems := verify_sealed(source):
        return Merged(refused=(f"{source}: not merged: {problems[0]}",))
    if final.exists():
        return _not_new(source.name, str(source), final, _manifest(final) == _manifest(source))
    sealed, copy = open_sealed(source), staging / source.name
    make_folder(copy)
    for name in (*sealed.files, MANIFEST_FILE):
        shutil.copyfile(source / name, copy / name)
    return Merged(copied=(source.name,), records=(sealed.record,))


def _not_new(name: str, source: str, other: Path, is_same: bool) -> Merged:
    if is_same:
        return Merged(there=(name,))
    return Merged(refused=(f"{source}: not merged: {other} has the same trial and attempt, and says otherwise.",))


def _unchanged(merged: Merged, staging: Path) -> Merged:
    """Whether what was copied is what was read a moment before."""
    for name in merged.copied:
        if problems := verify_sealed(staging / name):
            return Merged(refused=(f"{name}: not merged: it changed while it was copied: {problems[0]}",))
    return merged


def _manifest(folder: Path) -> bytes:
    """The manifest has the digest of every other file."""
    try:
        return (folder / MANIFEST_FILE).read_bytes()
    except OSError:
        return b""


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
