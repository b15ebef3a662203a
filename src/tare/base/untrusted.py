"""The one door to folders that somebody else can write: a workload's work folder, what came from a guest or a device.

Root reads there what a container, a guest or another user left. So nothing is opened by its path: the folder is opened
first, a name below it relative to that descriptor, no link is followed at any step, a pipe or a device file is never
waited for, and only a regular file of the folder's owner is read, up to a limit in size and, for JSON, in depth. What
we write there is a new file (O_EXCL): a name that is taken, also by a link to nowhere, is never written through.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from tare.base.errors import TrialError
from tare.base.text import safe_text
from tare_inside.jobs import remove_tree

MOST_JSON_BYTES = 8 << 20
MOST_MARKS_BYTES = 64 << 20  # four million marks
MOST_DEPTH = 64
MOST_VALUES = 100_000  # each is copied, masked, sealed and listed: a million takes minutes
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PART_BYTES = 1 << 20
_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device file"),
    (stat.S_ISBLK, "a device file"),
)


class Refused(TrialError):
    """Something in a folder that others can write is not what tare may read."""

    code = "workdir.refused"

    def __init__(self, folder: Path, name: str, why: str) -> None:
        super().__init__(f"{safe_text(name)} in {folder} was not read: {why}.")


def read(folder: Path, name: str, most_bytes: int = MOST_JSON_BYTES) -> bytes | None:
    """What is in this file, None where there is none; Refused where it is no regular file of the folder's owner."""
    with suppress(FileNotFoundError), opened(folder, name) as file:
        parts = bytearray()
        while part := os.read(file, _PART_BYTES):  # what is read counts, not what the file says of its size
            parts += part
            if len(parts) > most_bytes:
                raise Refused(folder, name, f"it is larger than {most_bytes} bytes")
        return bytes(parts)
    return None


def tail(folder: Path, name: str, most_bytes: int) -> bytes:
    """The end of this file; nothing where there is none, or none that may be read."""
    with suppress(OSError, Refused), opened(folder, name) as file:
        return os.pread(file, most_bytes, max(0, os.fstat(file).st_size - most_bytes))
    return b""


def read_object(folder: Path, name: str) -> dict[str, Any]:
    """The JSON object in this file; nothing where there is none, or it was cut off."""
    data = read(folder, name)
    if data is None:
        return {}
    try:
        return as_object(data)
    except RecursionError:
        raise Refused(
            folder, name, f"it is nested more than {MOST_DEPTH} deep or has more than {MOST_VALUES:,} values"
        ) from None


def as_object(data: bytes | str) -> dict[str, Any]:
    """The JSON object that this is, or nothing; RecursionError where it is too deep, or has too many values."""
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    check_depth(found, most_values=MOST_VALUES)
    return found


def stranger_json(data: bytes | str) -> Any:
    """JSON from another machine, of finite numbers and a bounded depth; ValueError where it is anything else."""
    try:
        found = json.loads(data)
        check_depth([found])
        json.dumps(found, allow_nan=False)  # NaN, or 1e999
    except RecursionError:
        raise ValueError(f"it is nested more than {MOST_DEPTH} deep") from None
    return found


def check_depth(data: Any, most: int = MOST_DEPTH, most_values: float = math.inf) -> None:
    """RecursionError where lists and objects lie more than `most` deep in one another, or hold too much in all."""
    level, values = [data], 0
    for _ in range(most + 1):
        values += sum(map(len, level))
        if values > most_values:
            raise RecursionError(f"more than {most_values} values")
        level = [
            item
            for each in level
            for item in (each.values() if isinstance(each, dict) else each)
            if isinstance(item, dict | list | tuple)
        ]
        if not level:
            return
    raise RecursionError(f"nested more than {most} deep")


def is_there(folder: Path, name: str) -> bool:
    """Whether something has this name in the folder, whatever it is; no link is followed."""
    with suppress(OSError), _parent(folder, name) as (parent, last):
        os.stat(last, dir_fd=parent, follow_symlinks=False)
        return True
    return False


