"""Runs a plan over devices: each has its own trials, in order, and one that is lost holds up none of the others.

dask decides nothing here but where: a trial is pinned to its device's worker, and what it does about a failure is ours.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from tare.base.errors import NotRestoredError
from tare.base.rulings import Ruling, obstacle
from tare.figures.evidence import THRESHOLDS
from tare.fleet.cluster import Cluster
from tare.fleet.driving import PATIENCE_S, drive
from tare.fleet.exchange import Exchange, Post, ProgressReporter, Questions, unanswered
from tare.fleet.failures import Breaker, first_reason
from tare.fleet.incoming import Incoming, Ledger
from tare.fleet.interruption import Interruption
from tare.fleet.inventory import Device, Task, claim, question
from tare.fleet.labels import labels
from tare.fleet.readiness import ReadinessCheck
from tare.fleet.schedule import Outcome, Schedule, StopRule, record_s, stopped
from tare.plan.matrix import Trial
from tare.records.model import FINISHED, Record
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
        self._teller = reporter
        self._interruption = interruption
        self._incoming = Incoming(store, {trial.id: device.name for device, its in plans.items() for trial in its})
        finished = ("ok", "suspect") if task.retry_failed else FINISHED
        self._schedules = {
            device: Schedule(study, planned, self._incoming.attempts, finished) for device, planned in plans.items()
        }
        self._breakers = {device: Breaker() for device in plans}
        self._ledger = Ledger(store.root)
        unseen = self._ledger.unseen()
        self._posts = [Post(device, unseen=device.name in unseen) for device in plans]
        questions = Questions(cluster, patience_s, driving)
        limit_s = (1 + THRESHOLDS.rerun_limit) * study.limit_s + _MARGIN_S + patience_s
        self._exchange = Exchange(questions, self._incoming, self._ledger, reporter, interruption, limit_s)
        self._muster = ReadinessCheck(
            self._posts, self._exchange, self._incoming, task, store.root,
            lambda post: bool(self._schedules[post.device].left()), self._joins,
        )  # fmt: skip
        self._label = labels(next(iter(plans.values())))  # the device is said beside it
        self._stop_rule = StopRule(study, store, time.monotonic)

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
        return stopped(self._schedules.values(), "stopped by you", interrupted=True)

    # The trials

    def run(self) -> Outcome:
        """Run what the store does not have yet; blocks past the floor one by one, each if the stop rule wants it."""
        for post in self._posts:
            self._repeat_old_blocks(post)
        left = [trial for schedule in self._schedules.values() for trial in schedule.left()]
        floor = self._study.repeat.min
        self._teller.started(len(left), len(self._posts))
        self._run_blocks(range(floor))
        for ran, block in enumerate(sorted({trial.block for trial in left})):
            if block < floor:
                continue
            if why := self._stop_before(block, ran):
                return self._outcome(why)
            self._run_blocks((block,))
        return self._outcome("")

    def _outcome(self, enough: str) -> Outcome:
        """How it ended; `enough` says why the stop rule did not want more."""
        if self._interruption.asked:
            return self.stopped()
        left = sum(post.left for post in self._posts)
        given_up = f"{len(self.drained)} of {len(self._posts)} devices were skipped; {left} trials are left"
        reported = [sentence for sentence in (enough, given_up if self.drained else "") if sentence]
        done = sum(schedule.done for schedule in self._schedules.values())
        return Outcome(done, left, "; ".join(reported) or "all planned trials are done")

    def _repeat_old_blocks(self, post: Post) -> None:
        for sentence in self._schedules[post.device].repeat_old_blocks():
            self._teller.note(f"{post.name}: {sentence}")

    def _stop_before(self, block: int, ran: int) -> str | None:
        """Why this block is not begun; `ran` are the blocks that this run had to do with."""
        if self._interruption.asked:
            return None  # said below, with what is left
        return self._stop_rule.why_enough(block) or self._stop_rule.why_no_time(block, ran, 1)

    def _run_blocks(self, blocks: Container[int]) -> None:
        """Until every device has done what it lacks of these blocks, or is given up."""
        for post in self._posts:
            post.waiting.extend(trial for trial in self._schedules[post.device].left() if trial.block in blocks)
            if post.here:
                self._next(post)
        self._exchange.hear(lambda post: True)

    def _joins(self, post: Post) -> None:
        """A device that comes later than the others: what it has brought needs not be run."""
        self._repeat_old_blocks(post)
        blocks = {trial.block for trial in post.waiting}
        post.waiting = deque(trial for trial in self._schedules[post.device].left() if trial.block in blocks)
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
        again = self._schedules[post.device].runs_again(post.trial)
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
        schedule = self._schedules[post.device]
        record = schedule.newest(post.trial)
        brought = post.trial.id in found["brought"]
        # One that was brought now has ended, even where an old one like it would be run again.
        ended = record is not None and record.state in (FINISHED if brought else schedule.finished)
        if code == 0 and record is not None and ended and not schedule.is_outdated(record):
            self._count(post, record)
        elif code is None or (code == 0 and brought):  # killed, or asked to stop: a device that is shut down in order
            self._died(post, text)
        else:
            why = text or " ".join(found["refused"]) or _NO_RECORD
            self._exchange.drain(post, obstacle("fleet.no-record", why))

    def _count(self, post: Post, record: Record) -> None:
        assert post.trial is not None
        trial, post.trial = post.trial, None  # done, whatever becomes of the device
        self._schedules[post.device].done += 1
        self._teller.ended(post.name, self._label(trial), record.state, record_s(record))
        if self._breakers[post.device].note(trial, record):  # not worth a night of it
            sentence = f"{THRESHOLDS.breaker} trials in a row failed in the same way: {first_reason(record)}"
            self._exchange.drain(post, obstacle("fleet.same-failure", sentence))
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
