"""Whoever waits for longer than two seconds is told what for; a pipe, a log and a dumb terminal are left alone."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

QUIET_S = 2.0
_SIGNS = "|/-\\"


@contextmanager
def patience(doing: str, quiet_s: float = QUIET_S) -> Iterator[None]:
    """`with patience("reading the trace"):` shows a line on stderr after two seconds, and takes it away at the end."""
    stream = sys.stderr
    if not stream.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield
        return
    done = threading.Event()
    teller = threading.Thread(target=_tell, args=(doing, done, quiet_s), daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _tell(doing: str, done: threading.Event, quiet_s: float) -> None:
    began_s = time.monotonic()
    if done.wait(quiet_s):
        return
    turn = 0
    while not done.wait(0.5):
        turn += 1
        sys.stderr.write(f"\r{_SIGNS[turn % len(_SIGNS)]} {doing}, {time.monotonic() - began_s:.0f} s ")
        sys.stderr.flush()
    sys.stderr.write("\r\x1b[K")
    sys.stderr.flush()
