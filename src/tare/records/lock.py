"""One writer to a store. The kernel's lock is the truth; the text in the file only says who holds it."""

from __future__ import annotations

import fcntl
import os
from datetime import UTC, datetime
from pathlib import Path

from tare.errors import StoreError
from tare.records.durable import give_to_user
from tare.records.schema import LOCK_FILE


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
