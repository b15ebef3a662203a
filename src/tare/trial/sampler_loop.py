"""The sampler's own process: opens the feeds, keeps the grid, writes the spool, and says what it missed.

It imports no more than the probes need, because the first trial of a run waits for that.
"""

from __future__ import annotations

import gc
import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, cast

from tare.base.host import Host, MonotonicClock, Scope, WatchingHost
from tare.base.units import Channel
from tare.parts.find import find
from tare.parts.protocols import Feed, Probe, Reading, Recorder
from tare.records.schema import RAW_FOLDER
from tare.records.spool import SpoolWriter
from tare.trial.sampler_report import Line, PrefixedFeed, SamplerReport, SamplerSpec, Tally, ThreadedFeed, Tick, ticks

NOT_STARTED, NOT_READ, NOT_CLOSED = "probe.not-started", "probe.not-read", "probe.not-closed"
FLUSH_PERIOD_NS = 1_000_000_000
LOOK_PERIOD_NS = 1_000_000_000  # for the runner's end, where nothing else is waited for
OPEN_LIMIT_S = 20.0  # a recorder that switches hundreds of events on takes long
ANSWER_LIMIT_S = 2.0  # for the first readings and for the last
CLOSE_LIMIT_S = 10.0  # the runner waits for 20 s
KEPT_READINGS = 100_000  # so many wait for room on a full disk: some minutes of the default probes


class Spool(Protocol):
    """Where readings go."""

    def channels(self, channels: Sequence[Channel]) -> None: ...
    def tick(self, t_ns: int, readings: Iterable[tuple[int, str, float]]) -> None: ...
    def close(self) -> None: ...


class ListeningClock(MonotonicClock):
    """Sleeps until a time, or until the runner calls or is gone."""

    def __init__(self, line: Line, parent: int) -> None:
        self._line, self._parent = line, parent
        self.called = False

    def sleep_until(self, t_ns: int) -> None:
        called = self._line.waiting((t_ns - self.now_ns()) / 1e9)
        # A child that the runner forked may hold our pipe open after its death; the parent's pid tells anyway.
        self.called = called or os.getppid() != self._parent

    def sleep_until_called(self) -> bool:
        """Whether the runner has a word for us: otherwise it, or who forked us, is gone."""
        while not self.called:
            self.sleep_until(self.now_ns() + LOOK_PERIOD_NS)
        return self._line.waiting(0)


