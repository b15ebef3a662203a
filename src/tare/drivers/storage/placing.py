"""A data set on another medium, under its own path: a copy there, bound over the folder that the workload reads.

So every platform and every program finds it where it always was. A copy carries the name of the path that it is for,
and a mount is ours if what it shows has the name that belongs to the place where it is.

A medium of our own: a file system in an image file behind a loop device, which can be throttled alone.

All of it lies in one folder of the scratch folder, under one name: whoever finds a loop device or a mount on a file
there knows whose it is (`tare device clean`, trial/undo/restoration.py). There is one at a time: a run owns its device.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import mmap
import os
import re
import stat
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Annotated, TypeAlias

from pydantic import AfterValidator

from tare.base import processes
from tare.base.errors import TareError, TrialError
from tare.base.files import state_dir
from tare.base.host import Host, OwnDevice
from tare.base.processes import Mount, holding, mounts
from tare.base.rulings import Ruling, obstacle
from tare.drivers import layers
from tare.drivers.places import SOURCE, comes_true
from tare_inside import named

# How much of a file is in the page cache: cachestat(2) where the kernel has it (Linux 6.5), mincore(2) otherwise.

_CACHESTAT = 451  # the same number on every architecture
_WINDOW_BYTES = 1 << 30  # mapped at a time: a data set may be larger than a board's address space likes

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = getattr(_libc, "mmap64", None) or _libc.mmap  # 64-bit offsets also on a 32-bit board
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_MAP_FAILED = ctypes.c_void_p(-1).value
_LOWEST_BIT = bytes(value & 1 for value in range(256))  # mincore promises only this bit of each byte


@dataclass(frozen=True, slots=True)
class Residency:
    """Pages of one file, or of several together."""

    pages: int = 0
    resident: int = 0
    dirty: int | None = 0  # not yet on disk; None where the kernel does not say

    def __add__(self, other: Residency) -> Residency:
        dirty = None if self.dirty is None or other.dirty is None else self.dirty + other.dirty
        return Residency(self.pages + other.pages, self.resident + other.resident, dirty)

    @property
    def share(self) -> float | None:
        """How much of it is in memory, 0 to 1; None for nothing at all."""
        return self.resident / self.pages if self.pages else None


def residency(descriptor: int, start: int = 0, length: int | None = None) -> Residency | None:
    """The residency of an open file, or None if this user may not know it: not the owner, and may not write.

    `start` and `length`, whole pages, ask for a piece of it.
    """
    pages = _pages(descriptor, start, length)
    if pages == 0:
        return Residency()
    seen = cachestat(descriptor, start, length)
    if seen is not None and seen.resident > 0:
        return seen
    # No page at all may be the truth; but on a stacked file system (overlay) cachestat looks at the wrong layer.
    if not _may_know(descriptor) or (resident := mincore(descriptor, start, length)) is None:
        return None
    return Residency(pages, resident, 0 if resident == 0 else None)


def cachestat(descriptor: int, start: int = 0, length: int | None = None) -> Residency | None:
    """What cachestat(2) says, or None where it is missing or refused."""
    requested, answer = (ctypes.c_uint64 * 2)(start, length or 0), (ctypes.c_uint64 * 5)()
    if _libc.syscall(_CACHESTAT, descriptor, ctypes.byref(requested), ctypes.byref(answer), 0) != 0:
        return None
    cached, dirty, writeback = int(answer[0]), int(answer[1]), int(answer[2])
    pages = _pages(descriptor, start, length)
    return Residency(pages, min(cached, pages), dirty + writeback)


def mincore(descriptor: int, start: int = 0, length: int | None = None) -> int | None:
    """The number of resident pages by mincore(2), or None where the file cannot be mapped."""
    end = start + _bytes(descriptor, start, length)
    total = 0
    for begin in range(start, end, _WINDOW_BYTES):
        count = _mincore_window(descriptor, begin, min(_WINDOW_BYTES, end - begin))
        if count is None:
            return None
        total += count
    return total


def _mincore_window(descriptor: int, start: int, length: int) -> int | None:
    address = _mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, start)
    if address == _MAP_FAILED:
        return None
    try:
        flags = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
        if _libc.mincore(address, length, flags) != 0:
            return None
        return bytes(flags).translate(_LOWEST_BIT).count(1)
    finally:
        _libc.munmap(address, length)


def _bytes(descriptor: int, start: int, length: int | None) -> int:
    """So much of the file there is in the piece that is asked for."""
    left = max(0, os.fstat(descriptor).st_size - start)
    return left if length is None else min(length, left)


def _pages(descriptor: int, start: int = 0, length: int | None = None) -> int:
    return -(-_bytes(descriptor, start, length) // mmap.PAGESIZE)


def _may_know(descriptor: int) -> bool:
    """The kernel tells only the owner, or one who may write; to others mincore says that everything is resident."""
    if os.geteuid() in (0, os.fstat(descriptor).st_uid):
        return True
    return os.access(f"/proc/self/fd/{descriptor}", os.W_OK)


_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NOT_A_FILE_OF_IT = (errno.ELOOP, errno.ENOENT, errno.ENXIO)  # a link, gone since it was listed, a socket


def open_files(paths: Iterable[Path]) -> Iterator[int]:
    """Each regular file as a descriptor that is closed when the next one is asked for.

    A named path may be a link; links inside a named folder are not followed, so nothing outside of it is touched.
    Pipes and device nodes are left alone.
    """
    for path in paths:
        top = path.resolve(strict=True)
        if not top.is_dir():
            with _opened(str(top), None) as descriptor:
                yield from [] if descriptor is None else [descriptor]
            continue

        def fail(error: OSError) -> None:
            raise error

        for _, _, names, folder in os.fwalk(top, follow_symlinks=False, onerror=fail):
            for name in sorted(names):
                with _opened(name, folder) as descriptor:
                    yield from [] if descriptor is None else [descriptor]


@contextmanager
def _opened(name: str, folder: int | None) -> Iterator[int | None]:
    descriptor = _open(name, folder)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open(name: str, folder: int | None) -> int | None:
    """A regular file, or None for anything else; looked at before it is opened, because opening a device acts on it."""
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return None
        with suppress(PermissionError):  # only the owner may read without a trace
            return os.open(name, _FLAGS | os.O_NOATIME, dir_fd=folder)
        return os.open(name, _FLAGS, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOT_A_FILE_OF_IT:
            return None
        raise


WINDOW_BYTES = 1 << 20
_STEP = 0.6180339887498949  # the golden section: its multiples are spread evenly, and meet no period of the data


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of one file; its descriptor stays open while it is watched."""

    descriptor: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Sample:
    """Pieces of a data set, and how large that is in all."""

    pieces: tuple[Piece, ...]
    total_bytes: int

    @property
    def share(self) -> float:
        """How much of the data set is looked at."""
        return sum(piece.length for piece in self.pieces) / self.total_bytes if self.total_bytes else 0.0

    def close(self) -> None:
        for descriptor in {piece.descriptor for piece in self.pieces}:
            os.close(descriptor)


