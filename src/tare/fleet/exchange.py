"""The talk with the devices of one run: questions on their way, answers to whoever asked, and whom nobody waits for.

What a dask worker does for its device: asks it one thing, and asks again while the line to it is broken. A question can
be asked twice without harm: a device begins each claim once, and whoever comes again finds it begun.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import sys
import tarfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from tare.base.errors import StoreError, TareError
from tare.base.files import replace_file
from tare.base.rulings import Ruling, obstacle
from tare.base.untrusted import MOST_VALUES, check_depth
from tare.fleet.cluster import Cluster, SchedulerGone, WorkerLost
from tare.fleet.interruption import Interruption
from tare.fleet.inventory import Device
from tare.fleet.schedule import Attempts
from tare.fleet.ssh import HERE, MOST_RECORD_BYTES, Refused, Unreachable, ask
from tare.plan.matrix import Trial
from tare.records.merging import Arrived, Intake, Merged
from tare.records.model import Record
from tare.records.schema import LEDGER_FILE
from tare.records.sealed import folder_name, is_trial_folder, sealed_in
from tare.records.store import Store

# What devices hand over: their records, taken into the controller's store, and a line for whatever happened.

_ID_FILE = "fleet.id"
_MOST_OF_STUDY = 50
_OPEN = {"try": True, "again": True, "answered": False, "found": False}  # lines after which a trial runs, or does not
_MEMBER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}/[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def unpack(archive: bytes) -> dict[str, dict[str, memoryview]]:
    """The files of sealed trials, each under its folder; a device is not trusted with any other place of ours."""
    found: dict[str, dict[str, memoryview]] = {}
    whole = memoryview(archive)
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as members:
        for member in members:
            if member.isdir() and "/" not in member.name:
                continue
            # A file with holes can be far larger than what came over the line: nobody who is honest sends one.
            is_whole = member.isfile() and not member.issparse() and 0 <= member.size <= len(archive)
            data = whole[member.offset_data : member.offset_data + member.size]
            if not is_whole or len(data) != member.size or not _MEMBER.fullmatch(member.name):
                raise StoreError(f"a device sent {member.name!r}, which is no file of a sealed trial: refused.")
            folder, _, name = member.name.partition("/")
            found.setdefault(folder, {})[name] = data
    return found


class Incoming:
    """The controller's store while devices fill it. It is ours alone: listed once, what is in it is kept in mind."""

    def __init__(self, store: Store, owners: Mapping[str, str] | None = None) -> None:
        self._root = store.root
        self._intake = Intake(store)
        self._owners = owners or {}  # planned trials: the device of each
        self.attempts: Attempts = {}
        self._from: dict[str, dict[str, Record]] = {}  # by device and TRIAL.ATTEMPT
        for record in store.records():
            self._know(record)

    def keep(self, sent: Sequence[tuple[str, bytes]]) -> list[Merged]:
        """Take in archives, each with the name of the device that sent it: what came of each.

        What cannot be read, or is of another device, is refused; it is still where it came from.
        """
        found = [Merged() for _ in sent]
        arrived: list[tuple[int, Arrived]] = []
        for place, (device, archive) in enumerate(sent):
            try:
                trials_sent = unpack(archive) if archive else {}
            except Exception as error:  # the reader of tar files is not made for what hostile ones hold
                found[place] = Merged(refused=(f"what it sent cannot be read, or kept: {error}",))
                continue
            for name, held in sorted(trials_sent.items()):
                if is_trial_folder(name):
                    try:
                        sealed = sealed_in(name, held)
                    except Exception as error:  # a stranger's JSON may hold anything
                        found[place] += Merged(refused=(f"{name}: not merged: {error}",))
                        continue
                    if why := self._strange(device, name, sealed.record):
                        found[place] += Merged(refused=(why,))
                    else:
                        arrived.append((place, (sealed, held)))
        if arrived:
            taken = self._intake.take_bytes([each for _, each in arrived])
            for (place, _), merged in zip(arrived, taken, strict=True):
                found[place] += merged
        for record in (record for one in found for record in one.records):
            self._know(record)
        return found

    def _strange(self, device: str, name: str, record: Record) -> str:
        """A device speaks for itself alone: what it says of another one's trials would keep the true ones out."""
        reported, owner = record.settings.get("device"), self._owners.get(record.trial)
        is_strange = reported != device or (owner or device) != device
        if not is_strange or record.attempt in self.attempts.get(record.trial, ()):  # here already: keeps nothing out
            return ""
        return f"{name}: not merged: it is a trial of {owner or reported}, not of {device}."

    def names_of(self, trial: str) -> list[str]:
        """TRIAL.ATTEMPT of every sealed attempt at this trial that is here."""
        return sorted(folder_name(trial, attempt) for attempt in self.attempts.get(trial, ()))

    def names_from(self, device: str) -> list[str]:
        """TRIAL.ATTEMPT of every sealed trial of this device that is here."""
        return sorted(self._from.get(device, ()))

    def of_device(self, device: str) -> list[Record]:
        """Every attempt on this device that is here, those at one trial oldest first."""
        return sorted(self._from.get(device, {}).values(), key=lambda record: (record.trial, record.attempt))

    def _know(self, record: Record) -> None:
        name = folder_name(record.trial, record.attempt)
        self._from.setdefault(str(record.settings.get("device")), {})[name] = record
        self.attempts.setdefault(record.trial, {})[record.attempt] = record


