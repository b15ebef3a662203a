"""What a dask worker does for its device: asks it one thing, and asks again while the line to it is broken.

A question can be asked twice without harm: a device begins each claim once, and whoever comes again finds it begun.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from tare.fleet.inventory import Device
from tare.fleet.ssh import HERE, Refused, Unreachable, ask

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
