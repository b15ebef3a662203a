"""Who we are on a host: user, capabilities and limits of the process that its commands run from."""

from __future__ import annotations

from dataclasses import dataclass

from tare.host import Host

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
    values = dict(line.split(":", 1) for line in host.read("/proc/self/status").splitlines() if ":" in line)
    return Identity(
        uid=int(values["Uid"].split()[1]),  # the second number is the effective one
        gid=int(values["Gid"].split()[1]),
        can_mount=bool(int(values["CapEff"].strip(), 16) >> _CAP_SYS_ADMIN & 1),
    )


def is_root(host: Host) -> bool:
    """Whether commands there run as root and may mount; False where nobody can tell."""
    try:
        who = identity(host)
    except (OSError, KeyError, ValueError):
        return False
    return who.uid == 0 and who.can_mount


def ulimit(host: Host, label: str) -> tuple[int, int] | None:
    """A soft and hard limit as /proc/self/limits names it, or None where there is none or it cannot be read."""
    try:
        lines = host.read("/proc/self/limits").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(label):
            soft, hard = line.removeprefix(label).split()[:2]
            return (int(soft), int(hard)) if soft.isdigit() and hard.isdigit() else None
    return None


def open_files(host: Host) -> tuple[int, int] | None:
    """Our limit on open files, for a container to have the same.

    It would otherwise get the engine's, often a million, and programs that walk over all possible descriptors
    pay for that.
    """
    return ulimit(host, "Max open files")
