"""Runs a plan on this device, one trial after another; goes on where an earlier run stopped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeAlias

from tare.base.errors import TareError
from tare.base.host import Host
from tare.base.rulings import Ruling
from tare.base.sides import side_of
from tare.base.text import count_text, duration_text, printed_text
from tare.figures.evidence import THRESHOLDS
from tare.fleet.failures import Breaker, failure_text, first_reason, platform_of, refuse_lost
from tare.fleet.interruption import Interruption
from tare.fleet.labels import labels, side_labels
from tare.fleet.ownership import owned_device, put_back_all
from tare.fleet.rehearsal import Rehearsal
from tare.fleet.schedule import Enough, Forecast, Outcome, Schedule, StopRule, attempts_of, record_s, stopped
from tare.parts.protocols import Probe
from tare.plan.matrix import Trial
from tare.plan.turning import Choice, Turning, chosen, thinned, why_no_turns
from tare.records.model import FAILED, FINISHED, USABLE, Record, State, grouped
from tare.records.store import Store
from tare.studies.model import Study
from tare.trial.engine import Bench, run_trial
from tare.trial.rules import may_be_cured
from tare.trial.sampler import Samplers, Sampling
from tare.trial.turns import run_in_turns
from tare.trial.undo.journal import Journal


class Watcher(Protocol):
    """Hears how far a run is."""

    def started(self, total: int) -> None: ...
    def grown(self, by: int) -> None: ...  # fewer, where a side is skipped
    def expects(self, seconds: float) -> None: ...  # so long takes all that is left, from now on
    def trial_began(self, label: str) -> None: ...
    def trial_ended(self, state: str, seconds: float) -> None: ...
    def trial_again(self) -> None: ...  # the one that has just ended, since it was invalid
    def note(self, text: str) -> None: ...
    def finished(self) -> None: ...


Owned: TypeAlias = Callable[[Host, Callable[[str], None], str], AbstractContextManager[tuple[Journal, Path]]]
Sampled: TypeAlias = Callable[[Sequence[Probe], Path, float], Sampling]


def run_study(
    study: Study, trials: list[Trial], store: Store, host: Host, watcher: Watcher, *, retry_failed: bool = False,
    again: bool = False, owned: Owned = owned_device, sampler: Sampled | None = None, verbose: bool = False,
    enough: Enough | None = None, rehearsed: Sequence[Record] = (),
) -> Outcome:  # fmt: skip
    """Run what the store does not have yet, block by block, until the declared stop rule is met.

    `again`: also what it has. `enough`: asked before each block past the floor, why no further one is needed.
    `verbose`: the watcher hears every line that a trial prints, after its platform's name.
    `rehearsed`: rehearsals of an earlier study of the same question, by which the sides may take turns.
    """
    interruption = Interruption(watcher.note)
    owning = owned(host, watcher.note, str(store.root))
    with interruption.watching(), owning as (journal, scratch), Samplers() as samplers:
        for record in store.recover():
            watcher.note(f"trial {record.trial[:8]} was cut off in an earlier run; its series are kept as interrupted.")
        echo = _Echo(watcher.note) if verbose else None
        bench = Bench(host, store, journal, scratch, period_s=study.period_s, sampler=sampler or samplers, heard=echo)
        finished: Sequence[State] = () if again else ("ok", "suspect") if retry_failed else FINISHED
        # Who says when it is enough has another block for a trial that is lost.
        reruns = THRESHOLDS.rerun_limit if enough is None else 0
        schedule = Schedule(study, trials, attempts_of(store.records()), finished, reruns)
        return _Runner(study, schedule, bench, watcher, interruption, enough, rehearsed).run()


class _Echo:
    """What trials print, line by line as it comes, each after its platform."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._rest: dict[str, bytes] = defaultdict(bytes)

    def __call__(self, trial: Trial, chunk: bytes) -> None:
        *lines, self._rest[trial.id] = (self._rest[trial.id] + chunk).split(b"\n")
        for line in lines:
            self._say(f"{platform_of(trial)} | {printed_text(line.decode('utf-8', 'replace'))}")


