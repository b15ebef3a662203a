"""Runs a plan on this device, one trial after another; goes on where an earlier run stopped."""

from __future__ import annotations

import resource
import signal
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from threading import Timer
from types import FrameType
from typing import Protocol, TypeAlias

from tare.analysis.cells import FAR_S
from tare.analysis.labels import distinguishing, make_labels
from tare.analysis.weighing import is_enough
from tare.base.errors import NotRestoredError, ObstacleError, TareError
from tare.base.files import state_dir
from tare.base.host import Host
from tare.base.rulings import Ruling, obstacle
from tare.base.sides import side_of
from tare.base.text import count_text, duration_text, printed_text, telling_lines, time_text
from tare.figures.evidence import THRESHOLDS
from tare.parts.protocols import Probe
from tare.plan.matrix import UNSEEN_FACTOR, Length, Trial, followed_limit_s, length_of, place, rehearsals, with_limit
from tare.plan.turning import Choice, Turning, chosen, groups, thinned, why_no_turns
from tare.records.model import AA_REPEAT, FAILED, FINISHED, USABLE, Record, State, grouped, started_s
from tare.records.store import Store
from tare.studies.model import Study
from tare.trial.device import DeviceLock, device_id, private_folder
from tare.trial.engine import Bench, run_trial
from tare.trial.rules import is_lost, may_be_cured, what_helps
from tare.trial.sampler import Samplers, Sampling
from tare.trial.tenants import is_starting
from tare.trial.turns import run_in_turns
from tare.trial.undo.guardian import Guardian
from tare.trial.undo.journal import Journal
from tare.trial.undo.restoration import left_by_dead_probes, restore

LEAST_DESCRIPTORS = 64  # a run on bare metal takes 22
FINISHING = "finishing this trial; press Ctrl-C again to stop it now."
PUTTING_BACK = "the device is being restored; this takes a moment."


class Interruption:
    """Ctrl-C once is heeded between trials; twice, or a request to end, raises `KeyboardInterrupt`: once, not again.

    While a server is waited for, once is enough.
    """

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
        if self.asked == 1 and number == signal.SIGINT and not is_starting():
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
    def grown(self, by: int) -> None: ...  # fewer, where a side is skipped
    def expects(self, seconds: float) -> None: ...  # so long takes all that is left, from now on
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
    skipped: int = 0  # those of a side that does not run
    out_of_time: bool = False  # `repeat.within` ended it


@contextmanager
def owned_device(host: Host, watcher: Watcher, run: str, wait_s: float = 0.0) -> Iterator[tuple[Journal, Path]]:
    """This device, ours alone: what a dead run left on it is put back first, and what we left at the end."""
    if (permitted := resource.getrlimit(resource.RLIMIT_NOFILE)[0]) < LEAST_DESCRIPTORS:
        why = f"a run needs {LEAST_DESCRIPTORS} open files, and this shell permits {permitted}: "
        why += "`ulimit -n 256` is enough."
        raise ObstacleError("nothing was run:", [obstacle("needs.descriptors", why)])
    state, device = state_dir(), device_id(host)
    with DeviceLock(state, device, run, wait_s=wait_s, say=watcher.note) as lock:
        if lock.overruled:
            watcher.note(lock.overruled)
        journal, scratch = Journal(state / "devices" / device, run), state / "scratch"
        put_back_all(host, journal, scratch, watcher)
        with Guardian(private_folder(state / "devices" / device) / "guardian.log"):
            try:
                yield journal, scratch
            finally:
                put_back_all(host, journal, scratch, watcher)


