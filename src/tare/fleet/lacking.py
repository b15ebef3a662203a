"""What the devices of a fleet lack of a study that may leave it out: asked before the plan, and kept with the store.

Devices that were asked different things could not be compared: what any of them lacks is asked of none. The probes are
part of a trial's id, so that a store which was begun stays with what was settled then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tare.errors import ObstacleError, StoreError
from tare.fleet.inventory import Device
from tare.fleet.questions import Questions
from tare.fleet.standing import Standing, read_standing, standing_question
from tare.plan.check import PartKey
from tare.plan.leaving_out import NOTHING, Lacking
from tare.records.durable import replace_file
from tare.records.schema import STORE_FILE
from tare.records.store import Store

LACKING_FILE = "fleet.lacking.json"
_MOST_NAMED = 5  # devices, and reasons of one part


def settled(root: Path) -> Lacking | None:
    """What the store at `root` was begun without; None where nothing is begun there."""
    path = root / LACKING_FILE
    try:
        return Lacking.from_json(json.loads(path.read_bytes()))
    except FileNotFoundError:
        pass
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(f"{path} cannot be read ({error}), and says what to leave out: take another folder.") from None
    if not (root / STORE_FILE).exists():
        return None
    with Store.open(root) as store:
        return NOTHING if store.states() else None  # begun by a run that left nothing out


def settle(store: Store, lacking: Lacking) -> None:
    """Keep what is left out for every run that goes on with this store; what is kept already stays."""
    path = store.root / LACKING_FILE
    if not path.exists():
        replace_file(path, json.dumps(lacking.as_json(), indent=1).encode())


def ask_all(
    devices: Sequence[Device], text: str, name: str, questions: Questions, note: Callable[[str], None]
) -> Lacking:
    """What any of these devices lacks of a study, given as its text and its file's name.

    One that can run nothing of any study stops it; one that does not answer is told of, and has no say.
    """
    found = _answers(devices, text, name, questions)
    if cannot := [_of(device, said) for device, standing in found.items() for said in standing.obstacles]:
        raise ObstacleError("the study cannot run on every device, and nothing was run:", cannot)
    silent = {device: _of(device, " ".join(standing.own)) for device, standing in found.items() if standing.own}
    if len(silent) == len(found):
        raise ObstacleError("no device can run it now, and nothing was run:", list(silent.values()))
    for why in silent.values():
        note(
            f"{why} What it lacks is not known: the other devices decide what is left out, and if it lacks more, it "
            "has no place in this store."
        )
    return together({device: standing.lacking for device, standing in found.items() if device not in silent})


def together(found: Mapping[str, Lacking]) -> Lacking:
    """What any of these devices lacks; each reason says whose it is."""
    whose: dict[PartKey, dict[str, list[str]]] = {}
    for device, lacking in found.items():
        for key, sentences in lacking.parts.items():
            reasons = whose.setdefault(key, {})
            for text in sentences:
                reasons.setdefault(text.removeprefix(f"{key.name}:").strip(), []).append(device)
    return Lacking({key: tuple(_worded(reasons)) for key, reasons in whose.items()})


def _worded(reasons: Mapping[str, Sequence[str]]) -> list[str]:
    """A reason often names its device: a thousand of them would be a thousand sentences."""
    shown = [f"{_named(devices)}: {text}" for text, devices in list(reasons.items())[:_MOST_NAMED]]
    others = [device for devices in list(reasons.values())[_MOST_NAMED:] for device in devices]
    return shown + ([f"{_named(list(dict.fromkeys(others)))}: it does not work there either."] if others else [])


def _named(devices: Sequence[str]) -> str:
    more = f" and {len(devices) - _MOST_NAMED} more" if len(devices) > _MOST_NAMED else ""
    return ", ".join(devices[:_MOST_NAMED]) + more


def _of(device: str, text: str) -> str:
    return text if text.startswith(f"{device}:") else f"{device}: {text}"


def _answers(devices: Sequence[Device], text: str, name: str, questions: Questions) -> dict[str, Standing]:
    """Every device's answer; one whose worker dies is asked once more."""

    def ask(device: Device) -> Any:
        return questions.ask(device, standing_question(device, text, name, leave_out=True), "lacking")

    found: dict[str, Standing] = {}
    asked_again: set[str] = set()
    waiting = {ask(device): device for device in devices}
    while waiting:
        for asked in questions.over():
            if (device := waiting.pop(asked, None)) is None:
                continue
            answer = questions.answer(device, asked)
            if answer["ended"] == "worker lost" and device.name not in asked_again:
                asked_again.add(device.name)
                waiting[ask(device)] = device
            else:
                found[device.name] = _standing(answer)
    return {device.name: found[device.name] for device in devices}


def _standing(answer: Mapping[str, Any]) -> Standing:
    """An answer that did not come, or cannot be understood, is that device's own trouble."""
    if answer["ended"] != "answered":
        return Standing(own=(str(answer["text"]),))
    try:
        return read_standing(answer["said"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        return Standing(own=(f"its answer cannot be understood: {error!r}",))
