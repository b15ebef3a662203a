"""What Ctrl-C does: the first press finishes the trial, the second stops it; either way the device is restored."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """Asked for between trials; a second request raises `KeyboardInterrupt` in the middle of one."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.asked = 0
        self._say = say

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.asked += 1
        if self.asked == 1 and number == signal.SIGINT:
            self._say("finishing this trial; press Ctrl-C again to stop it now.")
            return
        if self.asked > 2:
            self._say("the device is being put back; this takes a moment.")
            return  # the restore that the second request began must not be broken off
        raise KeyboardInterrupt

    @contextmanager
    def watching(self) -> Iterator[Interruption]:
        """SIGINT, SIGTERM and a closed terminal are requests to stop while this is open."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
