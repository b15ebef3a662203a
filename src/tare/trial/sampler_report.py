"""What the runner and its sampler tell each other: one JSON object a line, over the sampler's stdin and stdout."""

from __future__ import annotations

import json
import os
import select
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from tare.base.host import Clock
from tare.base.rulings import Ruling, read_rulings
from tare.base.units import Channel
from tare.parts.protocols import CountsErrors, Feed, Reading, ReportsLost
from tare.trial.feeds import PrefixedFeed, ThreadedFeed


@dataclass(frozen=True, slots=True)
class SamplerSpec:
    """All that the sampler is told of a trial before the platform stands."""

    probes: tuple[tuple[str, Mapping[str, Any]], ...]  # name and fields
    spool: str
    period_ns: int
    core: int | None  # the core it keeps to, so that it does not wander over the workload's

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SamplerReport:
    """What the sampler did, and what that cost. Times are of the watching alone, without its start."""

    ticks: int
    missed: int  # points of the grid at which nothing was read
    late_p99_s: float
    cpu_s: float
    seconds: float
    lost: list[Ruling] = field(default_factory=list)  # what is missing from the series
    core: int | None = None  # None: there was no core to spare
    errors: Mapping[str, int] = field(default_factory=dict)  # probe -> reads that gave nothing usable
    longest_gap_s: float = 0.0  # between two ticks

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SamplerReport:
        return cls(**{**data, "lost": list(read_rulings(data.get("lost", ()), "note"))})


class Line:
    """One end of the line. It is read without a buffer of Python's own, so that `waiting` can be trusted."""

    def __init__(self, hears: int, says: int) -> None:
        self._hears, self._says = hears, says
        self._rest = b""
        self._ended = False

    def waiting(self, limit_s: float) -> bool:
        """Whether the other end has said something, or is gone, within the limit."""
        if b"\n" in self._rest or self._ended:
            return True
        return bool(select.select([self._hears], [], [], max(0.0, limit_s))[0])

    def hear(self, limit_s: float | None = None) -> dict[str, Any] | None:
        """The next message; None when the other end is gone. Raises TimeoutError past the limit."""
        while b"\n" not in self._rest and not self._ended:
            if limit_s is not None and not self.waiting(limit_s):
                raise TimeoutError(f"no word within {limit_s:g} s")
            chunk = os.read(self._hears, 65536)
            self._rest += chunk
            self._ended = not chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line) if line else None

    def say(self, message: Mapping[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        with suppress(BrokenPipeError):  # nobody is left to hear it
            while data:
                data = data[os.write(self._says, data) :]


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
        self._lost: dict[tuple[str, str], Ruling] = {}  # by probe and code, the first of each

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

    def fail(self, code: str, name: str, what: str, error: Exception) -> None:
        """Count it; only the first of its kind is told."""
        self._errors[name] += 1
        self.lose(code, name, f"{what}: {str(error) or type(error).__name__}")

    def lose(self, code: str, name: str, what: str) -> None:
        at_s = (self._clock.now_ns() - self._first_ns) / 1e9
        self._lost.setdefault((name, code), Ruling(code, "note", "", f"{what} (first at {at_s:.1f} s).").about(name))

    def report(self, feeds: Iterable[tuple[str, Feed]], core: int | None) -> SamplerReport:
        errors, lost = self._errors.copy(), list(self._lost.values())
        for name, feed in feeds:
            for read in _layers(feed):
                if isinstance(read, ThreadedFeed):
                    errors[name] += read.late
                if isinstance(read, ReportsLost):
                    lost += read.lost
                if isinstance(read, CountsErrors):
                    errors[name] += read.errors.total()
                    lost += [_left_out(name, file, count) for file, count in read.errors.items()]
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
        read = read.feed if isinstance(read, ThreadedFeed | PrefixedFeed) else None


def _left_out(probe: str, file: str, count: int) -> Ruling:
    sentence = f"{file} gave nothing usable {count} times; those readings are left out."
    return Ruling("probe.file-unusable", "note", "", sentence).about(probe)


def _p99(values: array[int]) -> int:
    return sorted(values)[int(0.99 * (len(values) - 1))] if values else 0
