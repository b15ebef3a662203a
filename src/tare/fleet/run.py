"""Runs a plan over devices: each has its own trials, in order, and one that is lost holds up none of the others.

dask decides nothing here but where: a trial is pinned to its device's worker, and what it does about a failure is ours.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tare.analysis.weighing import is_enough
from tare.base.errors import NotRestoredError
from tare.base.rulings import Ruling, obstacle
from tare.figures.evidence import THRESHOLDS
from tare.fleet.cluster import Cluster
from tare.fleet.exchange import (
    PATIENCE_S,
    Exchange,
    Incoming,
    Ledger,
    Post,
    ProgressReporter,
    Questions,
    drive,
    unanswered,
)
from tare.fleet.inventory import Device, Task, claim, question
from tare.fleet.local import Interruption, Outcome, idle_s_of, labels, run_again_text
from tare.fleet.readiness import ReadinessCheck
from tare.plan.matrix import Trial
from tare.records.model import FINISHED, USABLE, Record, State
from tare.records.store import Store
from tare.studies.model import Study

TRIES = 2  # a trial that was lost on the way is tried once more, and the ledger says so
_MARGIN_S = 2 * 3600.0  # beside its own limit a trial may make a data set, and fill a disk with it: an hour each
_NO_RECORD = (
    "the trial ended there without a record that is new here. Where the store on the device was removed, its attempts "
    "are numbered anew: a new store here (`-o`) goes with it."
)


class FleetRun:
    """One run over a fleet: collect, ready, run."""

    def __init__(
        self, study: Study, task: Task, plans: Mapping[Device, Sequence[Trial]], store: Store, cluster: Cluster,
        reporter: ProgressReporter, interruption: Interruption, patience_s: float = PATIENCE_S,
        driving: Callable[..., dict[str, Any]] = drive,
    ) -> None:  # fmt: skip
        self._study = study
        self._task = task
        self._plans = plans
        self._store = store
        self._teller = reporter
        self._interruption = interruption
        self._incoming = Incoming(store, {trial.id: device.name for device, its in plans.items() for trial in its})
        self._ledger = Ledger(store.root)
        unseen = self._ledger.unseen()
        self._posts = [Post(device, unseen=device.name in unseen) for device in plans]
        questions = Questions(cluster, patience_s, driving)
        limit_s = (1 + THRESHOLDS.rerun_limit) * study.limit_s + _MARGIN_S + patience_s
        self._exchange = Exchange(questions, self._incoming, self._ledger, reporter, interruption, limit_s)
        self._muster = ReadinessCheck(
            self._posts, self._exchange, self._incoming, task, store.root,
            lambda post: bool(self._missing(plans[post.device])), self._joins,
        )  # fmt: skip
        self._label = labels(next(iter(plans.values())))  # the device is said beside it
        self._done = 0
        # Trials that run again with the rest of their block -> the attempt that is old.
        self._again: dict[str, int] = {}
        self._start_s = time.monotonic()

    @property
    def drained(self) -> dict[str, Ruling]:
        """The devices that were given up, and why."""
        return {post.name: post.drained for post in self._posts if post.drained}

    @property
    def not_restored(self) -> list[Device]:
        """The devices whose knobs are not as they were found, as far as they have said so."""
        return [post.device for post in self._posts if post.not_restored]

    @property
    def at_work(self) -> list[str]:
        """The devices that are at a trial, as far as we know."""
        return [post.name for post in self._posts if post.at_work]

    def collect(self) -> None:
        """What an earlier run began and did not see the end of is taken in."""
        self._ledger.write("", "begun", run=self._task.run, devices=[post.name for post in self._posts])
        self._muster.collect()

    def ready(self) -> None:
        """Every device that answers can run the study, or none runs anything."""
        self._muster.ready()

    def stopped(self) -> Outcome:
        """How it ended, where it was broken off; with what the next run is sure to run, and what it may add."""
        missing = [trial for planned in self._plans.values() for trial in self._missing(planned)]
        sure = sum(trial.block < self._study.repeat.min for trial in missing)
        why = "stopped by you"
        return Outcome(self._done, sure, why, interrupted=True, at_most_more=len(missing) - sure)

    # The trials

    def run(self) -> Outcome:
        """Run what the store does not have yet; blocks past the floor one by one, each if the stop rule wants it."""
        for post in self._posts:
            self._find_old_blocks(post, self._missing(self._plans[post.device]))
        plans = {post.device: self._missing(self._plans[post.device]) for post in self._posts}
        floor = self._study.repeat.min
        blocks = sorted({trial.block for planned in plans.values() for trial in planned})
        self._teller.started(sum(len(planned) for planned in plans.values()), len(self._posts))
        self._lay_out(plans, lambda trial: trial.block < floor)
        self._work()
        for ran, block in enumerate(blocks):
            if block < floor:
                continue
            if why := self._stop_before(block, ran):
                return self._outcome(why)
            self._lay_out(plans, lambda trial, block=block: trial.block == block)  # type: ignore[misc]
            self._work()
        return self._outcome("")

    def _outcome(self, enough: str) -> Outcome:
        """How it ended; `enough` says why the stop rule did not want more."""
        if self._interruption.asked:
            return self.stopped()
        left = sum(post.left for post in self._posts)
        given_up = f"{len(self.drained)} of {len(self._posts)} devices were skipped; {left} trials are left"
        reported = [sentence for sentence in (enough, given_up if self.drained else "") if sentence]
        return Outcome(self._done, left, "; ".join(reported) or "all planned trials are done")

    def _missing(self, planned: Sequence[Trial]) -> list[Trial]:
        newest = ((trial, self._incoming.newest(trial.id)) for trial in planned)
        return [
            trial
            for trial, record in newest
            if record is None or record.state not in self._finished or self._is_old(record)
        ]

    def _is_old(self, record: Record) -> bool:
        return record.attempt <= self._again.get(record.trial, -1)

    def _find_old_blocks(self, post: Post, missing: Sequence[Trial]) -> None:
        """A block of which a part ran on this device long ago is run again: only what ran together is compared."""
        planned, left = self._plans[post.device], {trial.id for trial in missing}
        if len({trial.side for trial in planned}) < 2:
            return
        for block in dict.fromkeys(trial.block for trial in missing):
            every = [trial for trial in planned if trial.block == block]
            newest = [self._incoming.newest(trial.id) for trial in every if trial.id not in left]
            done = [record for record in newest if record is not None and record.state in USABLE]
            if idle_s := idle_s_of(done, len(every)):
                self._again |= {record.trial: record.attempt for record in done}
                self._teller.note(f"{post.name}: {run_again_text(block, idle_s)}")

    @property
    def _finished(self) -> Sequence[State]:
        return ("ok", "suspect") if self._task.retry_failed else FINISHED

    def _lay_out(self, plans: Mapping[Device, Sequence[Trial]], wanted: Callable[[Trial], bool]) -> None:
        for post in self._posts:
            post.waiting.extend(self._missing([trial for trial in plans[post.device] if wanted(trial)]))

    def _stop_before(self, block: int, ran: int) -> str | None:
        """The stop rule, as the study declared it before the run; `ran` are the blocks that this run had to do with."""
        repeat = self._study.repeat
        if self._interruption.asked:
            return None  # said below, with what is left
        if repeat.until is not None and is_enough(self._store, until=repeat.until):
            return f"tight enough after {block} blocks: every interval is within ±{repeat.until:.1%}"
        spent_s = time.monotonic() - self._start_s
        within_s = repeat.past_min_s
        if within_s is not None and spent_s * (ran + 1) / max(ran, 1) > within_s:
            return f"another block would not fit into the {within_s:.0f} s that the study allows"
        return None

    def _work(self) -> None:
        """Until every device has done what it waits with, or is given up."""
        for post in self._posts:
            if post.here:
                self._next(post)
        self._exchange.hear(lambda post: True)

    def _joins(self, post: Post) -> None:
        """A device that comes later than the others: what it has brought needs not be run."""
        left = self._missing(post.waiting)
        self._find_old_blocks(post, left)
        blocks, planned = {trial.block for trial in left}, self._plans[post.device]
        post.waiting = deque(self._missing([trial for trial in planned if trial.block in blocks]))
        self._next(post)

    def _next(self, post: Post) -> None:
        if post.drained:
            return
        post.trial, post.tries, post.workers_lost = None, 0, 0
        if post.waiting and not self._interruption.asked:
            post.trial = post.waiting.popleft()
            self._try(post, new=True)

    def _try(self, post: Post, *, new: bool) -> None:
        """Tell the device; `new` is a claim of its own, otherwise it is asked about the one that it has."""
        assert post.trial is not None
        post.tries += new
        have = self._incoming.names_of(post.trial.id)
        again = post.trial.id in self._again
        requested = question(post.trial, post.device, self._task, post.tries, have, again=again)
        self._ledger.write(post.name, "try" if new else "again", trial=post.trial.id, claim=requested["claim"])
        self._exchange.ask(post, requested, requested["claim"], self._ended)

    def _ended(self, post: Post, found: dict[str, Any]) -> None:
        """One answer about a trial, or none."""
        assert post.trial is not None
        name = claim(post.trial, self._task, post.tries)
        reported = found.get("said") or {}
        text, code = str(found.get("text") or reported.get("text", "")), reported.get("code")
        if code is not None:  # a trial that came to an end had put back what was left before it
            post.not_restored = code == NotRestoredError.exit_code
        self._ledger.write(post.name, found["ended"], claim=name, code=code, text=text, broken=found["broken"])
        if found["ended"] == "worker lost" and post.workers_lost < TRIES:
            self._go_on_with_another_worker(post)
        elif found["ended"] != "answered":
            self._exchange.drain(post, unanswered(found))
        else:
            self._answered(post, found, code, text)

    def _go_on_with_another_worker(self, post: Post) -> None:
        """The device has not noticed: its trial goes on, and whoever asks next hears how it ended."""
        post.workers_lost += 1
        self._teller.note(f"{post.name}: the worker that drove it died; another one takes over.")
        self._try(post, new=False)

    def _answered(self, post: Post, found: Mapping[str, Any], code: object, text: str) -> None:
        assert post.trial is not None
        record = self._incoming.newest(post.trial.id)
        brought = post.trial.id in found["brought"]
        # One that was brought now has ended, even where an old one like it would be run again.
        ended = record is not None and record.state in (FINISHED if brought else self._finished)
        ended = ended and record is not None and not self._is_old(record)
        if code == 0 and ended:
            assert record is not None
            self._count(post, record)
        elif code is None or (code == 0 and brought):  # killed, or asked to stop: a device that is shut down in order
            self._died(post, text)
        else:
            why = text or " ".join(found["refused"]) or _NO_RECORD
            self._exchange.drain(post, obstacle("fleet.no-record", why))

    def _count(self, post: Post, record: Record) -> None:
        assert post.trial is not None
        self._done += 1
        seconds = (record.end_ns - record.start_ns) / 1e9
        self._teller.ended(post.name, self._label(post.trial), record.state, seconds)
        post.trial = None  # done, whatever becomes of the device
        self._give_up_if_hopeless(post, record)
        self._next(post)

    def _died(self, post: Post, text: str) -> None:
        """Once more, unless whoever runs this has had enough: then it is left for the next run."""
        assert post.trial is not None
        short = post.trial.id[:8]
        if self._interruption.asked:
            self._teller.note(f"{post.name}: trial {short} died there, and is left for the next run. {text}")
            post.waiting.appendleft(post.trial)
            post.trial = None
        elif post.tries < TRIES:
            self._teller.note(f"{post.name}: trial {short} died there, and is tried again. {text}")
            self._try(post, new=True)
        else:
            sentence = f"trial {short} died there {TRIES} times. {text}".strip()
            self._exchange.drain(post, obstacle("fleet.trial-died", sentence))

    def _give_up_if_hopeless(self, post: Post, record: Record) -> None:
        """The same failure again and again is this device's, and not worth a night of it."""
        reason = record.reasons[0] if record.reasons else record.state
        if record.state not in ("failed", "timeout", "oom") or reason not in post.same_failure[-1:]:
            post.same_failure.clear()
        post.same_failure.append(reason)
        if record.state in ("failed", "timeout", "oom") and len(post.same_failure) >= THRESHOLDS.breaker:
            sentence = f"{len(post.same_failure)} trials in a row failed in the same way: {reason}"
            self._exchange.drain(post, obstacle("fleet.same-failure", sentence))
