"""`design: slices`: the trials of a block alive at once, one of them running while the others are stopped.

Each has a record of its own, as if it had run alone, with the fact `slices` (figures/steps.py says what is in it).
Whatever disturbs the machine for longer than a slice disturbs all of them alike.
"""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial

import numpy as np

from tare.base.errors import TareError
from tare.base.host import Clock, Host
from tare.base.rulings import Ruling
from tare.drivers.cgroups.tree import freezer_of
from tare.figures.steps import FACT, paired_ns, steps_from, without_stops
from tare.parts.protocols import Mark
from tare.plan.matrix import Trial
from tare.records.model import Record
from tare.studies.model import Slices
from tare.trial.conditions import guarded_from_heat
from tare.trial.engine import Bench, Opened, TrialRun
from tare.trial.tenants import Run, Tail, Watched, end_all, heard_by, kill_all
from tare_inside.marks import load as load_marks

LEAST_S, MOST_S, FIRST_S = 0.1, 5.0, 0.3  # of a slice whose length the study leaves open
STEPS_A_SLICE = 15
ENOUGH_STEPS = 8  # of each side, to know how long they are
START_S = 1.0  # before the first slice of what marks nothing
LIMIT_SLACK_S = 60.0


class _OneFailed(Exception):
    """A side failed, and its state says why."""


def run_sliced(trials: Sequence[Trial], bench: Bench) -> list[Record]:
    """Run the trials in turns; all are opened, run, closed and sealed, as `run_trial` does it for one."""
    runs = [TrialRun(trial, bench) for trial in trials]
    try:
        with ExitStack() as stack:
            _observe(runs, bench, stack)
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


def _observe(runs: Sequence[TrialRun], bench: Bench, stack: ExitStack) -> None:
    opened: list[Opened] = []
    for run in runs:
        with _blamed(run):
            opened.append(run.open(stack, runs[0].state.facts["controls"] if opened else None))
    slices = runs[0].trial.slices
    assert slices is not None
    sides = [Side(run, each, len(runs)) for run, each in zip(runs, opened, strict=True)]
    guarding = guarded_from_heat(bench.host, runs[0].trial.cell.probes, runs[0].state.facts)
    with ExitStack() as timing, guarding as guard:
        for run in runs:
            timing.enter_context(run.state.timed("run"))
        turns = Turns(sides, slices, bench.host, random.Random(runs[0].trial.seed))
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
            whose = failed[0].trial.settings["platform"]
            sentence = f"the other side ({whose}) failed, and they can only run together."
            run.state.partner = Ruling("slices.partner", "invalid", "", sentence)


class Side:
    """One trial of the block while it runs: its process, what stops it, and when it ran."""

    def __init__(self, run: TrialRun, opened: Opened, sides: int) -> None:
        self.run, self.opened = run, opened
        host = run.bench.host
        self.freezer = freezer_of(host, run.name, opened.measured.place.scope())
        self.windows: list[tuple[int, int]] = []
        self.late = False
        self._clock: Clock = host.clock
        # Its own time is what the limit is about; the one that its process is waited for with is only the last resort.
        self.process = Run(opened.measured, sides * (run.trial.limit_s + LIMIT_SLACK_S))
        self._started = False

    @property
    def over(self) -> bool:
        return self._started and self.process.over.is_set()

    @property
    def spent_s(self) -> float:
        return sum(end - begin for begin, end in self.windows) / 1e9

    def slice(self, seconds: float) -> None:
        """Run for so long, or to its end if that comes before."""
        if self._started:
            self.freezer.resume()
            begin_ns = self._clock.now_ns()
        else:
            begin_ns = self._clock.now_ns()
            bench, trial = self.run.bench, self.run.trial
            heard = None if bench.heard is None else partial(bench.heard, trial)
            tail = Tail(self.opened.measured.workdir, heard, self.run.state.scrubber.text)
            with heard_by(tail):
                self.process.start(waits=False)
            self._started = True
            self._until_it_runs()
        over = self.process.over.wait(seconds)
        end_ns = self._clock.now_ns()
        self.windows.append((begin_ns, end_ns))
        if not over:
            self.freezer.stop()
            if self.spent_s > self.run.trial.limit_s:
                self.late = True
                self.end()

    def _until_it_runs(self) -> None:
        """A container engine needs a moment to bring the job in, and may not be stopped in the middle of it."""
        until_ns = self._clock.now_ns() + round(START_S * 1e9)
        marks = self.opened.measured.workdir / "marks.bin"
        while not marks.exists() and not self.process.over.wait(0.02) and self._clock.now_ns() < until_ns:
            pass

    def step_s(self) -> float | None:
        """The median step so far, stops not counted; None where there are too few."""
        rows, _ = load_marks(str(self.opened.measured.workdir / "marks.bin"))
        facts = {FACT: {"windows_ns": self.windows}}
        marks, _ = without_stops([Mark(*row) for row in rows], {}, facts)
        steps = steps_from(marks)
        if steps is None or len(steps.numbers) < ENOUGH_STEPS:
            return None
        return float(np.nanmedian(steps.seconds["step"]))

    def run_out(self) -> None:
        """The last of them: it runs on alone to its end."""
        self.slice(max(0.0, self.run.trial.limit_s - self.spent_s) + 1.0)

    def end(self) -> None:
        """End it; what is stopped must be resumed first."""
        self.resume()
        self.process.kill()

    def resume(self) -> None:
        with suppress(OSError, TareError):
            self.freezer.resume()


