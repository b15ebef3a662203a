"""What is mounted where, as /proc/self/mountinfo of a host says it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

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
