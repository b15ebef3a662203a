"""How a run hears that it is to stop: Ctrl-C, SIGTERM, a closed terminal."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from tare.trial.tenants import is_starting

FINISHING = "finishing this trial; press Ctrl-C again to stop it now."
PUTTING_BACK = "the device is being restored; this takes a moment."


class Interruption:
    """Ctrl-C once is heeded between trials; twice, or a request to end, raises `KeyboardInterrupt`: once, not again.

    While a server is waited for, once is enough.
    """

    def __init__(self, say: Callable[[str], None], first: str = FINISHING, later: str = PUTTING_BACK) -> None:
        self.asked = 0
        self._say = say
        self._first, self._later = first, later
        self._raised = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.asked += 1
        if self._raised:
            self._say(self._later)
            return  # the restore that the first one began must not be broken off
        if self.asked == 1 and number == signal.SIGINT and not is_starting():
            self._say(self._first)
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
