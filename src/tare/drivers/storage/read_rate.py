"""How fast a control group reads a block device, or writes a file: run as a program, inside the group.

    python -I -S read_rate.py '{"path": ..., "block": 65536, "order": "random", "groups": [...], "write": false}'

Requests go past the page cache (O_DIRECT) and are made from a few threads, so that a limit is reached and not the
latency of one request. The first moments are left out: a throttle lets a burst through before it bites.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

THREADS = 4
SKIP_S, LEAST_S, MOST_S = 0.3, 1.0, 6.0
LEAST_REQUESTS = 100
_STRIDE = 2654435761  # a prime: its multiples visit the blocks in an order that no read-ahead guesses


def main(text: str) -> None:
    """Enter the groups, measure, and print bytes and requests a second."""
    order = json.loads(text)
    for path in order["groups"]:
        Path(path).write_text(str(os.getpid()))
    found = measured(order["path"], order["block"], order["order"], write=order.get("write", False))
    sys.stdout.write(json.dumps(found) + "\n")


def measured(path: str, block: int, order: str, *, write: bool = False) -> dict[str, float]:
    """Read (or overwrite) whole blocks until it is clear how fast that goes."""
    descriptor = os.open(path, (os.O_WRONLY if write else os.O_RDONLY) | os.O_DIRECT)
    try:
        blocks = max(1, os.lseek(descriptor, 0, os.SEEK_END) // block)
        stride = _STRIDE if order == "random" else 1
        ends = _request(descriptor, block, blocks, stride, os.pwritev if write else os.preadv)
    finally:
        os.close(descriptor)
    return {"bps": ends["rate"] * block, "iops": ends["rate"], "requests": ends["requests"], "block": block}


def _request(
    descriptor: int, block: int, blocks: int, stride: int, do: Callable[[int, list[Any], int], int]
) -> dict[str, float]:
    numbers = itertools.count()
    ends: list[float] = []
    problems: list[OSError] = []
    begin_s = time.monotonic()

    def work() -> None:
        buffer = mmap.mmap(-1, block)  # O_DIRECT wants whole pages
        try:
            while not _enough(ends, begin_s):
                do(descriptor, [buffer], next(numbers) * stride % blocks * block)
                ends.append(time.monotonic())
        except OSError as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    counted = sorted(end for end in ends if end >= begin_s + SKIP_S) or ends[-1:]
    spent_s = counted[-1] - counted[0]
    return {"rate": (len(counted) - 1) / spent_s if spent_s > 0 else 0.0, "requests": len(counted)}


def _enough(ends: list[float], begin_s: float) -> bool:
    age_s = time.monotonic() - begin_s - SKIP_S
    return age_s >= MOST_S or (age_s >= LEAST_S and len(ends) >= LEAST_REQUESTS)


if __name__ == "__main__":
    main(sys.argv[1])
