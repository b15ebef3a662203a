"""A program that prints a line now and then, run beside the trial; whoever reads it never waits for it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from tare.clock import Clock

MOST_LINES = 10_000  # kept while nobody asks for them
MOST_LINE_BYTES = 65_536
_LINGER_S = 2.0


class LineChild:
    """The program while it runs, in a group of its own; each line has the time at which it came."""

    def __init__(self, argv: Sequence[str], clock: Clock) -> None:
        self._clock = clock
        self._lines: deque[tuple[int, str]] = deque(maxlen=MOST_LINES)
        self._came = threading.Event()
        self._child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def lines(self) -> list[tuple[int, str]]:
        """What came since the last time: (t_ns, line)."""
        taken = []
        with suppress(IndexError):
            while True:
                taken.append(self._lines.popleft())
        return taken

    def wait_for_a_line(self, limit_s: float) -> None:
        """Until the first line is there, or the program has ended, or the limit is over."""
        self._came.wait(limit_s)

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs, or while what it said is still on its way."""
        return None if self._thread.is_alive() else self._child.poll()

    def close(self) -> None:
        """End it and its children; it is gone when this returns, unless even SIGKILL does not reach it."""
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_LINGER_S)
        self._thread.join(_LINGER_S)

    def _listen(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as pipe:
            while line := pipe.readline(MOST_LINE_BYTES):
                self._lines.append((self._clock.now_ns(), line.decode("utf-8", "replace").rstrip("\n")))
                self._came.set()
        self._child.wait()
        self._came.set()
