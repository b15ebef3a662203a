"""Who holds the device, or left something on it: a process, told apart from a later one with the same number.

What is mounted where, as /proc/self/mountinfo of a host says it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tare.base.host import Host

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo, as far as we need it."""

    point: str
    root: str  # the folder of the file system that is shown at `point`
    kind: str  # ext4, overlay, cgroup, cgroup2, ...
    source: str
    options: tuple[str, ...]  # of the file system: for cgroup v1 these are its controllers


def mounts(host: Host) -> list[Mount]:
    """Everything that is mounted, in the order of mounting; nothing where there is no /proc."""
    try:
        lines = host.read("/proc/self/mountinfo").split("\n")
    except OSError:
        return []
    return [mount for line in lines if (mount := _parsed(line)) is not None]


def _parsed(line: str) -> Mount | None:
    """`36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/vda rw`: the optional fields end at the dash."""
    before, dash, after = line.partition(" - ")
    left, right = before.split(" "), after.split(" ")  # a path may hold any other kind of blank
    if not dash or len(left) < 5 or len(right) < 3:
        return None
    return Mount(
        point=_plain(left[4]),
        root=_plain(left[3]),
        kind=right[0],
        source=_plain(right[1]),
        options=tuple(right[2].split(",")),
    )


def _plain(field: str) -> str:
    """Without the kernel's escapes: a blank in a path is written `\\040`; what is not ASCII is written as it is."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)


def holding(mounted: Iterable[Mount], path: str) -> Mount | None:
    """The mount that `path` lies on: the deepest one, and of two at the same place the later."""
    best: Mount | None = None
    for mount in mounted:
        inside = PurePosixPath(path).is_relative_to(mount.point)
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


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


_CAP_SYS_ADMIN = 21


@dataclass(frozen=True, slots=True)
class Identity:
    """The user that the runner is, and whether it may mount."""

    uid: int
    gid: int
    can_mount: bool

    @property
    def user(self) -> str:
        return f"{self.uid}:{self.gid}"


def identity(host: Host) -> Identity:
    """From /proc/self/status; raises OSError where a host has no /proc."""
    return _identity(host, "self")


def user_of(host: Host, pid: int) -> Identity | None:
    """The user of another process; None where it cannot be told."""
    try:
        return _identity(host, str(pid))
    except (OSError, KeyError, ValueError, IndexError):
        return None


def _identity(host: Host, pid: str) -> Identity:
    values = dict(line.split(":", 1) for line in host.read(f"/proc/{pid}/status").splitlines() if ":" in line)
    return Identity(
        uid=int(values["Uid"].split()[1]),  # the second number is the effective one
        gid=int(values["Gid"].split()[1]),
        can_mount=bool(int(values.get("CapEff", "0").strip(), 16) >> _CAP_SYS_ADMIN & 1),
    )


def is_root(host: Host) -> bool:
    """Whether commands there run as root and may mount; False where nobody can tell."""
    try:
        who = identity(host)
    except (OSError, KeyError, ValueError):
        return False
    return who.uid == 0 and who.can_mount


ULIMITS = {
    "nofile": "Max open files",
    "memlock": "Max locked memory",
    "stack": "Max stack size",
    "core": "Max core file size",
    "nproc": "Max processes",
}


def ulimits(host: Host) -> dict[str, tuple[int, int]]:
    """Our limits, soft and hard, for a container to have the same; -1 is none.

    It would otherwise get the engine's: a million open files as a rule, and programs that walk over all possible
    descriptors pay for that.
    """
    try:
        lines = host.read("/proc/self/limits").splitlines()
    except OSError:
        return {}
    found = {}
    for name, label in ULIMITS.items():
        words = next((line.removeprefix(label).split()[:2] for line in lines if line.startswith(label)), [])
        numbers = [-1 if word == "unlimited" else int(word) for word in words if word == "unlimited" or word.isdigit()]
        if len(numbers) == 2:
            found[name] = (numbers[0], numbers[1])
    return found
