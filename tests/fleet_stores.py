"""Stores of runs over devices, in the middle of it: one is done, one is lost, one is given up, the others run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pretended_run import new_store
from tare.records.model import Record
from tare.records.store import Store

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
BROKEN = "no line to 10.0.0.1: Connection timed out"


def trial(name: str, block: int) -> Record:
    settings = {"platform": "bare", "workload": "null", "device": name, "device.type": "board"}
    number = hashlib.sha256(f"{name} {block}".encode()).hexdigest()[:16]
    return Record(number, 0, "weigh", block, 0, 0, settings, "ok", metrics={"step_s": 0.01}, start_ns=1, end_ns=10**9)


def write_line(root: Path, device: str, what: str, ago_s: float = 0.0, **fields: object) -> None:
    utc = (NOW - timedelta(seconds=ago_s)).isoformat(timespec="milliseconds")
    with (root / "fleet.jsonl").open("a") as file:
        file.write(json.dumps({"utc": utc, "device": device, "what": what, **fields}) + "\n")


def fleet_store(root: Path, devices: int, blocks: int = 2) -> Store:
    """The store as the controller has it open. dev-0 has vanished, dev-1 was given up, dev-2 is done."""
    names = [f"dev-{number}" for number in range(devices)]
    store = new_store(root, [trial(name, block) for block in range(blocks) for name in names])
    write_line(root, "", "begun", 900, run="x", devices=names)
    for name in names:
        write_line(root, name, "try", 300, trial=trial(name, 0).trial, claim=f"{trial(name, 0).trial}.x.1")
    write_line(root, "dev-0", "unreachable", 100, claim="c", text=f"dev-0: {BROKEN}", broken=[BROKEN])
    write_line(root, "dev-0", "skipped", 100, text=f"dev-0: {BROKEN}")
    write_line(root, "dev-1", "skipped", 90, text="no space left on this device.")
    for block in range(blocks):
        one = trial("dev-2", block)
        store.begin(replace(one, state="running")).seal(replace(one, attempt=1), [], "", "")
    write_line(root, "dev-2", "answered", 60, claim="c", code=0, text="", broken=[])
    return store
