"""A pack: a whole store in one file, to keep and to send; `Store.open` reads it (unpack.py).

It is a tar archive, compressed with xz, of what was sealed: store.json, study.yaml, plan.json (what was planned, in
order) and the files of every sealed trial. Names are sorted and nothing of the day, the user or the machine is in it,
so that the same store makes the same bytes. The index and the locks are left out: they can be made again. A thinned
pack (thin_pack.py) has one file in place of those of the trials.
"""

from __future__ import annotations

import io
import lzma
import os
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tare.base import strict_json
from tare.base.errors import NoSuchInput, StoreError
from tare.base.files import (
    FULL,
    HALF_MADE,
    NEW_FILE,
    explained,
    free_bytes,
    give_to_user,
    make_parents,
    size_text,
)
from tare.records.schema import (
    MANIFEST_FILE,
    PACK_SUFFIX,
    PLAN_FILE,
    STORE_FILE,
    STUDY_FILE,
    THINNED_FILE,
    TRIALS_FOLDER,
    is_pack,
    what_is_there,
)
from tare.records.sealed import folder_name, keys_in, open_sealed
from tare.records.thin_pack import Thinning, thinned_content
from tare.records.unpack import MOST_BYTES, MOST_MEMBERS

if TYPE_CHECKING:
    from tare.records.store import Store

_PRESET = 6  # of xz: more takes ten times the memory, and series are Parquet, which is compressed already

Member: TypeAlias = tuple[str, Path | bytes]


@dataclass(frozen=True, slots=True)
class Packed:
    """What came of it."""

    file: Path
    trials: int
    size_bytes: int
    notes: tuple[str, ...] = ()


def pack(store: Store, output: Path, thinning: Thinning | None = None) -> Packed:
    """Every sealed trial of the store as one file, every byte looked at; the file is there whole or not at all."""
    if problems := store.verify():
        raise StoreError(f"{store.path}: a damaged store is not packed. {' '.join(problems)}")
    trials = sorted(keys_in(store.root / TRIALS_FOLDER))
    folders = [store.root / TRIALS_FOLDER / folder_name(*key) for key in trials]
    members: list[Member] = [
        (STORE_FILE, store.root / STORE_FILE),
        (STUDY_FILE, store.root / STUDY_FILE),
        (PLAN_FILE, strict_json.dump(store.planned())),
    ]
    if thinning is not None:
        members.append((THINNED_FILE, thinned_content(map(open_sealed, folders), thinning)))
    else:
        for folder in folders:
            names = (*open_sealed(folder).files, MANIFEST_FILE)
            members += ((f"{TRIALS_FOLDER}/{folder.name}/{name}", folder / name) for name in names)
    members.sort(key=lambda member: member[0])
    _refuse_too_much(store.path, members)
    half_made = output.with_name(HALF_MADE + output.name)
    try:
        with _explained_output(output, need_bytes=sum(map(_size_bytes, members))):
            make_parents(output)
            _write(half_made, members, store.root)
            half_made.replace(output)
    finally:
        with suppress(OSError):  # where it could not be written, there is nothing to remove
            half_made.unlink()
    return Packed(output, len(trials), output.stat().st_size, _left_behind(store))


@contextmanager
def _explained_output(output: Path, need_bytes: int) -> Iterator[None]:
    """Whatever the disk refuses is of the pack, not of the store, which is only read."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in FULL:
            there = next(folder for folder in output.absolute().parents if folder.exists())
            why = f"no space left: {size_text(free_bytes(there))} free, up to {size_text(need_bytes)} needed"
        missing = error.filename is not None and Path(error.filename) in output.parents
        what = f"the folder {error.filename} cannot be made" if missing else "the pack cannot be written there"
        raise StoreError(f"{output}: {what}: {why}. The store is as it was; choose another file with -o.") from error


def _write(path: Path, members: Iterable[Member], root: Path) -> None:
    path.unlink(missing_ok=True)  # of a process that was killed, or a link that someone put there
    with (
        os.fdopen(os.open(path, NEW_FILE, 0o666), "wb") as raw,
        lzma.open(raw, "wb", preset=_PRESET) as xz,
        tarfile.open(fileobj=xz, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name, content in members:
            entry = tarfile.TarInfo(name)  # mode 0644, and neither a time nor an owner
            with explained(root, f"reading {name} to pack it"):
                data = content if isinstance(content, bytes) else content.read_bytes()
            entry.size = len(data)
            try:
                tar.addfile(entry, io.BytesIO(data))
            except ValueError as error:
                raise StoreError(f"{name}: it cannot be packed: {error}.") from None
    give_to_user(path)


def _refuse_too_much(store: Path, members: list[Member]) -> None:
    """What could not be opened again is not made."""
    if len(members) > MOST_MEMBERS or sum(map(_size_bytes, members)) > MOST_BYTES:
        raise StoreError(
            f"{store}: too much for a pack, which holds at most {MOST_MEMBERS:,} files and {MOST_BYTES // 2**30} GiB. "
            "Copy the folder as it is."
        )


def _size_bytes(member: Member) -> int:
    _, content = member
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def _left_behind(store: Store) -> tuple[str, ...]:
    if not (left := len(store.spooled())):
        return ()
    what = "an attempt runs there, or was" if left == 1 else f"{left} attempts run there, or were"
    return (f"{store.path}: {what} cut off, and not packed; the next `tare run` there seals it, then pack again.",)


def stores_in(results: Path) -> list[Path]:
    """Every store and pack in a folder, sorted; a store or a pack itself is the only one."""
    try:
        if is_pack(results) or (results / STORE_FILE).is_file():
            return [results]
        if not results.exists():
            raise NoSuchInput(f"{results}: no such folder of results.")
    except PermissionError:
        raise StoreError(f"{results}: no permission to look into it. Run as its owner.") from None
    if not results.is_dir():
        raise StoreError(what_is_there(results))
    folders = {path.parent for path in results.rglob(STORE_FILE)}
    packs = {path for path in results.rglob(f"*{PACK_SUFFIX}") if path.is_file()}
    if not folders | packs:
        raise StoreError(f"{results}: no store in this folder, and no pack (*{PACK_SUFFIX}).")
    return sorted(folders | packs)
