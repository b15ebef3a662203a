"""A small program with marked steps, for planted causes: each option is a kind of work that one difference slows down.

python planted_work.py STEPS [--compute N] [--alloc N] [--map N] [--shm MB] [--connect PORT] [--read FILE] ...
"""

import argparse
import errno
import importlib
import json
import mmap
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

MODULES = (
    "asyncio", "concurrent.futures", "csv", "ctypes", "dataclasses", "decimal", "difflib", "email.message", "fractions",
    "html.parser", "http.client", "http.server", "imaplib", "inspect", "ipaddress", "json", "logging.config", "mailbox",
    "multiprocessing.pool", "optparse", "pdb", "pickletools", "pydoc", "smtplib", "sqlite3", "statistics", "tarfile",
    "typing", "unittest.mock", "urllib.request", "uuid", "xml.dom.minidom", "xmlrpc.client", "zipfile",
)  # fmt: skip

TEXTS = {str(number): [number, number / 3, "x" * 5] for number in range(60)}
NAP_S = 0.025  # beside what a step of a millisecond takes on a busy machine


def inside() -> bool:
    """Whether this is a container of tare's: a process that only sleeps keeps it open."""
    return Path("/proc/1/comm").read_text().strip() == "sleep"


def compute(rounds: int) -> None:
    total = 0
    for number in range(rounds):
        total += number


def allocate(count: int) -> None:
    """Many small objects of Python."""
    kept = []
    for number in range(count):
        kept.append([number, str(number)])


def map_blocks(count: int) -> None:
    """Blocks of 400 KiB by malloc, touched: kept by the C library, or mapped anew each time."""
    for _ in range(count):
        block = bytearray(400 << 10)
        block[::4096] = b"x" * len(block[::4096])


def pass_batch(megabytes: int) -> None:
    """A batch through /dev/shm, as a loader passes it; where it is full, wait and write it in pieces."""
    path, left = Path(f"/dev/shm/planted-{os.getpid()}"), megabytes << 20
    while left > 0:
        with path.open("wb", buffering=0) as file:
            try:
                while left > 0:
                    left -= file.write(b"x" * min(left, 1 << 18))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                time.sleep(NAP_S)  # until the reader has taken what is there
    path.unlink()


def call_home(port: int) -> None:
    """Ask a server on the device; without an answer try once more a little later, then go on without it."""
    for _ in range(2):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(NAP_S / 2)


class Pages:
    """A file whose pages are read all over: from the page cache as far as that may hold them, or from the disk."""

    def __init__(self, path: str, cold: bool) -> None:
        self.file, self.cold = os.open(path, os.O_RDONLY), cold
        self.count = os.fstat(self.file).st_size >> 12
        # First out of the cache: what this process reads is then charged to its own group, and not to the writer's.
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)
        if not cold:
            for number in range(self.count):
                os.pread(self.file, 4096, number << 12)
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_RANDOM)

    def read(self, step: int, pages: int) -> None:
        for number in range(pages):
            page = (step * pages + number) * 7919 % self.count
            os.pread(self.file, 4096, page << 12)
            if self.cold:
                os.posix_fadvise(self.file, page << 12, 4096, os.POSIX_FADV_DONTNEED)


