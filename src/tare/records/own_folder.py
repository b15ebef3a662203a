"""Folders in the system's temporary one that go with the process that made them, also if it is killed.

Who is killed cannot tidy up. So a folder's name says whose it is, and the next process that makes one removes those of
the dead.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path


def new_folder(kind: str) -> Path:
    """A folder of this process, `tare-KIND-...`, that only this user can read."""
    prefix = f"tare-{kind}-{_here()}-"
    _remove_dead(prefix)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))


def _remove_dead(prefix: str) -> None:
    """Those of processes that are no more; another user's, or one whose process we could not see, is left alone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*-*"):
        pid = folder.name.removeprefix(prefix).partition("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists() and _is_ours(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    try:
        return folder.lstat().st_uid == os.geteuid()
    except OSError:
        return False


def _here() -> str:
    """Where process ids mean what they do to us: a container or another host may share our temporary folder."""
    told = [os.uname().nodename]
    with suppress(OSError):
        told.append(Path("/etc/machine-id").read_text())
    with suppress(OSError):
        told.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.sha256("\0".join(told).encode()).hexdigest()[:12]
