"""Whether devices can run a study: what each lacks, who takes part in a run, and `tare device fleet check`.

Before the plan each is asked what it lacks of a study that may leave that out. What any of them lacks is asked of none,
or they could not be compared; it is kept with the store, since the probes are part of a trial's id. At the start of a
run what was begun earlier is collected, then each is asked whether it can run the study.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from tare import __version__
from tare.base.errors import NotRestoredError, ObstacleError, StoreError, StudyError, TareError
from tare.base.files import replace_file
from tare.base.rulings import Ruling, obstacle, read_rulings
from tare.base.untrusted import stranger_json
from tare.fleet.exchange import Exchange, Incoming, Post, Questions, unanswered
from tare.fleet.inventory import Device, Task, factors
from tare.fleet.ssh import DeviceError, ask, clock
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


# What a device is now, for `tare device fleet check`


AT_ONCE = 32  # connections, so that a fleet of hundreds is looked at in a minute
LEAST_FREE_BYTES = 256 << 20
MOST_CLOCK_OFFSET_S = 1.0
ANSWERS_WITHIN_S = 300.0  # its agent gives each of two short commands of the engine two minutes
_MOST_FREE_BYTES = 1 << 64
_Parts = dict[str, tuple[str, ...]]
_KINDS = ("platforms", "controls", "probes")
_LEAN_PARTS: _Parts = {"platforms": ("bare",), "controls": ()}


@dataclass(frozen=True)
class Inspection:
    """One device, as it stands now; what it could not be asked is None."""

    name: str
    type: str | None
    reachable: bool
    ready: bool  # nothing stands in the way of a trial
    troubles: tuple[Ruling, ...] = ()
    python: str | None = None
    tare: str | None = None
    machine: str | None = None
    kernel: str | None = None
    root: bool | None = None
    free_bytes: int | None = None
    clock_offset_s: float | None = None  # its clock less ours
    clock_within_s: float | None = None  # half the way there and back: no nearer can be said
    owner: Mapping[str, Any] | None = None
    driven: str | None = None  # "whole": by tare there; "lean": from here
    platforms: tuple[str, ...] | None = None  # those that work there
    controls: tuple[str, ...] | None = None
    probes: tuple[str, ...] | None = None  # None on a lean device: which sensors it has shows when a trial asks

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def inspect_all_devices(devices: Sequence[Device]) -> list[Inspection]:
    """Every device, in the order of the inventory."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(inspect_device, devices))


def inspect_device(device: Device) -> Inspection:
    """One device; that it cannot be reached is an answer too."""
    try:
        question = {"do": "look", "engine": device.engine, "abilities": not device.lean}
        reported = ask(device, question, within_s=ANSWERS_WITHIN_S).said
        offset_s, within_s = clock(device, ANSWERS_WITHIN_S)
    except TareError as error:
        why = obstacle(error.code, error.what if isinstance(error, DeviceError) else str(error))
        return Inspection(device.name, device.type, reachable=False, ready=False, troubles=(why,))
    if wrong := _misshapen(reported):
        sentence = f"its answer makes no sense here: {wrong}. Another program answers there, or another tare."
        strange = obstacle("fleet.not-understood", sentence)
        return Inspection(device.name, device.type, reachable=True, ready=False, troubles=(strange,))
    parts, unread = (_LEAN_PARTS, []) if device.lean else _abilities(reported)
    facts: dict[str, Any] = {key: reported[key] for key in ("python", "machine", "kernel", "root", "free_bytes")}
    troubles = (*_engine_troubles(device, reported), *unread, *_other_troubles(reported, offset_s, within_s))
    return Inspection(
        device.name,
        device.type,
        reachable=True,
        ready=not troubles,
        troubles=troubles,
        tare=_version(reported),
        owner=reported["owner"],
        driven="lean" if device.lean else "whole",
        clock_offset_s=offset_s,
        clock_within_s=within_s,
        platforms=parts.get("platforms"),
        controls=parts.get("controls"),
        probes=parts.get("probes"),
        **facts,
    )


_COMMAND: dict[str, tuple[type, ...]] = {"code": (int,), "out": (str,), "err": (str,)}
_OWNER: dict[str, tuple[type, ...]] = {name: (str, int, float, type(None)) for name in ("pid", "user", "run")}
_LOOK: dict[str, tuple[type, ...]] = {
    "python": (str,), "machine": (str,), "kernel": (str,), "root": (bool,), "free_bytes": (int,), "state": (str,),
    "owner": (dict, type(None)), "engine": (dict,), "abilities": (dict, type(None)),
}  # fmt: skip