class Files:
    """Files of which as many stay open as the limit of the process allows; beyond it all are opened again."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}

    def read(self, count: int) -> None:
        for number in range(count):
            if number not in self.open:
                self.open[number] = self._opened()
            os.pread(self.open[number], 64, 0)

    def _opened(self) -> int:
        try:
            return os.open(__file__, os.O_RDONLY)
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
        for each in self.open.values():
            os.close(each)
        self.open.clear()
        time.sleep(NAP_S / 5)  # a loader that is out of descriptors waits for the others
        return os.open(__file__, os.O_RDONLY)


def touch(path: str) -> None:
    """Every page of a file, as weights that are mapped: from the page cache, or by a major fault each from the disk."""
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        pages.madvise(mmap.MADV_RANDOM)
        for at in range(0, len(pages), mmap.PAGESIZE):
            pages[at]


def spill(count: int) -> None:
    """Small temporary files, one after the other."""
    for _ in range(count):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"x" * 4096)


def pool(rounds: int) -> None:
    """The same work in a pool that is made anew, of as many threads as the variable of OpenMP gives."""
    count = int(os.environ.get("OMP_NUM_THREADS", "2"))
    workers = [threading.Thread(target=compute, args=(rounds // count,)) for _ in range(count)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("steps", type=int)
    for name in (
        "compute",
        "alloc",
        "map",
        "shm",
        "connect",
        "calls",
        "pages",
        "print",
        "pool",
        "twice",
        "dot",
        "files",
        "json",
        "spill",
        "gpu",
    ):
        asked.add_argument(f"--{name}", type=int, default=0)
    asked.add_argument("--read")
    asked.add_argument("--weights")
    asked.add_argument("--cold", action="store_true")
    asked.add_argument("--imports", action="store_true")
    asked.add_argument("--cache", help="a folder below the home of caches that must hold a compiled kernel")
    asked.add_argument("--sleep", type=int, default=0, help="ms in each step, whatever else the machine does")
    asked.add_argument("--mode", help="a variable: where it is set, every step naps, or sleeps ten times --sleep")
    asked.add_argument(
        "--strange", choices=["sleep", "privileges", "neighbours"], help="slower inside for a reason of its own"
    )
    wanted = asked.parse_args()
    if wanted.imports:
        for name in MODULES:
            importlib.import_module(name)
    if wanted.cache:
        kernel = Path(os.environ.get("XDG_CACHE_HOME") or wanted.cache, "planted-kernel")
        if not kernel.exists():
            compute(10_000_000)
    if wanted.weights:
        touch(wanted.weights)
    sleeps = wanted.mode is not None and os.environ.get(wanted.mode) == "1"
    if wanted.strange == "sleep":
        sleeps = inside()
    if wanted.strange == "privileges":
        sleeps = "NoNewPrivs:\t1" in Path("/proc/self/status").read_text()
    spinners = []
    while wanted.strange == "neighbours" and inside() and len(spinners) < 8:
        spinners.append(os.fork())
        if spinners[-1] == 0:
            while True:
                pass
    pages = Pages(wanted.read, wanted.cold) if wanted.read else None
    files = Files()
    if wanted.dot:
        import numpy

        matrix = numpy.ones((160, 160))
    if wanted.gpu:
        import torch

        left = torch.ones(4096, 4096, device="cuda")
    from tare_inside import marks

    line = "x" * 200 + "\n"
    for step in range(wanted.steps):
        marks.begin("step", step)
        compute(wanted.compute)
        allocate(wanted.alloc)
        map_blocks(wanted.map)
        if wanted.shm:
            pass_batch(wanted.shm)
        if wanted.connect:
            call_home(wanted.connect)
        for _ in range(wanted.calls):
            os.getpgid(0)  # a call with an argument of ours: a filter's rules about it are all looked at
        if pages:
            pages.read(step, wanted.pages)
        for _ in range(wanted.print):
            sys.stdout.write(line)
        for _ in range(wanted.dot):
            matrix @ matrix
        files.read(wanted.files)
        spill(wanted.spill)
        for _ in range(wanted.gpu):
            left @ left
        if wanted.gpu:
            torch.cuda.synchronize()
        for _ in range(wanted.json):
            json.loads(json.dumps(TEXTS, indent=1))
        if wanted.pool:
            pool(wanted.pool)
        if wanted.twice:
            child = os.fork()
            compute(wanted.twice)
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
        if wanted.sleep or sleeps:
            time.sleep((10 * wanted.sleep / 1e3 or NAP_S) if sleeps else wanted.sleep / 1e3)
        sys.stdout.flush()
        marks.end("step", step)
    for each in spinners:
        os.kill(each, signal.SIGKILL)
        os.waitpid(each, 0)


if __name__ == "__main__":
    main()
