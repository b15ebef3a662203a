"""How a device stands to a study: what a device says when it is asked, and what the controller makes of the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_NO_ANSWER_IN_TIME = 124  # the agent's code for a command of the engine that it waited for in vain
_WORDS_KEPT = 1500


@dataclass(frozen=True)
class Standing:
    """Whether it can run the study, and what it is now."""

    obstacles: tuple[str, ...] = ()  # the study cannot run there: then it is begun nowhere
    own: tuple[str, ...] = ()  # what is wrong with this device, and passes: it is left out, and the others run
    kernel: str | None = None
    tare: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


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
    return Standing(obstacles, own, kernel, tare)