class Watch:
    """The feeds of one trial while they are watched. One that fails never stops the others."""

    def __init__(
        self, spool: Spool, host: Host, period_ns: int, spent_s: Callable[[], float] = time.process_time
    ) -> None:
        self.tally = Tally(host.clock, spent_s)
        self._spool, self._host, self._period_ns = spool, host, period_ns
        self._feeds: list[tuple[str, Feed]] = []
        self._threaded: list[tuple[str, ThreadedFeed]] = []  # those of them that are read in threads of their own
        self._pending: list[Reading] = []
        self._flush_due_ns = 0
        spool.channels(Tally.channels)

    def open_all(self, probes: Sequence[Probe], scopes: Sequence[Scope], raw: Path) -> None:
        """Every probe on the first tenant; on its neighbours those that watch one tenant, under names of their own.

        A recorder is opened once, for all of them, with a folder of its own below `raw`.
        """
        self.record([probe for probe in probes if isinstance(probe, Recorder)], scopes, raw)
        probes = [probe for probe in probes if not isinstance(probe, Recorder)]
        self.open(probes, scopes[0])
        for number, scope in enumerate(scopes[1:], start=1):
            self.open([probe for probe in probes if probe.scoped], scope, f"tenant{number}.")
        self.await_opened()

    def record(self, recorders: Iterable[Recorder], scopes: Sequence[Scope], raw: Path) -> None:
        for recorder in recorders:
            folder = raw / recorder.part_name()
            self._add(recorder.part_name(), partial(_record, recorder, self._host, scopes, folder), recorder.may_block)

    def open(self, probes: Iterable[Probe], scope: Scope, prefix: str = "") -> None:
        for probe in probes:
            self._add(f"{prefix}{probe.part_name()}", partial(_open, probe, self._host, scope, prefix), probe.may_block)

    def _add(self, name: str, opened: Callable[[], Feed], may_block: bool) -> None:
        if may_block:
            self._threaded.append((name, ThreadedFeed(name, opened, self._host.clock)))
            return
        try:
            feed = opened()
            self._spool.channels(feed.channels)
        except Exception as error:
            self.tally.fail(NOT_STARTED, name, "could not start", error)
        else:
            self._feeds.append((name, feed))

    def await_opened(self) -> None:
        """All that open in threads of their own, at the same time, and what they see before the first tick.

        One that does not open within the limit is left out.
        """
        deadline_s = time.monotonic() + OPEN_LIMIT_S
        opening, self._threaded = self._threaded, []
        for name, feed in opening:
            if not feed.settle(deadline_s - time.monotonic()):
                self.tally.lose(NOT_STARTED, name, f"gave no answer within {OPEN_LIMIT_S:g} s, and is left out")
                continue
            try:
                feed.answer(0)  # raises what kept it from opening
                self._spool.channels(feed.channels)
            except Exception as error:
                self.tally.fail(NOT_STARTED, name, "could not start", error)
            else:
                self._threaded.append((name, feed))
        self._feeds += self._threaded
        for _, feed in self._threaded:
            feed.poll()
        self.await_answers()

    def await_answers(self) -> None:
        """Until all have answered what they were asked, or the limit is over: before the first tick, after the last."""
        deadline_s = time.monotonic() + ANSWER_LIMIT_S
        for name, feed in self._threaded:
            self._hear(name, feed, deadline_s, NOT_READ, "could not be read")
        self._flush()

    def _hear(self, name: str, feed: ThreadedFeed, deadline_s: float, code: str, what: str) -> None:
        try:
            self._pending += feed.answer(deadline_s - time.monotonic())
        except Exception as error:
            self.tally.fail(code, name, what, error)

    def take(self, tick: Tick) -> None:
        """Poll every feed once."""
        now_ns = self._host.clock.now_ns
        self._pending += self.tally.note(tick)
        begin_ns = now_ns()
        for name, feed in self._feeds:
            try:
                self._pending += feed.poll()
            except Exception as error:
                self.tally.fail(NOT_READ, name, "could not be read", error)
            end_ns = now_ns()
            if end_ns - begin_ns > self._period_ns:
                self.tally.lose("probe.slow", name, f"took {(end_ns - begin_ns) / 1e9:.1f} s to read")
            begin_ns = end_ns
        if begin_ns >= self._flush_due_ns:
            self._flush_due_ns = begin_ns + FLUSH_PERIOD_NS
            self._flush()

    def close(self, core: int | None) -> SamplerReport:
        """The feeds' last words; then nothing is open any more, whatever they say."""
        for name, feed in self._feeds:
            try:
                self._pending += feed.close()
            except Exception as error:
                self.tally.fail(NOT_CLOSED, name, "could not be closed", error)
        deadline_s = time.monotonic() + CLOSE_LIMIT_S
        for name, feed in self._threaded:
            self._hear(name, feed, deadline_s, NOT_CLOSED, "could not be closed")
        self._flush()
        try:
            self._spool.close()
        except Exception as error:
            self.tally.fail("sampler.spool", "spool", "could not be closed", error)
        return self.tally.report(self._feeds, core)

    def _flush(self) -> None:
        """Write what came since the last time as one row: a commit at each tick would cost as much as a probe."""
        readings, self._pending = self._pending, []
        try:
            self._spool.tick(self.tally.last_ns, readings)
        except Exception as error:  # a full disk, or a value that is no number: neither may cost the rest
            self.tally.fail("sampler.spool", "spool", "could not be written", error)
            self._write_what_is_sound(readings)

    def _write_what_is_sound(self, readings: list[Reading]) -> None:
        sound = [reading for reading in readings if _is_number(reading.value)]
        try:
            self._spool.tick(self.tally.last_ns, sound)
        except Exception:  # it is counted already
            self._pending = sound[-KEPT_READINGS:]


