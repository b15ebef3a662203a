"""How a device stands to a study: how it is asked, what it says, and what the controller makes of the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tare import __version__
from tare.fleet.inventory import Device
from tare.fleet.orders import factors
from tare.plan.leaving_out import NOTHING, Lacking

_NO_ANSWER_IN_TIME = 124  # the agent's code for a command of the engine that it waited for in vain
_WORDS_KEPT = 1500


@dataclass(frozen=True)
class Standing:
    """Whether it can run the study, and what it is now."""

    obstacles: tuple[str, ...] = ()  # the study cannot run there: then it is begun nowhere
    own: tuple[str, ...] = ()  # what is wrong with this device, and passes: it is left out, and the others run
    kernel: str | None = None
    tare: str | None = None
    lacking: Lacking = NOTHING  # where it was asked what may be left out

    def as_json(self) -> dict[str, Any]:
        said = {key: getattr(self, key) for key in ("obstacles", "own", "kernel", "tare")}
        return {**said, "lacking": self.lacking.as_json()}


def standing_question(device: Device, text: str, name: str, **more: Any) -> dict[str, Any]:
    """What the agent on a device is asked about the study in `text`; `name` is its file's.

    `leave_out` asks which parts it lacks. Otherwise it is asked whether it can run all but what is `lacking`.
    """
    request = {"study": text, "name": name, "tare": __version__, "python": device.python, "device": factors(device)}
    stdin = json.dumps(request | more) + "\n"
    return {"do": "engine", "engine": device.engine, "arguments": ["fleet", "obstacles"], "stdin": stdin}


def read_standing(said: Mapping[str, Any]) -> Standing:
    """What `tare fleet obstacles` answered over there; raises `ValueError` where that cannot be understood."""
    if (code := said["code"]) != 0:
        why = f"tare does not answer there (code {code}): {str(said['err'] or said['out']).strip()[-_WORDS_KEPT:]}"
        return Standing(own=(why,)) if code == _NO_ANSWER_IN_TIME else Standing(obstacles=(why,))
    found = json.loads(said["out"])
    if not isinstance(found, dict):
        raise ValueError(f"{said['out'][:80]!r} is no answer")
    obstacles, own = (tuple(str(each) for each in found.get(key, ())) for key in ("obstacles", "own"))
    kernel, tare = (None if found.get(key) is None else str(found[key]) for key in ("kernel", "tare"))
    return Standing(obstacles, own, kernel, tare, Lacking.from_json(found.get("lacking", ())))
