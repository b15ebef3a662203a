"""Runs a plan over devices: each has its own trials, in order, and one that is lost holds up none of the others.

dask decides nothing here but where: a trial is pinned to its device's worker, and what it does about a failure is ours.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tare import __version__
from tare.analysis.weighing import is_enough
from tare.errors import ObstacleError
from tare.fleet.cluster import Cluster
from tare.fleet.driving import PATIENCE_S, drive
from tare.fleet.incoming import Incoming, Ledger
from tare.fleet.inventory import Device
from tare.fleet.local import Outcome, labels
from tare.fleet.orders import Task, claim, factors, question
from tare.fleet.questions import Questions
from tare.fleet.signals import Interruption
from tare.plan.model import Trial
from tare.records.model import FINISHED, Record, State
from tare.records.store import Store
from tare.study.model import Study
from tare.trial.thresholds import THRESHOLDS

TRIES = 2  # a trial that was lost on the way is tried once more, and the ledger says so
_NO_RECORD = (
    "the trial ended there without a record that is new here. Where the store on the device was removed, its attempts "
    "are numbered anew: a new store here (`-o`) goes with it."
)


class Teller(Protocol):
    """Whoever wants to know how far it is."""

    def started(self, trials: int, devices: int) -> None: ...
    def ended(self, device: str, label: str, state: str, seconds: float) -> None: ...
    def note(self, text: str) -> None: ...


@dataclass
class Post:
    """One device in this run: what it has to do, what it does now, and why it does no more."""

    device: Device
    waiting: deque[Trial] = field(default_factory=deque)
    trial: Trial | None = None
    tries: int = 0  # claims that were begun for this trial
    workers_lost: int = 0  # while this trial was driven
    drained: str = ""
    same_failure: list[str] = field(default_factory=list)

    @property
    def left(self) -> int:
        return len(self.waiting) + (self.trial is not None)


class FleetRun:
    """One run over a fleet: ready, collect, run."""

    def __init__(
        self, study: Study, task: Task, plans: Mapping[Device, Sequence[Trial]], store: Store, cluster: Cluster,
        teller: Teller, interruption: Interruption, patience_s: float = PATIENCE_S,
        driving: Callable[..., dict[str, Any]] = drive,
    ) -> None:  # fmt: skip
        self._study = study
        self._task = task
        self._plans = plans
        self._store = store
        self._incoming = Incoming(store)
        self._questions = Questions(cluster, patience_s, driving)
        self._teller = teller
        self._interruption = interruption
        self._ledger = Ledger(store.root)
        self._posts = [Post(device) for device in plans]
        self._waiting_for: dict[Any, Post] = {}  # the questions that are on their way
        self._label = labels(next(iter(plans.values())))  # the device is said beside it
        self._done = 0
        self._start_s = time.monotonic()

    @property
    def drained(self) -> dict[str, str]:
        """The devices that were given up, and why."""
        return {post.device.name: post.drained for post in self._posts if post.drained}

    # Before the first trial

    def ready(self) -> None:
        """Every device that answers can run the study, or none runs anything."""
        request = {"study": self._task.text, "name": self._task.name, "ignore_managers": self._task.ignore_managers}
        request["tare"] = __version__
        sentences = []
        self._ledger.write("", "begun", run=self._task.run, devices=[post.device.name for post in self._posts])
        for post, said in self._everywhere(lambda post: self._engine_question(post.device, request)):
            if said["code"] != 0:
                why = (said["err"] or said["out"]).strip()[-1500:]
                sentences.append(f"{post.device.name}: tare does not answer there (code {said['code']}): {why}")
            else:
                sentences += [f"{post.device.name}: {text}" for text in json.loads(said["out"])["obstacles"]]
        if sentences:
            raise ObstacleError("the study cannot run on every device, and nothing was run:", sentences)
        if all(post.drained for post in self._posts):
            raise ObstacleError("no device can be reached, and nothing was run:", list(self.drained.values()))

    def collect(self) -> None:
        """What an earlier run began and did not see the end of is waited for, and taken in."""

        def ask(post: Post) -> dict[str, Any]:
            return {"do": "collect", "store": self._task.store, "have": self._incoming.names_from(post.device.name)}

        for post, said in self._everywhere(ask):
            for ending in said["endings"]:
                self._ledger.write(post.device.name, "found", **{key: ending.get(key) for key in ("claim", "code")})

    def _engine_question(self, device: Device, request: Mapping[str, Any]) -> dict[str, Any]:
        stdin = json.dumps({**request, "python": device.python, "device": factors(device)}) + "\n"
        return {"do": "engine", "engine": device.engine, "arguments": ["fleet", "obstacles"], "stdin": stdin}

    def _everywhere(self, ask: Callable[[Post], Mapping[str, Any]]) -> list[tuple[Post, dict[str, Any]]]:
        """One question to every device, all at once; who does not answer is left out of this run."""
        answers: dict[str, dict[str, Any]] = {}
        lost: set[str] = set()
        for post in self._posts:
            if not post.drained:
                self._waiting_for[self._questions.ask(post.device, ask(post), "ask")] = post
        for post, found in self._answers():
            if found["ended"] == "worker lost" and post.device.name not in lost:
                lost.add(post.device.name)
                self._waiting_for[self._questions.ask(post.device, ask(post), "again")] = post
            elif found["ended"] == "answered":
                answers[post.device.name] = found["said"]
            else:
                self._drain(post, found["text"])
        return [(post, answers[post.device.name]) for post in self._posts if post.device.name in answers]

    def _answers(self) -> Iterator[tuple[Post, dict[str, Any]]]:
        """Answers as they come, until nobody is waited for."""
        try:
            self._ledger.settle()
            while self._waiting_for:
                answered = []
                for asked in self._questions.over():
                    if (post := self._waiting_for.pop(asked, None)) is not None:
                        answered.append((post, self._questions.answer(post.device, asked)))
                self._take(answered)
                yield from answered
                self._ledger.settle()
        finally:
            self._ledger.settle()

    # The trials

    def run(self) -> Outcome:
        """Run what the store does not have yet; blocks past the floor one by one, each if the stop rule wants it."""
        states = self._store.states()
        plans = {post.device: self._missing(self._plans[post.device], states) for post in self._posts}
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
        left = sum(post.left for post in self._posts)
        if self._interruption.asked:
            return Outcome(self._done, left, "stopped by you", interrupted=True)
        given_up = f"{len(self.drained)} of {len(self._posts)} devices were given up; {left} trials are left"
        said = [sentence for sentence in (enough, given_up if self.drained else "") if sentence]
        return Outcome(self._done, left, "; ".join(said) or "all planned trials are done")

    def _missing(self, planned: Sequence[Trial], states: Mapping[str, State]) -> list[Trial]:
        return [trial for trial in planned if states.get(trial.id) not in self._finished]

    @property
    def _finished(self) -> Sequence[State]:
        return ("ok", "suspect") if self._task.retry_failed else FINISHED

    def _lay_out(self, plans: Mapping[Device, Sequence[Trial]], wanted: Callable[[Trial], bool]) -> None:
        for post in self._posts:
            post.waiting.extend(trial for trial in plans[post.device] if wanted(trial))

    def _stop_before(self, block: int, ran: int) -> str | None:
        """The stop rule, as the study declared it before the run; `ran` are the blocks that this run had to do with."""
        repeat = self._study.repeat
        if self._interruption.asked:
            return None  # said below, with what is left
        if repeat.until is not None and is_enough(self._store, until=repeat.until):
            return f"tight enough after {block} blocks: every interval is within ±{repeat.until:.1%}"
        spent_s = time.monotonic() - self._start_s
        if repeat.within_s is not None and spent_s * (ran + 1) / max(ran, 1) > repeat.within_s:
            return f"another block would not fit into the {repeat.within_s:.0f} s that the study allows"
        return None

    def _work(self) -> None:
        """Until every device has done what it waits with, or is given up."""
        for post in self._posts:
            self._next(post)
        for post, found in self._answers():
            self._ended(post, found)

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
        asked = question(post.trial, post.device, self._task, post.tries, have)
        self._ledger.write(post.device.name, "try" if new else "again", trial=post.trial.id, claim=asked["claim"])
        self._waiting_for[self._questions.ask(post.device, asked, asked["claim"])] = post

    def _ended(self, post: Post, found: dict[str, Any]) -> None:
        """One answer about a trial, or none."""
        assert post.trial is not None
        name = claim(post.trial, self._task, post.tries)
        text = found.get("text") or (found.get("said") or {}).get("text", "")
        code = (found.get("said") or {}).get("code")
        self._ledger.write(post.device.name, found["ended"], claim=name, code=code, text=text, broken=found["broken"])
        if found["ended"] == "worker lost" and post.workers_lost < TRIES:
            self._go_on_with_another_worker(post)
        elif found["ended"] != "answered":
            self._drain(post, text)
        else:
            self._answered(post, found, code, text)

    def _go_on_with_another_worker(self, post: Post) -> None:
        """The device has not noticed: its trial goes on, and whoever asks next hears how it ended."""
        post.workers_lost += 1
        self._teller.note(f"{post.device.name}: the worker that drove it died; another one takes over.")
        self._try(post, new=False)

    def _answered(self, post: Post, found: Mapping[str, Any], code: int | None, text: str) -> None:
        assert post.trial is not None
        record = self._incoming.newest(post.trial.id)
        is_old = record is not None and record.state not in self._finished and record.trial not in found["brought"]
        if code is None and post.tries < TRIES:
            self._teller.note(f"{post.device.name}: trial {post.trial.id[:8]} died there, and is tried again. {text}")
            self._try(post, new=True)
        elif code != 0 or record is None or is_old:
            self._drain(post, text or " ".join(found["refused"]) or _NO_RECORD)
        else:
            self._done += 1
            seconds = (record.end_ns - record.start_ns) / 1e9
            self._teller.ended(post.device.name, self._label(post.trial), record.state, seconds)
            post.trial = None  # done, whatever becomes of the device
            self._give_up_if_hopeless(post, record)
            self._next(post)

    def _give_up_if_hopeless(self, post: Post, record: Record) -> None:
        """The same failure again and again is this device's, and not worth a night of it."""
        reason = record.reasons[0] if record.reasons else record.state
        if record.state not in ("failed", "timeout", "oom") or reason not in post.same_failure[-1:]:
            post.same_failure.clear()
        post.same_failure.append(reason)
        if record.state in ("failed", "timeout", "oom") and len(post.same_failure) >= THRESHOLDS.breaker:
            self._drain(post, f"{len(post.same_failure)} trials in a row failed in the same way: {reason}")

    def _drain(self, post: Post, why: str) -> None:
        """No more trials on this device; the others go on, and the next run comes back to it."""
        post.drained = why if why.startswith(f"{post.device.name}:") else f"{post.device.name}: {why}"
        self._ledger.write(post.device.name, "given up", text=why)
        self._teller.note(f"given up for this run: {post.drained}")

    def _take(self, answered: Sequence[tuple[Post, dict[str, Any]]]) -> None:
        """The records that came with these answers, all at once."""
        taken = self._incoming.keep([found.get("records", b"") for _, found in answered])
        for (post, found), merged in zip(answered, taken, strict=True):
            found |= {"brought": {record.trial for record in merged.records}, "refused": merged.refused}
            for sentence in merged.refused:
                self._ledger.write(post.device.name, "refused", text=sentence)
                self._teller.note(f"{post.device.name}: {sentence}")
