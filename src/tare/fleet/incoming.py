"""What devices hand over: their records, taken into the controller's store, and a line for whatever happened."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tare.base.errors import StoreError
from tare.base.files import replace_file
from tare.fleet.schedule import Attempts
from tare.records.merging import Arrived, Intake, Merged
from tare.records.model import Record
from tare.records.schema import LEDGER_FILE
from tare.records.sealed import folder_name, is_trial_folder, sealed_in
from tare.records.store import Store

_ID_FILE = "fleet.id"
_MOST_OF_STUDY = 50
_OPEN = {"try": True, "again": True, "answered": False, "found": False}  # lines after which a trial runs, or does not
_MEMBER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}/[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def unpack(archive: bytes) -> dict[str, dict[str, memoryview]]:
    """The files of sealed trials, each under its folder; a device is not trusted with any other place of ours."""
    found: dict[str, dict[str, memoryview]] = {}
    whole = memoryview(archive)
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as members:
        for member in members:
            if member.isdir() and "/" not in member.name:
                continue
            # A file with holes can be far larger than what came over the line: nobody who is honest sends one.
            is_whole = member.isfile() and not member.issparse() and 0 <= member.size <= len(archive)
            data = whole[member.offset_data : member.offset_data + member.size]
            if not is_whole or len(data) != member.size or not _MEMBER.fullmatch(member.name):
                raise StoreError(f"a device sent {member.name!r}, which is no file of a sealed trial: refused.")
            folder, _, name = member.name.partition("/")
            found.setdefault(folder, {})[name] = data
    return found


class Incoming:
    """The controller's store while devices fill it. It is ours alone: listed once, what is in it is kept in mind."""

    def __init__(self, store: Store, owners: Mapping[str, str] | None = None) -> None:
        self._root = store.root
        self._intake = Intake(store)
        self._owners = owners or {}  # planned trials: the device of each
        self.attempts: Attempts = {}
        self._from: dict[str, dict[str, Record]] = {}  # by device and TRIAL.ATTEMPT
        for record in store.records():
            self._know(record)

    def keep(self, sent: Sequence[tuple[str, bytes]]) -> list[Merged]:
        """Take in archives, each with the name of the device that sent it: what came of each.

        What cannot be read, or is of another device, is refused; it is still where it came from.
        """
        found = [Merged() for _ in sent]
        arrived: list[tuple[int, Arrived]] = []
        for place, (device, archive) in enumerate(sent):
            try:
                trials_sent = unpack(archive) if archive else {}
            except Exception as error:  # the reader of tar files is not made for what hostile ones hold
                found[place] = Merged(refused=(f"what it sent cannot be read, or kept: {error}",))
                continue
            for name, held in sorted(trials_sent.items()):
                if is_trial_folder(name):
                    try:
                        sealed = sealed_in(name, held)
                    except Exception as error:  # a stranger's JSON may hold anything
                        found[place] += Merged(refused=(f"{name}: not merged: {error}",))
                        continue
                    if why := self._strange(device, name, sealed.record):
                        found[place] += Merged(refused=(why,))
                    else:
                        arrived.append((place, (sealed, held)))
        if arrived:
            taken = self._intake.take_bytes([each for _, each in arrived])
            for (place, _), merged in zip(arrived, taken, strict=True):
                found[place] += merged
        for record in (record for one in found for record in one.records):
            self._know(record)
        return found

    def _strange(self, device: str, name: str, record: Record) -> str:
        """A device speaks for itself alone: what it says of another one's trials would keep the true ones out."""
        reported, owner = record.settings.get("device"), self._owners.get(record.trial)
        is_strange = reported != device or (owner or device) != device
        if not is_strange or record.attempt in self.attempts.get(record.trial, ()):  # here already: keeps nothing out
            return ""
        return f"{name}: not merged: it is a trial of {owner or reported}, not of {device}."

    def names_of(self, trial: str) -> list[str]:
        """TRIAL.ATTEMPT of every sealed attempt at this trial that is here."""
        return sorted(folder_name(trial, attempt) for attempt in self.attempts.get(trial, ()))

    def names_from(self, device: str) -> list[str]:
        """TRIAL.ATTEMPT of every sealed trial of this device that is here."""
        return sorted(self._from.get(device, ()))

    def of_device(self, device: str) -> list[Record]:
        """Every attempt on this device that is here, those at one trial oldest first."""
        return sorted(self._from.get(device, {}).values(), key=lambda record: (record.trial, record.attempt))

    def _know(self, record: Record) -> None:
        name = folder_name(record.trial, record.attempt)
        self._from.setdefault(str(record.settings.get("device")), {})[name] = record
        self.attempts.setdefault(record.trial, {})[record.attempt] = record


def name_on_devices(store: Store) -> str:
    """What devices call this store: the same as long as it lives, wherever it is moved."""
    path = store.root / _ID_FILE
    if not path.exists() or not path.read_bytes().strip():
        replace_file(path, os.urandom(6).hex().encode())
    # Devices take it as a folder's, of up to 128 characters; a lean one's own name, of up to 64, comes behind it.
    study = str(store.study["study"]).lstrip("._-")[:_MOST_OF_STUDY] or "study"
    return f"{study}-{path.read_text().strip()}"


class Ledger:
    """One line for each try at a trial, and for whatever went wrong on the way: appended, never changed."""

    def __init__(self, root: Path) -> None:
        self._path = root / LEDGER_FILE
        self._lines: list[bytes] = []

    def write(self, device: str, what: str, **fields: Any) -> None:
        """Note a line; `settle` puts it, and those before it, on the disk."""
        line = {"utc": datetime.now(UTC).isoformat(timespec="milliseconds"), "device": device, "what": what, **fields}
        self._lines.append(json.dumps(line).encode() + b"\n")

    def unseen(self) -> set[str]:
        """The devices that were told to begin a trial, and that nobody has heard of since how it ended."""
        open_: dict[str, bool] = {}
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            for line in file:
                with suppress(ValueError, KeyError, TypeError):  # a line that is not ours
                    reported = json.loads(line)
                    open_[reported["device"]] = _OPEN.get(reported["what"], open_.get(reported["device"], False))
        return {device for device, is_open in open_.items() if is_open}

    def settle(self) -> None:
        """All that was noted, in one go: a thousand devices would otherwise wait for the disk a thousand times."""
        if not self._lines:
            return
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _append(descriptor, b"".join(self._lines))
        finally:
            os.close(descriptor)
        self._lines.clear()


def _append(descriptor: int, data: bytes) -> None:
    """All of it, on the disk; or nothing, so that no line is half there when it is written again."""
    before_bytes, left = os.fstat(descriptor).st_size, memoryview(data)
    try:
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, before_bytes)
        raise
