"""The talk with the devices of one run: questions on their way, answers to whoever asked, and whom nobody waits for."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from tare.fleet.incoming import Incoming, Ledger
from tare.fleet.inventory import Device
from tare.fleet.questions import Questions
from tare.fleet.signals import Interruption
from tare.plan.model import Trial

_MINDED_EVERY_S = 1.0
_TOLD_EVERY_S = 60.0


class Teller(Protocol):
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
    drained: str = ""
    not_restored: bool = False
    same_failure: list[str] = field(default_factory=list)
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
    """Asks devices, and hears them; a device that does not come to an end within `limit_s` is given up."""

    def __init__(
        self, questions: Questions, incoming: Incoming, ledger: Ledger, teller: Teller, interruption: Interruption,
        limit_s: float,
    ) -> None:  # fmt: skip
        self._questions = questions
        self._incoming = incoming
        self.ledger = ledger
        self.teller = teller
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
            while any(
                is_wanted(post) and (post.here or not self._interruption.asked) for post in self._waiting_for.values()
            ):
                answered = []
                for asked in self._questions.over():
                    if (post := self._waiting_for.pop(asked, None)) is not None:
                        answered.append((post, self._questions.answer(post.device, asked)))
                self._take(answered)
                for post, found in answered:
                    assert post.then is not None
                    post.then(post, found)
                self._mind_the_time()
                self.ledger.settle()
        finally:
            self.ledger.settle()

    def drain(self, post: Post, why: str) -> None:
        """No more trials on this device; the others go on, and the next run comes back to it."""
        post.drained = why if why.startswith(f"{post.name}:") else f"{post.name}: {why}"
        self.ledger.write(post.name, "given up", text=why)
        self.teller.note(f"given up for this run: {post.drained}")

    def _take(self, answered: Sequence[tuple[Post, dict[str, Any]]]) -> None:
        """The records that came with these answers, all at once."""
        taken = self._incoming.keep([(post.name, found.get("records", b"")) for post, found in answered])
        for (post, found), merged in zip(answered, taken, strict=True):
            found |= {"brought": {record.trial for record in merged.records}, "refused": merged.refused}
            for sentence in merged.refused:
                self.ledger.write(post.name, "refused", text=sentence)
                self.teller.note(f"{post.name}: {sentence}")

    def _mind_the_time(self) -> None:
        """Not for each answer: a thousand devices are looked at."""
        now_s = time.monotonic()
        if now_s - self._minded_s >= _MINDED_EVERY_S:
            self._minded_s = now_s
            self._give_up_overdue(now_s)
            self._tell_who_is_late(now_s)

    def _give_up_overdue(self, now_s: float) -> None:
        """A trial that was stopped, or hangs where its own limit does not reach, would be waited for without end."""
        for asked, post in list(self._waiting_for.items()):
            if now_s - post.asked_s > self._limit_s:
                del self._waiting_for[asked]
                waited_h = (now_s - post.asked_s) / 3600
                self.drain(
                    post,
                    f"nothing was heard of it for {waited_h:.1f} h, longer than its trial may take: the trial hangs, "
                    "or was stopped. Look at it there; the next run collects what comes of it.",
                )

    def _tell_who_is_late(self, now_s: float) -> None:
        if now_s - self._told_s < _TOLD_EVERY_S:
            return
        self._told_s = now_s
        late = [(post.name, now_s - post.asked_s) for post in self._waiting_for.values() if not post.here]
        if told := ", ".join(f"{name} ({since_s / 60:.0f} min)" for name, since_s in late if since_s >= _TOLD_EVERY_S):
            self.teller.note(
                f"still waited for: {told}. What an earlier run began there goes on, or there is no answer; "
                "it takes part as soon as that has ended."
            )
