"""A new store. Its header is written last: until then the folder is no store, and can be begun again."""

from __future__ import annotations

import fcntl
import os
import re
from datetime import UTC, datetime
from pathlib import Path

from tare.base import strict_json
from tare.base.errors import StoreError
from tare.base.files import HALF_MADE, explained, give_to_user, make_folder, make_folders, replace_file, sync_folder
from tare.records.catalogue import Catalogue
from tare.records.model import Json
from tare.records.schema import (
    CATALOGUE_FILE,
    LOCK_FILE,
    SPOOL_FOLDER,
    STORE_FILE,
    STUDY_FILE,
    TRIALS_FOLDER,
    write_header,
)

_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "lustre", "fuse.sshfs", "fuse.glusterfs"}
_ESCAPED = re.compile(r"\\([0-7]{3})")


def refuse_network_disk(path: Path, mounts: str | None = None) -> None:
    """StoreError where a store at `path` would be damaged sooner or later; reading one there is fine."""
    kind = file_system(path, _mounts() if mounts is None else mounts)
    if kind in _NETWORK:
        raise StoreError(
            f"{path}: this is on a network disk ({kind}), and a store that is written there gets damaged. "
            "Put the store on a local disk; a finished one can be copied anywhere."
        )


def file_system(path: Path, mounts: str) -> str | None:
    """The kind of file system that holds `path`: that of the deepest mount point above it."""
    where, best, kind = path.absolute().resolve(), -1, None
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        point = Path(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4]))
        # A later line covers an earlier one of the same depth.
        if where.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), right.split(" ")[0]
    return kind


def _mounts() -> str:
    try:
        return _MOUNTS.read_text(errors="replace")
    except OSError:
        return ""


def identity(root: Path) -> tuple[int, int] | None:
    """Which folder this is, whatever stands at its path later; None where there is none."""
    try:
        found = root.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class WriteLock:
    """Held from `take` to `release`; it goes with the process, so a dead writer never blocks the next."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, root: Path) -> WriteLock:
        """The lock of this store, at once or not at all."""
        path = root / LOCK_FILE
        # Close-on-exec: a workload that outlives us must not hold the store.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode("ascii", "replace").strip() or "another process"
            os.close(descriptor)
            raise StoreError(
                f"{root}: this store is being written by {holder}. "
                "Wait until that run has ended, or write to another folder."
            ) from None
        give_to_user(path)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n".encode(), 0)
        return cls(descriptor)

    def release(self) -> None:
        os.close(self._descriptor)


def is_held(root: Path) -> bool:
    """Whether someone writes this store now; asked of the kernel's list, so that nobody's lock is disturbed."""
    try:
        status = (root / LOCK_FILE).stat()
        locks = Path("/proc/locks").read_text()
    except OSError:
        return False
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any(wanted in line.split() and "->" not in line for line in locks.splitlines())


_BEGUN = {STUDY_FILE, LOCK_FILE, SPOOL_FOLDER, TRIALS_FOLDER}


def lay_out(root: Path, study: Json, text: str) -> None:
    """Make an empty store in a folder that is new, empty, or left by a creation that was cut off."""
    strict_json.dump(study)  # refused before anything is made
    _make_root(root)
    refuse_network_disk(root)
    with explained(root, "making the store", need_bytes=256 * 1024):
        lock = WriteLock.take(root)
        try:
            _refuse_what_is_there(root)
            _fill(root, study, text)
        finally:
            lock.release()


def _make_root(root: Path) -> None:
    if root.exists() and not root.is_dir():
        raise StoreError(f"{root}: this is a file, and a store is a folder. Name another place.")
    try:
        make_folders(root)
        if any(root.iterdir()):
            _refuse_what_is_there(root)
    except OSError as error:
        raise StoreError(f"{root}: the folder cannot be made: {error.strerror} ({error.filename}).") from error


def _refuse_what_is_there(root: Path) -> None:
    names = {path.name for path in root.iterdir()}
    if STORE_FILE in names:
        raise StoreError(f"{root}: there is a store here already. Open it, or name another folder.")
    if foreign := sorted(name for name in names if not _is_begun(name)):
        raise StoreError(f"{root}: the folder is not empty ({', '.join(foreign[:3])}). Name a new or an empty one.")


def _is_begun(name: str) -> bool:
    return name in _BEGUN or name.startswith((HALF_MADE, CATALOGUE_FILE))


def _fill(root: Path, study: Json, text: str) -> None:
    replace_file(root / STUDY_FILE, text.encode("utf-8", "surrogatepass"))
    for name in (SPOOL_FOLDER, TRIALS_FOLDER):
        if not (root / name).is_dir():
            make_folder(root / name)
    for left_over in root.glob(f"{CATALOGUE_FILE}*"):
        left_over.unlink()
    Catalogue.create(root).close()
    sync_folder(root.absolute().parent)
    write_header(root, study)
