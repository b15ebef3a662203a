"""A folder that the device and a guest keep alike: pushed before a command, pulled after it.

Inside it lies in the guest's own memory, since marks are written through a mapping in the timed loop.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from tare.errors import TrialError
from tare.parts.guest_channel import Link

_CHUNK_BYTES = 4 << 20
_MOST_BYTES = 1 << 30  # a job that leaves more on its desk must not fill the device's memory
_Looks: TypeAlias = tuple[int, int, int]  # mode, size, time of the last change


class Desk:
    """One such folder. Only folders and plain files travel; a link on it stays where it is."""

    def __init__(self, link: Link, folder: Path) -> None:
        self.folder = folder
        self._link = link
        self._known: dict[str, _Looks] = {}
        self._lock = threading.Lock()
        mode = stat.S_IMODE(folder.stat().st_mode)
        link.ask("desk", path=str(folder), mode=mode)

    def holds(self, path: str) -> bool:
        return PurePosixPath(path).is_relative_to(self.folder)

    def know(self, below: str) -> None:
        """Take it that what is below here is there already, the same."""
        found = _scan(self.folder)
        self._known |= {name: looks for name, looks in found.items() if PurePosixPath(name).is_relative_to(below)}

    def push(self) -> None:
        """Send what is new or changed on the device."""
        with self._lock:
            scanned = _scan(self.folder)
            changed = {name: looks for name, looks in scanned.items() if self._known.get(name) != looks}
            # All are on their way before the first answer is waited for: an emulated guest answers slowly.
            asked = [number for name, looks in changed.items() for number in self._send(name, looks)]
            for number in asked:
                self._link.answer(number)
            self._known |= changed

    def pull(self) -> None:
        """Fetch what is new or changed in the guest, and remove what is gone there."""
        with self._lock:
            said = self._link.ask("changes", desk=str(self.folder)).header
            total = sum(int(each["size"]) for each in said["changed"])
            if total > _MOST_BYTES:
                raise TrialError(f"the job left {total} bytes on its desk {self.folder}; {_MOST_BYTES} is the most.")
            for each in said["changed"]:
                self._fetch(str(each["name"]), int(each["mode"]), int(each["size"]), folder=bool(each["folder"]))
            for name in said["gone"]:
                self._remove(str(name))

    def _send(self, name: str, looks: _Looks) -> Iterator[int]:
        mode, size, _ = looks
        common: dict[str, Any] = {"desk": str(self.folder), "name": name, "mode": stat.S_IMODE(mode)}
        if stat.S_ISDIR(mode):
            yield self._link.begin("put", folder=True, **common)
            return
        with (self.folder / name).open("rb") as file:
            for at in range(0, max(size, 1), _CHUNK_BYTES):
                yield self._link.begin("put", file.read(_CHUNK_BYTES), at=at, **common)

    def _fetch(self, name: str, mode: int, size: int, *, folder: bool) -> None:
        path = self._inside(name)
        if folder:
            path.mkdir(exist_ok=True)
        else:
            # Nobody but us makes files here, and we make no links: O_NOFOLLOW is the second lock on that door.
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
                for at in range(0, size, _CHUNK_BYTES):
                    part = min(_CHUNK_BYTES, size - at)
                    file.write(self._link.ask("get", desk=str(self.folder), name=name, at=at, size=part).data)
        path.chmod(mode & 0o777)
        self._known[name] = _looks(path)

    def _remove(self, name: str) -> None:
        path = self._inside(name)
        self._known.pop(name, None)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def _inside(self, name: str) -> Path:
        """A name that the guest said, as a path of ours; one that leads out of the desk is refused."""
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts:
            raise TrialError(f"the guest named a file outside of its desk: {name!r}.")
        return self.folder.joinpath(*parts)


def _scan(folder: Path) -> dict[str, _Looks]:
    """Folders before what is in them."""
    found: dict[str, _Looks] = {}
    for root, folders, files in os.walk(folder):
        for name in sorted([*folders, *files]):
            path = Path(root, name)
            looks = _looks(path)
            if stat.S_ISDIR(looks[0]) or stat.S_ISREG(looks[0]):
                found[str(path.relative_to(folder))] = looks
    return found


def _looks(path: Path) -> _Looks:
    seen = path.lstat()
    is_folder = stat.S_ISDIR(seen.st_mode)
    return seen.st_mode, 0 if is_folder else seen.st_size, 0 if is_folder else seen.st_mtime_ns
