"""Who takes part in a run over a fleet: what was begun earlier is collected, then each is asked whether it can."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tare.errors import NotRestoredError, ObstacleError, StudyError
from tare.fleet.exchange import Exchange, Post
from tare.fleet.incoming import Incoming
from tare.fleet.orders import Task
from tare.fleet.standing import Standing, read_standing, standing_question
from tare.records.mixing import changed_since

_GRACE_S = 10.0  # for a trial of an earlier run that has most likely ended: its device is then there from the start
_SETTLED = (
    "What is left out was settled when the store was begun, so that all of it can be compared: `--on` names the "
    "devices that can run the rest, and a new folder (-o) asks every device again."
)
T = TypeVar("T")


class Muster:
    """Collects first, so that no look at a device disturbs a trial there.

    Before anything is begun, a device that cannot run the study stops all of them. A device that is still at a trial
    of an earlier run of this study holds up none: it joins when that has ended, or is then given up alone.
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
        self._obstacles: list[str] = []
        self._changes: list[str] = []

    def collect(self) -> None:
        """What an earlier run began and did not see the end of is waited for, and taken in."""
        until_s = time.monotonic() + _GRACE_S
        for post in self._posts:
            have = self._incoming.names_from(post.name)
            question = {"do": "collect", "store": self._task.store, "have": have}
            self._ask(post, question, "collect", _endings, self._collected)
        self._exchange.hear(lambda post: not post.unseen or time.monotonic() < until_s)

    def ready(self) -> None:
        """Every device that answers can run the study, or none runs anything."""
        self._asks = True
        for post in self._posts:
            if post.collected and not post.drained:
                self._ask_standing(post)
        self._exchange.hear(lambda post: post.collected)
        if self._obstacles:
            said = [*self._obstacles, *([_SETTLED] if self._task.leaves_out else [])]
            raise ObstacleError("the study cannot run on every device, and nothing was run:", said)
        if self._changes:
            raise StudyError(
                "\n".join(self._changes) + "\nWhat was measured there before cannot be told apart from what is "
                "measured now, and nothing was run. `--accept-changes` goes on all the same, and every comparison of "
                "the two is marked as tainted; `--on` names other devices; or give another folder with -o."
            )
        if all(post.drained for post in self._posts):
            raise ObstacleError("no device can run it now, and nothing was run:", [p.drained for p in self._posts])
        self._begun = True

    def _collected(self, post: Post, endings: Sequence[Mapping[str, Any]]) -> None:
        for ending in endings:
            self._exchange.ledger.write(post.name, "found", **{key: ending.get(key) for key in ("claim", "code")})
            post.not_restored = ending.get("code") == NotRestoredError.exit_code
        post.collected = True
        if self._asks:
            self._ask_standing(post)

    def _ask_standing(self, post: Post) -> None:
        task = self._task
        more: dict[str, Any] = {"ignore_managers": task.ignore_managers, "lacking": task.lacking.as_json()}
        question = standing_question(post.device, task.text, task.name, **more)
        self._ask(post, question, "ready", read_standing, self._stands)

    def _stands(self, post: Post, standing: Standing) -> None:
        obstacles = [f"{post.name}: {sentence}" for sentence in standing.obstacles]
        changes = [] if self._task.accept_changes or not self._has_work(post) else self._changed(post, standing)
        if self._begun and (obstacles or changes):
            self._exchange.drain(post, " ".join([*obstacles, *changes]))
        elif obstacles or changes:
            self._obstacles += obstacles
            self._changes += changes
        elif standing.own:
            self._exchange.drain(post, " ".join(standing.own))
        else:
            post.here = True
            if self._begun:
                self._joins(post)

    def _changed(self, post: Post, standing: Standing) -> list[str]:
        """Trials of two kernels, or of two versions of tare, are not put together by accident."""
        now = {"kernel": standing.kernel, "tare": standing.tare}
        since = changed_since(self._incoming.of_device(post.name), str(self._root), now)
        return [f"{post.name}: {sentence}" for sentence in since]

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
                self._exchange.drain(post, found["text"])
            else:
                try:
                    answer = read(found["said"])
                except (LookupError, TypeError, ValueError, AttributeError) as error:
                    self._exchange.drain(post, f"its answer cannot be understood: {error!r}")
                else:
                    then(post, answer)

        post.workers_lost = 0
        self._exchange.ask(post, question, word, heard)


def _endings(said: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """How the trials of earlier runs ended there."""
    return [dict(ending) for ending in said["endings"]]
