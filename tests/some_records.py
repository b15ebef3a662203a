"""Records, readings and marks to put into stores, for tests that do not care what is in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tare.base.rulings import LEGACY, Ruling, Weight
from tare.base.units import Channel
from tare.records.model import Record, State
from tare.records.spool import SpoolWriter
from tare.records.store import Store

# What a process wrote is there for all; who does not test the disk need not wait for it.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
CHANNELS = (Channel("cpu.busy_s", "s", "counter", "time not idle"), Channel("memory.used_bytes", "bytes", "gauge"))
MARKS = [(100, "step", "begin", 0), (150, "fetch", "point", 0), (200, "step", "end", 0)]


def because(sentence: str, weight: Weight = "invalid", code: str = LEGACY) -> Ruling:
    """A reason of a record, for tests that care for its sentence alone."""
    return Ruling(code, weight, "", sentence)


def draft(trial: str = "aaaa", **changes: Any) -> Record:
    """A trial that is about to run."""
    plain = Record(
        trial=trial,
        attempt=0,
        study="weigh",
        block=0,
        position=0,
        twin=0,
        settings={"platform": "docker", "workload.batch": 16},
        state="running",
        start_ns=90,
    )
    return replace(plain, **changes)


def ended(begun: Record, state: State = "ok", **changes: Any) -> Record:
    """The same trial at its end."""
    return replace(begun, state=state, metrics={"step_s": 0.00184}, end_ns=300, **changes)


def run_one(store: Store, trial: str = "aaaa", state: State = "ok", **changes: Any) -> Record:
    """One trial from begin to seal, with two ticks of readings."""
    begun = draft(trial, **changes)
    writer = store.begin(begun)
    with SpoolWriter(writer.spool) as spool:
        spool.channels(CHANNELS)
        spool.tick(110, [(110, "cpu.busy_s", 0.5), (111, "memory.used_bytes", 4096.0)])
        spool.tick(210, [(210, "cpu.busy_s", 0.75), (211, "memory.used_bytes", float("nan"))])
    return writer.seal(ended(begun, state), MARKS, "loss 0.1\r\n", "a warning\n")
