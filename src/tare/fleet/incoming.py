"""What devices hand over: their records, taken into the controller's store, and a line for whatever happened."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tare.errors import StoreError
from tare.records.merging import Merged, take_in
from tare.records.schema import TRIALS_FOLDER
from tare.records.store import Store

LEDGER = "fleet.jsonl"
_ID_FILE = "fleet.id"
_MEMBER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}/[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def unpack(archive: bytes, folder: Path) -> None:
    """The files of sealed trials, each in its folder; a device is not trusted with any other place of ours."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as members:
        for member in members:
            if member.isdir() and "/" not in member.name:
                continue
            data = members.extractfile(member) if member.isfile() else None
            if data is None or not _MEMBER.fullmatch(member.name):
                raise StoreError(f"a device sent {member.name!r}, which is no file of a sealed trial: refused.")
            path = folder / member.name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data.read())


def keep(store: Store, archive: bytes) -> Merged:
    """Take in what a device sent."""
    if not archive:
        return Merged()
    with tempfile.TemporaryDirectory(prefix="tare-incoming-") as name:
        try:
            unpack(archive, Path(name))
        except tarfile.TarError as error:
            raise StoreError(f"what a device sent cannot be read ({error}); it is still there.") from error
        return take_in(store, Path(name))


def kept_names(store: Store) -> list[str]:
    """TRIAL.ATTEMPT of every sealed trial that is here."""
    return sorted(entry.name for entry in os.scandir(store.root / TRIALS_FOLDER) if not entry.name.startswith("."))


def name_on_devices(store: Store) -> str:
    """What devices call this store: the same as long as it lives, wherever it is moved."""
    path = store.root / _ID_FILE
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(os.urandom(6).hex())
            file.flush()
            os.fsync(file.fileno())
    return f"{store.study['study']}-{path.read_text().strip()}"


class Ledger:
    """One line for each try at a trial, and for whatever went wrong on the way: appended, never changed."""

    def __init__(self, root: Path) -> None:
        self._path = root / LEDGER

    def write(self, device: str, what: str, **fields: Any) -> None:
        line = {"utc": datetime.now(UTC).isoformat(timespec="milliseconds"), "device": device, "what": what, **fields}
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
