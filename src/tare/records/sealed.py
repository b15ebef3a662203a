"""One sealed trial: its manifest, and whether what lies in its folder is still what was sealed."""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tare.base import strict_json
from tare.base.errors import StoreError
from tare.records.model import Json, Record
from tare.records.schema import MANIFEST_FILE, RECORD_FILE, TRIALS_FOLDER, VERSION

if TYPE_CHECKING:
    from tare.records.column_codec import PlainColumns

Key: TypeAlias = tuple[str, int]  # trial, attempt
_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})\.([1-9][0-9]{0,8})")
_TRIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")  # a manifest may come from a stranger: no path leads elsewhere

_AT_ONCE = 1 << 20  # bytes of a file that are read in one piece: most files are small, and there are many


class Damaged(StoreError):
    """Something of a sealed trial is not what was sealed; the text names the file."""

    def __init__(self, folder: Path, name: str, what: str) -> None:
        self.fault = f"{TRIALS_FOLDER}/{folder.name}/{name}: {what}"  # for whoever refuses more than this trial
        super().__init__(f"{self.fault}; this trial is left out.")


class Entry(NamedTuple):
    """One file of a sealed trial, as the manifest has it."""

    size_bytes: int
    sha256: str


def entry_of(data: bytes) -> Entry:
    return Entry(len(data), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True, slots=True)
class Thinned:
    """What a trial of a thinned pack (thin_pack.py) was before."""

    resolution_ns: int  # to which its times were rounded down
    sealed: dict[str, Entry]  # the files as they were sealed: what is not there in full rests on these hashes

    def as_json(self) -> Json:
        return {
            "resolution_ns": self.resolution_ns,
            "sealed": {name: list(entry) for name, entry in self.sealed.items()},
        }

    @classmethod
    def from_json(cls, data: Json) -> Thinned:
        return cls(int(data["resolution_ns"]), {name: Entry(*entry) for name, entry in data["sealed"].items()})


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a manifest says."""

    files: dict[str, Entry]
    lost_marks: int
    thinned: Thinned | None = None

    def as_json(self) -> bytes:
        files = {name: list(entry) for name, entry in self.files.items()}
        body: dict[str, Json] = {"schema_version": VERSION, "files": files, "lost_marks": self.lost_marks}
        if self.thinned is not None:
            body["thinned"] = self.thinned.as_json()
        return strict_json.dump({**body, "crc32": _crc(body)})

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """The reverse; ValueError and its kin where it is none."""
        found: Json = strict_json.load(data)
        crc32 = found.pop("crc32")
        if _crc(found) != crc32:
            raise ValueError("the checksum differs")
        if strange := [name for name in found["files"] if not _FILE.fullmatch(name)]:
            raise ValueError(f"{strange[0]!r} is no name of a file of a trial")
        files = {name: Entry(*entry) for name, entry in found["files"].items()}
        thinned = found.get("thinned")
        return cls(files, found["lost_marks"], None if thinned is None else Thinned.from_json(thinned))


@dataclass(frozen=True, slots=True)
class Sealed:
    """A trial that ended, with its folder."""

    folder: Path
    record: Record
    files: dict[str, Entry]
    lost_marks: int
    thinned: Thinned | None = None

    def data(self, name: str) -> bytes:
        """A file's content, after a look at its checksum."""
        found = _read(self.folder / name)
        _compare(self.folder, name, self.files, hashlib.sha256(found).hexdigest())
        return found

    def checked(self, name: str) -> Path | PlainColumns:
        """A file's path, after a look at its checksum; the content is not held in memory."""
        path = self.folder / name
        try:
            found = _digest(path)
        except OSError as error:
            raise Damaged(self.folder, name, _cannot_read(error)) from None
        _compare(self.folder, name, self.files, found)
        return path


def folder_name(trial: str, attempt: int) -> str:
    """TRIAL.ATTEMPT, in spool/ and in trials/."""
    if not _TRIAL.fullmatch(trial):
        raise StoreError(f"{trial!r} cannot be a trial's id: letters, digits, '.', '_' and '-', at most 64.")
    return f"{trial}.{attempt}"


def is_trial_folder(name: str) -> bool:
    """Whether this is TRIAL.ATTEMPT."""
    return _NAME.fullmatch(name) is not None


def keys_in(folder: Path, trial: str = "") -> set[Key]:
    """The trials that have a folder here, or those whose ids begin like this; other names are none of ours."""
    matches = [_NAME.fullmatch(name) for name in os.listdir(folder) if name.startswith(trial)]  # noqa: PTH208
    return {(match[1], int(match[2])) for match in matches if match}


def manifest_for(folder: Path, lost_marks: int, thinned: Thinned | None = None) -> bytes:
    """The manifest of what lies in this folder now."""
    return Manifest(files_in(folder), lost_marks, thinned).as_json()


def files_in(folder: Path) -> dict[str, Entry]:
    """Every file in this folder, by name."""
    return {path.name: Entry(path.stat().st_size, _digest(path)) for path in sorted(folder.iterdir())}


def open_sealed(folder: Path) -> Sealed:
    """The trial in this folder: every file is there with its size, and the record is what was sealed.

    The checksums of the series are looked at when they are read, and by `verify`: a big store still opens fast.
    """
    manifest = _manifest(folder, _read(folder / MANIFEST_FILE))
    for name, entry in manifest.files.items():
        _check_size(folder, name, entry)
    data = _read(folder / RECORD_FILE)
    _compare(folder, RECORD_FILE, manifest.files, hashlib.sha256(data).hexdigest())
    return Sealed(folder, record_in(folder, data), manifest.files, manifest.lost_marks, manifest.thinned)


