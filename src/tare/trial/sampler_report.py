"""What the runner and its sampler tell each other: one JSON object a line, over the sampler's stdin and stdout.

A feed in a thread of its own: a sensor that hangs holds up nobody else (faults.md E3).
"""

from __future__ import annotations

import json
import os
import select
import threading
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from queue import SimpleQueue
from typing import Any, NamedTuple

from tare.base.host import Clock
from tare.base.rulings import Ruling, read_rulings
from tare.base.units import Channel
from tare.parts.protocols import CountsErrors, Feed, Paced, Reading, ReportsLost

LONG_S = 1.0  # a read that takes longer is told of, even if it is the only one
LATE_SHARE = 0.05
SOON_NS = 20_000_000  # asked again within this, as the last tick may do, nothing is late yet

Step = Callable[[], Iterable[Reading]]


class ThreadedFeed:
    """Polled like any feed, but `poll` never waits: it hands over what has come, and asks for more if nothing is due.

    Whoever needs the answer itself, at the begin and at the end, waits for it with `answer`.
    """

    def __init__(self, name: str, opened: Callable[[], Feed], clock: Clock) -> None:
        self.channels: tuple[Channel, ...] = ()
        self.feed: Feed | None = None  # once it is open
        self._paced: Paced | None = None  # the same, where it says when it is due
        self.late = 0  # so often it had not answered when it was to be asked again
        self._asked = 0
        self._given_up = False
        self._name, self._clock = name, clock
        self._start_ns = self._asked_ns = clock.now_ns()
        self._longest_ns = 0
        self._hangs_since_ns: int | None = None
        self._came: deque[list[Reading] | Exception] = deque()
        self._steps: SimpleQueue[Step | None] = SimpleQueue()
        self._idle = threading.Event()
        threading.Thread(target=self._serve, args=(opened,), daemon=True, name=name).start()

    @property
    def lost(self) -> list[Ruling]:
        """What its slowness cost."""
        if self._hangs_since_ns is not None:
            at_s = (self._hangs_since_ns - self._start_ns) / 1e9
            sentence = f"no response since {at_s:.1f} s; the other probes were read as usual."
            return [Ruling("probe.hangs", "note", "", sentence).about(self._name)]
        longest_s = self._longest_ns / 1e9
        if self.late and (longest_s > LONG_S or self.late > LATE_SHARE * self._asked):
            sentence = f"reads took up to {longest_s:.1f} s; {self.late} were skipped."
            return [Ruling("probe.slow", "note", "", sentence).about(self._name)]
        return []

    def settle(self, limit_s: float) -> bool:
        """Wait until it has done what it was asked for; False if it has not within the limit."""
        return self._idle.wait(max(0.0, limit_s))

    def poll(self) -> list[Reading]:
        if not self._idle.is_set():
            if self._clock.now_ns() - self._asked_ns > SOON_NS:
                self._is_late()
        elif self.feed is not None and (self._paced is None or self._paced.due_ns <= self._clock.now_ns()):
            self._ask(self.feed.poll)
        return self._taken()

    def close(self) -> list[Reading]:
        """Ask it to close; what it says to that is for `answer`. One that hangs is not waited for any more."""
        self._given_up = not self._idle.is_set()
        if self.feed is not None and not self._given_up:
            self._ask(self.feed.close)
        self._steps.put(None)
        return []

    def answer(self, limit_s: float) -> list[Reading]:
        """What it says to what it was asked last, as far as that comes within the limit."""
        if not self._given_up and not self.settle(limit_s):
            self._is_late()
        return self._taken()

    def _is_late(self) -> None:
        self.late += 1
        self._hangs_since_ns = self._asked_ns

    def _ask(self, step: Step) -> None:
        self._asked += 1
        self._asked_ns, self._hangs_since_ns = self._clock.now_ns(), None
        self._idle.clear()
        self._steps.put(step)

    def _taken(self) -> list[Reading]:
        """What has come so far. An error is raised alone, and what came after it is handed over the next time."""
        readings: list[Reading] = []
        while self._came:
            found = self._came[0]
            if isinstance(found, Exception) and readings:
                break
            self._came.popleft()
            if isinstance(found, Exception):
                raise found
            readings += found
        return readings

    def _serve(self, opened: Callable[[], Feed]) -> None:
        try:
            feed = opened()
            self._paced = feed if isinstance(feed, Paced) else None
            self.channels, self.feed = feed.channels, feed
        except Exception as error:
            self._came.append(error)
        self._idle.set()
        while (step := self._steps.get()) is not None:
            begin_ns = self._clock.now_ns()
            try:
                self._came.append(list(step()))
            except Exception as error:
                self._came.append(error)
            self._longest_ns = max(self._longest_ns, self._clock.now_ns() - begin_ns)
            self._idle.set()


