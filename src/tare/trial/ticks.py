"""The sampler's grid: counted from the clock, never from the last sleep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tare.clock import Clock


class Tick(NamedTuple):
    """One point of the grid that was kept; lateness and gaps are data."""

    due_ns: int
    late_ns: int
    missed: int  # points of the grid between the tick before and this one, at which nothing was done


def ticks(clock: Clock, period_ns: int) -> Iterator[Tick]:
    """Yield once a period, on a fixed grid, with how late we are and how many ticks were missed."""
    due_ns, missed = clock.now_ns(), 0
    while True:
        clock.sleep_until(due_ns)
        yield Tick(due_ns, late_ns=clock.now_ns() - due_ns, missed=missed)
        missed = max(0, (clock.now_ns() - due_ns) // period_ns)
        due_ns += period_ns * (1 + missed)