def sealed_in(name: str, held: Mapping[str, memoryview]) -> Sealed:
    """A trial that came as bytes, each file looked at once; its folder is a name that is nowhere yet."""
    folder = Path(name)
    manifest = _manifest(folder, bytes(held.get(MANIFEST_FILE, b"")))
    for file, entry in manifest.files.items():
        data = held.get(file)
        if data is None:
            raise Damaged(folder, file, "it is missing")
        if len(data) != entry.size_bytes:
            raise Damaged(folder, file, f"it has {len(data)} bytes, {entry.size_bytes} were sealed")
        _compare(folder, file, manifest.files, hashlib.sha256(data).hexdigest())
    record = record_in(folder, bytes(held[RECORD_FILE]) if RECORD_FILE in manifest.files else b"")
    return Sealed(folder, record, manifest.files, manifest.lost_marks, manifest.thinned)


def record_in(folder: Path, data: bytes) -> Record:
    """The record of the trial in this folder."""
    try:
        record = Record.from_json(strict_json.load(data))
    except (ValueError, TypeError) as error:
        raise Damaged(folder, RECORD_FILE, f"it is not a record ({error})") from None
    if folder_name(record.trial, record.attempt) != folder.name:
        raise Damaged(folder, RECORD_FILE, f"it is the record of {record.trial}.{record.attempt}")
    return record


def verify_sealed(folder: Path) -> list[str]:
    """Everything that is wrong with this trial, in sentences, every byte looked at; empty means whole."""
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


def _manifest(folder: Path, data: bytes) -> Manifest:
    try:
        return Manifest.from_json(data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(folder, MANIFEST_FILE, f"it is damaged ({error})") from None


def _check_size(folder: Path, name: str, entry: Entry) -> None:
    try:
        size_bytes = (folder / name).lstat().st_size
    except OSError as error:
        raise Damaged(folder, name, _cannot_read(error)) from None
    if size_bytes != entry.size_bytes:
        raise Damaged(folder, name, f"it has {size_bytes} bytes, {entry.size_bytes} were sealed")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Damaged(path.parent, path.name, _cannot_read(error)) from None


def _digest(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size <= _AT_ONCE:
            return hashlib.sha256(file.read()).hexdigest()
        return hashlib.file_digest(file, "sha256").hexdigest()


def _compare(folder: Path, name: str, files: dict[str, Entry], sha256: str) -> None:
    if name not in files or files[name].sha256 != sha256:
        raise Damaged(folder, name, "its content is not what was sealed (the checksum differs)")


def _cannot_read(error: OSError) -> str:
    return "it is missing" if isinstance(error, FileNotFoundError) else f"it cannot be read ({error.strerror})"


def _crc(body: Json) -> int:
    return zlib.crc32(strict_json.dump(body))


class Shelf:
    """Grows while a writer beside us seals more. A damaged trial is named in `problems`, once, and left out."""

    def __init__(self, folder: Path, problems: list[str], known: Mapping[Key, Sealed]) -> None:
        self._folder = folder
        self._problems = problems
        self._known = known  # trials that were opened before; those of a thinned pack have no folders
        self._sealed: dict[Key, Sealed] = {}
        self._seen: set[Key] = set()

    def look(self) -> dict[Key, Sealed]:
        """Every whole trial that is there now."""
        for key in sorted(self.seen() - self._seen):
            self._seen.add(key)
            try:
                self._sealed[key] = self._known.get(key) or open_sealed(self._folder / folder_name(*key))
            except Damaged as error:
                self._problems.append(str(error))
        return self._sealed

    def seen(self, trial: str = "") -> set[Key]:
        """Every attempt that has a folder, whole or not; or those whose trials' ids begin like this."""
        try:
            return keys_in(self._folder, trial) | {key for key in self._known if key[0].startswith(trial)}
        except OSError as error:
            raise StoreError(f"{self._folder}: the sealed trials cannot be listed: {error.strerror}.") from error

    def holds(self, key: Key) -> bool:
        """Whether this trial is there and whole; one that is known already is not looked for again."""
        return key in self._sealed or key in self.look()

    def get(self, key: Key) -> Sealed:
        """One whole trial."""
        if not self.holds(key):
            raise StoreError(f"{self._folder.parent}: no whole trial {folder_name(*key)} here.")
        return self._sealed[key]

    def file(self, key: Key, name: str) -> Path | PlainColumns:
        """The path of a trial's file, its checksum looked at; a trial with a damaged one is left out from now on."""
        with self._left_out_if_damaged(key):
            return self.get(key).checked(name)

    def data(self, key: Key, name: str) -> bytes:
        """The same, as its content."""
        with self._left_out_if_damaged(key):
            return self.get(key).data(name)

    @contextmanager
    def _left_out_if_damaged(self, key: Key) -> Iterator[None]:
        try:
            yield
        except Damaged as error:
            self.leave_out(key, str(error))
            raise

    def leave_out(self, key: Key, why: str) -> None:
        """Damage that came to light later: from now on the trial is left out."""
        self._sealed.pop(key, None)
        self._problems.append(why)