def drawn(paths: Iterable[Path], most: int) -> Sample:
    """At most so many pieces of up to 1 MiB, drawn evenly from all bytes; everything, where that is not more."""
    seen = [
        (str(Path(f"/proc/self/fd/{descriptor}").readlink()), os.fstat(descriptor).st_size)
        for descriptor in open_files(paths)
    ]
    files = [(path, size) for path, size in seen if size > 0]
    counts = [-(-size // WINDOW_BYTES) for _, size in files]
    ends = list(accumulate(counts))
    windows = ends[-1] if ends else 0
    chosen = (
        range(windows) if windows <= most else sorted({int(number * _STEP % 1 * windows) for number in range(most)})
    )
    opened: dict[str, int] = {}
    pieces = []
    for window in chosen:
        file = bisect_right(ends, window)
        path, size = files[file]
        start = (window - (ends[file] - counts[file])) * WINDOW_BYTES
        if path not in opened:
            opened[path] = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        pieces.append(Piece(opened[path], start, min(WINDOW_BYTES, size - start)))
    return Sample(tuple(pieces), sum(size for _, size in files))


_LEAST_BYTES = 64 << 20  # so that a measured read does not go over the same blocks again and again
_SPARE_INODES = 1024
_INODE_BYTES = 256
_GONE_WITHIN_S = 10.0
_DELETED = " (deleted)"
_FILLED_WITHIN_S = 3600.0


def site(state: Path | None = None) -> str:
    """The name that all of it goes by; runs with another state folder, which is rare but happens, have another."""
    return f"{layers.MEDIA}{hashlib.sha256(str(state or state_dir()).encode()).hexdigest()[:8]}"


def folder() -> Path:
    return state_dir() / "scratch" / site()


def image() -> Path:
    return folder() / "medium.img"


def point() -> Path:
    """Where the file system is mounted, whole; what a workload reads are parts of it, bound over its own folders."""
    return folder() / "medium"


def pieces(host: Host) -> list[str]:
    """What there is of it: the image (its folder is made first and goes last), the loop device, the mount."""
    found = []
    if host.run(["test", "-e", str(folder())]).code == 0:
        found.append("image")
    if device(host) is not None:
        found.append("loop")
    if _is_mounted(host):
        found.append("mount")
    return found


def device(host: Host) -> str | None:
    """The loop device that shows the image."""
    return next(_devices(host), None)


def _devices(host: Host) -> Iterator[str]:
    """Those that show it; not one that was let go of, which ends with the last mount namespace that holds a copy."""
    listed = host.run(["losetup", "--list", "--noheadings", "--raw", "--output", "NAME,AUTOCLEAR,BACK-FILE"])
    for line in listed.out.splitlines():
        name, goes_by_itself, file = line.strip().split(" ", 2)
        file = file.replace("\\x20", " ").strip()
        let_go = goes_by_itself == "1" and file.endswith(_DELETED)
        if file.removesuffix(_DELETED) == str(image()) and not let_go:
            yield name


def device_number(host: Host, device: str) -> str:
    """`7:0`, as control groups name a block device."""
    return host.read(f"/sys/block/{Path(device).name}/dev").strip()


def facts(host: Host, device: str) -> dict[str, object]:
    """How the device is set up, as it says itself."""
    queue = f"/sys/block/{Path(device).name}"
    return {
        "device": device,
        "direct_io": host.read(f"{queue}/loop/dio").strip() == "1",
        "read_ahead_kib": int(host.read(f"{queue}/queue/read_ahead_kb")),
    }


def size_for(content_bytes: int, files: int, room_bytes: int) -> int:
    """How large an image must be for so much content in so many files, and for what is written beside it."""
    inodes = (files + _SPARE_INODES) * _INODE_BYTES
    size = max(_LEAST_BYTES, round(1.03 * (content_bytes + inodes + room_bytes)) + (16 << 20))
    return size + (-size) % (1 << 20)


def make(host: Host, size_bytes: int, files: int, *, journal: bool, read_ahead_kib: int) -> str:
    """Make it, empty and mounted to be filled; the loop device's name."""
    processes.lease_name(site())
    host.run(["mkdir", "-p", "-m", "700", "--", str(folder())]).checked()
    host.run(["mkdir", "-p", "--", str(point())]).checked()
    reserved = host.run(["fallocate", "-l", str(size_bytes), "--", str(image())], limit_s=_FILLED_WITHIN_S)
    if reserved.code != 0:
        reported = (reserved.err or reserved.out).strip()
        raise TrialError(
            f"storage: no room for an image of {size_bytes / 2**20:.0f} MiB in {folder()}: {reported}\n"
            "Make room there, or set TARE_STATE to a folder on a larger disk."
        )
    features = [] if journal else ["-O", "^has_journal"]
    whole = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"  # or the kernel would go on making it during the trial
    inodes = ["-N", str(files + _SPARE_INODES)]
    command = ["mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", *features, *inodes, "-E", whole, str(image())]
    host.run(command, limit_s=_FILLED_WITHIN_S).checked()
    made = host.run(["losetup", "--find", "--show", "--direct-io=on", str(image())]).checked().out.strip()
    host.write(f"/sys/block/{Path(made).name}/queue/read_ahead_kb", str(read_ahead_kib))
    host.run(["mount", "-t", "ext4", "-o", "noatime", made, str(point())]).checked()
    return made


def shut(host: Host) -> None:
    """It is full: from now on it is only read."""
    host.run(["mount", "-o", "remount,ro", "--", str(point())]).checked()


def remove(host: Host) -> None:
    """Take all of it away, whatever there is.

    A mount namespace that was made meanwhile, with private mounts, holds a copy of ours: then the loop device is let
    go of, and the kernel removes it when that namespace ends. Nobody can reach it any more, and its file is gone.
    """
    while _is_mounted(host):
        layers.unmount(host, str(point()))
    for name in list(_devices(host)):
        host.run(["losetup", "--detach", name]).checked()
    host.run(["rm", "-rf", "--one-file-system", "--", str(folder())]).checked()
    if not comes_true(host.clock, lambda: device(host) is None, _GONE_WITHIN_S, 0.02):
        left = device(host)
        raise TrialError(f"storage: the loop device {left} does not go: `losetup --detach {left}` says why.")
    processes.drop_name(site())


def _is_mounted(host: Host) -> bool:
    return any(mount.point == str(point()) for mount in mounts(host))


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


# Where synthetic data sets lie on the device, and how one is made there: once, before anything is measured.

DATA_SEED = 0  # the data are the same in every trial; what a trial's seed changes is their order and the first weights
_LONGEST_S = 3600.0


def data_dir() -> Path:
    """Where data sets are kept: $TARE_DATA, else the user's cache."""
    if own := os.environ.get("TARE_DATA"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tare" / "data"


def synthetic_folder(data: str, count: int, seed: int = DATA_SEED) -> Path:
    """The folder of a synthetic data set of so many items."""
    return data_dir() / f"{data}-{count}-{seed}"


def make_synthetic(host: Host, data: str, count: int) -> None:
    """Make the data set unless it is there, whole."""
    from tare_inside.workloads.formats.make import is_whole

    folder = synthetic_folder(data, count)
    order = {"data": data, "count": count, "seed": DATA_SEED}
    if isinstance(host, OwnDevice) and is_whole(str(folder), order):
        return  # seen here, before every trial, without another Python that would only look
    argv = [
        host.python,
        str(SOURCE / "workloads" / "formats" / "make.py"),
        data,
        str(folder),
        str(count),
        str(DATA_SEED),
    ]
    made = host.run(argv, limit_s=_LONGEST_S)
    if made.code != 0:
        raise TareError(
            f"the data set {data} could not be made in {folder}.\n"
            f"{(made.err or made.out).strip()[-1000:]}\nSet TARE_DATA to a folder with room for it."
        )


def folder_obstacles(data: str, folder: Path, count: int) -> list[Ruling]:
    """Why a folder of the user's own cannot be used as so many items of this data set."""
    try:
        folder.stat()
    except FileNotFoundError:
        sentence = f"no folder {folder}: `data_path` is where your own {data} files lie."
        return [obstacle("needs.data", sentence)]
    except (OSError, ValueError) as problem:
        return [obstacle("needs.data", str(problem))]
    sentence = named.find("data", data).obstacle(str(folder), count)
    return [] if sentence is None else [obstacle("needs.data", str(sentence))]


FOLDER = Path("/var/tmp")  # on a disk, where /tmp and workdirs may be memory; in a container it is its own layer
_WORKDIR, _CHECKPOINTS = "-workdir", "-checkpoints"


def checkpoint_folder(workdir: Path) -> Path:
    """The folder for the tenant whose workdir this is; a workdir lies in memory, from where nothing is written back."""
    return checkpoints_of_site(workdir.name.removesuffix(_WORKDIR))


def checkpoints_of_site(name: str) -> Path:
    """The folder of this site: on bare metal it is the device's, and must go with the trial's others."""
    return FOLDER / f"{name}{_CHECKPOINTS}"


def absolute(path: Path) -> Path:
    """The same path; a relative one is refused."""
    if not path.is_absolute():
        raise ValueError(f"{path} is not absolute; write the whole path, from / on")
    return path


AbsolutePath: TypeAlias = Annotated[Path, AfterValidator(absolute)]
