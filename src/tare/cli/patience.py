"""Whoever waits for longer than two seconds is told what for; a pipe, a log and a dumb terminal are left alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

QUIET_S = 2.0


@contextmanager
def patience(doing: str, quiet_s: float = QUIET_S) -> Iterator[None]:
    """`with patience("reading the trace"):` shows a line on stderr after two seconds, and takes it away at the end."""
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield
        return
    from rich.console import Console

    status = Console(file=sys.stderr).status(f"{doing} ...")
    timer = Timer(quiet_s, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # a line that is just being begun is taken away too
        status.stop()