def _misshapen(reported: object) -> str | None:
    """What of an answer is not as our agent gives it; a device may send anything."""
    if not isinstance(reported, Mapping):
        return f"it is {reported!r:.80}"
    return (
        _wrong_in(reported, _LOOK, missing_ok=("abilities",))
        or (None if 0 <= reported["free_bytes"] < _MOST_FREE_BYTES else "free_bytes is no size of a disk")
        or _wrong_in(reported["engine"], _COMMAND, "engine.")
        or (_wrong_in(reported["abilities"], _COMMAND, "abilities.") if reported.get("abilities") else None)
        or (_wrong_in(reported["owner"], _OWNER, "owner.", tuple(_OWNER)) if reported["owner"] else None)
    )


def _wrong_in(
    found: Mapping[str, Any], shape: Mapping[str, tuple[type, ...]], above: str = "", missing_ok: Sequence[str] = ()
) -> str | None:
    for name, kinds in shape.items():
        if name not in found:
            if name not in missing_ok:
                return f"{above}{name} is missing"
        elif not isinstance(found[name], kinds) or (isinstance(found[name], bool) and bool not in kinds):
            return f"{above}{name} is {found[name]!r:.80}"
    return None


def _abilities(reported: Mapping[str, Any]) -> tuple[_Parts, list[Ruling]]:
    """The parts of each kind that work there, as `tare doctor` there says; another tare may say it in other words."""
    requested = reported.get("abilities") or {"code": 1}
    if requested["code"] != 0:
        return {}, []
    try:
        found = stranger_json(requested["out"])
        return {kind: tuple(str(part["name"]) for part in found[kind] if part["ok"]) for kind in _KINDS}, []
    except (ValueError, LookupError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        sentence = f"what `tare doctor --json` says there cannot be read here ({why}): it is another tare."
        return {}, [obstacle("fleet.not-understood", sentence)]


def _version(reported: Mapping[str, Any]) -> str | None:
    """`tare, version 0.1.0`, without the words."""
    words = reported["engine"]["out"].split()
    return words[-1] if reported["engine"]["code"] == 0 and words else None


def _engine_troubles(device: Device, reported: Mapping[str, Any]) -> list[Ruling]:
    if device.lean:
        return []
    version = _version(reported)
    if version is None:
        why = " ".join(reported["engine"]["err"].split())[-300:] or f"code {reported['engine']['code']}"
        sentence = (
            f"{device.engine} there does not run tare: {why}. Trials need tare on the device, with Python 3.11 or "
            f"newer (workloads may use {reported['python']}). Install it and name it as 'tare' in the inventory; or "
            "write 'tare: none' there, and it is driven from here (bare metal only, no controls)."
        )
        return [obstacle("fleet.no-tare", sentence)]
    if version != __version__:
        sentence = f"tare {version} is there, and {__version__} here: their records are not to be mixed. Install one."
        return [obstacle("fleet.other-version", sentence)]
    return []


def _other_troubles(reported: Mapping[str, Any], offset_s: float, within_s: float) -> list[Ruling]:
    troubles = []
    if reported["free_bytes"] < LEAST_FREE_BYTES:
        sentence = (
            f"{reported['free_bytes'] >> 20} MiB are free in {reported['state']}, {LEAST_FREE_BYTES >> 20} needed."
        )
        troubles.append(obstacle("fleet.full", sentence))
    if abs(offset_s) - within_s > MOST_CLOCK_OFFSET_S:
        way = "ahead of" if offset_s > 0 else "behind"
        sentence = f"its clock is {abs(offset_s):.1f} s {way} ours: set it (chrony, systemd-timesyncd)."
        troubles.append(obstacle("fleet.clock", sentence))
    if (owner := reported["owner"]) is not None:
        whose = f" of {owner['user']}" if owner.get("user") else ""
        run = f", run {owner['run']!r}" if owner.get("run") else ""
        sentence = f"another run owns it: pid {owner.get('pid')}{whose}{run}."
        troubles.append(obstacle("fleet.owned", sentence))
    return troubles