def put_back_all(host: Host, journal: Journal, scratch: Path, watcher: Watcher) -> None:
    """The journal is the truth about what is left on the device; if it cannot be emptied, nothing more may run."""
    for sentence in chain(*left_by_dead_probes(host)):
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
    again: bool = False, owned: Owned = owned_device, sampler: Sampled | None = None, verbose: bool = False,
    enough: Enough | None = None,
) -> Outcome:  # fmt: skip
    """Run what the store does not have yet, block by block, until the declared stop rule is met.

    `again`: also what it has. `enough`: asked before each block past the floor, why no further one is needed.
    `verbose`: the watcher hears every line that a trial prints, after its platform's name.
    """
    interruption = Interruption(watcher.note)
    owning = owned(host, watcher, str(store.root))
    with interruption.watching(), owning as (journal, scratch), Samplers() as samplers:
        for record in store.recover():
            watcher.note(f"trial {record.trial[:8]} was cut off in an earlier run; its series are kept as interrupted.")
        heard = _Echo(watcher.note) if verbose else None
        bench = Bench(host, store, journal, scratch, period_s=study.period_s, sampler=sampler or samplers, heard=heard)
        done: Sequence[State] = () if again else ("ok", "suspect") if retry_failed else FINISHED
        return _Runner(study, bench, watcher, interruption, done, enough).run(trials)


Enough: TypeAlias = Callable[[Sequence[Record]], "str | None"]


