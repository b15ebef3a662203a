"""Who takes part in a run over a fleet: what was begun earlier is collected, then each is asked whether it can."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tare.base.errors import NotRestoredError, ObstacleError, StudyError
from tare.base.rulings import Ruling, obstacle
from tare.fleet.eligibility import Eligibility, eligibility_question, read_eligibility
from tare.fleet.exchange import Exchange, Post, unanswered
from tare.fleet.incoming import Incoming
from tare.fleet.orders import Task
from tare.records.merging import changed_since

# For a trial of an earlier run that has most likely ended, and a worker that has most likely begun: their devices are
# then there from the start.
_GRACE_S = 10.0
_SETTLED = obstacle(
    "fleet.settled",
    "What is skipped was decided when the store was created, so that all trials can be compared: `--on` names the "
    "devices that can run the rest, and a new folder (-o) asks every device again.",
)
T = TypeVar("T")


class ReadinessCheck:
    """Collects first, so that no look at a device disturbs a trial there.

    Before anything is begun, a device that cannot run the study stops all of them. A device that is still at a trial
    of an earlier run of this study, or whose worker waits in a queue, holds up none: it joins when that has ended, or
    is then given up alone.
    """

    def __init__(
        self, posts: Sequence[Post], exchange: Exchange, incoming: Incoming, task: Task, root: Path,
        has_work: Callable[[Post], bool], joins: Callable[[Post], None],
    ) -> None:  # fmt: skip
        self._posts = posts
        self._exchange = exchange
        self._incoming = incoming
        self._task = task
        self._root = root
        self._has_work = has_work
        self._joins = joins  # is told of a device that comes after the others have begun
        self._asks = self._begun = False
        self._obstacles: list[Ruling] = []
        self._changes: list[str] = []

    def collect(self) -> None:
        """What an earlier run began and did not see the end of is waited for, and taken in."""
        until_s = time.monotonic() + _GRACE_S
        for post in self._posts:
            have = self._incoming.names_from(post.name)
            question = {"do": "collect", "store": self._task.store, "have": have}
            self._ask(post, question, "collect", _endings, self._collected)
        self._exchange.hear(
            lambda post: time.monotonic() < until_s or not (post.unseen or self._exchange.is_queued(post))
        )

    def ready(self) -> None:
        """Every device that answers can run the study, or none runs anything."""
        self._asks = True
        for post in self._posts:
            if post.collected and not post.drained:
                self._ask_eligibility(post)
        self._exchange.hear(lambda post: post.collected and not self._exchange.is_queued(post))
        if self._obstacles:
            reported = [*self._obstacles, *([_SETTLED] if self._task.leaves_out else [])]
            raise ObstacleError("the study cannot run on every device, and nothing was run:", reported)
        if self._changes:
            raise StudyError(
                "\n".join(self._changes) + "\nWhat was measured there before cannot be told apart from what is "
                "measured now, and nothing was run. `--accept-changes` continues anyway, and every comparison of "
                "the two is marked as tainted; `--on` names other devices; or give another folder with -o."
            )
        if all(post.drained for post in self._posts):
            why = [post.drained for post in self._posts if post.drained]
            raise ObstacleError("no device can run it now, and nothing was run:", why)
        self._begun = True

    def _collected(self, post: Post, endings: Sequence[Mapping[str, Any]]) -> None:
        for ending in endings:
            self._exchange.ledger.write(post.name, "found", **{key: ending.get(key) for key in ("claim", "code")})
            post.not_restored = ending.get("code") == NotRestoredError.exit_code
        post.collected = True
        if self._asks:
            self._ask_eligibility(post)

    def _ask_eligibility(self, post: Post) -> None:
        task = self._task
        more: dict[str, Any] = {"ignore_managers": task.ignore_managers, "lacking": task.missing.as_json()}
        question = eligibility_question(post.device, task.text, task.name, **more)
        self._ask(post, question, "ready", read_eligibility, self._on_eligibility)

    def _on_eligibility(self, post: Post, eligibility: Eligibility) -> None:
        obstacles = [ruling.about(post.name) for ruling in eligibility.obstacles]
        changes = [] if self._task.accept_changes or not self._has_work(post) else self._changed(post, eligibility)
        if self._begun and (obstacles or changes):
            self._exchange.drain(post, _all_of([*eligibility.obstacles, *changes]))
        elif obstacles or changes:
            self._obstacles += obstacles
            self._changes += [str(change.about(post.name)) for change in changes]
        elif eligibility.own:
            self._exchange.drain(post, _all_of(eligibility.own))
        else:
            post.here = True
            if self._begun:
                self._joins(post)

    def _changed(self, post: Post, eligibility: Eligibility) -> list[Ruling]:
        """Trials of two kernels, or of two versions of tare, are not put together by accident."""
        now = {"kernel": eligibility.kernel, "tare": eligibility.tare}
        since = changed_since(self._incoming.of_device(post.name), str(self._root), now)
        return [obstacle("fleet.changed", sentence) for sentence in since]

    def _ask(
        self, post: Post, question: dict[str, Any], word: str, read: Callable[[Mapping[str, Any]], T],
        then: Callable[[Post, T], None],
    ) -> None:  # fmt: skip
        """One question; once more if its worker dies. Who does not answer, or cannot be understood, is left out."""

        def heard(post: Post, found: dict[str, Any]) -> None:
            if found["ended"] == "worker lost" and not post.workers_lost:
                post.workers_lost += 1
                self._exchange.ask(post, question, f"{word}-again", heard)
            elif found["ended"] != "answered":
                self._exchange.drain(post, unanswered(found))
            else:
                try:
                    answer = read(found["said"])
                except (LookupError, TypeError, ValueError, AttributeError) as error:
                    why = obstacle("fleet.not-understood", f"its answer cannot be understood: {error!r}")
                    self._exchange.drain(post, why)
                else:
                    then(post, answer)

        post.workers_lost = 0
        self._exchange.ask(post, question, word, heard)


def _all_of(rulings: Sequence[Ruling]) -> Ruling:
    """Several at once: the first has the code."""
    return replace(rulings[0], sentence=" ".join(map(str, rulings)))


def _endings(reported: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """How the trials of earlier runs ended there."""
    return [dict(ending) for ending in reported["endings"]]