def name_on_devices(store: Store) -> str:
    """What devices call this store: the same as long as it lives, wherever it is moved."""
    path = store.root / _ID_FILE
    if not path.exists() or not path.read_bytes().strip():
        replace_file(path, os.urandom(6).hex().encode())
    # Devices take it as a folder's, of up to 128 characters; a lean one's own name, of up to 64, comes behind it.
    study = str(store.study["study"]).lstrip("._-")[:_MOST_OF_STUDY] or "study"
    return f"{study}-{path.read_text().strip()}"


class Ledger:
    """One line for each try at a trial, and for whatever went wrong on the way: appended, never changed."""

    def __init__(self, root: Path) -> None:
        self._path = root / LEDGER_FILE
        self._lines: list[bytes] = []

    def write(self, device: str, what: str, **fields: Any) -> None:
        """Note a line; `settle` puts it, and those before it, on the disk."""
        line = {"utc": datetime.now(UTC).isoformat(timespec="milliseconds"), "device": device, "what": what, **fields}
        self._lines.append(json.dumps(line).encode() + b"\n")

    def unseen(self) -> set[str]:
        """The devices that were told to begin a trial, and that nobody has heard of since how it ended."""
        open_: dict[str, bool] = {}
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            for line in file:
                with suppress(ValueError, KeyError, TypeError):  # a line that is not ours
                    reported = json.loads(line)
                    open_[reported["device"]] = _OPEN.get(reported["what"], open_.get(reported["device"], False))
        return {device for device, is_open in open_.items() if is_open}

    def settle(self) -> None:
        """All that was noted, in one go: a thousand devices would otherwise wait for the disk a thousand times."""
        if not self._lines:
            return
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _append(descriptor, b"".join(self._lines))
        finally:
            os.close(descriptor)
        self._lines.clear()


def _append(descriptor: int, data: bytes) -> None:
    """All of it, on the disk; or nothing, so that no line is half there when it is written again."""
    before_bytes, left = os.fstat(descriptor).st_size, memoryview(data)
    try:
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, before_bytes)
        raise


ENDED = frozenset({"answered", "unreachable", "refused"})
_MOST_TEXT = 1 << 20
PATIENCE_S = 120.0
_PAUSE_S = 5.0
_MOST_BREAKS = 1000  # over a line that never holds for as long as an answer takes, no answer comes
_LOOK_WITHIN_S = 60.0  # an agent waits for two minutes until a short command of the engine has answered


def here(name: str) -> Device:
    """The device that a worker itself runs on, with the worker's own interpreter."""
    return Device.model_construct(name=name, address=HERE, python="")


def drive(fields: Mapping[str, Any], question: Mapping[str, Any], patience_s: float = PATIENCE_S) -> dict[str, Any]:
    """Ask the device; returns how that ended: `answered`, `unreachable` for longer than our patience, or `refused`."""
    device = here(fields["name"]) if fields["address"] == HERE else Device.model_validate(dict(fields))
    if device.lean:
        return _drive_from_here(device, question, patience_s)
    requested = dict(question) | {"engine": question.get("engine") or sys.executable}
    broken: list[str] = []
    pause_s = min(_PAUSE_S, patience_s / 4)
    lost_s: float | None = None
    while True:
        try:
            answer = ask(device, requested, alive_s=min(10.0, patience_s / 4))
        except Refused as error:
            return {"ended": "refused", "text": error.what, "broken": broken}
        except Unreachable as error:
            broken.append(error.what)
            now_s = time.monotonic()
            if lost_s is None or error.heard:  # it was there until now
                lost_s = now_s
            if now_s - lost_s + pause_s > patience_s or len(broken) >= _MOST_BREAKS:
                return {"ended": "unreachable", "text": broken[-1], "broken": broken}
            time.sleep(pause_s)
        else:
            return {"ended": "answered", "said": dict(answer.said), "records": answer.records, "broken": broken}


def _drive_from_here(device: Device, question: Mapping[str, Any], patience_s: float) -> dict[str, Any]:
    """The same question to this machine, which has the device do it: the trial is a process here, with a claim here."""
    patient_s = patience_s if "claim" in question else min(patience_s, _LOOK_WITHIN_S)
    lean = {"lean": device.model_dump(mode="json"), "patience_s": patient_s}
    requested = {**question, **lean, "engine": sys.executable}
    if "store" in requested:  # each device has a store of its own here: trials on two of them run side by side
        requested["store"] = f"{requested['store']}.{device.name}"
    if "stdin" in requested:
        requested["stdin"] = json.dumps(json.loads(requested["stdin"]) | lean) + "\n"
    try:
        answer = ask(here(device.name), requested)
    except (Refused, Unreachable) as error:
        return {"ended": "refused", "text": error.what, "broken": []}
    reported = dict(answer.said)
    text = str(reported.get("text") or reported.get("err") or "").strip()
    if (ended := _ENDED.get(reported.get("code"))) is not None:
        return {"ended": ended, "text": text, "broken": [text]}
    return {"ended": "answered", "said": reported, "records": answer.records, "broken": []}


_ENDED: dict[object, str] = {Unreachable.exit_code: "unreachable", Refused.exit_code: "refused"}


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
