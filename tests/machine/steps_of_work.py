"""A small program with marked steps, for tests that plant a cause: it computes, asks the kernel, reads and writes.

python steps_of_work.py STEPS [--calls N] [--read FILE] [--write FILE]
"""

import argparse
import os
import time

from tare_inside import marks

PAGE_BYTES = 4096
PAGES_A_STEP = 200
PAGES_A_FILE = 16


class Pages:
    """A file of which single pages are read, all over it: from the page cache as far as it fits in there."""

    def __init__(self, path: str) -> None:
        self.file = os.open(path, os.O_RDONLY)
        self.count = os.fstat(self.file).st_size // PAGE_BYTES
        # First out of the cache: what this process reads is then charged to its own group, and not to the writer's.
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)
        for number in range(self.count):
            os.pread(self.file, PAGE_BYTES, number * PAGE_BYTES)
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_RANDOM)

    def read(self, step: int) -> None:
        for number in range(PAGES_A_STEP):
            page = (step * PAGES_A_STEP + number) * 7919 % self.count
            os.pread(self.file, PAGE_BYTES, page * PAGE_BYTES)


def write_pages(path: str) -> None:
    """A small file, a page at a time: each is a write of its own to whatever lies below."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for _ in range(PAGES_A_FILE):
        os.write(file, b"x" * PAGE_BYTES)
    os.close(file)


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("steps", type=int)
    asked.add_argument("--calls", type=int, default=0)
    asked.add_argument("--sleep", type=float, default=0, help="seconds in each step, on a core of any speed")
    asked.add_argument("--read")
    asked.add_argument("--write")
    wanted = asked.parse_args()
    pages = Pages(wanted.read) if wanted.read else None
    for step in range(wanted.steps):
        marks.begin("step", step)
        total = 0
        for number in range(60_000):
            total += number
        for _ in range(wanted.calls):
            os.getpgid(0)  # a call with an argument of ours: a filter's rules about it are all looked at
        time.sleep(wanted.sleep)
        if pages:
            pages.read(step)
        if wanted.write:
            write_pages(wanted.write)
        marks.end("step", step)


if __name__ == "__main__":
    main()