class _Echo:
    """What trials print, line by line as it comes, each after its platform."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._rest: dict[str, bytes] = defaultdict(bytes)

    def __call__(self, trial: Trial, chunk: bytes) -> None:
        *lines, self._rest[trial.id] = (self._rest[trial.id] + chunk).split(b"\n")
        for line in lines:
            self._say(f"{_platform(trial)} | {printed_text(line.decode('utf-8', 'replace'))}")


def idle_s_of(done: Sequence[Record], planned: int) -> float:
    """How long ago the last of a block ended, if that is longer than the block would take and than a short break."""
    starts = [start for record in done if (start := started_s(record)) is not None]
    if not starts or len(starts) < len(done):
        return 0.0
    lasted = [(record.end_ns - record.start_ns) / 1e9 for record in done]
    idle_s = time.time() - max(start + length for start, length in zip(starts, lasted, strict=True))
    return idle_s if idle_s > max(FAR_S, planned * sum(lasted) / len(lasted)) else 0.0


def run_again_text(block: int, idle_s: float) -> str:
    return (
        f"block {block}: the rest of it ran {duration_text(idle_s)} ago, so the whole block is run again: only what "
        "ran together is compared."
    )


TOO_LONG = "If it only needs longer, set `limit` in the study; `--steps 200` or `--minutes 3` ends a script early."
LONG_REHEARSAL_S = 60.0
RUNS_TO_ITS_END = (
    "Each trial runs the script to its end. To end each one early, press Ctrl-C twice and start again with "
    "`--steps 200` or `--minutes 3` (in a study: `steps`, `minutes`)."
)
LAST_LINES = 6  # of what a failed workload printed
LONGEST_LINE = 150


class _Runner:
    """The rehearsal, then the loop over blocks, with its reasons to stop before the plan's end."""

    def __init__(
        self, study: Study, bench: Bench, watcher: Watcher, interruption: Interruption, done: Sequence[State],
        enough: Enough | None = None,
    ) -> None:  # fmt: skip
        self._study = study
        self._enough = enough
        # Who says when it is enough has another block for a trial that is lost.
        self._reruns = THRESHOLDS.rerun_limit if enough is None else 0
        self._finished = done
        self._bench = bench
        self._watcher = watcher
        self._interruption = interruption
        self._done = 0
        self._label: Callable[[Trial], str] = labels([])
        self._side: Callable[[Trial], str] = side_labels([])
        self._breaker = _Breaker(THRESHOLDS.breaker)
        self._skipped: dict[str, str] = {}  # side -> what it is called
        self._why_skipped: set[str] = set()
        self._told: set[tuple[str, str]] = set()  # failures whose output was shown
        self._invalid: Counter[str] = Counter()  # attempts at each trial that could not be used
        self._start_ns = self._blocks_ns = bench.host.clock.now_ns()
        self._times = _Times()
        self._left: list[Trial] = []  # of those that are sure to run
        self._fruitless = 0  # blocks in a row without a usable pair
        self._turning: Turning | None = None  # how the sides of a block take turns, if they do

    def run(self, trials: list[Trial]) -> Outcome:
        """Block by block; the watcher hears of the blocks that are sure to run, and of more when they are begun."""
        self._label, self._side = labels(trials), side_labels(trials)
        self._breaker = _Breaker(THRESHOLDS.breaker, map(_platform, trials))
        try:
            could_turn = self._why_no_turns(trials) is None
            trials = self._rehearse(trials) if self._study.rehearses or could_turn else trials
            if self._interruption.asked:
                return self._outcome(trials, "stopped by you", interrupted=True)
            if why := self._nothing_to_compare(trials):
                return self._outcome(trials, why)
            trials = self._in_design(trials)
            blocks = self._whole_blocks(trials, self._still_to_run(trials))
            self._left = [trial for block in blocks for trial in blocks[block] if block < self._study.repeat.min]
            self._tell_time()
            self._watcher.started(len(self._left))
            try:
                return self._run_blocks(trials, blocks)
            finally:
                self._watcher.finished()
        except KeyboardInterrupt:
            return self._outcome(trials, "stopped by you", interrupted=True)

    def _run_blocks(self, trials: list[Trial], blocks: dict[int, list[Trial]]) -> Outcome:
        self._blocks_ns = self._bench.host.clock.now_ns()
        for block in blocks:
            left = [trial for trial in blocks[block] if trial.side not in self._skipped]
            if not left:
                continue  # an earlier run did it, and asked the stop rule before
            if why := self._stop_before(trials, block):
                return self._outcome(trials, why)
            if why := self._out_of_time(block, left):
                return replace(self._outcome(trials, why), out_of_time=True)
            if block >= self._study.repeat.min:
                self._left += left
                self._watcher.grown(len(left))
            for group in self._together(left):
                alive = [trial for trial in group if trial.side not in self._skipped]
                if len(alive) > 1 and self._turning is not None:
                    self._run_in_turns(alive, self._turning)
                elif alive:
                    self._run_until_valid(alive[0])
                self._done += len(alive)
                if self._interruption.asked:
                    return self._outcome(trials, "stopped by you", interrupted=True)
            if why := self._is_fruitless([trial for trial in trials if trial.block == block]):
                return self._outcome(trials, why)
        return self._outcome(trials, self._nothing_to_compare(trials) or "all planned trials are done")

    def _is_fruitless(self, members: Sequence[Trial]) -> str | None:
        """Why it is of no use to go on after some blocks in a row of which no pair can be used, and what would help."""
        picks = self._study.compare.baseline.picks
        states = self._bench.store.states()
        alive = [trial for trial in members if trial.side not in self._skipped]
        usable = {picks(place(trial.cell)) for trial in alive if states.get(trial.id) in USABLE}
        if usable == {picks(place(trial.cell)) for trial in alive}:
            self._fruitless = 0
            return None
        self._fruitless += 1
        if self._fruitless < THRESHOLDS.fruitless_blocks:
            return None
        ours = {trial.id for trial in alive}
        newest = {record.trial: record for record in self._bench.store.records() if record.trial in ours}
        reasons = [reason for record in newest.values() for reason in record.reasons if reason.weight != "suspect"]
        first = reasons[0] if reasons else None
        told = f": {first}" if first is not None else ""
        return f"{self._fruitless} blocks in a row have no usable trial of both sides{told} {what_helps(first)}".rstrip(
            "."
        )

    # The rehearsal

    def _rehearse(self, trials: list[Trial]) -> list[Trial]:
        """Run each side once that has trials left and that the store knows nothing of; what fails is skipped."""
        left = [trial for block in self._still_to_run(trials).values() for trial in block]
        store = self._bench.store
        known = {record.trial: record for record in store.rehearsals()}
        ran = {side_of(record.settings) for record in store.records() if record.state not in FAILED}
        planned = [each for each in rehearsals(self._study, left) if each.id in known or each.side not in ran]
        if not self._study.rehearses:
            planned = planned[:1]  # of a built-in program: only how long its steps are
        kept = {name for name, record in known.items() if record.state in (*self._finished, "invalid")}
        if new := [each for each in planned if each.id not in kept]:
            self._watcher.note(f"rehearsal: {count_text(len(new), 'side')}, each run once; these runs are not data.")
        lengths: dict[str, Length] = {}
        for rehearsal in planned:
            is_new = rehearsal.id not in kept
            record = self._rehearse_one(rehearsal, lengths) if is_new else known[rehearsal.id]
            if record.state in FAILED:
                self._skip(rehearsal, record, is_new)
            else:
                self._note_length(rehearsal, record, lengths, is_new)
            if self._interruption.asked:
                return trials
        for side, length in lengths.items():
            self._times.expected(side, length.trial_s)
        if self._study.sets_limit or not {trial.side for trial in left} <= {*lengths, *self._skipped}:
            return trials
        return with_limit(trials, followed_limit_s([each.run_s for each in lengths.values()]))

    def _rehearse_one(self, rehearsal: Trial, lengths: dict[str, Length]) -> Record:
        """The first has the limit of a stranger; on the next platform it is known how long the same work takes."""
        assert rehearsal.rehearses is not None
        work = rehearsal.rehearses.workload
        same = [length.run_s for length in lengths.values() if length.workload == work]
        limit_s = None if self._study.sets_limit else followed_limit_s(same, UNSEEN_FACTOR)
        with self._telling_if_long(rehearsal, is_first=not lengths):
            record = run_trial(with_limit([rehearsal], limit_s)[0], self._bench)
        put_back_all(self._bench.host, self._bench.journal, self._bench.scratch, self._watcher)
        _refuse_lost(record)
        return record

    @contextmanager
    def _telling_if_long(self, rehearsal: Trial, *, is_first: bool) -> Iterator[None]:
        """Whoever rehearses a script of an hour hears after a minute how each run of it is ended early."""
        work = rehearsal.cell.workload
        if not is_first or not work.rehearsed or work.about_units() is not None or work.bound_s() is not None:
            yield
            return
        long = f"  {self._side(rehearsal)}: still running after {duration_text(LONG_REHEARSAL_S)}. {RUNS_TO_ITS_END}"
        timer = Timer(LONG_REHEARSAL_S, self._watcher.note, (long,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _note_length(self, rehearsal: Trial, record: Record, lengths: dict[str, Length], is_new: bool) -> None:
        assert rehearsal.rehearses is not None
        trial_s, run_s = (record.end_ns - record.start_ns) / 1e9, record.phases.get("run", 0.0)
        if (length := length_of(rehearsal, trial_s, run_s, dict(record.metrics))) is not None:
            lengths[rehearsal.side] = length
        if is_new:
            steps, step_s, high_s = (record.metrics.get(name) for name in ("steps", "step_s", "step_p90_s"))
            marked = f", {count_text(round(steps), record.unit)}" if steps else ""
            marked += f" of {time_text(step_s)}" if steps and step_s else ""
            marked += f" (9 of 10 within {high_s / step_s - 1:+.0%})" if step_s and high_s else ""
            self._watcher.note(f"  {self._side(rehearsal)}: {time_text(trial_s)}{marked}")
            workload = rehearsal.cell.workload
            ends_early = workload.about_units() is not None or workload.bound_s() is not None
            if workload.rehearsed and ends_early and not steps:  # in a short form of its own it ends early too
                self._watcher.note(
                    "  no steps were found in it, so that it cannot be ended at one: it runs to its end."
                )

    def _tell_time(self) -> None:
        """How long the blocks that are sure to run take, by what trials took in an earlier run, or their rehearsals."""
        ended = [each for each in self._bench.store.records() if each.state in FINISHED and each.state not in FAILED]
        for side, records in grouped(ended, lambda record: side_of(record.settings)).items():
            took_s = statistics.median((each.end_ns - each.start_ns) / 1e9 for each in records)
            self._times.expected(side, took_s if self._turning is None else took_s / 2)  # a pair in turns took it
        total_s = self._times.sum(self._left) if self._left and self._times.knows(self._left) else None
        if total_s is not None:
            if (within_s := self._study.repeat.within_s) is not None and total_s > within_s:
                ends = f", which ends after {duration_text(within_s)}, with fewer blocks"
            else:
                ends = ""
            about = f"about {duration_text(total_s)}{ends}"
            self._watcher.note(f"at least {count_text(len(self._left), 'trial')}, {about}.")
        self._expect()

    def _expect(self) -> None:
        """The watcher hears how long what is left takes, as soon as that is known of any side."""
        if (seconds := self._times.sum(self._left)) is not None:
            self._watcher.expects(seconds)

    def _skip(self, rehearsal: Trial, record: Record, is_new: bool) -> None:
        name = self._side(rehearsal)
        self._skipped[rehearsal.side] = name
        why = str(record.reasons[0]) if record.reasons else ""
        if is_new and why in self._why_skipped:
            self._watcher.note(f"{name} cannot run for the same reason: its trials are skipped.")
        elif is_new:
            self._why_skipped.add(why)
            self._watcher.note(self._failure_text(name, record))
            self._watcher.note(f"{name} cannot run: its trials are skipped.")
        else:
            reason = record.reasons[0] if record.reasons else record.state
            self._watcher.note(f"{name} did not run in its rehearsal, and is skipped ({reason}); "
                               "`--retry-failed` tries it again.")  # fmt: skip

    # Turns, or whole runs

    def _why_no_turns(self, trials: Sequence[Trial]) -> str | None:
        sides = {trial.side: trial.cell for trial in trials}
        return why_no_turns(self._study, list(sides.values()), self._bench.host)

    def _in_design(self, trials: list[Trial]) -> list[Trial]:
        """Choose whether the sides take turns, say so, and why; pairs in turns have the A/A twin every third time."""
        sides = {trial.side: trial for trial in trials if trial.side not in self._skipped}
        if len(sides) < 2:
            return trials
        choice = self._as_before() or chosen(self._study, sides, self._bench.host, self._rehearsed())
        self._watcher.note(str(choice))
        self._bench, self._turning = replace(self._bench, design=choice.as_plain()), choice.turning
        if self._turning is None:
            return trials
        kept = thinned(trials)
        ids, store = {trial.id for trial in kept}, self._bench.store
        store.plan([row for row in store.planned() if row["trial"] in ids])
        return kept

    def _as_before(self) -> Choice | None:
        """What the trials did that a store has already: pairs that ran in another way are not compared with them."""
        for record in self._bench.store.records():
            if record.state in USABLE:
                told = record.facts.get("turns")
                turning = None if told is None else Turning.of_fact(told)
                return Choice(turning, "as in the trials that the store has")
        return None

    def _rehearsed(self) -> dict[str, Record]:
        records = self._bench.store.rehearsals()
        return {side_of(each.settings): each for each in records if each.state not in FAILED}

    def _together(self, trials: list[Trial]) -> list[list[Trial]]:
        """Those that take turns; else each alone."""
        return [[trial] for trial in trials] if self._turning is None else groups(self._study, trials)

    # What is left, and when to stop

    def _still_to_run(self, trials: list[Trial]) -> dict[int, list[Trial]]:
        """By block what the store does not have now, also trials whose runs after an invalid attempt were cut off."""
        states = self._bench.store.states()
        invalid = [record.trial for record in self._bench.store.records() if record.state == "invalid"]
        # Whoever asks for invalid ones again gets them again, from the first attempt on.
        self._invalid = Counter(invalid if "invalid" in self._finished else ())
        hopeless = {
            record.trial
            for record in self._bench.store.records()
            if record.state == "invalid" and not may_be_cured(record)
        }

        def is_done(trial: Trial) -> bool:
            state, tried = states.get(trial.id), self._invalid[trial.id]
            return state in self._finished and (state != "invalid" or tried > self._reruns or trial.id in hopeless)

        by_block = groupby(trials, key=lambda trial: trial.block)
        return {
            block: [
                trial
                for group in self._together([each for each in members if each.side not in self._skipped])
                for trial in (group if any(not is_done(each) for each in group) else ())
            ]
            for block, members in by_block
        }

    def _whole_blocks(self, trials: list[Trial], blocks: dict[int, list[Trial]]) -> dict[int, list[Trial]]:
        """The same with all of a block of which a part ran long ago: only what ran together is compared."""
        if len({trial.side for trial in trials}) < 2:
            return blocks
        ran = {record.trial: record for record in self._bench.store.records() if record.state in USABLE}
        whole = {}
        for block, members in groupby(trials, key=lambda trial: trial.block):
            left, every = {trial.id for trial in blocks[block]}, list(members)
            done = [ran[trial.id] for trial in every if trial.id in ran and trial.id not in left]
            idle_s = idle_s_of(done, len(every)) if left else 0.0
            if idle_s:
                left |= {record.trial for record in done}
                self._watcher.note(run_again_text(block, idle_s))
            whole[block] = [trial for trial in every if trial.id in left and trial.side not in self._skipped]
        return whole

    def _sure(self, blocks: dict[int, list[Trial]]) -> int:
        """How many trials of these run whatever comes of them: the stop rule is asked after the floor."""
        return sum(len(left) for block, left in blocks.items() if block < self._study.repeat.min)

    def _outcome(self, trials: list[Trial], why: str, *, interrupted: bool = False) -> Outcome:
        """What is left is counted as the next run will count it."""
        blocks = {} if self._nothing_to_compare(trials) else self._still_to_run(trials)
        sure = self._sure(blocks)
        skipped = sum(trial.side in self._skipped for trial in trials)
        return Outcome(self._done, sure, why, interrupted, sum(map(len, blocks.values())) - sure, skipped)

    def _stop_before(self, trials: list[Trial], block: int) -> str | None:
        """The stop rule, as the study declared it before the run: only whole blocks, only past the floor."""
        if why := self._nothing_to_compare(trials):
            return why
        repeat = self._study.repeat
        if block < repeat.min:
            return None
        if self._enough is not None and (why := self._enough(self._bench.store.records())):
            return why
        if repeat.until is not None and is_enough(self._bench.store, until=repeat.until):
            return f"tight enough after {block} blocks: every interval is within ±{repeat.until:.1%}"
        return None

    def _out_of_time(self, block: int, left: Sequence[Trial]) -> str | None:
        """Whether these trials of a block would end too late; the first block of a run is begun whatever it takes."""
        repeat = self._study.repeat
        within_s = repeat.within_s if block < repeat.min else repeat.past_min_s
        if within_s is None or not self._done:
            return None
        now_ns = self._bench.host.clock.now_ns()
        block_s = (now_ns - self._blocks_ns) / 1e9 / self._done * len(left)  # with all that lies between trials
        if (now_ns - self._start_ns) / 1e9 + block_s > within_s:
            return f"another block would not fit into the {within_s:.0f} s that the study allows"
        return None

    def _nothing_to_compare(self, trials: list[Trial]) -> str | None:
        """Why it is of no use to go on without the sides that are skipped; None where there is enough left."""
        if not self._skipped:
            return None
        names = " and ".join(dict.fromkeys(self._skipped.values()))
        alive = [trial for trial in trials if trial.side not in self._skipped]
        base = [self._study.compare.baseline.picks(place(trial.cell)) for trial in alive]
        if not alive:
            return f"{names} cannot run, and nothing is left to run"
        compared = len({trial.side for trial in trials}) > 1
        return f"without {names} there is nothing to compare" if compared and len(set(base)) < 2 else None

    # One trial

    def _run_until_valid(self, trial: Trial) -> None:
        """A trial whose fault may pass is run again, a few times; every attempt is kept."""
        for attempt in range(self._invalid[trial.id], 1 + self._reruns):
            begin_ns = self._bench.host.clock.now_ns()
            self._watcher.trial_began(self._label(trial))
            record = run_trial(trial, self._bench)
            put_back_all(self._bench.host, self._bench.journal, self._bench.scratch, self._watcher)
            again = attempt < self._reruns and may_be_cured(record) and not self._interruption.asked
            self._note_end([trial], [record], begin_ns, again=again)
            self._break_if_hopeless(trial, record)
            if not again:
                return
            self._watcher.note(f"invalid, and run again: {record.reasons[0]}")
            self._watcher.trial_again()

    def _note_end(self, trials: Sequence[Trial], records: Sequence[Record], begin_ns: int, *, again: bool) -> None:
        """What an attempt took, and how long what is left takes by that."""
        each_s = (self._bench.host.clock.now_ns() - begin_ns) / 1e9 / len(trials)
        for trial, record in zip(trials, records, strict=True):
            if record.state not in FAILED:  # one that failed at once says nothing of the others
                self._times.took(trial.side, each_s)
        if not again:
            ended = {trial.id for trial in trials}
            self._left = [trial for trial in self._left if trial.id not in ended]
        self._expect()
        for record in records:
            self._watcher.trial_ended(record.state, (record.end_ns - record.start_ns) / 1e9)

    def _run_in_turns(self, trials: list[Trial], turning: Turning) -> None:
        """The same of trials that take turns: they are run again together."""
        for attempt in range(max(self._invalid[trial.id] for trial in trials), 1 + self._reruns):
            begin_ns = self._bench.host.clock.now_ns()
            names = [self._label(trial) for trial in trials]
            block = names[0].partition(": ")[0] + ": "  # the same of all of them
            self._watcher.trial_began(block + " and ".join(name.removeprefix(block) for name in names))
            records = run_in_turns(trials, self._bench, turning)
            put_back_all(self._bench.host, self._bench.journal, self._bench.scratch, self._watcher)
            if not self._interruption.asked and (why := self._why_turns_failed(records)) is not None:
                self._turn_to_blocks(trials, why)
                return
            invalid = [record for record in records if record.state == "invalid"]
            failed = any(record.state in FAILED for record in records)
            again = attempt < self._reruns and not failed and not self._interruption.asked
            again = again and bool(invalid) and all(map(may_be_cured, invalid))
            self._note_end(trials, records, begin_ns, again=again)
            for trial, record in zip(trials, records, strict=True):
                self._break_if_hopeless(trial, record)
            if not again:
                return
            self._watcher.note(f"invalid, and run again: {invalid[0].reasons[0]}")
            for _ in trials:
                self._watcher.trial_again()

    def _why_turns_failed(self, records: Sequence[Record]) -> Ruling | None:
        """Why the first pair could not take turns: a program may not bear another one beside it, or end early."""
        if any(state in USABLE for state in self._bench.store.states().values()):
            return None
        lost = [record for record in records if record.state in FAILED]
        lost += [record for record in records if any(each.code.startswith("turns.") for each in record.reasons)]
        return next((reason for record in lost for reason in record.reasons), None)

    def _turn_to_blocks(self, trials: Sequence[Trial], why: Ruling) -> None:
        """Run the rest in blocks, beginning with these: nothing that is kept ran in another way."""
        choice = Choice(None, "the first pair could not take turns")
        self._bench, self._turning = replace(self._bench, design=choice.as_plain()), None
        self._watcher.note(f"{why} {choice}.")
        for trial in trials:
            self._watcher.trial_again()
            self._run_until_valid(trial)

    def _break_if_hopeless(self, trial: Trial, record: Record) -> None:
        """A side that fails again and again is skipped; a device on which all of them do is not worth a night."""
        _refuse_lost(record)
        if record.state not in FAILED:
            self._breaker.ran(trial.side)
            return
        reason = str(record.reasons[0] if record.reasons else record.state)
        if (trial.side, reason) not in self._told:
            self._told.add((trial.side, reason))
            self._watcher.note(self._failure_text(self._side(trial), record))
        if self._breaker.failed(trial.side, _platform(trial), reason):
            raise TareError(
                f"{THRESHOLDS.breaker} trials in a row failed in the same way, so the study was stopped:\n{reason}\n"
                f"See `tare show {self._bench.store.root} {record.trial[:8]}` for what the workload printed."
            )
        if self._breaker.is_hopeless(trial.side):
            name = self._skipped[trial.side] = self._side(trial)
            left = [each for each in self._left if each.side != trial.side]
            self._watcher.grown(len(left) - len(self._left))
            self._left = left
            self._watcher.note(
                f"{name} failed {THRESHOLDS.breaker} times in the same way: its other trials are skipped."
            )

    def _failure_text(self, name: str, record: Record) -> str:
        """What failed, the last lines that it printed, and what is likely to help."""
        reason, *hints = map(str, record.reasons or (record.state,))
        _, err = self._bench.store.output(record.trial, record.attempt)
        printed = telling_lines(err)
        if printed and printed[-1].strip()[:LONGEST_LINE] in reason:
            printed.pop()  # the reason has it
        shown = [f"    | {line[:LONGEST_LINE]}" for line in printed[-LAST_LINES:]]
        hints += [TOO_LONG] if record.state == "timeout" else []
        return "\n".join([f"{name} {record.state}: {reason}", *shown, *(f"  {hint}" for hint in hints)])


class _Times:
    """What a trial of each side takes: the median of this run, else that of an earlier one, or of its rehearsal."""

    def __init__(self) -> None:
        self._took: dict[str, list[float]] = defaultdict(list)
        self._expected: dict[str, float] = {}

    def took(self, side: str, seconds: float) -> None:
        self._took[side].append(seconds)

    def expected(self, side: str, seconds: float) -> None:
        self._expected[side] = seconds

    def knows(self, trials: Iterable[Trial]) -> bool:
        return all(self._of(trial.side) is not None for trial in trials)

    def sum(self, trials: Sequence[Trial]) -> float | None:
        """Of all of these; a side that is not known yet is taken for one of the others. None where none is known."""
        known = [found for side in {*self._took, *self._expected} if (found := self._of(side)) is not None]
        if not known:
            return None
        typical_s = sum(known) / len(known)
        return sum(typical_s if (found := self._of(trial.side)) is None else found for trial in trials)

    def _of(self, side: str) -> float | None:
        return statistics.median(self._took[side]) if self._took.get(side) else self._expected.get(side)


class _Breaker:
    """Counts failures: of each side, and in a row over all of them."""

    def __init__(self, most: int, platforms: Iterable[str] = ()) -> None:
        self._most = most
        self._every = set(platforms)
        self._of_side: dict[str, list[str]] = defaultdict(list)
        self._in_a_row: list[str] = []
        self._platforms: set[str] = set()  # in the row

    def ran(self, side: str) -> None:
        self._of_side[side].clear()
        self._in_a_row.clear()
        self._platforms.clear()

    def failed(self, side: str, platform: str, reason: str) -> bool:
        """Note it; whether the device itself is to blame: so many times in a row, and on every platform."""
        for row in (self._of_side[side], self._in_a_row):
            if row and row[-1] != reason:
                row.clear()
            row.append(reason)
        if len(self._in_a_row) == 1:
            self._platforms.clear()
        self._platforms.add(platform)
        return len(self._in_a_row) >= self._most and self._platforms >= self._every

    def is_hopeless(self, side: str) -> bool:
        return len(self._of_side[side]) >= self._most


def _platform(trial: Trial) -> str:
    return str(trial.settings["platform"])


def _refuse_lost(record: Record) -> None:
    """A GPU that is gone is gone for the next trial too."""
    if is_lost(record.reasons):
        raise TareError(f"the study was stopped, for no further trial can be run on this device:\n{record.reasons[0]}")


def side_labels(trials: Sequence[Trial]) -> Callable[[Trial], str]:
    """What each side is called: its platform, and what else tells its workload from others in this plan."""
    several = [trial.settings for trial in trials]
    names = [name for name in distinguishing(several) if name.partition(".")[0] in ("platform", "workload")]
    found = make_labels(several, names)
    return lambda trial: str(found.words(trial.settings))


def labels(trials: Sequence[Trial]) -> Callable[[Trial], str]:
    """A few words for each trial: its block, its platform, and whatever else sets it apart in this plan."""
    several = [trial.settings for trial in trials]
    found = make_labels(several, distinguishing(several))

    def label(trial: Trial) -> str:
        twin = f" ({AA_REPEAT})" if trial.twin else ""
        return f"block {trial.block}: {found.words(trial.settings)}{twin}"

    return label
