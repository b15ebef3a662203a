"""A root file system written down: as a tar archive, the same bytes for the same files, or as a folder."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO, TypeAlias

from tare.parts.image_tree import Entry

Report: TypeAlias = Callable[[int], None]  # so many more bytes are done


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
