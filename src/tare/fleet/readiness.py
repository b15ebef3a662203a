"""Whether devices can run a study: what each lacks, and who takes part in a run.

Before the plan each is asked what it lacks of a study that may leave that out. What any of them lacks is asked of none,
or they could not be compared; it is kept with the store, since the probes are part of a trial's id. At the start of a
run what was begun earlier is collected, then each is asked whether it can run the study.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from tare import __version__
from tare.base.errors import NotRestoredError, ObstacleError, StoreError, StudyError
from tare.base.files import replace_file
from tare.base.rulings import Ruling, obstacle, read_rulings
from tare.base.untrusted import stranger_json
from tare.fleet.exchange import Exchange, Post, Questions, unanswered
from tare.fleet.incoming import Incoming
from tare.fleet.inventory import Device, Task, factors
from tare.plan.check import NOTHING, MissingParts, PartKey
from tare.records.merging import changed_since
from tare.records.schema import STORE_FILE
from tare.records.store import Store

_NO_ANSWER_IN_TIME = 124  # the agent's code for a command of the engine that it waited for in vain
_WORDS_KEPT = 1500


@dataclass(frozen=True)
class Eligibility:
    """Whether it can run the study, and what it is now."""

    obstacles: tuple[Ruling, ...] = ()  # the study cannot run there: then it is begun nowhere
    own: tuple[Ruling, ...] = ()  # what is wrong with this device, and passes: it is left out, and the others run
    kernel: str | None = None
    tare: str | None = None
    missing: MissingParts = NOTHING  # where it was asked what may be left out

    def as_json(self) -> dict[str, Any]:
        stopped = {key: [each.as_json() for each in getattr(self, key)] for key in ("obstacles", "own")}
        return {**stopped, "kernel": self.kernel, "tare": self.tare, "lacking": self.missing.as_json()}


def eligibility_question(device: Device, text: str, name: str, **more: Any) -> dict[str, Any]:
    """What the agent on a device is asked about the study in `text`; `name` is its file's.

    `leave_out` asks which parts it lacks. Otherwise it is asked whether it can run all but what is `lacking`.
    """
    request = {"study": text, "name": name, "tare": __version__, "python": device.python, "device": factors(device)}
    stdin = json.dumps(request | more) + "\n"
    return {"do": "engine", "engine": device.engine, "arguments": ["device", "fleet", "obstacles"], "stdin": stdin}


def read_eligibility(reported: Mapping[str, Any]) -> Eligibility:
    """What `tare device fleet obstacles` answered over there; raises `ValueError` where that cannot be understood."""
    if not isinstance(code := reported["code"], int):
        raise ValueError(f"{code!r:.80} is no exit code")
    if code != 0:
        words = str(reported["err"] or reported["out"]).strip()[-_WORDS_KEPT:]
        why = obstacle("fleet.no-tare", f"tare does not answer there (code {code}): {words}")
        return Eligibility(own=(why,)) if code == _NO_ANSWER_IN_TIME else Eligibility(obstacles=(why,))
    found = stranger_json(reported["out"])
    if not isinstance(found, dict):
        raise ValueError(f"{reported['out'][:80]!r} is no answer")
    obstacles, own = (read_rulings(found.get(key, ()), "obstacle") for key in ("obstacles", "own"))
    kernel, tare = (None if found.get(key) is None else str(found[key]) for key in ("kernel", "tare"))
    return Eligibility(obstacles, own, kernel, tare, MissingParts.from_json(found.get("lacking", ())))


T = TypeVar("T")


def _heard(answer: Mapping[str, Any], read: Callable[[Mapping[str, Any]], T]) -> T | Ruling:
    """What an answer says; or that it did not come, or cannot be understood, which is that device's own trouble."""
    if answer["ended"] != "answered":
        return unanswered(answer)
    try:
        return read(answer["said"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        return obstacle("fleet.not-understood", f"its answer cannot be understood: {error!r}")


def _all_of(rulings: Sequence[Ruling]) -> Ruling:
    """Several at once: the first has the code."""
    return replace(rulings[0], sentence=" ".join(map(str, rulings)))


MISSING_PARTS_FILE = "fleet.lacking.json"
_MOST_NAMED = 5  # devices, and reasons of one part


def recorded_missing(root: Path) -> MissingParts | None:
    """What the store at `root` was begun without; None where nothing is begun there."""
    path = root / MISSING_PARTS_FILE
    try:
        return MissingParts.from_json(json.loads(path.read_bytes()))
    except FileNotFoundError:
        pass
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(f"{path} cannot be read ({error}), and says what to leave out: take another folder.") from None
    if not (root / STORE_FILE).exists():
        return None
    with Store.open(root) as store:
        return NOTHING if store.states() else None  # begun by a run that left nothing out


def record_missing(store: Store, missing: MissingParts) -> None:
    """Keep what is left out for every run that goes on with this store; what is kept already stays."""
    path = store.root / MISSING_PARTS_FILE
    if not path.exists():
        replace_file(path, json.dumps(missing.as_json(), indent=1).encode())


def ask_all_devices(
    devices: Sequence[Device], text: str, name: str, questions: Questions, note: Callable[[str], None]
) -> MissingParts:
    """What any of these devices lacks of a study, given as its text and its file's name.

    One that can run nothing of any study stops it; one that does not answer is told of, and has no say.
    """
    found = _answers(devices, text, name, questions)
    if cannot := [
        reported.about(device) for device, eligibility in found.items() for reported in eligibility.obstacles
    ]:
        raise ObstacleError("the study cannot run on every device, and nothing was run:", cannot)
    silent = {
        device: _all_of(eligibility.own).about(device) for device, eligibility in found.items() if eligibility.own
    }
    if len(silent) == len(found):
        raise ObstacleError("no device can run it now, and nothing was run:", list(silent.values()))
    for why in silent.values():
        note(
            f"{why} What it lacks is not known: the other devices decide what is left out, and if it lacks more, it "
            "has no place in this store."
        )
    return merged({device: eligibility.missing for device, eligibility in found.items() if device not in silent})


def merged(found: Mapping[str, MissingParts]) -> MissingParts:
    """What any of these devices lacks; each reason says whose it is."""
    whose: dict[PartKey, dict[Ruling, list[str]]] = {}
    for device, missing in found.items():
        for key, rulings in missing.parts.items():
            reasons = whose.setdefault(key, {})
            for ruling in rulings:
                reasons.setdefault(ruling, []).append(device)
    return MissingParts({key: tuple(_worded(reasons)) for key, reasons in whose.items()})


def _worded(reasons: Mapping[Ruling, Sequence[str]]) -> list[Ruling]:
    """A reason often names its device: a thousand of them would be a thousand sentences."""
    shown = [ruling.about(_named(devices)) for ruling, devices in list(reasons.items())[:_MOST_NAMED]]
    others = [device for devices in list(reasons.values())[_MOST_NAMED:] for device in devices]
    more = obstacle("fleet.more-devices", "it does not work there either.")
    return shown + ([more.about(_named(list(dict.fromkeys(others))))] if others else [])


def _named(devices: Sequence[str]) -> str:
    more = f" and {len(devices) - _MOST_NAMED} more" if len(devices) > _MOST_NAMED else ""
    return ", ".join(devices[:_MOST_NAMED]) + more


def _answers(devices: Sequence[Device], text: str, name: str, questions: Questions) -> dict[str, Eligibility]:
    """Every device's answer; one whose worker dies is asked once more."""

    def ask(device: Device) -> Any:
        return questions.ask(device, eligibility_question(device, text, name, leave_out=True), "lacking")

    found: dict[str, Eligibility] = {}
    asked_again: set[str] = set()
    waiting = {ask(device): device for device in devices}
    while waiting:
        for requested in questions.over():
            if (device := waiting.pop(requested, None)) is None:
                continue
            answer = questions.answer(device, requested)
            if answer["ended"] == "worker lost" and device.name not in asked_again:
                asked_again.add(device.name)
                waiting[ask(device)] = device
            else:
                said = _heard(answer, read_eligibility)
                found[device.name] = Eligibility(own=(said,)) if isinstance(said, Ruling) else said
    return {device.name: found[device.name] for device in devices}


# For a trial of an earlier run that has most likely ended, and a worker that has most likely begun: their devices are
# then there from the start.
_GRACE_S = 10.0
_SETTLED = obstacle(
    "fleet.settled",
    "What is skipped was decided when the store was created, so that all trials can be compared: `--on` names the "
    "devices that can run the rest, and a new folder (-o) asks every device again.",
)


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
            self._ask(post, question, "collect", lambda said: list(map(dict, said["endings"])), self._collected)
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
            elif isinstance(answer := _heard(found, read), Ruling):
                self._exchange.drain(post, answer)
            else:
                then(post, answer)

        post.workers_lost = 0
        self._exchange.ask(post, question, word, heard)
