"""How much of a file is in the page cache: cachestat(2) where the kernel has it (Linux 6.5), mincore(2) otherwise."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

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
