"""What a dask worker does for its device: asks it one thing, and asks again while the line to it is broken.

A question can be asked twice without harm: a device begins each claim once, and whoever comes again finds it begun.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from tare.fleet.inventory import Device
from tare.fleet.ssh import CONNECT_WITHIN_S, HERE, Refused, Unreachable, ask

PATIENCE_S = 120.0
_PAUSE_S = 5.0


def here(name: str) -> Device:
    """The device that a worker itself runs on, with the worker's own interpreter."""
    return Device.model_construct(name=name, address=HERE, python="")


def drive(fields: Mapping[str, Any], question: Mapping[str, Any], patience_s: float = PATIENCE_S) -> dict[str, Any]:
    """Ask the device; returns how that ended: `answered`, `unreachable` for longer than our patience, or `refused`."""
    device = here(fields["name"]) if fields["address"] == HERE else Device.model_validate(dict(fields))
    asked = dict(question) | {"engine": question.get("engine") or sys.executable}
    broken: list[str] = []
    pause_s = min(_PAUSE_S, patience_s / 4)
    lost_s: float | None = None
    while True:
        began_s = time.monotonic()
        try:
            answer = ask(device, asked, alive_s=min(10.0, patience_s / 4))
        except Refused as error:
            return {"ended": "refused", "text": str(error), "broken": broken}
        except Unreachable as error:
            broken.append(str(error))
            now_s = time.monotonic()
            if lost_s is None or now_s - began_s > patience_s + CONNECT_WITHIN_S:  # it was there meanwhile
                lost_s = now_s
            if now_s - lost_s + pause_s > patience_s:
                return {"ended": "unreachable", "text": broken[-1], "broken": broken}
            time.sleep(pause_s)
        else:
            return {"ended": "answered", "said": dict(answer.said), "records": answer.records, "broken": broken}
