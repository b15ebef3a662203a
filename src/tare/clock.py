"""Time, as a thing that tests can replace."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic time of one machine. All stored times are its nanoseconds."""

    def now_ns(self) -> int: ...
    def sleep_until(self, t_ns: int) -> None: ...


class MonotonicClock:
    """CLOCK_MONOTONIC: the same for every process and container of one kernel."""

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def sleep_until(self, t_ns: int) -> None:
        wait_ns = t_ns - time.monotonic_ns()
        if wait_ns > 0:
            time.sleep(wait_ns / 1e9)
