"""Runs a plan on this device, one trial after another; goes on where an earlier run stopped."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Protocol, TypeAlias

from tare.analysis.weighing import is_enough
from tare.base.errors import NotRestoredError, TareError
from tare.base.files import state_dir
from tare.base.host import Host
from tare.base.rulings import Ruling
from tare.drivers.tracing import tracefs
from tare.figures.thresholds import THRESHOLDS
from tare.parts.protocols import Probe
from tare.plan.model import Trial
from tare.records.model import AA_REPEAT, FINISHED, Record, State, varied
from tare.records.store import Store
from tare.study.model import Study
from tare.trial.device import DeviceLock, device_id, private_folder
from tare.trial.engine import Bench, run_trial
from tare.trial.rules import is_lost
from tare.trial.sampler import Sampler, Sampling
from tare.trial.undo.guardian import Guardian
from tare.trial.undo.journal import Journal
from tare.trial.undo.restoration import restore

FINISHING = "finishing this trial; press Ctrl-C again to stop it now."
PUTTING_BACK = "the device is being restored; this takes a moment."


class Interruption:
    """Ctrl-C once is heeded between trials; twice, or a request to end, raises `KeyboardInterrupt`: once, not again."""

    def __init__(self, say: Callable[[str], None], first: str = FINISHING, later: str = PUTTING_BACK) -> None:
        self.asked = 0
        self._say = say
        self._first, self._later = first, later
        self._raised = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.asked += 1
        if self._raised:
            self._say(self._later)
            return  # the restore that the first one began must not be broken off
        if self.asked == 1 and number == signal.SIGINT:
            self._say(self._first)
            return
        self._raised = True
        raise KeyboardInterrupt

    @contextmanager
    def watching(self) -> Iterator[Interruption]:
        """SIGINT, SIGTERM and a closed terminal are requests to stop while this is open."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Watcher(Protocol):
    """Whoever wants to know how far it is."""

    def started(self, total: int) -> None: ...
    def grown(self, by: int) -> None: ...
    def trial_began(self, label: str) -> None: ...
    def trial_ended(self, state: str, seconds: float) -> None: ...
    def trial_again(self) -> None: ...  # the one that has just ended, since it was invalid
    def note(self, text: str) -> None: ...
    def finished(self) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """How a run over a plan ended."""

    done: int
    left: int  # those that are sure to run if it goes on
    why: str  # "all trials are done", "tight enough: ...", "stopped by you"
    interrupted: bool = False
    at_most_more: int = 0  # those that the stop rule may ask for after them


@contextmanager
def owned_device(host: Host, watcher: Watcher, run: str) -> Iterator[tuple[Journal, Path]]:
    """This device, ours alone: what a dead run left on it is put back first, and what we left at the end."""
    state, device = state_dir(), device_id(host)
    with DeviceLock(state, device, run):
        journal, scratch = Journal(state / "devices" / device, run), state / "scratch"
        put_back_all(host, journal, scratch, watcher)
        with Guardian(private_folder(state / "devices" / device) / "guardian.log"):
            try:
                yield journal, scratch
            finally:
                put_back_all(host, journal, scratch, watcher)


def put_back_all(host: Host, journal: Journal, scratch: Path, watcher: Watcher) -> None:
    """The journal is the truth about what is left on the device; if it cannot be emptied, nothing more may run."""
    for sentence in tracefs.remove_dead(host):
        watcher.note(sentence)
    if not journal.pending():
        return
    report = restore(host, journal, scratch=scratch)
    for sentence in report.good_news():  # the bad news is the error, once
        watcher.note(sentence)
    if not report.clean:
        raise NotRestoredError("\n".join([*report.foreign, *report.failed]), force=bool(report.foreign))


Owned: TypeAlias = Callable[[Host, Watcher, str], AbstractContextManager[tuple[Journal, Path]]]
Sampled: TypeAlias = Callable[[Sequence[Probe], Path, float], Sampling]


def run_study(
    study: Study, trials: list[Trial], store: Store, host: Host, watcher: Watcher, *, retry_failed: bool = False,
    owned: Owned = owned_device, sampler: Sampled = Sampler,
) -> Outcome:  # fmt: skip
    """Run what the store does not have yet, block by block, until the declared stop rule is met."""
    interruption = Interruption(watcher.note)
    with interruption.watching(), owned(host, watcher, str(store.root)) as (journal, scratch):
        for record in store.recover():
            watcher.note(f"trial {record.trial[:8]} was cut off in an earlier run; its series are kept as interrupted.")
        bench = Bench(host, store, journal, scratch, period_s=study.period_s, sampler=sampler)
        done: Sequence[State] = ("ok", "suspect") if retry_failed else FINISHED
        return _Runner(study, bench, watcher, interruption, done).run(trials)


