"""A data set on another medium, under its own path: a copy there, bound over the folder that the workload reads.

So every platform and every program finds it where it always was. A copy carries the name of the path that it is for,
and a mount is ours if what it shows has the name that belongs to the place where it is.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tare.base.errors import TareError, TrialError
from tare.base.files import state_dir
from tare.base.host import Host
from tare.base.processes import Mount, holding, mounts
from tare.drivers import layers
from tare.drivers.storage.residency import open_files

KEPT = "tare-data"  # the folder on a real medium that copies are kept in
NAME = re.compile(r"[A-Za-z0-9._-]{1,40}-[0-9a-f]{16}")
_WITHOUT_OWNERS = ("vfat", "exfat", "msdos", "ntfs", "ntfs3", "fuseblk")  # cards often come with one of these
_COPIED_WITHIN_S = 4 * 3600.0
_TIME_IS_SAME_NS = 2_000_000_000  # FAT keeps times to two seconds


@dataclass(frozen=True, slots=True)
class Size:
    """What a copy takes: bytes in whole blocks, and so many files and folders."""

    content_bytes: int
    files: int


def name_of(path: str, state: Path | None = None) -> str:
    """The name of the copy that is for this path; another state folder's runs have other names."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", PurePosixPath(path).name)[:40] or "data"
    digest = hashlib.sha256(f"{state or state_dir()}\0{path}".encode()).hexdigest()[:16]
    return f"{plain}-{digest}"


def is_ours(mount: Mount, state: Path | None = None) -> bool:
    name = PurePosixPath(mount.root).name
    return NAME.fullmatch(name) is not None and name == name_of(mount.point, state)


def placed(host: Host) -> list[Mount]:
    """What is bound over a data set now, by us."""
    return [mount for mount in mounts(host) if is_ours(mount)]


def displace(host: Host) -> None:
    """Take every such mount away: the data sets are where they were."""
    for mount in reversed(placed(host)):
        layers.unmount(host, mount.point)


def bind(host: Host, copy: Path, over: Path, *, writable: bool) -> None:
    """Show the copy in the place of the data set; read-only, so that nobody writes to what will be gone."""
    host.run(["mount", "--bind", "--", str(copy), str(over)]).checked()
    if not writable:
        host.run(["mount", "-o", "remount,bind,ro", "--", str(over)]).checked()


def outermost(paths: Iterable[Path]) -> list[Path]:
    """The real paths, each once, without those that lie in another."""
    real = sorted({path.resolve() for path in paths})
    return [path for path in real if not any(path != other and path.is_relative_to(other) for other in real)]


def size_of(path: Path) -> Size:
    """What a copy of this file or folder takes on a file system with blocks of 4 KiB."""
    entries = _entries(path)
    blocks = sum(max(1, -(-entry.size // 4096)) for entry in entries.values())
    return Size(blocks * 4096, len(entries))


def copy(host: Host, source: Path, into: Path, *, owners: bool = True) -> None:
    """Copy a file or folder to `into`, which is not there yet, and have it on the medium."""
    keep = ["-a"] if owners else ["-rP", "--preserve=timestamps"]
    done = host.run(["cp", *keep, "--reflink=never", "--", str(source), str(into)], limit_s=_COPIED_WITHIN_S)
    if done.code != 0:
        reported = (done.err or done.out).strip()[-500:]
        raise TrialError(f"storage: {source} could not be copied to {into}: {reported}")
    host.run(["touch", "--", str(into)]).checked()  # by this time it is told from the original, also inside a platform
    host.run(["sync", "-f", "--", str(into)], limit_s=_COPIED_WITHIN_S).checked()


def cool(copies: Iterable[Path]) -> None:
    """Let what was just written leave the page cache: the first read of it is to come from the medium."""
    for descriptor in open_files(copies):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def keep_copy(host: Host, source: Path, medium: Path) -> Path:
    """A whole and current copy of the data set on a real medium; one that is there from before is used again."""
    kept = medium / KEPT / name_of(str(source))
    part = kept.with_name(f"{kept.name}.part")
    if kept.exists() and _alike(source, kept):
        return kept
    host.run(["rm", "-rf", "--one-file-system", "--", str(kept), str(part)]).checked()
    host.run(["mkdir", "-p", "--", str(kept.parent)]).checked()
    holder = holding(mounts(host), str(medium.resolve()))
    copy(host, source, part, owners=holder is None or holder.kind not in _WITHOUT_OWNERS)
    host.run(["mv", "-T", "--", str(part), str(kept)]).checked()
    return kept


@dataclass(frozen=True, slots=True)
class _Entry:
    size: int
    mtime_ns: int


def _entries(top: Path) -> dict[str, _Entry]:
    """Everything under a path by its name there; the top itself is ''. Folders count as one block."""
    found = {"": _entry(top)}

    def complain(error: OSError) -> None:
        raise TareError(f"storage: {error.filename} cannot be read: {error.strerror}.")

    for folder, folders, files in os.walk(top, onerror=complain):
        for name in (*folders, *files):
            path = Path(folder, name)
            found[str(path.relative_to(top))] = _entry(path)
    return found


def _entry(path: Path) -> _Entry:
    seen = path.lstat()
    is_file = not path.is_dir() or path.is_symlink()
    return _Entry(seen.st_size if is_file else 4096, seen.st_mtime_ns if is_file else 0)


def _alike(source: Path, kept: Path) -> bool:
    """Same names, sizes and times; the times of the tops differ, and those of folders say nothing of files."""
    ours, theirs = _entries(source), _entries(kept)
    return ours.keys() == theirs.keys() and all(
        theirs[name].size == one.size and (name == "" or abs(theirs[name].mtime_ns - one.mtime_ns) <= _TIME_IS_SAME_NS)
        for name, one in ours.items()
    )
