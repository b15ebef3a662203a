"""A root file system in the making: which file of the device goes where, with the links that lead there."""

from __future__ import annotations

import io
import os
import posixpath
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TypeAlias

Report: TypeAlias = Callable[[int], None]  # so many more bytes are done


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, link or folder of the image. `source` is a file of the device; else `text` is what the file holds."""

    path: str
    mode: int
    source: str = ""
    link: str = ""
    text: str = ""
    is_folder: bool = False
    size_bytes: int = 0
    mtime_s: int = 0


class Tree:
    """Files by their path in the image, which is their real path on the device: each is there once."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._real: dict[str, str] = {}

    def add(self, path: str) -> str:
        """Take a file of the device, or a link and what it leads to; returns where it lies."""
        at = self._real_path(path)
        if at in self._entries:
            return at
        seen = Path(at).lstat()
        if stat.S_ISLNK(seen.st_mode):
            link = str(Path(at).readlink())
            self._entries[at] = Entry(at, 0o777, link=link)
            return self.add(posixpath.join(posixpath.dirname(at), link)) if Path(at).exists() else at
        if stat.S_ISDIR(seen.st_mode):
            self.add_folder(at)
        elif stat.S_ISREG(seen.st_mode):
            # Byte code holds the time of its source: with another time it would be compiled at every start.
            mtime_s = int(seen.st_mtime) if at.endswith(".py") else 0
            mode = stat.S_IMODE(seen.st_mode) & 0o755 | 0o444
            self._entries[at] = Entry(at, mode, source=at, size_bytes=seen.st_size, mtime_s=mtime_s)
        return at

    def add_text(self, path: str, text: str, mode: int = 0o644) -> None:
        """A file with this text, unless one of the device is there already."""
        at = self._real_path(path)
        self._entries.setdefault(at, Entry(at, mode, text=text, size_bytes=len(text.encode())))

    def add_command(self, path: str, text: str, mode: int) -> None:
        """A script in place of a link of the device: other links that led there lead to what was behind it.

        Where a file of the device is there already, it stays.
        """
        at = self._real_path(path)
        if (before := self._entries.get(at)) is not None and not before.link:
            return
        if before is not None:
            behind = str(Path(at).resolve())
            for name, entry in list(self._entries.items()):
                if entry.link and self._real_path(posixpath.join(posixpath.dirname(name), entry.link)) == at:
                    self._entries[name] = replace(entry, link=behind)
        self._entries[at] = Entry(at, mode, text=text, size_bytes=len(text.encode()))

    def add_folder(self, path: str, mode: int = 0o755) -> None:
        self._entries.setdefault(path, Entry(path, mode, is_folder=True))

    def files(self) -> list[str]:
        """The files of the device that are in it."""
        return [entry.source for entry in self._entries.values() if entry.source]

    def entries(self) -> list[Entry]:
        """Everything, sorted, a folder before what is in it."""
        missing = {parent for path in self._entries for parent in _parents(path)} - self._entries.keys()
        folders = [Entry(path, 0o755, is_folder=True) for path in missing]
        return sorted([*self._entries.values(), *folders], key=lambda entry: entry.path.split("/"))

    def _real_path(self, path: str) -> str:
        """Where a file or a link lies; a link is not followed."""
        return posixpath.join(self._real_folder(posixpath.dirname(path)), posixpath.basename(path))

    def _real_folder(self, folder: str) -> str:
        """Where a folder really lies; the links on the way (`/lib -> usr/lib`) are taken too."""
        if folder not in self._real:
            self._real[folder] = self._walked(folder)
        return self._real[folder]

    def _walked(self, folder: str) -> str:
        at = "/"
        for part in PurePosixPath(folder).parts[1:]:
            step = posixpath.normpath(posixpath.join(at, part))
            if Path(step).is_symlink():
                link = str(Path(step).readlink())
                self._entries.setdefault(step, Entry(step, 0o777, link=link))
                step = self._real_folder(posixpath.join(at, link))
            at = step
        return at


def _parents(path: str) -> Iterator[str]:
    while (path := path.rpartition("/")[0]) != "":
        yield path


def write_tar(entries: Iterable[Entry], into: BinaryIO, report: Report) -> None:
    """Everything belongs to root and has a fixed time, so that two builds are equal."""
    with tarfile.open(fileobj=into, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            if entry.source:
                with Path(entry.source).open("rb") as file:
                    tar.addfile(_header(entry), file)
            else:
                tar.addfile(_header(entry), io.BytesIO(entry.text.encode()))
            report(entry.size_bytes)


def _header(entry: Entry) -> tarfile.TarInfo:
    header = tarfile.TarInfo(entry.path.lstrip("/"))
    header.mode, header.mtime, header.linkname = entry.mode, entry.mtime_s, entry.link
    header.type = tarfile.SYMTYPE if entry.link else tarfile.DIRTYPE if entry.is_folder else tarfile.REGTYPE
    header.size = entry.size_bytes if header.type == tarfile.REGTYPE else 0
    return header


def write_folder(entries: Iterable[Entry], root: Path, report: Report) -> None:
    """The same as a folder, for platforms without an engine."""
    for entry in entries:
        target = root / entry.path.lstrip("/")
        if entry.is_folder:
            target.mkdir(exist_ok=True)
        elif entry.link:
            target.symlink_to(entry.link)
            continue
        elif entry.source:
            shutil.copyfile(entry.source, target)
        else:
            target.write_text(entry.text)
        target.chmod(entry.mode)
        if not entry.is_folder:
            os.utime(target, (entry.mtime_s, entry.mtime_s))
        report(entry.size_bytes)