class Turns:
    """Who runs when. The order within a round is shuffled, so that nothing periodic meets one side alone."""

    def __init__(self, sides: Sequence[Side], slices: Slices, host: Host, rng: random.Random) -> None:
        self._sides, self._slices, self._rng = list(sides), slices, rng
        self._host = host
        self.length_s = slices.length_s or FIRST_S
        self._settled = slices.length_s is not None
        self._cores: frozenset[int] = frozenset()  # that any side may use; none: not known yet
        self._rounds: list[tuple[int, int, float | None]] = []  # begin, end, share of the CPU time that others took

    def run(self, watched: Watched | None) -> None:
        """Until all have ended; one that fails takes the others with it."""
        runs = [side.process for side in self._sides]
        watching = watched(partial(self._kill, runs)) if watched else None
        try:
            with ExitStack() as stack:
                if watching is not None:
                    stack.enter_context(watching)
                self._alternate()
        finally:
            failed = [side for side in self._sides if self._has_failed(side)]  # before the others are ended for it
            for side in self._sides:
                side.resume()
            end_all(runs)
            self._blame(failed)

    def _alternate(self) -> None:
        while len(alive := [side for side in self._sides if not side.over]) > 1:
            if any(self._has_failed(side) for side in self._sides):
                return
            self._rng.shuffle(alive)
            before, begin_ns = _Used.now(self._host, self._sides, self._cores), self._host.clock.now_ns()
            for side in alive:
                with _blamed(side.run):
                    side.slice(self.length_s)
            share = _Used.now(self._host, self._sides, self._cores).others_share(before)
            self._rounds.append((begin_ns, self._host.clock.now_ns(), share))
            self._settle()
        for side in alive:
            if not any(self._has_failed(each) for each in self._sides):
                with _blamed(side.run):
                    side.run_out()

    def _settle(self) -> None:
        """Which cores count; and how long slices are, once steps are known: short, but with enough steps in them."""
        number = len(self._rounds)
        if number & (number - 1):  # reading all marks takes a moment: after 1, 2, 4, 8 rounds
            return
        self._cores = frozenset().union(*(side.freezer.cores() for side in self._sides))
        if self._settled:
            return
        steps_s = [side.step_s() for side in self._sides]
        known = [each for each in steps_s if each is not None]
        if len(known) == len(steps_s):
            self._settled = True
            self.length_s = min(MOST_S, max(LEAST_S, STEPS_A_SLICE * max(known)))

    def _kill(self, runs: Sequence[Run]) -> None:
        for side in self._sides:
            side.resume()
        kill_all(runs)

    def _has_failed(self, side: Side) -> bool:
        return side.late or (side.over and side.process.failed)

    def _blame(self, failed: Sequence[Side]) -> None:
        for side in failed:
            side.opened.measured.died = True
            if side.late and (found := side.opened.measured.exit) is not None:
                side.opened.measured.exit = replace(found, timed_out=True, seconds=side.spent_s)

    def note(self) -> None:
        """The fact `slices` of each record, and what the rules must know of the other sides."""
        marks = [side.run.state.marks for side in self._sides]
        paired = paired_ns(marks, [side.windows for side in self._sides])
        quiet = self._slices.quiet
        loud = [(b, e) for b, e, share in self._rounds if quiet is not None and share is not None and share > quiet]
        known = [share for _, _, share in self._rounds if share is not None]
        cpu_s = [side.run.state.grew("cgroup.cpu_s") for side in self._sides]
        for side, own_s in zip(self._sides, cpu_s, strict=True):
            side.run.state.partners_cpu_s = sum(cpu_s) - own_s
            side.run.state.facts[FACT] = {
                **self._slices.as_plain(),
                "length_s": self.length_s,
                "by": side.freezer.way,
                "windows_ns": [list(each) for each in side.windows],
                "paired_ns": list(paired),
                "rounds": len(self._rounds),
                **({"left_out_ns": [list(each) for each in loud]} if quiet is not None else {}),
                **({"others_share": sum(known) / len(known)} if known else {}),
            }


class _Used:
    """CPU time of the cores that the sides may use, and what of it is theirs."""

    def __init__(self, capacity_s: float, busy_s: float, ours_s: float | None) -> None:
        self._capacity_s, self._busy_s, self._ours_s = capacity_s, busy_s, ours_s

    @classmethod
    def now(cls, host: Host, sides: Sequence[Side], cores: Collection[int]) -> _Used:
        """`cores`: those that count; none for all. Steal counts as busy: the hypervisor is one of the others."""
        tick = 1 / os.sysconf("SC_CLK_TCK")
        names = {f"cpu{core}" for core in cores} or {"cpu"}
        busy = capacity = 0
        try:
            for name, *words in map(str.split, host.read("/proc/stat").splitlines()):
                if name in names:
                    user, nice, system, idle, iowait, irq, softirq, steal = map(int, words[:8])
                    busy += user + nice + system + irq + softirq + steal
                    capacity += user + nice + system + irq + softirq + steal + idle + iowait
        except (OSError, ValueError):
            return cls(0.0, 0.0, None)
        spent = [side.freezer.cpu_s() for side in sides]
        ours_s = None if None in spent else sum(each or 0.0 for each in spent)
        return cls(capacity * tick, busy * tick, ours_s)

    def others_share(self, before: _Used) -> float | None:
        """Of the CPU time that these cores had since then; None where the kernel does not tell whose it was."""
        capacity_s = self._capacity_s - before._capacity_s
        if self._ours_s is None or before._ours_s is None or capacity_s <= 0:
            return None
        others_s = (self._busy_s - before._busy_s) - (self._ours_s - before._ours_s)
        return max(0.0, others_s / capacity_s)
