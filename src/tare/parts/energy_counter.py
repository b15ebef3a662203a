"""An energy counter that only grows, made from one that wraps, is reset, or jumps."""

from __future__ import annotations

MOST_W = 5_000.0  # of one zone: a step that would need more was no work, but a reset
_SLACK_UJ = 20_000_000  # counters are written in lumps, up to some milliseconds late


class EnergyCounter:
    """Microjoules since the first reading. An interval whose energy cannot be known is dropped and counted."""

    def __init__(self, range_uj: int | None) -> None:
        self._range_uj = range_uj  # the counter starts again at zero beyond it; None: it is not known
        self._last: tuple[int, int] | None = None  # t_ns, and what the counter said
        self._total_uj = 0
        self.dropped = 0  # intervals
        self.dropped_s = 0.0

    def __call__(self, t_ns: int, raw_uj: int) -> float | None:
        """Joules since the first reading; None at the end of an interval that had to be dropped."""
        last, self._last = self._last, (t_ns, raw_uj)
        if last is None:
            return 0.0
        seconds = (t_ns - last[0]) / 1e9
        step_uj = self._step_uj(raw_uj - last[1])
        if step_uj is None or step_uj > MOST_W * 1e6 * seconds + _SLACK_UJ:
            self.dropped += 1
            self.dropped_s += seconds
            return None
        self._total_uj += step_uj
        return self._total_uj / 1e6

    def _step_uj(self, difference_uj: int) -> int | None:
        if difference_uj >= 0:
            return difference_uj
        if self._range_uj is None or difference_uj < -self._range_uj:
            return None
        return difference_uj + self._range_uj
