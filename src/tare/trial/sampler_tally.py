"""How well the sampler kept its grid, what that cost, and what it could not see."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from tare.clock import Clock
from tare.measures import Channel
from tare.parts.protocols import Feed, Reading
from tare.trial.sampler_messages import SamplerReport
from tare.trial.ticks import Tick

LATE = Channel("sampler.late_s", "s", "gauge", "how late the tick was")
MISSED = Channel("sampler.missed", "1", "counter", "ticks that were not taken")
CPU = Channel("sampler.cpu_s", "s", "counter", "CPU time of the sampler itself")


class Tally:
    """The sampler about itself: three channels while it runs, a report at the end."""

    channels = (LATE, MISSED, CPU)

    def __init__(self, clock: Clock, spent_s: Callable[[], float] = time.process_time) -> None:
        self._clock, self._spent_s = clock, spent_s
        self._late_ns = array("q")
        self._missed = 0
        self._first_ns, self._first_cpu_s = clock.now_ns(), spent_s()
        self.last_ns, self._last_cpu_s = self._first_ns, self._first_cpu_s
        self._longest_gap_ns = 0
        self._errors: Counter[str] = Counter()
        self._lost: dict[tuple[str, str], str] = {}  # the first of each kind, as a sentence

    def note(self, tick: Tick) -> list[Reading]:
        """The readings of the sampler itself at this tick."""
        t_ns, cpu_s = tick.due_ns + tick.late_ns, self._spent_s()
        if not self._late_ns:
            self._first_ns, self._first_cpu_s = t_ns, cpu_s
        else:
            self._longest_gap_ns = max(self._longest_gap_ns, t_ns - self.last_ns)
        self._late_ns.append(tick.late_ns)
        self._missed += tick.missed
        self.last_ns, self._last_cpu_s = t_ns, cpu_s
        return [
            Reading(t_ns, LATE.name, tick.late_ns / 1e9),
            Reading(t_ns, MISSED.name, self._missed),
            Reading(t_ns, CPU.name, cpu_s),
        ]

    def fail(self, name: str, what: str, error: Exception) -> None:
        """Count it; only the first of its kind becomes a sentence."""
        self._errors[name] += 1
        self.lose(name, what, f"{what}: {str(error) or type(error).__name__}")

    def lose(self, name: str, kind: str, what: str) -> None:
        at_s = (self._clock.now_ns() - self._first_ns) / 1e9
        self._lost.setdefault((name, kind), f"{name}: {what} (first at {at_s:.1f} s).")

    def report(self, feeds: Iterable[tuple[str, Feed]], core: int | None) -> SamplerReport:
        errors, lost = self._errors.copy(), list(self._lost.values())
        for name, feed in feeds:
            for read in _layers(feed):
                failed = Counter[str](getattr(read, "errors", {}))  # a feed may keep both, as `FileFeed` does
                errors[name] += failed.total() + getattr(read, "late", 0)
                lost += [*getattr(read, "lost", ()), *(_left_out(name, file, count) for file, count in failed.items())]
        return SamplerReport(
            ticks=len(self._late_ns),
            missed=self._missed,
            late_p99_s=_p99(self._late_ns) / 1e9,
            cpu_s=self._last_cpu_s - self._first_cpu_s,
            seconds=(self.last_ns - self._first_ns) / 1e9,
            lost=lost,
            core=core,
            errors={name: count for name, count in errors.items() if count},
            longest_gap_s=self._longest_gap_ns / 1e9,
        )


def _layers(feed: Feed) -> Iterator[Feed]:
    """A feed, and the one that it hands on, where it is renamed or read in a thread of its own."""
    read: Feed | None = feed
    while read is not None:
        yield read
        read = getattr(read, "feed", None)


def _left_out(probe: str, file: str, count: int) -> str:
    return f"{probe}: {file} gave nothing usable {count} times; those readings are left out."


def _p99(values: array[int]) -> int:
    return sorted(values)[int(0.99 * (len(values) - 1))] if values else 0
