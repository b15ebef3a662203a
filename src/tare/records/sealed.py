"""One sealed trial: its manifest, and whether what lies in its folder is still what was sealed."""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tare.errors import StoreError
from tare.records import strict
from tare.records.model import Json, Record
from tare.records.schema import MANIFEST_FILE, RECORD_FILE, TRIALS_FOLDER, VERSION

Key: TypeAlias = tuple[str, int]  # trial, attempt
_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})\.([1-9][0-9]{0,8})")
_TRIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")  # a manifest may come from a stranger: no path leads elsewhere


class Damaged(StoreError):
    """Something of a sealed trial is not what was sealed; the text names the file."""


class Entry(NamedTuple):
    """One file of a sealed trial, as the manifest has it."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Sealed:
    """A trial that ended, with its folder."""

    folder: Path
    record: Record
    files: dict[str, Entry]
    lost_marks: int

    def data(self, name: str) -> bytes:
        """A file's content, after a look at its checksum."""
        found = _read(self.folder / name)
        _compare(self.folder, name, self.files, hashlib.sha256(found).hexdigest())
        return found

    def checked(self, name: str) -> Path:
        """A file's path, after a look at its checksum; the content is not held in memory."""
        path = self.folder / name
        try:
            found = _digest(path)
        except OSError as error:
            raise Damaged(damage(self.folder, name, _cannot_read(error))) from None
        _compare(self.folder, name, self.files, found)
        return path


def folder_name(trial: str, attempt: int) -> str:
    """TRIAL.ATTEMPT, in spool/ and in trials/."""
    if not _TRIAL.fullmatch(trial):
        raise StoreError(f"{trial!r} cannot be a trial's id: letters, digits, '.', '_' and '-', at most 64.")
    return f"{trial}.{attempt}"


def keys_in(folder: Path) -> set[Key]:
    """The trials that have a folder here; other names are none of ours."""
    with os.scandir(folder) as entries:
        matches = [_NAME.fullmatch(entry.name) for entry in entries]
    return {(match[1], int(match[2])) for match in matches if match}


def manifest_for(folder: Path, lost_marks: int) -> bytes:
    """The manifest of what lies in this folder now."""
    files = {path.name: [path.stat().st_size, _digest(path)] for path in sorted(folder.iterdir())}
    body = {"schema_version": VERSION, "files": files, "lost_marks": lost_marks}
    return strict.dump({**body, "crc32": _crc(body)})


def open_sealed(folder: Path) -> Sealed:
    """The trial in this folder: every file is there with its size, and the record is what was sealed.

    The checksums of the series are looked at when they are read, and by `verify`: a big store still opens fast.
    """
    files, lost_marks = _manifest(folder)
    for name, entry in files.items():
        _check_size(folder, name, entry)
    data = _read(folder / RECORD_FILE)
    _compare(folder, RECORD_FILE, files, hashlib.sha256(data).hexdigest())
    try:
        record = Record.from_json(strict.load(data))
    except (ValueError, TypeError) as error:
        raise Damaged(damage(folder, RECORD_FILE, f"it is not a record ({error})")) from None
    if folder_name(record.trial, record.attempt) != folder.name:
        raise Damaged(damage(folder, RECORD_FILE, f"it is the record of {record.trial}.{record.attempt}"))
    return Sealed(folder, record, files, lost_marks)


def verify_sealed(folder: Path) -> list[str]:
    """Everything that is wrong with this trial, every byte looked at; empty means whole."""
    try:
        sealed = open_sealed(folder)
    except Damaged as error:
        return [str(error)]
    found = []
    for name in sealed.files:
        try:
            sealed.checked(name)
        except Damaged as error:
            found.append(str(error))
    return found


def damage(folder: Path, name: str, what: str) -> str:
    return f"{TRIALS_FOLDER}/{folder.name}/{name}: {what}; this trial is left out."


def _manifest(folder: Path) -> tuple[dict[str, Entry], int]:
    try:
        found: Json = strict.load(_read(folder / MANIFEST_FILE))
        crc32 = found.pop("crc32")
        if _crc(found) != crc32:
            raise ValueError("the checksum differs")
        if strange := [name for name in found["files"] if not _FILE.fullmatch(name)]:
            raise ValueError(f"{strange[0]!r} is no name of a file of a trial")
        return {name: Entry(*entry) for name, entry in found["files"].items()}, found["lost_marks"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(damage(folder, MANIFEST_FILE, f"it is damaged ({error})")) from None


def _check_size(folder: Path, name: str, entry: Entry) -> None:
    try:
        size_bytes = (folder / name).lstat().st_size
    except OSError as error:
        raise Damaged(damage(folder, name, _cannot_read(error))) from None
    if size_bytes != entry.size_bytes:
        raise Damaged(damage(folder, name, f"it has {size_bytes} bytes, {entry.size_bytes} were sealed"))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Damaged(damage(path.parent, path.name, _cannot_read(error))) from None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _compare(folder: Path, name: str, files: dict[str, Entry], sha256: str) -> None:
    if name not in files or files[name].sha256 != sha256:
        raise Damaged(damage(folder, name, "its content is not what was sealed (the checksum differs)"))


def _cannot_read(error: OSError) -> str:
    return "it is missing" if isinstance(error, FileNotFoundError) else f"it cannot be read ({error.strerror})"


def _crc(body: Json) -> int:
    return zlib.crc32(strict.dump(body))
