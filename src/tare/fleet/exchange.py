"""The talk with the devices of one run: questions on their way, and answers to whoever asked."""

from __future__ import annotations

import json
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from tare.base.errors import TareError
from tare.base.rulings import Ruling, obstacle
from tare.base.untrusted import MOST_VALUES, check_depth
from tare.fleet.cluster import Cluster, SchedulerGone, WorkerLost
from tare.fleet.driving import drive
from tare.fleet.incoming import Incoming, Ledger
from tare.fleet.interruption import Interruption
from tare.fleet.inventory import Device
from tare.fleet.ssh import MOST_RECORD_BYTES
from tare.plan.matrix import Trial

ENDED = frozenset({"answered", "unreachable", "refused"})
_MOST_TEXT = 1 << 20
_LOOK_EVERY_S = 1.0


class Questions:
    """Asks and hears. An answer says how it `ended`: as `driving.drive` does, or `worker lost`, or `no worker`.

    The `text` of one that did not come says why, without the device's name.
    """

    def __init__(self, cluster: Cluster, patience_s: float, driving: Callable[..., dict[str, Any]] = drive) -> None:
        self._cluster = cluster
        self._patience_s = patience_s
        self._drive = driving
        self._asked = 0
        self._word = os.urandom(4).hex()  # a cluster that others use too has keys of theirs

    def ask(self, device: Device, question: Mapping[str, Any], word: str) -> Any:
        """What is asked, to be known again by; the device's worker asks as soon as it has nothing else to ask."""
        self._asked += 1
        fields = device.model_dump(mode="json")
        key = f"{device.name}-{word}-{self._word}-{self._asked}"  # never used twice: dask must not think that it knows
        return self._cluster.submit(device.name, key, self._drive, fields, dict(question), self._patience_s)

    def over(self) -> Sequence[Any]:
        """Those that there is an answer to now, or nobody left to give one; waits a while for the first."""
        self._cluster.check()
        return self._cluster.over(_LOOK_EVERY_S)

    def is_queued(self, device: Device) -> bool:
        """Whether its worker is still to come: it is asked when it has."""
        return device.name in self._cluster.queued()

    def answer(self, device: Device, pending: Any) -> dict[str, Any]:
        """What came of a question that is over. Whatever went wrong with it is this device's, and no other's."""
        try:
            return checked_answer(self._cluster.result(pending))
        except SchedulerGone:
            raise
        except WorkerLost:
            return self._replaced(device, pending)
        except Exception as error:  # no ssh where the worker is, no memory for one, no tare there, ...
            why = f"it could not be asked ({type(error).__name__}): {error}"
            return {"ended": "refused", "text": why, "broken": []}

    def _replaced(self, device: Device, pending: Any) -> dict[str, Any]:
        """A worker that died is replaced, and that is said."""
        try:
            self._cluster.replace(pending)
        except (TareError, OSError) as error:
            return {"ended": "no worker", "text": str(error), "broken": []}
        return {"ended": "worker lost", "text": "the worker that drove it died.", "broken": []}


def checked_answer(found: Any) -> dict[str, Any]:
    """The answer, if it is one that a worker of ours gives; TareError where it is not."""
    if not isinstance(found, dict) or found.get("ended") not in ENDED:
        raise TareError("its answer is none that tare gives")
    if not isinstance(found.get("broken"), list) or not all(isinstance(each, str) for each in found["broken"]):
        raise TareError("its answer does not say how often the line broke")
    if not isinstance(found.get("text", ""), str) or len(found.get("text", "")) > _MOST_TEXT:
        raise TareError("the text of its answer is none")
    if not isinstance(records := found.get("records", b""), bytes) or len(records) > MOST_RECORD_BYTES:
        raise TareError("the records that it sends are no bytes, or too many")
    reported = found.get("said", {})
    if not isinstance(reported, Mapping) or not all(isinstance(key, str) for key in reported):
        raise TareError("what it reports is no object")
    if reported.get("code") is not None and not isinstance(reported["code"], int):
        raise TareError(f"the code of its trial is {str(reported['code'])[:80]!r}")
    if found["ended"] == "answered" and "said" not in found:
        raise TareError("its answer is empty")
    try:
        check_depth(dict(reported), most_values=MOST_VALUES)  # a pickle may hold the same list a billion times
        said = json.loads(json.dumps(dict(reported), allow_nan=False))
    except (RecursionError, TypeError, ValueError) as error:
        raise TareError(f"what it reports is no JSON: {error}") from error
    return {"text": "", "records": b"", **found, **({"said": said} if "said" in found else {})}


_UNANSWERED = {"unreachable": "fleet.unreachable", "refused": "fleet.refused"}


def unanswered(answer: Mapping[str, Any]) -> Ruling:
    """Why a question has no answer."""
    return obstacle(_UNANSWERED.get(answer["ended"], "fleet.worker"), str(answer["text"]))


_MINDED_EVERY_S = 1.0
_TOLD_EVERY_S = 60.0


class ProgressReporter(Protocol):
    """Whoever wants to know how far it is."""

    def started(self, trials: int, devices: int) -> None: ...
    def ended(self, device: str, label: str, state: str, seconds: float) -> None: ...
    def note(self, text: str) -> None: ...


