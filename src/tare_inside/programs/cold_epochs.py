"""Takes the data set out of the page cache before each pass over it, where the trial asks for that.

`page_cache: cold_every_epoch` leaves an order in the workdir, beside the marks. A file leaves the cache by
posix_fadvise(2), and what is left of it is counted by mincore(2), each time: the share of every pass is written down
in `cold_epochs.json`. All of it is done before the clock of a pass is read, so that no step and no epoch holds it.
"""

import ctypes
import functools
import json
import mmap
import os
import stat
import time

from tare_inside import marks

ORDER, SAID = "cold_epochs.order.json", "cold_epochs.json"
COLD_SHARE = 0.01  # at most this much of the data set may be left in memory
TRIES = 3  # pages on their way through the kernel's lists are missed at first

_WINDOW_BYTES = 1 << 30  # mapped at a time
_LOWEST_BIT = bytes(value & 1 for value in range(256))  # mincore promises only this bit of each byte


def nothing():
    """What is done before a pass that may begin with a warm cache."""


def before_each_pass(folder=None):
    """What to do before each pass over the data: a function without arguments. `folder` is the workdir."""
    folder = folder or os.path.dirname(os.environ.get("TARE_MARKS", ""))
    if not folder:
        return nothing
    try:
        with open(os.path.join(folder, ORDER)) as file:
            paths = json.load(file)["paths"]
    except (OSError, ValueError, KeyError):
        return nothing
    return Cooler(paths, os.path.join(folder, SAID)).cool


class Between(object):
    """What is done between passes, timed: it is no part of the training."""

    def __init__(self, folder):
        self._do = before_each_pass(folder)
        self.first_ns = None
        self.spent_ns = 0
        self.cpu_s = 0.0

    def __call__(self):
        begin_ns, begin_cpu_s = marks.now_ns(), time.process_time()
        self._do()
        took_ns = marks.now_ns() - begin_ns
        self.first_ns = took_ns if self.first_ns is None else self.first_ns
        self.spent_ns += took_ns
        self.cpu_s += time.process_time() - begin_cpu_s


class Cooler(object):
    """Cools the files under some paths, and keeps account of it."""

    def __init__(self, paths, reported):
        self._paths, self._said = paths, reported
        self._account = {"shares": [], "seconds": []}

    def cool(self):
        """Drop, count, and try again what is left; what came of it is in the workdir before the pass begins."""
        begin = time.time()
        share = None
        for attempt in range(TRIES):
            if attempt:
                os.sync()  # what is dirty stays in memory
            share = dropped(self._paths)
            if share is None or share <= COLD_SHARE:
                break
        self._account["shares"].append(share)
        self._account["seconds"].append(time.time() - begin)
        with open(self._said + ".new", "w") as file:
            json.dump(self._account, file)
        os.rename(self._said + ".new", self._said)


def dropped(paths):
    """Drop every file under these paths; the share of their pages that stayed, None where the kernel does not say."""
    pages = resident = 0
    unknown = False
    for descriptor in _open_files(paths):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        size = os.fstat(descriptor).st_size
        left = _resident_pages(descriptor, size)
        if left is None:
            unknown = True
            continue
        pages += -(-size // mmap.PAGESIZE)
        resident += left
    return None if unknown or not pages else float(resident) / pages


def _open_files(paths):
    """Each regular file as a descriptor, open until the next one is asked for; links are not followed."""
    for path in paths:
        path = os.path.realpath(path)
        if not os.path.isdir(path):
            for descriptor in _opened(path):
                yield descriptor
            continue
        for folder, _, names in os.walk(path):
            for name in sorted(names):
                for descriptor in _opened(os.path.join(folder, name)):
                    yield descriptor


def _opened(path):
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # gone since it was listed, or not for us to read: then it is not for the workload either
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _resident_pages(descriptor, size):
    if size == 0:
        return 0
    if not _may_know(descriptor):
        return None
    total = 0
    for start in range(0, size, _WINDOW_BYTES):
        count = _in_window(descriptor, start, min(_WINDOW_BYTES, size - start))
        if count is None:
            return None
        total += count
    return total


def _may_know(descriptor):
    """The kernel tells only the owner, or one who may write; to others mincore says that everything is resident."""
    if os.geteuid() in (0, os.fstat(descriptor).st_uid):
        return True
    return os.access("/proc/self/fd/{}".format(descriptor), os.W_OK)


class _Kernel(object):
    """mmap, mincore and munmap of the C library, looked up when first needed."""

    def __init__(self):
        libc = ctypes.CDLL(None, use_errno=True)
        self.mmap = getattr(libc, "mmap64", None) or libc.mmap  # 64-bit offsets also on a 32-bit board
        self.mmap.restype = ctypes.c_void_p
        self.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t) + (ctypes.c_int,) * 3 + (ctypes.c_int64,)
        self.mincore, self.munmap = libc.mincore, libc.munmap
        self.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        self.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


_kernel = functools.lru_cache(maxsize=None)(_Kernel)


def _in_window(descriptor, start, length):
    kernel = _kernel()
    address = kernel.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, start)
    if address == ctypes.c_void_p(-1).value:
        return None
    try:
        flags = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
        if kernel.mincore(address, length, flags) != 0:
            return None
        return bytes(flags).translate(_LOWEST_BIT).count(1)
    finally:
        kernel.munmap(address, length)
