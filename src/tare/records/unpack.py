"""A pack, opened: into a folder that is ours alone and goes with the store, after a look at every byte.

A pack may come from anyone, so that nothing in it is believed: only plain files with the names of a store's own, each
once, so many and so large at most, and every one as its trial's manifest says.
"""

from __future__ import annotations

import hashlib
import lzma
import mmap
import os
import re
import shutil
import tarfile
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from tare.base.errors import StoreError
from tare.base.files import (
    explained,
    new_folder,
)
from tare.records.schema import (
    MANIFEST_FILE,
    PLAN_FILE,
    STORE_FILE,
    STUDY_FILE,
    THINNED_FILE,
    TRIALS_FOLDER,
    Header,
    read_header,
)
from tare.records.sealed import Damaged, Key, Sealed, folder_name, keys_in, open_sealed
from tare.records.thin_pack import HeldTrial, expanded, held

MOST_MEMBERS = 200_000
MOST_BYTES = 4 * 2**30  # of all files together, unpacked
_MOST_MEMORY = 128 * 2**20  # that a pack may ask for to be unpacked; ours takes 9 MiB

_BLOCK = tarfile.BLOCKSIZE
_PIECE = 256 * 1024
_NAME = re.compile(
    rf"{re.escape(STORE_FILE)}|{re.escape(STUDY_FILE)}|{re.escape(PLAN_FILE)}|{re.escape(THINNED_FILE)}"
    rf"|{TRIALS_FOLDER}/[A-Za-z0-9][A-Za-z0-9._-]{{0,63}}\.[1-9][0-9]{{0,8}}/[A-Za-z0-9][A-Za-z0-9._-]{{0,199}}"
)


class _Refused(Exception):
    """Why a pack is not opened, as the rest of a sentence."""

    advice = ""


class _Broken(_Refused):
    """The file is not what was packed: another copy may be."""

    advice = " Copy it again from where it came, or make it again with `tare store pack`."


class Unpacked:
    """The folder that a pack lies in while its store is open; it goes when this is closed, forgotten, or at exit."""

    def __init__(self, pack: Path) -> None:
        self.folder = _own_folder()
        self._remove = weakref.finalize(self, _remove, self.folder, os.getpid())
        self.sealed: Mapping[Key, Sealed] = _filled(self.folder, pack)

    def close(self) -> None:
        self._remove()


class KeptFolder:
    """A folder that stays for whoever opens the same pack next."""

    def __init__(self, folder: Path, pack: Path) -> None:
        self.folder = folder
        self._pack = pack

    @cached_property
    def sealed(self) -> Mapping[Key, Sealed]:
        """Its trials, opened when they are first asked for; every byte was looked at when the folder was filled."""
        trials = self.folder / TRIALS_FOLDER
        if (self.folder / THINNED_FILE).exists():
            with _told_of(self._pack), explained(self.folder, f"reading {self._pack}"):
                return _held(self.folder)
        return {key: open_sealed(trials / folder_name(*key)) for key in keys_in(trials)}

    def close(self) -> None:
        """Whoever keeps it removes it."""


class _Kept:
    """Packs that are opened once, each in a folder below ours: a process that we fork finds those of the others."""

    def __init__(self) -> None:
        self._opened: dict[Path, KeptFolder] = {}
        self._owner = os.getpid()

    @cached_property
    def folder(self) -> Path:
        """Made when it is first asked for."""
        return _own_folder()

    def folder_for(self, pack: Path) -> Path:
        found = pack.stat()
        identity = f"{pack.resolve()}:{found.st_size}:{found.st_mtime_ns}"
        return self.folder / hashlib.sha256(os.fsencode(identity)).hexdigest()[:24]

    def get(self, pack: Path) -> KeptFolder:
        folder = self.folder_for(pack)
        if folder not in self._opened:
            self._opened[folder] = self._made(folder, pack)
        return self._opened[folder]

    def _made(self, folder: Path, pack: Path) -> KeptFolder:
        kept = KeptFolder(folder, pack)
        if not folder.exists():
            half_made, trials = Path(tempfile.mkdtemp(dir=self.folder)), folder / TRIALS_FOLDER
            made = _filled(half_made, pack, hold=True)
            with suppress(OSError):  # another process was faster
                half_made.rename(folder)
                kept.sealed = {key: replace(each, folder=trials / each.folder.name) for key, each in made.items()}
        return kept

    def close(self) -> None:
        if "folder" in vars(self):
            _remove(self.folder, self._owner)