@dataclass(eq=False)
class Post:
    """One device in this run: what it has to do, what it does now, and why it does no more."""

    device: Device
    unseen: bool = False  # it was at a trial when an earlier run was last heard of
    collected: bool = False  # what it has from earlier runs is here
    here: bool = False  # it takes part
    waiting: deque[Trial] = field(default_factory=deque)
    trial: Trial | None = None
    tries: int = 0  # claims that were begun for this trial
    workers_lost: int = 0  # while it was asked one thing
    drained: Ruling | None = None
    not_restored: bool = False
    asked_s: float = math.inf
    then: Callable[[Post, dict[str, Any]], None] | None = None

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def left(self) -> int:
        return len(self.waiting) + (self.trial is not None)

    @property
    def at_work(self) -> bool:
        """As far as we know, a trial runs there."""
        return not self.drained and (self.trial is not None or (self.unseen and not self.collected))


Then: TypeAlias = Callable[[Post, dict[str, Any]], None]


class Exchange:
    """Asks devices, and hears them; a device that does not come to an end within `limit_s` is skipped."""

    def __init__(
        self, questions: Questions, incoming: Incoming, ledger: Ledger, reporter: ProgressReporter,
        interruption: Interruption,
        limit_s: float,
    ) -> None:  # fmt: skip
        self._questions = questions
        self._incoming = incoming
        self.ledger = ledger
        self.reporter = reporter
        self._interruption = interruption
        self._limit_s = limit_s
        self._waiting_for: dict[Any, Post] = {}  # the questions that are on their way
        self._told_s = self._minded_s = time.monotonic()

    def ask(self, post: Post, question: dict[str, Any], word: str, then: Then) -> None:
        """Put a question to a device; `then` is told how it ended, with what was brought and refused of its records."""
        post.asked_s, post.then = time.monotonic(), then
        self._waiting_for[self._questions.ask(post.device, question, word)] = post

    def hear(self, is_wanted: Callable[[Post], bool]) -> None:
        """Answers as they come, until none is on its way that is wanted. Who stops has no time for who is not here."""
        try:
            self.ledger.settle()
            while any(is_wanted(post) and self._is_waited_for(post) for post in self._waiting_for.values()):
                answered = []
                for requested in self._questions.over():
                    if (post := self._waiting_for.pop(requested, None)) is not None:
                        answered.append((post, self._questions.answer(post.device, requested)))
                self._take(answered)
                for post, found in answered:
                    assert post.then is not None
                    post.then(post, found)
                self._mind_the_time()
                self.ledger.settle()
        finally:
            self.ledger.settle()

    def is_queued(self, post: Post) -> bool:
        """Whether its worker is still to come."""
        return self._questions.is_queued(post.device)

    def _is_waited_for(self, post: Post) -> bool:
        return not self._interruption.asked or (post.here and not self.is_queued(post))

    def drain(self, post: Post, why: Ruling) -> None:
        """No more trials on this device; the others go on, and the next run comes back to it."""
        post.drained = why.about(post.name)
        self.ledger.write(post.name, "skipped", code=why.code, text=str(why))
        self.reporter.note(f"skipped for this run: {post.drained}")

    def _take(self, answered: Sequence[tuple[Post, dict[str, Any]]]) -> None:
        """The records that came with these answers, all at once."""
        taken = self._incoming.keep([(post.name, found.get("records", b"")) for post, found in answered])
        for (post, found), merged in zip(answered, taken, strict=True):
            found |= {"brought": {record.trial for record in merged.records}, "refused": merged.refused}
            for sentence in merged.refused:
                self.ledger.write(post.name, "refused", text=sentence)
                self.reporter.note(f"{post.name}: {sentence}")

    def _mind_the_time(self) -> None:
        """Not for each answer: a thousand devices are looked at."""
        now_s = time.monotonic()
        if now_s - self._minded_s >= _MINDED_EVERY_S:
            self._minded_s = now_s
            self._give_up_overdue(now_s)
            self._tell_who_is_late(now_s)

    def _give_up_overdue(self, now_s: float) -> None:
        """A trial that was stopped, or hangs where its own limit does not reach, would be waited for without end."""
        for requested, post in list(self._waiting_for.items()):
            if self.is_queued(post):
                post.asked_s = now_s  # nobody is there yet who could answer
            if now_s - post.asked_s > self._limit_s:
                del self._waiting_for[requested]
                waited_h = (now_s - post.asked_s) / 3600
                sentence = (
                    f"nothing was heard of it for {waited_h:.1f} h, longer than its trial may take: the trial hangs, "
                    "or was stopped. Look at it there; the next run collects what comes of it."
                )
                self.drain(post, obstacle("fleet.overdue", sentence))

    def _tell_who_is_late(self, now_s: float) -> None:
        if now_s - self._told_s < _TOLD_EVERY_S:
            return
        self._told_s = now_s
        late = [(post.name, now_s - post.asked_s) for post in self._waiting_for.values() if not post.here]
        if reported := ", ".join(
            f"{name} ({since_s / 60:.0f} min)" for name, since_s in late if since_s >= _TOLD_EVERY_S
        ):
            self.reporter.note(
                f"still waited for: {reported}. What an earlier run began there goes on, or there is no answer; "
                "it takes part as soon as that has ended."
            )