class _Runner:
    """The loop over blocks, with its three reasons to stop before the plan's end."""

    def __init__(
        self, study: Study, bench: Bench, watcher: Watcher, interruption: Interruption, done: Sequence[State]
    ) -> None:
        self._study = study
        self._finished = done
        self._bench = bench
        self._watcher = watcher
        self._interruption = interruption
        self._done = 0
        self._label: Callable[[Trial], str] = labels([])
        self._same_failure: list[Ruling | str] = []
        self._invalid: Counter[str] = Counter()  # attempts at each trial that could not be used
        self._start_ns = bench.host.clock.now_ns()

    def run(self, trials: list[Trial]) -> Outcome:
        """Block by block; the watcher hears of the blocks that are sure to run, and of more when they are begun."""
        self._label = labels(trials)
        blocks = self._still_to_run(trials)
        floor = self._study.repeat.min
        self._watcher.started(self._sure(blocks))
        try:
            for block, left in blocks.items():
                if not left:
                    continue  # an earlier run did it, and asked the stop rule before
                if why := self._stop_before(block, len(left)):
                    return self._outcome(trials, why)
                self._watcher.grown(len(left) if block >= floor else 0)
                for trial in left:
                    self._run_until_valid(trial)
                    self._done += 1
                    if self._interruption.asked:
                        return self._outcome(trials, "stopped by you", interrupted=True)
            return self._outcome(trials, "all planned trials are done")
        except KeyboardInterrupt:
            return self._outcome(trials, "stopped by you", interrupted=True)
        finally:
            self._watcher.finished()

    def _still_to_run(self, trials: list[Trial]) -> dict[int, list[Trial]]:
        """By block what the store does not have now, also trials whose runs after an invalid attempt were cut off."""
        states = self._bench.store.states()
        invalid = [record.trial for record in self._bench.store.records() if record.state == "invalid"]
        # Whoever asks for invalid ones again gets them again, from the first attempt on.
        self._invalid = Counter(invalid if "invalid" in self._finished else ())

        def is_done(trial: Trial) -> bool:
            state = states.get(trial.id)
            return state in self._finished and (state != "invalid" or self._invalid[trial.id] > THRESHOLDS.rerun_limit)

        by_block = groupby(trials, key=lambda trial: trial.block)
        return {block: [trial for trial in members if not is_done(trial)] for block, members in by_block}

    def _sure(self, blocks: dict[int, list[Trial]]) -> int:
        """How many trials of these run whatever comes of them: the stop rule is asked after the floor."""
        return sum(len(left) for block, left in blocks.items() if block < self._study.repeat.min)

    def _outcome(self, trials: list[Trial], why: str, *, interrupted: bool = False) -> Outcome:
        """What is left is counted as the next run will count it."""
        blocks = self._still_to_run(trials)
        sure = self._sure(blocks)
        return Outcome(self._done, sure, why, interrupted, sum(map(len, blocks.values())) - sure)

    def _stop_before(self, block: int, trials: int) -> str | None:
        """The stop rule, as the study declared it before the run: only whole blocks, only past the floor."""
        repeat = self._study.repeat
        if block < repeat.min:
            return None
        if repeat.until is not None and is_enough(self._bench.store, until=repeat.until):
            return f"tight enough after {block} blocks: every interval is within ±{repeat.until:.1%}"
        spent_s = (self._bench.host.clock.now_ns() - self._start_ns) / 1e9
        per_trial_s = spent_s / max(self._done, 1)
        if repeat.within_s is not None and spent_s + trials * per_trial_s > repeat.within_s:
            return f"another block would not fit into the {repeat.within_s:.0f} s that the study allows"
        return None

    def _run_until_valid(self, trial: Trial) -> None:
        """An invalid trial is run again, a few times; every attempt is kept."""
        for attempt in range(self._invalid[trial.id], 1 + THRESHOLDS.rerun_limit):
            self._watcher.trial_began(self._label(trial))
            record = run_trial(trial, self._bench)
            put_back_all(self._bench.host, self._bench.journal, self._bench.scratch, self._watcher)
            self._watcher.trial_ended(record.state, (record.end_ns - record.start_ns) / 1e9)
            self._break_if_hopeless(record)
            if record.state != "invalid" or self._interruption.asked:
                return
            if attempt < THRESHOLDS.rerun_limit:
                self._watcher.note(f"invalid, and run again: {record.reasons[0]}")
                self._watcher.trial_again()

    def _break_if_hopeless(self, record: Record) -> None:
        """The same failure again and again is not worth a night; a GPU that is gone is gone for the next trial too."""
        if is_lost(record.reasons):
            raise TareError(
                f"the study was stopped, for no further trial can be run on this device:\n{record.reasons[0]}"
            )
        if record.state not in ("failed", "timeout", "oom"):
            self._same_failure.clear()
            return
        reason = record.reasons[0] if record.reasons else record.state
        self._watcher.note(f"{record.state}: {reason}")
        if self._same_failure and self._same_failure[-1] != reason:
            self._same_failure.clear()
        self._same_failure.append(reason)
        if len(self._same_failure) >= THRESHOLDS.breaker:
            raise TareError(
                f"{THRESHOLDS.breaker} trials in a row failed in the same way, so the study was stopped:\n{reason}\n"
                f"See `tare show {self._bench.store.root} {record.trial[:8]}` for what the workload printed."
            )


def labels(trials: Sequence[Trial]) -> Callable[[Trial], str]:
    """A few words for each trial: its block, its platform, and whatever else sets it apart in this plan."""
    described = [name for name in varied([trial.settings for trial in trials]) if name != "platform"]

    def label(trial: Trial) -> str:
        rest = [f"{name.rpartition('.')[2]} {trial.settings[name]}" for name in described if name in trial.settings]
        twin = f" ({AA_REPEAT})" if trial.twin else ""
        return f"block {trial.block}: {', '.join([str(trial.settings['platform']), *rest])}{twin}"

    return label