_kept: ContextVar[_Kept | None] = ContextVar("_kept", default=None)


def header_of(pack: Path) -> Header:
    """What a pack is, from its first files: the others are not looked at, unless they were before."""
    kept = _kept.get()
    if kept is not None and (folder := kept.folder_for(pack)).exists():
        return read_header(folder)
    folder = _own_folder()
    try:
        with _told_of(pack), explained(folder, f"unpacking {pack}"):
            _unpack(pack, folder, STORE_FILE)
            return _header_in(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def unpacked(pack: Path) -> Unpacked | KeptFolder:
    """The pack in a folder; to be closed."""
    kept = _kept.get()
    return Unpacked(pack) if kept is None else kept.get(pack)


@contextmanager
def each_pack_once(*, shared: bool = False) -> Iterator[None]:
    """In here a pack is unpacked and looked at once, however often it is opened: for one who reads many pages of it.

    The trials of a thinned pack are read where they lie, which is quick; they have no files to copy elsewhere.
    `shared`: with the processes that are forked in here.
    """
    if _kept.get() is not None:  # whoever asked first keeps them for longer
        yield
        return
    kept = _Kept()
    if shared:
        kept.folder  # noqa: B018  (before they are forked)
    token = _kept.set(kept)
    try:
        yield
    finally:
        _kept.reset(token)
        kept.close()


def _own_folder() -> Path:
    with explained(Path(tempfile.gettempdir()), "making a folder to unpack into"):
        return new_folder("pack")


def _filled(folder: Path, pack: Path, *, hold: bool = False) -> Mapping[Key, Sealed]:
    """The trials of the pack, which lie in the folder now; what is refused leaves nothing behind.

    `hold`: those of a thinned pack have no files there.
    """
    try:
        with _told_of(pack), explained(folder, f"unpacking {pack}", need_bytes=pack.stat().st_size * 4):
            _unpack(pack, folder)
            _header_in(folder)
            if not (thinned := folder / THINNED_FILE).exists():
                return _checked(folder)
            if any((folder / TRIALS_FOLDER).iterdir()):
                raise _Refused("it is thinned, and has whole trials in it as well")
            found = _held(folder)
            if hold:
                return found
            thinned.unlink()
            with _refused_if_damaged():
                return expanded(found, folder / "spill")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def _told_of(pack: Path) -> Iterator[None]:
    try:
        yield
    except _Refused as error:
        raise StoreError(f"{pack}: this pack is refused: {error}. Nothing of it was read.{error.advice}") from None
    except MemoryError:
        raise StoreError(f"{pack}: there is not enough memory to open this pack. Nothing of it was read.") from None


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a child that was forked from us does not end the store for us
        shutil.rmtree(folder, ignore_errors=True)


def _unpack(pack: Path, folder: Path, last: str = "") -> None:
    with pack.open("rb") as file:
        try:
            _take_all(_Stream(file), folder, last)
        except lzma.LZMAError as error:
            raise _Broken(f"it is damaged ({str(error).rstrip('.').lower()})") from None
        except EOFError:
            raise _Broken("it is cut off") from None
        except (tarfile.TarError, UnicodeDecodeError) as error:
            raise _Broken(f"it is damaged, or no archive that tare makes ({error})") from None


class _Stream:
    """What a compressed file holds, piece by piece; never more of it in memory than was asked for."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._xz = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_MEMORY)

    def take(self, count: int) -> bytes:
        """So many bytes, or EOFError."""
        made = bytearray()
        while len(made) < count:
            made += self._more(count - len(made))
        return bytes(made)

    def _more(self, most: int) -> bytes:
        if self._xz.eof:
            raise EOFError
        data = self._file.read(_PIECE) if self._xz.needs_input else b""
        if self._xz.needs_input and not data:
            raise EOFError
        return self._xz.decompress(data, most)

    def end(self) -> None:
        """Nothing but the archive's own padding is left; only at its end does xz compare its checksum."""
        left = 0
        while not self._xz.eof:
            rest = self._more(_PIECE)
            left += len(rest)
            if rest.strip(b"\0") or left > tarfile.RECORDSIZE:
                raise _Refused("there is more in it behind the archive's end")
        if self._xz.unused_data or self._file.read(1):
            raise _Refused("there is more in it behind its end")


def _take_all(stream: _Stream, folder: Path, last: str) -> None:
    """Every file; or those up to the `last`, and what comes after it is not looked at."""
    names: set[str] = set()
    total_bytes = 0
    while (block := stream.take(_BLOCK)).strip(b"\0"):
        entry = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        total_bytes += entry.size
        _refuse_foreign(entry, names, total_bytes)
        names.add(entry.name)
        _take(stream, entry.size, folder / entry.name)
        if entry.name == last:
            return
    stream.end()
    if STORE_FILE not in names or PLAN_FILE not in names:
        raise _Refused("no store in it; `tare store pack` makes packs")
    (folder / TRIALS_FOLDER).mkdir(mode=0o700, exist_ok=True)


def _refuse_foreign(entry: tarfile.TarInfo, names: set[str], total_bytes: int) -> None:
    """Nothing that leads out of the folder, is no plain file, comes twice, or is too much."""
    if entry.name.startswith("/") or ".." in PurePosixPath(entry.name).parts:
        raise _Refused(f"{entry.name!r} in it would lie outside of its folder")
    if entry.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        raise _Refused(f"{entry.name!r} in it is no plain file")
    if not _NAME.fullmatch(entry.name):
        raise _Refused(f"{entry.name!r} in it is no part of a store")
    if entry.name in names:
        raise _Refused(f"{entry.name!r} is in it twice")
    if entry.size < 0 or total_bytes > MOST_BYTES or len(names) >= MOST_MEMBERS:
        raise _Refused(f"it holds more than {MOST_MEMBERS:,} files or {MOST_BYTES // 2**20:,} MiB")


def _take(stream: _Stream, size_bytes: int, path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        for begin in range(0, size_bytes, _PIECE):
            file.write(stream.take(min(_PIECE, size_bytes - begin)))
    if padding := -size_bytes % _BLOCK:
        stream.take(padding)


def _held(folder: Path) -> dict[Key, HeldTrial]:
    """The trials of a thinned pack; their folders are names that are nowhere."""
    with _refused_if_damaged():
        with (folder / THINNED_FILE).open("rb") as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        trials = held(content, folder / TRIALS_FOLDER, MOST_BYTES)
        return {(each.record.trial, each.record.attempt): each for each in trials}


@contextmanager
def _refused_if_damaged() -> Iterator[None]:
    try:
        yield
    except EOFError:
        raise _Broken("it is cut off") from None
    except Damaged as error:
        raise _Refused(error.fault) from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError, OverflowError) as error:
        raise _Broken(f"it is damaged, or no pack that tare makes ({error})") from None


def _header_in(folder: Path) -> Header:
    try:
        return read_header(folder)
    except StoreError as error:
        raise _Refused(str(error).replace(f"{folder}/", "").rstrip(".")) from None


def _checked(folder: Path) -> dict[Key, Sealed]:
    """A pack is whole or it is refused: somebody has made it of whole trials."""
    found = {}
    for trial, attempt in sorted(keys_in(folder / TRIALS_FOLDER)):
        place = folder / TRIALS_FOLDER / f"{trial}.{attempt}"
        try:
            found[trial, attempt] = sealed = open_sealed(place)
            for name in sealed.files:
                sealed.checked(name)
        except Damaged as error:
            raise _Refused(error.fault) from None
        if foreign := {path.name for path in place.iterdir()} - {*sealed.files, MANIFEST_FILE}:
            raise _Refused(f"{TRIALS_FOLDER}/{place.name}: {min(foreign)!r} is not in its manifest")
    return found