def _open(probe: Probe, host: Host, scope: Scope, prefix: str) -> Feed:
    feed = probe.open(host, scope)
    return PrefixedFeed(feed, prefix) if prefix else feed


def _record(recorder: Recorder, host: Host, scopes: Sequence[Scope], folder: Path) -> Feed:
    folder.mkdir(parents=True)
    return recorder.record(host, scopes, folder)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def watch(line: Line, spec: SamplerSpec, probes: Sequence[Probe], parent: int) -> None:
    """From the runner's word where to look, to its word to stop, or its end."""
    clock = ListeningClock(line, parent)
    host = WatchingHost(clock=clock)
    spool = SpoolWriter(Path(spec.spool))
    line.say({"state": "ready"})
    reported = line.hear() if clock.sleep_until_called() else None
    if reported is None:  # the runner is gone, or had no use for us
        spool.close()
        return
    watching = Watch(spool, host, spec.period_ns)
    core = pinned(spec.core, watching.tally)
    scopes = [Scope(one["pid"], one["cgroups"]) for one in reported["scopes"]]
    watching.open_all(probes, scopes, Path(spec.spool).parent / RAW_FOLDER)
    grid = ticks(clock, spec.period_ns)
    watching.take(next(grid))
    gc.freeze()  # what was imported lives until the end: no need to look through it again
    line.say({"state": "watching"})
    for tick in grid:
        if clock.called:
            break
        watching.take(tick)
    # The last one is off the grid: the counters' end must be read before the platform goes away.
    watching.take(Tick(clock.now_ns(), 0, tick.missed))
    watching.await_answers()
    report = watching.close(core)
    host.close()
    if line.waiting(0):  # otherwise nobody called: who forked us is gone, and the series end before the trial does
        line.hear()
        line.say({"state": "ended", "report": report.as_json()})


def pinned(core: int | None, tally: Tally) -> int | None:
    """Keep to one core; the core, or None where there is none to spare or it is not allowed."""
    if core is not None:
        try:
            os.sched_setaffinity(0, {core})
        except OSError as error:
            tally.fail("sampler.core", "sampler", f"could not keep to core {core}", error)
            return None
    return core


def main(runner: int) -> int:
    """Watch one trial after another, each in a fork; end with the runner, or with a fork that did not end well."""
    # What a probe prints must not be taken for a message.
    line = Line(hears=os.dup(0), says=os.dup(1))
    os.dup2(2, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while ListeningClock(line, runner).sleep_until_called() and (told := line.hear()) is not None:
        try:
            spec = SamplerSpec(**told)
            for name, _ in spec.probes:
                find("probes", name)  # imported here, they are there in every fork
        except Exception as error:
            return _failed(line, error)
        ours = os.getpid()
        if (fork := os.fork()) == 0:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            os._exit(_watch_one(line, spec, ours))
        if _waited(fork, runner) != 0:
            return 1
        line.say({"state": "free"})
    return 0


def _watch_one(line: Line, spec: SamplerSpec, parent: int) -> int:
    try:
        probes = [cast(Probe, find("probes", name).model_validate(fields)) for name, fields in spec.probes]
        watch(line, spec, probes, parent)
    except Exception as error:
        return _failed(line, error)
    return 0


def _failed(line: Line, error: Exception) -> int:
    line.say({"state": "failed", "why": f"{type(error).__name__}: {error}"})
    return 1


def _waited(fork: int, runner: int) -> int:
    """The fork's exit status. Who has lost its runner does not wait: the fork ends when its parent does."""
    while (ended := os.waitpid(fork, os.WNOHANG))[0] == 0:
        if os.getppid() != runner:
            return 1
        signal.sigtimedwait({signal.SIGCHLD}, LOOK_PERIOD_NS / 1e9)
    return ended[1]
