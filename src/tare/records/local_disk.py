"""Where a store may lie: SQLite's log needs memory shared between processes, which network disks do not keep."""

from __future__ import annotations

import re
from pathlib import Path

from tare.errors import StoreError

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
