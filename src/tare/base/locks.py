"""One lock of the device that root's runs and everybody else's both see: the kernel's, on a folder that all can open.

Root's own lock file is hidden from users, and theirs lie in their homes. A folder can be locked by whoever may read it,
nobody but root can put another in its place, and nothing has to be made, trusted or cleaned up.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import re
from pathlib import Path

FOLDERS = (Path("/run/lock"), Path("/run"), Path("/"))  # the first that is there, on every system the same one
_LOCKS = Path("/proc/locks")
_FLOCK = re.compile(r"FLOCK\s+\w+\s+WRITE\s+(\d+)\s+([0-9a-f]+):([0-9a-f]+):(\d+)\s")


def folder() -> Path | None:
    """Whose lock it is; None where the user has set these locks apart (TARE_LOCK_DIR)."""
    if os.environ.get("TARE_LOCK_DIR"):
        return None
    return next((each for each in FOLDERS if each.is_dir() and os.access(each, os.R_OK)), None)


def taken(place: Path) -> int | None:
    """The lock as a descriptor to be closed; None where another one has it."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:  # a file system without locks: each user has only the own one
        pass
    return descriptor


def holder(place: Path) -> int | None:
    """The process that has the lock, as far as the kernel tells."""
    found = place.stat()
    at = (os.major(found.st_dev), os.minor(found.st_dev), found.st_ino)
    with contextlib.suppress(OSError):
        for pid, major, minor, inode in _FLOCK.findall(_LOCKS.read_text()):
            if (int(major, 16), int(minor, 16), int(inode)) == at and int(pid) > 0:
                return int(pid)
    return None


def words_of(pid: int) -> tuple[str, ...]:
    """The command line of a process; nothing where that is hidden."""
    try:
        return tuple(Path(f"/proc/{pid}/cmdline").read_text(errors="replace").rstrip("\0").split("\0"))
    except OSError:
        return ()


def is_unprivileged(pid: int | None) -> bool:
    """Whether the lock is held by somebody who could take it to keep root out: anyone but root.

    The kernel names the holder where it can be seen at all; one that cannot be (another pid namespace) may be anyone.
    """
    if pid is None:
        return True
    try:
        return Path(f"/proc/{pid}").stat().st_uid != 0
    except OSError:
        return True


def busy(place: Path) -> str:
    """Who has the device, and what to do."""
    if holder(place) is None:
        return f"{owner(place)}\n`fuser {place}` names its process, as root."
    advice = "Wait until it ends, or ask its owner to stop it: it then restores the device by itself."
    return f"{owner(place)}\n{advice}"


def owner(place: Path) -> str:
    """Who has the device."""
    pid = holder(place)
    return f"another user's run owns this device{'' if pid is None else f': pid {pid}{_whose(pid)}'}."


def _whose(pid: int) -> str:
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return ""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    line = " ".join(words_of(pid))
    return f", of {name}" + (f" (`{line[:80]}`)" if line else "")