class _Runner:
    """Drives a schedule: the rehearsal, then the blocks."""

    def __init__(
        self, study: Study, schedule: Schedule, bench: Bench, watcher: Watcher, interruption: Interruption,
        enough: Enough | None, rehearsed: Sequence[Record],
    ) -> None:  # fmt: skip
        self._study = study
        self._rehearsed_before = rehearsed
        self._schedule = schedule
        self._bench = bench
        self._watcher = watcher
        self._interruption = interruption
        self._label, self._side = labels(schedule.planned), side_labels(schedule.planned)
        self._breaker = Breaker(map(platform_of, schedule.planned))
        self._forecast = Forecast()
        self._stop_rule = StopRule(study, bench.store, self._now_s, enough)
        self._shown: set[tuple[str, str]] = set()  # sides and failures whose output was shown

    def run(self) -> Outcome:
        """Block by block; the watcher hears of the blocks that are sure to run, and of more when they are begun."""
        try:
            if self._study.rehearses or (not self._rehearsed_before and self._why_no_turns() is None):
                rehearsal = Rehearsal(
                    self._study, self._schedule, self._forecast, self._bench.store, self._watcher.note, self._side,
                    lambda trial: self._run([trial])[0],
                )  # fmt: skip
                rehearsal.run(lambda: bool(self._interruption.asked))
            if self._interruption.asked:
                return self._interrupted()
            if why := self._schedule.nothing_to_compare():
                return self._stopped(why)
            self._choose_design()
            for sentence in self._schedule.repeat_old_blocks():
                self._watcher.note(sentence)
            left = self._schedule.left()
            self._forecast.coming = self._schedule.sure(left)
            self._announce(self._stop_rule.begin_blocks())
            self._watcher.started(len(self._forecast.coming))
            try:
                return self._run_blocks(grouped(left, lambda trial: trial.block))
            finally:
                self._watcher.finished()
        except KeyboardInterrupt:
            return self._interrupted()

    def _run_blocks(self, blocks: dict[int, list[Trial]]) -> Outcome:
        for block, members in blocks.items():
            left = self._schedule.alive(members)
            if not left:
                continue
            if why := self._schedule.nothing_to_compare() or self._stop_rule.why_enough(block):
                return self._stopped(why)
            done = self._schedule.done  # the first block of a run is begun whatever it takes
            if done and (why := self._stop_rule.why_no_time(block, done, len(left))):
                return replace(self._stopped(why), out_of_time=True)
            if block >= self._study.repeat.min:
                self._forecast.coming += left
                self._watcher.grown(len(left))
            for group in self._schedule.together(left):
                alive = self._schedule.alive(group)
                for trials in self._schedule.together(alive):  # asked again: turns may have been given up meanwhile
                    self._run_until_valid(trials, max(map(self._schedule.tried, trials)))
                self._schedule.done += len(alive)
                if self._interruption.asked:
                    return self._interrupted()
            if why := self._schedule.why_fruitless(block):
                return self._stopped(why)
        return self._stopped(self._schedule.nothing_to_compare() or "all planned trials are done")

    def _stopped(self, why: str) -> Outcome:
        return stopped([self._schedule], why)

    def _interrupted(self) -> Outcome:
        return stopped([self._schedule], "stopped by you", interrupted=True)

    def _now_s(self) -> float:
        return self._bench.host.clock.now_ns() / 1e9

    # How long it takes

    def _announce(self, spent_s: float) -> None:
        """Say how long the trials that are sure to run take: by an earlier run, or else by their rehearsals."""
        first = [trial for trial in self._schedule.alive(self._schedule.planned) if not trial.twin]
        groups = self._schedule.together([trial for trial in first if trial.block == first[0].block])
        sharing = max(map(len, groups), default=1)  # in turns each side's trial lasts as long as all of them
        for record in self._bench.store.records():
            if record.state in FINISHED and record.state not in FAILED:
                self._forecast.took(side_of(record.settings), record_s(record) / sharing)
        self._expect()
        forecast, within_s = self._forecast, self._study.repeat.within_s
        total_s = forecast.seconds
        if not forecast.coming or total_s is None or not (forecast.knows_all or self._schedule.turning is not None):
            return
        count = count_text(len(forecast.coming), "trial")
        room_s = None if within_s is None else within_s - spent_s
        if room_s is not None and total_s > room_s:
            self._watcher.note(f"at most {count}, as many as fit into the {duration_text(max(0.0, room_s))} left.")
        else:
            self._watcher.note(f"at least {count}, about {duration_text(total_s)}.")

    def _expect(self) -> None:
        """The watcher hears how long what is left takes, as soon as that is known of any side."""
        if (seconds := self._forecast.seconds) is not None:
            self._watcher.expects(seconds)

    # Turns, or whole runs

    def _why_no_turns(self) -> str | None:
        sides = {trial.side: trial.cell for trial in self._schedule.planned}
        return why_no_turns(self._study, list(sides.values()), self._bench.host)

    def _choose_design(self) -> None:
        """Choose whether the sides take turns, say so, and why; pairs in turns have the A/A twin every third time."""
        sides = {trial.side: trial for trial in self._schedule.alive(self._schedule.planned)}
        if len(sides) < 2:
            return
        store = self._bench.store
        choice = self._as_before() or chosen(self._study, sides, self._bench.host, self._rehearsed())
        self._watcher.note(str(choice))
        self._forecast.saves(choice.saves_s)
        self._bench, self._schedule.turning = replace(self._bench, design=choice.as_plain()), choice.turning
        if choice.turning is not None:
            self._schedule.planned = thinned(self._schedule.planned)
            ids = {trial.id for trial in self._schedule.planned}
            store.plan([row for row in store.planned() if row["trial"] in ids])

    def _as_before(self) -> Choice | None:
        """What the trials did that a store has already: pairs that ran in another way are not compared with them."""
        for record in self._bench.store.records():
            if record.state in USABLE:
                fact = record.facts.get("turns")
                return Choice(None if fact is None else Turning.of_fact(fact), "as in the trials that the store has")
        return None

    def _rehearsed(self) -> dict[str, Record]:
        records = (*self._rehearsed_before, *self._bench.store.rehearsals())
        return {side_of(record.settings): record for record in records if record.state not in FAILED}

    # One trial, or several in turns

    def _run_until_valid(self, trials: Sequence[Trial], tried: int) -> None:
        """Run a trial, or several in turns. A fault that may pass is met with a few more attempts; all are kept."""
        for attempt in range(tried, 1 + self._schedule.reruns):
            began_s = self._now_s()
            names = [self._label(trial) for trial in trials]
            block = names[0].partition(": ")[0] + ": "  # the same of all of them
            self._watcher.trial_began(block + " and ".join(name.removeprefix(block) for name in names))
            records = self._run(trials)
            for record in records:
                self._schedule.ran(record)
            if len(trials) > 1 and not self._interruption.asked and (why := self._why_turns_failed(records)):
                self._turn_to_blocks(trials, why)
                return
            invalid = [record for record in records if record.state == "invalid"]
            again = attempt < self._schedule.reruns and not self._interruption.asked and bool(invalid)
            again = again and all(map(may_be_cured, invalid)) and not any(r.state in FAILED for r in records)
            self._note_end(trials, records, began_s, again=again)
            for trial, record in zip(trials, records, strict=True):
                self._break_if_hopeless(trial, record)
            if not again:
                return
            self._watcher.note(f"invalid, and run again: {invalid[0].reasons[0]}")
            for _ in trials:
                self._watcher.trial_again()

    def _run(self, trials: Sequence[Trial]) -> list[Record]:
        turning = self._schedule.turning
        if len(trials) == 1 or turning is None:
            records = [run_trial(trial, self._bench) for trial in trials]
        else:
            records = run_in_turns(trials, self._bench, turning)
        put_back_all(self._bench.host, self._bench.journal, self._bench.scratch, self._watcher.note)
        return records

    def _note_end(self, trials: Sequence[Trial], records: Sequence[Record], began_s: float, *, again: bool) -> None:
        """What an attempt took, and how long what is left takes by that."""
        trial_s = (self._now_s() - began_s) / len(trials)
        for trial, record in zip(trials, records, strict=True):
            if record.state not in FAILED:  # one that failed at once says nothing of the others
                self._forecast.took(trial.side, trial_s)
        if not again:
            self._forecast.ended(trials)
        self._expect()
        for record in records:
            self._watcher.trial_ended(record.state, record_s(record))

    def _why_turns_failed(self, records: Sequence[Record]) -> Ruling | None:
        """Why the first pair could not take turns: a program may not bear another one beside it, or end early."""
        if self._schedule.has_usable:
            return None
        lost = [record for record in records if record.state in FAILED]
        lost += [record for record in records if any(reason.code.startswith("turns.") for reason in record.reasons)]
        return next((reason for record in lost for reason in record.reasons), None)

    def _turn_to_blocks(self, trials: Sequence[Trial], why: Ruling) -> None:
        """Run the rest in blocks, beginning with these: nothing that is kept ran in another way."""
        choice = Choice(None, "the first pair could not take turns")
        self._bench, self._schedule.turning = replace(self._bench, design=choice.as_plain()), None
        self._watcher.note(f"{why} {choice}.")
        for trial in trials:
            self._watcher.trial_again()
            self._run_until_valid([trial], tried=0)

    def _break_if_hopeless(self, trial: Trial, record: Record) -> None:
        """A side that fails again and again is skipped; a device on which all of them do is not worth a night."""
        refuse_lost(record)
        is_hopeless, reason = self._breaker.note(trial, record), first_reason(record)
        if record.state not in FAILED:
            return
        if (trial.side, reason) not in self._shown:
            self._shown.add((trial.side, reason))
            self._watcher.note(failure_text(self._side(trial), record, self._bench.store))
        if is_hopeless:
            raise TareError(
                f"{THRESHOLDS.breaker} trials in a row failed in the same way, so the study was stopped:\n{reason}\n"
                f"See `tare show {self._bench.store.root} {record.trial[:8]}` for what the workload printed."
            )
        if self._breaker.is_hopeless(trial.side):
            name = self._schedule.skipped[trial.side] = self._side(trial)
            self._watcher.grown(-self._forecast.skip(trial.side))
            self._watcher.note(
                f"{name} failed {THRESHOLDS.breaker} times in the same way: its other trials are skipped."
            )
