"""The runner's end of the sampler, which is a process of its own: the observer must not disturb.

    start    takes a process that waits for work, or launches one, which imports while the platform is being made
    begin    tells it where the workload is; returns after the first tick
    end      takes one last tick while the platform still stands, and reports

`python -m tare.trial.sampler RUNNER` is the process. It watches each trial in a fork of its own, which has nothing of
the trial before, and ends when its runner does or when a fork did not end well.
"""

from __future__ import annotations

import gc
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, cast

from tare.base.errors import TrialError
from tare.base.host import Host, MonotonicClock, Scope, WatchingHost
from tare.base.rulings import Ruling
from tare.base.units import Channel
from tare.parts.find import find
from tare.parts.protocols import Deferring, Feed, Probe, Reading, Recorder
from tare.records.schema import RAW_FOLDER
from tare.records.spool import SpoolWriter
from tare.trial.sampler_report import Line, PrefixedFeed, SamplerReport, SamplerSpec, Tally, ThreadedFeed, Tick, ticks

__all__ = ["Sampler", "SamplerReport", "Samplers", "Sampling", "spare_core"]

START_LIMIT_S = 60.0  # a board with a slow card takes long to import
END_LIMIT_S = 20.0


class Sampling(Protocol):
    """Whatever watches the probes of one trial: `Sampler`, or what has a device without tare watch itself."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...
    def begin(self, scope: Scope, neighbours: Sequence[Scope] = ()) -> None: ...
    def end(self) -> SamplerReport: ...


class SamplerProcess:
    """A process that waits for trials to watch, and the line to it."""

    def __init__(self) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `close`)
        self.child = self.launched(self._complaints.fileno())
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.line = Line(hears=self.child.stdout.fileno(), says=self.child.stdin.fileno())

    def launched(self, complaints: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            # -P: a file of the user's that is called like a module of ours must not be imported.
            [sys.executable, "-P", "-m", "tare.trial.sampler", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the runner, which then takes the last tick
        )

    def is_free(self) -> bool:
        """Whether its last fork has ended, as it reports then, and it still runs."""
        try:
            told = self.line.hear(END_LIMIT_S)
        except (TimeoutError, ValueError):
            return False
        return told == {"state": "free"} and self.child.poll() is None

    def complaint(self) -> str:
        self._complaints.seek(0)
        lines = self._complaints.read().decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    def forget_complaints(self) -> None:
        """What was printed in an earlier trial explains nothing in the next."""
        self._complaints.seek(0)
        self._complaints.truncate()

    def close(self) -> None:
        """End it, if it still runs; the closed pipe tells it to finish what it is writing."""
        for pipe in (self.child.stdin, self.child.stdout):
            with suppress(OSError):
                pipe and pipe.close()
        try:
            self.child.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.child.pid, signal.SIGKILL)  # it and its fork
            with suppress(subprocess.TimeoutExpired):  # a thread in a read of hardware that hangs does not even die
                self.child.wait(END_LIMIT_S)
        self._complaints.close()


class Samplers:
    """Makes the samplers of one run. What one of them started watches the next trial too: importing takes longer than
    all else that a trial costs. As a context it leaves no process behind."""

    def __init__(self) -> None:
        self._idle: list[SamplerProcess] = []

    def __call__(self, probes: Sequence[Probe], spool: Path, period_s: float) -> Sampler:
        return Sampler(probes, spool, period_s, self)

    def take(self) -> SamplerProcess:
        """One that is free, or a new one."""
        while self._idle:
            process = self._idle.pop()
            if process.is_free():
                process.forget_complaints()
                return process
            process.close()
        return SamplerProcess()

    def give_back(self, process: SamplerProcess) -> None:
        self._idle.append(process)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sampler:
    """The probes of one trial, watched from another process. As a context it is started, and never left behind."""

    def __init__(
        self, probes: Sequence[Probe], spool: Path, period_s: float = 0.1, samplers: Samplers | None = None
    ) -> None:
        self._spec = SamplerSpec(
            probes=tuple((probe.part_name(), probe.fields()) for probe in probes),
            spool=str(spool),
            period_ns=round(period_s * 1e9),
            core=spare_core(os.sched_getaffinity(0)),
        )
        self._clock = MonotonicClock()
        self._begin_ns = 0
        self._samplers = samplers
        self._process: SamplerProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Have a process that prepares to watch, and return at once."""
        self._process = SamplerProcess() if self._samplers is None else self._samplers.take()
        self._process.line.say(self._spec.as_json())

    def begin(self, scope: Scope, neighbours: Sequence[Scope] = ()) -> None:
        """Open every feed on `scope`, and those that watch one tenant on each neighbour; returns after a first tick."""
        self._expect("ready", START_LIMIT_S)
        scopes = [{"pid": one.pid, "cgroups": dict(one.cgroups)} for one in (scope, *neighbours)]
        self._started().line.say({"scopes": scopes})
        self._expect("watching", START_LIMIT_S)
        self._begin_ns = self._clock.now_ns()

    def end(self) -> SamplerReport:
        """One last tick, and what was done. A sampler that died costs its series, not the trial."""
        self._started().line.say({"state": "end"})
        try:
            report = SamplerReport.from_json(self._expect("ended", END_LIMIT_S)["report"])
        except TrialError as error:
            report = self._report_from_spool(str(error))
        else:
            if self._samplers is not None:
                self._samplers.give_back(self._started())
                self._process = None
        self.close()
        return report

    def close(self) -> None:
        """End the process, unless it has reported and waits for the next trial."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def _started(self) -> SamplerProcess:
        if self._process is None:
            raise TrialError("the sampler is not running; `start` it first.")
        return self._process

    def _expect(self, state: str, limit_s: float) -> dict[str, Any]:
        process = self._started()
        try:
            reported = process.line.hear(limit_s)
        except TimeoutError:
            raise TrialError(f"the sampler gave no answer within {limit_s:g} s.") from None
        except ValueError as error:
            raise TrialError(f"the sampler's answer cannot be understood: {error}.") from None
        if reported is None:
            raise TrialError(f"the sampler ended by itself{process.complaint()}.")
        if reported.get("state") != state:
            raise TrialError(f"the sampler could not go on: {reported.get('why', reported)}.")
        return reported

    def _report_from_spool(self, why: str) -> SamplerReport:
        """What the spool shows of a sampler that can no longer be asked."""
        from tare.records.spool import read_spool

        seconds = (self._clock.now_ns() - self._begin_ns) / 1e9
        series = read_spool(Path(self._spec.spool))
        late_s, cpu_s = (
            list(series[name][1]) if name in series else [] for name in ("sampler.late_s", "sampler.cpu_s")
        )
        planned = round(seconds * 1e9 / self._spec.period_ns)
        end_s = len(late_s) * self._spec.period_ns / 1e9
        return SamplerReport(
            ticks=len(late_s),
            missed=max(0, planned - len(late_s)),
            late_p99_s=max(late_s, default=0.0),
            cpu_s=cpu_s[-1] - cpu_s[0] if cpu_s else 0.0,
            seconds=seconds,
            lost=[Ruling("sampler.ended", "note", "sampler", f"{why} The series end {end_s:.1f} s after their start.")],
            core=self._spec.core,
        )


def spare_core(allowed: Collection[int]) -> int | None:
    """The last core, if the workload keeps at least two without it; otherwise none is to spare."""
    return max(allowed) if len(allowed) > 2 else None


# The sampler's own process: opens the feeds, keeps the grid, writes the spool, and says what it missed.
#
# It imports no more than the probes need, because the first trial of a run waits for that.

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
        self._deferring: list[tuple[str, Deferring]] = []  # those of them that only read at a tick
        self._takes: list[tuple[str, Callable[[], None]]] = []  # what each does at a tick
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
            self._watch(name, feed)

    def _watch(self, name: str, feed: Feed) -> None:
        self._feeds.append((name, feed))
        if isinstance(feed, Deferring):
            self._deferring.append((name, feed))
            self._takes.append((name, feed.take))
        else:
            self._takes.append((name, partial(self._poll, feed)))

    def _poll(self, feed: Feed) -> None:
        self._pending += feed.poll()

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
        for name, feed in self._threaded:
            self._watch(name, feed)
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
        """Have every feed read once."""
        now_ns = self._host.clock.now_ns
        self.tally.note(tick)
        begin_ns = now_ns()
        for name, take in self._takes:
            try:
                take()
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
        """Parse what was only read, and write what came since the last time as one row: that costs less than to parse
        and to write at each tick, when nothing of it is in the caches."""
        self._pending += self.tally.taken()
        for name, feed in self._deferring:
            try:
                self._pending += feed.taken()
            except Exception as error:
                self.tally.fail(NOT_READ, name, "could not be read", error)
        readings, self._pending = self._pending, []
        try:
            self._spool.tick(self.tally.last_ns, readings)
        except Exception as error:  # a full disk, or a value that is no number: neither may cost the rest
            self.tally.fail("sampler.spool", "spool", "could not be written", error)
            self._write_what_is_sound(readings)

    def _write_what_is_sound(self, readings: list[Reading]) -> None:
        sound = [each for each in readings if isinstance(each.value, int | float) and math.isfinite(each.value)]
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


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