class PrefixedFeed:
    """A feed whose channels carry the name of its tenant."""

    def __init__(self, feed: Feed, prefix: str) -> None:
        self.feed, self._prefix = feed, prefix
        self.channels = tuple(replace(channel, name=f"{prefix}{channel.name}") for channel in feed.channels)

    def poll(self) -> Iterable[Reading]:
        return self._named(self.feed.poll())

    def close(self) -> Iterable[Reading]:
        return self._named(self.feed.close())

    def _named(self, readings: Iterable[Reading]) -> list[Reading]:
        return [reading._replace(channel=f"{self._prefix}{reading.channel}") for reading in readings]


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
        self._noted: list[tuple[int, int, int, float]] = []
        self._errors: Counter[str] = Counter()
        self._lost: dict[tuple[str, str], Ruling] = {}  # by probe and code, the first of each

    def note(self, tick: Tick) -> None:
        """What the sampler knows of itself at this tick."""
        t_ns, cpu_s = tick.due_ns + tick.late_ns, self._spent_s()
        if not self._late_ns:
            self._first_ns, self._first_cpu_s = t_ns, cpu_s
        else:
            self._longest_gap_ns = max(self._longest_gap_ns, t_ns - self.last_ns)
        self._late_ns.append(tick.late_ns)
        self._missed += tick.missed
        self.last_ns, self._last_cpu_s = t_ns, cpu_s
        self._noted.append((t_ns, tick.late_ns, self._missed, cpu_s))

    def taken(self) -> list[Reading]:
        """The readings of that, since the last time."""
        noted, self._noted = self._noted, []
        return [
            Reading(t_ns, name, value)
            for t_ns, late_ns, missed, cpu_s in noted
            for name, value in ((LATE.name, late_ns / 1e9), (MISSED.name, missed), (CPU.name, cpu_s))
        ]

    def fail(self, code: str, name: str, what: str, error: Exception) -> None:
        """Count it; only the first of its kind is told."""
        self._errors[name] += 1
        self.lose(code, name, f"{what}: {str(error) or type(error).__name__}")

    def lose(self, code: str, name: str, what: str) -> None:
        at_s = (self._clock.now_ns() - self._first_ns) / 1e9
        self._lost.setdefault((name, code), Ruling(code, "note", "", f"{what} (first at {at_s:.1f} s).").about(name))

    def report(self, feeds: Iterable[tuple[str, Feed]], core: int | None) -> SamplerReport:
        errors, lost, late_ns = self._errors.copy(), list(self._lost.values()), sorted(self._late_ns)
        for name, feed in feeds:
            for read in _layers(feed):
                if isinstance(read, ThreadedFeed):
                    errors[name] += read.late
                if isinstance(read, ReportsLost):
                    lost += read.lost
                if isinstance(read, CountsErrors):
                    errors[name] += read.errors.total()
                    for file, count in read.errors.items():
                        sentence = f"{file} gave nothing usable {count} times; those readings are left out."
                        lost.append(Ruling("probe.file-unusable", "note", "", sentence).about(name))
        return SamplerReport(
            ticks=len(self._late_ns),
            missed=self._missed,
            late_p99_s=late_ns[int(0.99 * (len(late_ns) - 1))] / 1e9 if late_ns else 0.0,
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
