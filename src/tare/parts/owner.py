"""Who holds the device, or left something on it: a process, told apart from a later one with the same number."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_ENDED = frozenset("ZX")  # a zombie has ended: only its parent has not noticed yet


class Owner(NamedTuple):
    """One process of this boot."""

    pid: int
    started: int  # clock ticks after boot: a reused pid has another one

    @classmethod
    def me(cls) -> Owner:
        """The process that asks."""
        _, started = _state_and_start(os.getpid()) or ("", 0)
        return cls(os.getpid(), started)

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """The reverse of `str`, or None if it is not one."""
        pid, _, started = text.partition(":")
        return cls(int(pid), int(started)) if pid.isascii() and pid.isdigit() and started.isdecimal() else None

    def __str__(self) -> str:
        return f"{self.pid}:{self.started}"

    def is_alive(self) -> bool:
        """True if this very process still runs, not merely one with its number."""
        seen = _state_and_start(self.pid)
        return seen is not None and seen[0] not in _ENDED and seen[1] == self.started


def boot_id() -> str:
    """The id of this boot; it changes when, and only when, the kernel starts anew."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _state_and_start(pid: int) -> tuple[str, int] | None:
    """Fields 3 and 22 of /proc/<pid>/stat; the name before them may hold spaces and brackets."""
    try:
        after_name = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return after_name[0], int(after_name[19])
