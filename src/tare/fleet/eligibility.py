"""How a device stands to a study: how it is asked, what it says, and what the controller makes of the answer.

What the devices of a fleet lack of a study that may leave it out: asked before the plan, and kept with the store.

Devices that were asked different things could not be compared: what any of them lacks is asked of none. The probes are
part of a trial's id, so that a store which was begun stays with what was settled then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tare import __version__
from tare.base.errors import ObstacleError, StoreError
from tare.base.files import replace_file
from tare.base.rulings import Ruling, obstacle, read_rulings
from tare.base.untrusted import stranger_json
from tare.fleet.exchange import Questions, unanswered
from tare.fleet.inventory import Device
from tare.fleet.orders import factors
from tare.plan.check import NOTHING, MissingParts, PartKey
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
    silent = {device: _own(device, eligibility) for device, eligibility in found.items() if eligibility.own}
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


def _own(device: str, eligibility: Eligibility) -> Ruling:
    """What is wrong with one device alone: the first of it has the code."""
    return replace(eligibility.own[0], sentence=" ".join(map(str, eligibility.own))).about(device)


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
                found[device.name] = _eligibility(answer)
    return {device.name: found[device.name] for device in devices}


def _eligibility(answer: Mapping[str, Any]) -> Eligibility:
    """An answer that did not come, or cannot be understood, is that device's own trouble."""
    if answer["ended"] != "answered":
        return Eligibility(own=(unanswered(answer),))
    try:
        return read_eligibility(answer["said"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        return Eligibility(own=(obstacle("fleet.not-understood", f"its answer cannot be understood: {error!r}"),))
