"""Which trials of a plan run next on a device, how long they take, and when a run stops before its plan's end.

The schedule runs nothing. `fleet.local` drives it on this machine, one trial after another; `fleet.run` drives one for
each device, as answers arrive.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from tare.analysis.cells import FAR_S
from tare.analysis.weighing import is_enough
from tare.base.text import duration_text
from tare.figures.evidence import THRESHOLDS
from tare.plan.matrix import Trial, place
from tare.plan.turning import Turning, groups
from tare.records.model import USABLE, Record, State, started_s
from tare.records.store import Store
from tare.studies.model import Study
from tare.trial.rules import may_be_cured, what_helps

RECENT = 9  # trials of a side that tell how long the next one takes


@dataclass(frozen=True)
class Outcome:
    """How a run over a plan ended."""

    done: int
    left: int  # trials that are sure to run if the run is resumed
    why: str  # "all trials are done", "tight enough: ...", "stopped by you"
    interrupted: bool = False
    at_most_more: int = 0  # trials that the stop rule may ask for after them
    skipped: int = 0  # trials of a side that does not run
    out_of_time: bool = False  # `repeat.within` ended it


Attempts: TypeAlias = dict[str, dict[int, Record]]  # by trial, by the number of the attempt
Enough: TypeAlias = Callable[[Sequence[Record]], "str | None"]


def attempts_of(records: Iterable[Record]) -> Attempts:
    attempts: Attempts = {}
    for record in records:
        attempts.setdefault(record.trial, {})[record.attempt] = record
    return attempts


class Schedule:
    """The plan of one device: which trials are left, by what the store has of them."""

    def __init__(
        self, study: Study, planned: Sequence[Trial], attempts: Attempts, finished: Sequence[State], reruns: int = 0
    ) -> None:
        """`attempts`: what the store has, as it grows. Trials in a state that is `finished` do not run again.

        An invalid one runs again `reruns` times.
        """
        self.planned = list(planned)
        self.turning: Turning | None = None  # how the sides of a block take turns, if they do
        self.skipped: dict[str, str] = {}  # side -> its name
        self.done = 0
        self.reruns = reruns
        self.finished = finished
        self._study = study
        self._attempts = attempts
        self._outdated: dict[str, int] = {}  # trial -> its newest attempt that does not count
        self._fruitless = 0  # blocks in a row without a usable pair

    def ran(self, record: Record) -> None:
        """Take in an attempt that has just ended."""
        self._attempts.setdefault(record.trial, {})[record.attempt] = record

    def newest(self, trial: Trial) -> Record | None:
        """The newest attempt at this trial."""
        attempts = self._attempts.get(trial.id)
        return attempts[max(attempts)] if attempts else None

    @property
    def has_usable(self) -> bool:
        newest = map(self.newest, self.planned)
        return any(record is not None and record.state in USABLE for record in newest)

    def left(self) -> list[Trial]:
        """The trials that the store lacks, in the order of the plan. Trials that take turns run again together."""
        return [
            trial
            for _, members in groupby(self.planned, key=lambda trial: trial.block)
            for group in self.together(self.alive(members))
            if any(not self.is_done(trial) for trial in group)
            for trial in group
        ]

    def alive(self, trials: Iterable[Trial]) -> list[Trial]:
        """Those of the sides that are not skipped."""
        return [trial for trial in trials if not self.skipped or trial.side not in self.skipped]

    def sure(self, trials: Iterable[Trial]) -> list[Trial]:
        """Those that run whatever comes of them: the stop rule is asked after the floor."""
        return [trial for trial in trials if trial.block < self._study.repeat.min]

    def together(self, trials: Sequence[Trial]) -> list[list[Trial]]:
        """The trials of a block that run at the same time: a pair in turns, else each alone."""
        return [[trial] for trial in trials] if self.turning is None else groups(self._study, trials)

    def tried(self, trial: Trial) -> int:
        """The invalid attempts of earlier runs; a run that is asked for invalid trials begins with the first one."""
        invalid = [record for record in self._attempts.get(trial.id, {}).values() if record.state == "invalid"]
        return min(len(invalid), self.reruns) if "invalid" in self.finished else 0

    def is_outdated(self, record: Record) -> bool:
        """Whether the trial runs again although this attempt is usable."""
        return record.attempt <= self._outdated.get(record.trial, -1)

    def runs_again(self, trial: Trial) -> bool:
        """Whether it runs again with the rest of its block."""
        return trial.id in self._outdated

    def repeat_old_blocks(self) -> list[str]:
        """Run a block again whole if a part of it ran long ago: only what ran together is compared. Says which."""
        if len({trial.side for trial in self.planned}) < 2:
            return []
        left, notes = {trial.id for trial in self.left()}, []
        for block, group in groupby(self.planned, key=lambda trial: trial.block):
            members = list(group)
            kept = [self.newest(trial) for trial in members if trial.id not in left]
            done = [record for record in kept if record is not None and record.state in USABLE]
            idle_s = idle_s_of(done, len(members)) if any(trial.id in left for trial in members) else 0.0
            if idle_s:
                self._outdated |= {record.trial: record.attempt for record in done}
                notes.append(
                    f"block {block}: the rest of it ran {duration_text(idle_s)} ago, so the whole block is run again: "
                    "only what ran together is compared."
                )
        return notes

    def nothing_to_compare(self) -> str | None:
        """Why it is of no use to go on without the sides that are skipped; None where enough is left."""
        if not self.skipped:
            return None
        names = " and ".join(dict.fromkeys(self.skipped.values()))
        alive = self.alive(self.planned)
        base = {self._study.compare.baseline.picks(place(trial.cell)) for trial in alive}
        if not alive:
            return f"{names} cannot run, and nothing is left to run"
        compared = len({trial.side for trial in self.planned}) > 1
        return f"without {names} there is nothing to compare" if compared and len(base) < 2 else None

    def why_fruitless(self, block: int) -> str | None:
        """Asked after each block: whether several in a row have no usable pair, why, and what would help."""
        picks = self._study.compare.baseline.picks
        alive = self.alive(trial for trial in self.planned if trial.block == block)
        newest = [(trial, record) for trial in alive if (record := self.newest(trial)) is not None]
        usable = {picks(place(trial.cell)) for trial, record in newest if record.state in USABLE}
        if usable == {picks(place(trial.cell)) for trial in alive}:
            self._fruitless = 0
            return None
        self._fruitless += 1
        if self._fruitless < THRESHOLDS.fruitless_blocks:
            return None
        reasons = [reason for _, record in newest for reason in record.reasons if reason.weight != "suspect"]
        first = reasons[0] if reasons else None
        reason_text = f": {first}" if first is not None else ""
        sentence = f"{self._fruitless} blocks in a row have no usable trial of both sides{reason_text}"
        return f"{sentence} {what_helps(first)}".rstrip(".")

    def is_done(self, trial: Trial) -> bool:
        newest = self.newest(trial)
        if newest is None or newest.state not in self.finished or self.is_outdated(newest):
            return False
        invalid = [record for record in self._attempts[trial.id].values() if record.state == "invalid"]
        is_lost = len(invalid) > self.reruns or not all(map(may_be_cured, invalid))
        return newest.state != "invalid" or is_lost


def stopped(schedules: Iterable[Schedule], why: str, *, interrupted: bool = False) -> Outcome:
    """How a run over these schedules ended. What is left is counted as the next run will count it."""
    done = sure = more = skipped = 0
    for schedule in schedules:
        left = [] if schedule.nothing_to_compare() else schedule.left()
        done += schedule.done
        sure += len(schedule.sure(left))
        more += len(left) - len(schedule.sure(left))
        skipped += len(schedule.planned) - len(schedule.alive(schedule.planned))
    return Outcome(done, sure, why, interrupted, more, skipped)


def idle_s_of(done: Sequence[Record], planned: int) -> float:
    """How long ago the last of a block ended, if that is longer than the block would take and than a short break."""
    starts = [start for record in done if (start := started_s(record)) is not None]
    if not starts or len(starts) < len(done):
        return 0.0
    lasted = [record_s(record) for record in done]
    idle_s = time.time() - max(start + length for start, length in zip(starts, lasted, strict=True))
    return idle_s if idle_s > max(FAR_S, planned * sum(lasted) / len(lasted)) else 0.0


def record_s(record: Record) -> float:
    return (record.end_ns - record.start_ns) / 1e9


class StopRule:
    """When a run ends before its last block, as the study declared it before the run: only whole blocks."""

    def __init__(self, study: Study, store: Store, now_s: Callable[[], float], enough: Enough | None = None) -> None:
        self._repeat = study.repeat
        self._store = store
        self._now_s = now_s
        self._enough = enough
        self._began_s = self._blocks_began_s = now_s()

    def begin_blocks(self) -> float:
        """From now on the time of a block is counted; returns how long the run has taken so far."""
        self._blocks_began_s = self._now_s()
        return self._blocks_began_s - self._began_s

    def why_enough(self, blocks: int) -> str | None:
        """Why no further block is needed after so many; None up to the floor."""
        if blocks < self._repeat.min:
            return None
        if self._enough is not None and (why := self._enough(self._store.records())):
            return why
        if self._repeat.until is not None and is_enough(self._store, until=self._repeat.until):
            return f"tight enough after {blocks} blocks: every interval is within ±{self._repeat.until:.1%}"
        return None

    def why_no_time(self, block: int, done: int, coming: int) -> str | None:
        """Why this block of `coming` trials is not begun; what `done` of them took counts all that lies between."""
        within_s = self._repeat.within_s if block < self._repeat.min else self._repeat.past_min_s
        if within_s is None:
            return None
        now_s = self._now_s()
        block_s = (now_s - self._blocks_began_s) / done * coming if done else 0.0
        if now_s - self._began_s + block_s <= within_s:
            return None
        return f"another block would not fit into the {within_s:.0f} s that the study allows"


class Forecast:
    """How long the trials to come take: for each, the median of the last ones of its side.

    The first of these are what earlier runs, or the rehearsal, say of the side.
    """

    def __init__(self) -> None:
        self.coming: list[Trial] = []  # the trials that are sure to run
        self._took: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=RECENT))

    def took(self, side: str, seconds: float) -> None:
        self._took[side].append(seconds)

    def saves(self, seconds: float) -> None:
        """Each trial takes so much less than what is known of it: sides that start at the same time."""
        for took in self._took.values():
            known = [max(0.0, each - seconds) for each in took]
            took.clear()
            took.extend(known)

    def ended(self, trials: Iterable[Trial]) -> None:
        ended = {trial.id for trial in trials}
        self.coming = [trial for trial in self.coming if trial.id not in ended]

    def skip(self, side: str) -> int:
        """Take the trials of a side out; returns how many they were."""
        before = len(self.coming)
        self.coming = [trial for trial in self.coming if trial.side != side]
        return before - len(self.coming)

    @property
    def knows_all(self) -> bool:
        return bool(self.coming) and all(trial.side in self._took for trial in self.coming)

    @property
    def seconds(self) -> float | None:
        """A side that has not run yet is taken for one of the others; None where none has."""
        known = {side: statistics.median(took) for side, took in self._took.items()}
        if not known:
            return None
        typical_s = sum(known.values()) / len(known)
        return sum(known.get(trial.side, typical_s) for trial in self.coming)
