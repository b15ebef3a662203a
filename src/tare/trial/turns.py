"""The trials of a block in turns: all alive at once, each doing some steps while the others are stopped.

A side that is to change holds at the end of a step (tare_inside/turns.py), and is stopped only then. Each has a record
of its own, as if it had run alone, with the fact `turns` (figures/steps.py says what is in it). Whatever disturbs the
machine for longer than a turn disturbs all of them alike.

The sides start one after the other, and warm up, while those before them are stopped: a start is made alone. Where
the time that is allowed has no room for that, they start at the same time, and their start-up is not judged.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial

from tare.base.errors import TareError, TrialError
from tare.base.host import Clock
from tare.base.rulings import Ruling
from tare.drivers.cgroups.tree import freezer_of
from tare.figures.steps import TURNS
from tare.plan.matrix import Trial
from tare.plan.turning import WAITS_EACH_STEP, Turning
from tare.records.model import Record
from tare.trial.alone import affinity, threads_of
from tare.trial.conditions import guarded_from_heat
from tare.trial.engine import Bench, Opened, TrialRun
from tare.trial.tenants import Grants, Run, Tail, Watched, end_all, heard_by, kill_all
from tare_inside.turns import FREE

LIMIT_SLACK_S = 60.0
_LOOK_EVERY_S = 0.1  # at whether a side has ended, while another's report is waited for


class _OneFailed(Exception):
    """A side failed, and its state says why."""


def run_in_turns(trials: Sequence[Trial], bench: Bench, turning: Turning) -> list[Record]:
    """Run the trials in turns; all are opened, run, closed and sealed, as `run_trial` does it for one."""
    runs = [TrialRun(trial, bench) for trial in trials]
    try:
        with ExitStack() as stack:
            _observe(runs, bench, turning, stack)
    except _OneFailed:
        pass
    except Exception as error:  # of what is closed after all of them
        for run in runs:
            run.failed(error)
    except BaseException:
        for run in runs:
            run.state.interrupted = True
        raise
    finally:
        _tell_partners(runs)
        records = [run.seal() for run in runs]
    return records


def _observe(runs: Sequence[TrialRun], bench: Bench, turning: Turning, stack: ExitStack) -> None:
    sides: list[Side] = []
    for run in runs:
        with _blamed(run):
            opened = run.open(stack, runs[0].state.facts["controls"] if sides else None)
            sides.append(Side(run, opened, len(runs), stack))
    guarding = guarded_from_heat(bench.host, runs[0].trial.cell.probes, runs[0].state.facts)
    with ExitStack() as timing, guarding as guard:
        for run in runs:
            timing.enter_context(run.state.timed("run"))
            timing.enter_context(run.state.heartbeat())
        turns = Alternation(sides, turning, random.Random(runs[0].trial.seed))
        turns.run(guard)
    for side in sides:
        with _blamed(side.run):
            side.run.collect(side.opened)
    turns.note()


@contextmanager
def _blamed(run: TrialRun) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        run.failed(error)
        raise _OneFailed from error


def _tell_partners(runs: Sequence[TrialRun]) -> None:
    """Who was stopped because another failed has no figures, and no fault."""
    failed = [run for run in runs if run.state.error is not None or run.state.died]
    for run in runs:
        if failed and run not in failed:
            run.state.partner = _partner(failed[0])


def _partner(lost: TrialRun) -> Ruling:
    whose = lost.trial.settings["platform"]
    sentence = f"the other side ({whose}) ended before its last turn, and they can only run together."
    return Ruling("turns.partner", "invalid", "", sentence)


class Side:
    """One trial of the block while it runs: its process, what stops it, and when it ran."""

    def __init__(self, run: TrialRun, opened: Opened, sides: int, stack: ExitStack) -> None:
        self.run, self.opened = run, opened
        self.freezer = freezer_of(run.bench.host, run.name, opened.measured.place.scope())
        self.windows: list[tuple[int, int]] = []
        self.outside_ns = 0  # from its grants to its reports, by the clock of the one who grants
        self.order: list[int] = []  # its place in each round
        self.following = 0  # the number of its next step
        self.before = 0  # steps before its first turn
        self.late = False
        self._begin_ns = 0  # of its start, or of its last grant
        self.core: int | None = None
        self._cores: dict[int, set[int]] = {}  # by thread: those that it could run on before
        self._grants = Grants(opened.measured.workdir, stack)
        self._clock: Clock = run.bench.host.clock
        # Its own time is what the limit is about; the one that its process is waited for with is only the last resort.
        self.process = Run(opened.measured, sides * (run.trial.limit_s + LIMIT_SLACK_S))
        self._started = False

    @property
    def over(self) -> bool:
        return self._started and self.process.over.is_set()

    @property
    def failed(self) -> bool:
        return self.late or (self.over and self.process.failed)

    @property
    def spent_s(self) -> float:
        return sum(end - begin for begin, end in self.windows) / 1e9

    def start(self) -> None:
        """Start it; it will hold after its first step."""
        self._begin_ns = self._clock.now_ns()
        run = self.run
        heard = None if run.bench.heard is None else partial(run.bench.heard, run.trial)
        with heard_by(Tail(self.opened.measured.workdir, heard, run.state.scrubber.text)):
            self.process.start(waits=False)
        self._started = True

    def move_to(self, core: int) -> None:
        """Let its threads, of which none runs now, run on this core alone: each as large a pool as it was started with.

        A thread that is started later has the core of the one that starts it.
        """
        self.core = core
        for tid in self._threads():
            self._cores[tid] = affinity(tid)
            _set_affinity(tid, {core})

    def move_back(self) -> None:
        """Let its threads run where they could before: what a program says of itself at its end is not of the turns.

        A thread that was started meanwhile may run where any could; one that chose its cores meanwhile keeps them.
        """
        anywhere = set[int]().union(*self._cores.values())
        for tid in self._threads() if anywhere else ():
            if affinity(tid) == {self.core}:
                _set_affinity(tid, self._cores.get(tid) or anywhere)

    def _threads(self) -> list[int]:
        return threads_of(self.run.bench.host, self.opened.measured.place.scope())

    def turn(self, steps: int, others_failed: Callable[[], bool]) -> None:
        """Do so many steps, and hold."""
        self.go(steps)
        expected = self.following + steps
        self.until_it_holds(others_failed)
        if not self.over and not self.late and self.following != expected:
            raise TrialError(f"{steps} steps were granted, and the workload says it did {self.following}.")

    def go(self, steps: int) -> None:
        """Let it do so many steps, or FREE: all that are left."""
        self.freezer.resume()
        self._begin_ns = self._clock.now_ns()
        self._grants.grant(steps)

    def go_free(self) -> None:
        self.move_back()
        self.go(FREE)

    def until_it_holds(self, others_failed: Callable[[], bool]) -> None:
        while not self.rests(others_failed):
            pass

    def rests(self, others_failed: Callable[[], bool]) -> bool:
        """Wait for a moment; whether it holds and is stopped now, or has ended, or is to be ended."""
        limit_s = self.run.trial.limit_s - self.spent_s
        told = self._grants.report(_LOOK_EVERY_S)
        now_ns, begin_ns = self._clock.now_ns(), self._begin_ns
        if told is None:
            self.late = (now_ns - begin_ns) / 1e9 > limit_s
            if not (self.over or self.late or others_failed()):
                return False
            self.windows.append((begin_ns, now_ns))
            self.outside_ns += now_ns - begin_ns
            return True
        self.outside_ns += now_ns - begin_ns
        following, turn_ns, end_ns = told
        # From its grant on, as the process saw it: how long it took to wake up is no time of its steps.
        turn_ns = turn_ns if self.windows else begin_ns
        if not begin_ns <= turn_ns <= end_ns <= now_ns:
            raise TrialError("the workload says that a turn was at another time than it was granted for.")
        self.following = following
        self.windows.append((turn_ns, end_ns))
        self.late = self.spent_s > self.run.trial.limit_s
        self.freezer.stop()
        return True

    def resume(self) -> None:
        with suppress(OSError, TareError):
            self.freezer.resume()


def _set_affinity(tid: int, cores: set[int]) -> None:
    """Of a thread that may have ended meanwhile."""
    try:
        with suppress(ProcessLookupError):
            os.sched_setaffinity(tid, cores)
    except OSError as error:
        raise TrialError(f"the side cannot be moved to other cores: {error.strerror or error}.") from error


class Alternation:
    """Who runs when. The order of the starts and of each round is drawn, so that nothing periodic meets one alone."""

    def __init__(self, sides: Sequence[Side], turning: Turning, rng: random.Random) -> None:
        self._sides, self._turning, self._rng = list(sides), turning, rng
        self.done = 0  # rounds
        cores = sorted(os.sched_getaffinity(0))
        self._core = cores[sides[0].run.trial.block % len(cores)] if turning.one_core else None
        self._early: list[Side] = []  # that ended before their last turn

    def run(self, watched: Watched | None) -> None:
        """Until all have ended; one that fails takes the others with it."""
        runs = [side.process for side in self._sides]
        watching = watched(partial(self._kill, runs)) if watched else None
        try:
            with ExitStack() as stack:
                if watching is not None:
                    stack.enter_context(watching)
                self.alternate()
        finally:
            failed = [side for side in self._sides if side.failed]  # before the others are ended for it
            self._early = [side for side in self._sides if side.over and self.done < self._turning.count]
            for side in self._sides:
                side.resume()
            end_all(runs)
            self._blame(failed)

    def alternate(self) -> None:
        """The starts, the rounds, and what is left of each side."""
        if self._turning.together:
            self._at_once(Side.start)
        for side in self._drawn():
            if not self._turning.together:
                with _blamed(side.run):
                    side.start()
                    side.until_it_holds(self._one_failed)
            if self._is_over():
                return
            with _blamed(side.run):
                if self._core is not None:
                    side.move_to(self._core)
                side.turn(self._turning.warm, self._one_failed)
            if self._is_over():
                return
        for side in self._sides:
            side.before = side.following
        for _ in range(self._turning.count):
            for place, side in enumerate(self._drawn()):
                side.order.append(place)
                with _blamed(side.run):
                    side.turn(self._turning.steps, self._one_failed)
                if self._is_over():
                    return
            self.done += 1
        if self._turning.together:
            self._at_once(Side.go_free)
            return
        for side in self._drawn():
            with _blamed(side.run):
                side.go_free()
                side.until_it_holds(self._one_failed)
            if self._one_failed():
                return

    def _at_once(self, begin: Callable[[Side], None]) -> None:
        """All sides begin, each on whatever core is free, and all are waited for."""
        waiting = self._drawn()
        for side in waiting:
            with _blamed(side.run):
                begin(side)
        while waiting:
            for side in list(waiting):
                with _blamed(side.run):
                    if side.rests(self._one_failed):
                        waiting.remove(side)

    def _drawn(self) -> list[Side]:
        return self._rng.sample(self._sides, len(self._sides))

    def _one_failed(self) -> bool:
        return any(side.failed for side in self._sides)

    def _is_over(self) -> bool:
        """Whether a side has ended, which it must not before its last turn."""
        return any(side.over or side.late for side in self._sides)

    def _kill(self, runs: Sequence[Run]) -> None:
        for side in self._sides:
            side.resume()
        kill_all(runs)

    def _blame(self, failed: Sequence[Side]) -> None:
        for side in failed:
            side.opened.measured.died = True
            if side.late and (found := side.opened.measured.exit) is not None:
                side.opened.measured.exit = replace(found, timed_out=True, seconds=side.spent_s)

    def note(self) -> None:
        """The fact `turns` of each record, and what the rules must know of the other sides."""
        cpu_s = [side.run.state.grew("cgroup.cpu_s") for side in self._sides]
        for side, own_s in zip(self._sides, cpu_s, strict=True):
            state, workload = side.run.state, side.run.trial.cell.workload
            state.partners_cpu_s = sum(cpu_s) - own_s
            if self._early and side not in self._early:
                state.partner = _partner(self._early[0].run)
            waits = workload.part_name() in WAITS_EACH_STEP and getattr(workload, "timing", "") == "sync"
            state.facts[TURNS] = {
                **self._turning.as_plain(),
                "before": side.before,
                "done": self.done,
                "by": side.freezer.way,
                **({} if side.core is None else {"core": side.core}),
                "order": side.order,
                "windows_ns": [list(each) for each in side.windows],
                "outside_s": side.outside_ns / 1e9,
                "synchronous": waits or not any(mark.name.startswith("gpu_") for mark in state.marks),
            }
