"""A feed in a thread of its own: a sensor that hangs holds up nobody else (faults.md E3)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from queue import SimpleQueue

from tare.base.host import Clock
from tare.base.rulings import Ruling
from tare.base.units import Channel
from tare.parts.protocols import Feed, Paced, Reading

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
