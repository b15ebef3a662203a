"""Files and folders that survive a crash, that only their user can read, and that belong to who called sudo.

Folders in the system's temporary one that go with the process that made them, also if it is killed.

Who is killed cannot tidy up. So a folder's name says whose it is, and the next process that makes one removes those of
the dead.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tare.base.errors import StoreError
from tare_inside.jobs import remove_tree

HALF_MADE = ".tmp-"  # how the name of a file begins that is not whole yet
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_AT_ONCE = 32  # files that are open at once
FULL = (errno.ENOSPC, errno.EDQUOT)
_SQLITE_ERRNO = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_READONLY: errno.EROFS}


def make_folder(path: Path) -> None:
    """A new folder that only its user can enter; its parent must be there (a store is never re-created by accident)."""
    path.mkdir(0o700)
    give_to_user(path)


def make_folders(path: Path) -> None:
    """The folder and the parents that are missing, the parents with the usual rights."""
    make_parents(path)
    if not path.exists():
        make_folder(path)


def make_parents(path: Path) -> None:
    """The folders above this path that are missing, with the usual rights."""
    for folder in reversed(path.parents):
        if not folder.exists():
            with suppress(FileExistsError):  # another process makes the same
                folder.mkdir()
                give_to_user(folder)


def give_to_user(path: Path) -> None:
    """Under sudo, what we make belongs to the person who called it: no root-owned litter."""
    if (user := caller_ids()) is not None:
        os.chown(path, *user, follow_symlinks=False)


def caller_ids() -> tuple[int, int] | None:
    """The ids of the person who called root by sudo; None where nobody did."""
    uid, gid = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() != 0 or not uid.isdecimal() or not gid.isdecimal():
        return None
    return int(uid), int(gid)


def make_file(path: Path) -> None:
    """A new, empty file that only its user can read."""
    os.close(os.open(path, NEW_FILE, 0o600))
    give_to_user(path)


def write_file(path: Path, data: bytes) -> None:
    """A new file, on the disk when this returns (its name is, once the folder is synced)."""
    with os.fdopen(os.open(path, NEW_FILE, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    give_to_user(path)


def write_files(folder: Path, files: Mapping[str, memoryview]) -> None:
    """A new folder with these files: written first, then waited for, which the disk does together."""
    make_folder(folder)
    names = list(files)
    for start in range(0, len(names), _AT_ONCE):
        _write_some(folder, {name: files[name] for name in names[start : start + _AT_ONCE]})


def _write_some(folder: Path, files: Mapping[str, memoryview]) -> None:
    opened: list[int] = []
    try:
        for name, data in files.items():
            opened.append(os.open(path := folder / name, NEW_FILE, 0o600))
            while data:
                data = data[os.write(opened[-1], data) :]
            give_to_user(path)
        for descriptor in opened:
            os.fsync(descriptor)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """The file with this content, or as it was: never half of it."""
    half_made = path.with_name(HALF_MADE + path.name)
    half_made.unlink(missing_ok=True)
    write_file(half_made, data)
    half_made.replace(path)
    sync_folder(path.parent)


def settle_file(path: Path) -> None:
    """A file that a library wrote: ours alone, and on the disk when this returns."""
    path.chmod(0o600)
    give_to_user(path)
    _sync(path, os.O_RDONLY)


def sync_folder(path: Path) -> None:
    """The names in this folder are on the disk when this returns."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def publish(half_made: Path, final: Path) -> None:
    """Give a finished folder its name; if the disk does not confirm, it has not got it."""
    publish_all({half_made: final})


def publish_all(names: Mapping[Path, Path]) -> None:
    """The same for several, half made and final: all of them, or none."""
    for half_made in names:
        sync_folder(half_made)
    given: list[tuple[Path, Path]] = []
    try:
        for half_made, final in names.items():
            half_made.rename(final)
            given.append((half_made, final))
        for parent in {final.parent for final in names.values()}:
            sync_folder(parent)
    except OSError:
        for half_made, final in given:
            with suppress(OSError):
                final.rename(half_made)
        raise


def remove_folder(path: Path) -> None:
    """The folder and all in it; what is gone already is no error."""
    with suppress(FileNotFoundError):
        shutil.rmtree(path)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def explained(root: Path, doing: str, need_bytes: int = 4096) -> Iterator[None]:
    """Whatever the disk refuses while `doing` (a phrase: 'sealing trial x') becomes a sentence for people."""
    try:
        yield
    except OSError as error:
        raise StoreError(_sentence(root, doing, error, need_bytes)) from error
    except sqlite3.Error as error:
        # The low byte is the plain code; the rest says where in SQLite it came from.
        code = _SQLITE_ERRNO.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, errno.EIO)
        raise StoreError(_sentence(root, doing, OSError(code, str(error)), need_bytes)) from error


def _sentence(root: Path, doing: str, error: OSError, need_bytes: int) -> str:
    if not root.is_dir():
        return (
            f"{root}: the store was removed or moved while tare was {doing}. "
            "It was not made again; move the folder to its place, then run the same command."
        )
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in FULL:
        return (
            f"{root}: no space left while {doing}: {size_text(free_bytes(root))} free, "
            f"about {size_text(need_bytes)} needed.\n"
            "The finished trials are whole. Make room, then run the same command: it resumes."
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{root}: {doing} is not allowed here: {error.strerror}{where}. Run as the owner of the store."
    return f"{root}: {doing} failed: {error.strerror or error}{where}. The trials that were sealed before are whole."


def free_bytes(path: Path) -> int:
    """What this user can still write there."""
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize


def size_text(size_bytes: int) -> str:
    """`1.5 MiB`, `4 KiB`: what is needed is never rounded down to nothing."""
    return f"{size_bytes / 2**20:.1f} MiB" if size_bytes >= 2**20 else f"{-(-size_bytes // 1024)} KiB"


ROOT_STATE = Path("/var/lib/tare")


def state_dir() -> Path:
    """$TARE_STATE, the system's place for root, the user's for others; always the whole path."""
    if named := os.environ.get("TARE_STATE"):
        return Path(named).absolute()
    if os.geteuid() == 0:
        return ROOT_STATE
    return (Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "tare").absolute()


def new_folder(kind: str, within: Path | None = None) -> Path:
    """A folder of this process, `tare-KIND-...`, that only this user can read."""
    prefix, room = f"tare-{kind}-{_here()}-", within or Path(tempfile.gettempdir())
    # Those of processes that are no more go; another user's, or one whose process we could not see, is left alone.
    for folder in room.glob(f"{prefix}*-*"):
        pid = folder.name.removeprefix(prefix).partition("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists() and _is_ours(folder):
            remove_tree(folder)  # type: ignore[no-untyped-call]
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=room))


def _is_ours(folder: Path) -> bool:
    try:
        return folder.lstat().st_uid == os.geteuid()
    except OSError:
        return False


def _here() -> str:
    """Where process ids mean what they do to us: a container or another host may share our temporary folder."""
    reported = [os.uname().nodename]
    with suppress(OSError):
        reported.append(Path("/etc/machine-id").read_text())
    with suppress(OSError):
        reported.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.sha256("\0".join(reported).encode()).hexdigest()[:12]