def make(folder: Path, name: str, data: bytes = b"", mode: int = 0o600) -> None:
    """A new file with this content; Refused where the name is taken."""
    with _parent(folder, name) as (parent, last):
        try:
            descriptor = os.open(last, _NEW, mode, dir_fd=parent)
        except FileExistsError:
            raise Refused(folder, name, "the workload made it, and only tare makes it") from None
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)


def replace(folder: Path, name: str, data: bytes) -> None:
    """The file with this content, new or instead of what had its name: a link there is replaced, not followed."""
    with _parent(folder, name) as (parent, last):
        half_made = f".tmp-{last}"
        with suppress(FileNotFoundError):
            os.unlink(half_made, dir_fd=parent)
        with os.fdopen(os.open(half_made, _NEW, 0o600, dir_fd=parent), "wb") as file:
            file.write(data)
        os.replace(half_made, last, src_dir_fd=parent, dst_dir_fd=parent)


def put(folder: Path, name: str, parts: Iterable[bytes], mode: int) -> None:
    """A file that another machine sent, instead of what had its name; only the rights of `mode` are taken over."""
    with _parent(folder, name) as (parent, last):
        with suppress(FileNotFoundError):
            os.unlink(last, dir_fd=parent)
        with os.fdopen(os.open(last, _NEW, 0o600, dir_fd=parent), "wb") as file:
            for part in parts:
                file.write(part)
            os.fchmod(file.fileno(), mode & 0o777)


def put_folder(folder: Path, name: str, mode: int) -> None:
    """A folder below this one, there already or new."""
    with _parent(folder, name) as (parent, last):
        with suppress(FileExistsError):
            os.mkdir(last, 0o700, dir_fd=parent)
        below = _refusing(folder, name, last, _FOLDER, parent)
        try:
            os.fchmod(below, mode & 0o777)
        finally:
            os.close(below)


def remove(folder: Path, name: str) -> None:
    """Whatever has this name, a folder with all that is in it; nothing there is no error."""
    with suppress(FileNotFoundError), _parent(folder, name) as (parent, last):
        try:
            os.unlink(last, dir_fd=parent)
        except (IsADirectoryError, PermissionError):
            remove_tree(last, dir_fd=parent)  # type: ignore[no-untyped-call]


def relative(folder: Path, name: str) -> tuple[str, ...]:
    """The parts of a name below this folder; Refused where it leads out of it, or is no name at all."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        raise Refused(folder, repr(name), "the name leads out of the folder")
    return parts


@contextmanager
def _parent(folder: Path, name: str) -> Iterator[tuple[int, str]]:
    """The folder in which this name lies, as a descriptor, and the last part of the name."""
    *above, last = relative(folder, name)
    descriptor = os.open(folder, _FOLDER)
    try:
        for part in above:
            below = _refusing(folder, name, part, _FOLDER, descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor, last
    finally:
        os.close(descriptor)


@contextmanager
def opened(folder: Path, name: str) -> Iterator[int]:
    """This file to be read from, as a descriptor; Refused where it is no regular file of the folder's owner."""
    with _parent(folder, name) as (parent, last):
        descriptor = _refusing(folder, name, last, _FILE, parent)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise Refused(folder, name, f"it is {kind_of(found.st_mode)}, not a file")
            owners = {os.fstat(parent).st_uid, os.geteuid()}
            if found.st_uid not in owners:
                raise Refused(folder, name, f"it belongs to user {found.st_uid}, not to the folder's owner")
            if found.st_nlink > 1:
                raise Refused(folder, name, "it has a second name elsewhere (a hard link)")
            yield descriptor
        finally:
            os.close(descriptor)


def _refusing(folder: Path, name: str, part: str, flags: int, parent: int) -> int:
    try:
        return os.open(part, flags, dir_fd=parent)
    except FileNotFoundError:
        raise
    except OSError as error:  # ELOOP: a link; ENXIO: a socket; ENOTDIR: a link or a file where a folder belongs
        try:
            what = kind_of(os.stat(part, dir_fd=parent, follow_symlinks=False).st_mode)
        except OSError:
            what = "gone"
        raise Refused(folder, name, f"{part!r} is {what} ({error.strerror})") from error


def kind_of(mode: int) -> str:
    """`a link`, `a pipe`: what a name in a folder is, in words."""
    return next((words for test, words in _KINDS if test(mode)), "a file")
