"""What Ctrl-C does: the first press finishes the trial, the second stops it; either way the device is restored."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """Ctrl-C once is heeded between trials; twice, or a request to end, raises `KeyboardInterrupt`: once, not again."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.asked = 0
        self._say = say
        self._raised = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.asked += 1
        if self._raised:
            self._say("the device is being put back; this takes a moment.")
            return  # the restore that the first one began must not be broken off
        if self.asked == 1 and number == signal.SIGINT:
            self._say("finishing this trial; press Ctrl-C again to stop it now.")
            return
        self._raised = True
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
