"""A run that is none: it writes a store as a runner does, trial by trial, so that what looks at stores can be tested.

python tests/pretended_run.py DIR [SECONDS A TRIAL]
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import some_weighings as some
from tare.base.units import Channel
from tare.records.model import Record
from tare.records.spool import SpoolWriter
from tare.records.store import Store

CHANNELS = (
    Channel("cgroup.cpu_s", "s", "counter", "of the workload"),
    Channel("cgroup.memory_bytes", "bytes", "gauge", "with its page cache"),
    Channel("gpu.power_w", "W", "gauge", "of the GPU"),
)
TICK_S = 0.1


def new_store(root: Path, trials: list[Record]) -> Store:
    study = {"study": "weigh", "compare": {"against": {"platform": "bare"}, "margin": 0.05}}
    store = Store.create(root, study, some.STUDY_TEXT)
    store.plan(trials)
    return store


def run(store: Store, trials: list[Record], seconds: float) -> Iterator[Record]:
    """Each trial takes so long, ticks all the while, and is sealed; the record comes when it is."""
    for number, trial in enumerate(trials):
        writer = store.begin(replace(trial, state="running"))
        with SpoolWriter(writer.spool) as spool:
            spool.channels(CHANNELS)
            for tick in range(round(seconds / TICK_S)):
                t_ns, at_s = time.monotonic_ns(), tick * TICK_S
                power = 40 + 5 * math.sin(at_s * 3) + number
                readings = [
                    ("cgroup.cpu_s", at_s * 0.97),
                    ("cgroup.memory_bytes", 2e8 + 1e6 * tick),
                    ("gpu.power_w", power),
                ]
                spool.tick(t_ns, [(t_ns, name, value) for name, value in readings])
                time.sleep(TICK_S)
        yield writer.seal(replace(trial, attempt=writer.attempt), [], "", "")


if __name__ == "__main__":
    planned = some.records(blocks=int(sys.argv[3]) if len(sys.argv) > 3 else 12)
    with new_store(Path(sys.argv[1]), planned) as opened:
        for _ in run(opened, planned, float(sys.argv[2]) if len(sys.argv) > 2 else 2.0):
            pass
