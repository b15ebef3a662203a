"""CPU seconds of `tare show` and `tare compare` on a store that grows, and how fast they grow with it.

    python -m benchmarks.growth [MOST]     trials, 1,000 unless it is given; 10,000 take some ten minutes to make

Trials are made without a workload: a record, two marks and a few readings each, sealed as every trial is.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.answers import ROOT, cpu_s
from tare.base.units import Channel
from tare.records.model import Record
from tare.records.spool import SpoolWriter
from tare.records.store import Store

MOST, ROUNDS = 1_000, 3
CHANNELS = (Channel("cpu.busy_s", "s", "counter"),)
MARKS = [(100, "step", "begin", 0), (200, "step", "end", 0)]


def measure(most: int = MOST) -> dict[int, dict[str, float]]:
    """Trials -> the least CPU seconds of some rounds, of each verb and of sealing one trial."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        made = 0
        for size in [10**power for power in range(1, round(math.log10(most)) + 1)]:
            seal_s = _grow(root, made, size)
            verbs = {"show": ["show", str(root)], "compare": ["compare", str(root)]}
            spent = {name: min(cpu_s(words, ROOT / "src") for _ in range(ROUNDS)) for name, words in verbs.items()}
            found[size] = {**spent, "seal a trial": seal_s / (size - made)}
            made = size
    return found


def _grow(root: Path, made: int, size: int) -> float:
    """CPU seconds for the trials that are new."""
    draw = random.Random(made)
    begin_s = time.process_time()
    opened = Store.open(root, write=True) if made else Store.create(root, {"study": "weigh"}, "study: weigh\n")
    with opened as store:
        for number in range(made, size):
            settings = {"platform": ("bare", "docker")[number % 2], "workload": "null"}
            begun = Record(f"{number:016x}", 0, "weigh", number // 2, number % 2, 0, settings, "running", start_ns=90)
            writer = store.begin(begun)
            with SpoolWriter(writer.spool) as spool:
                spool.channels(CHANNELS)
                spool.tick(110, [(110, "cpu.busy_s", 0.5)])
            step_s = 1 + 0.02 * draw.random()
            writer.seal(replace(begun, state="ok", metrics={"step_s": step_s}, end_ns=300), MARKS, "", "")
    return time.process_time() - begin_s


def text(found: dict[int, dict[str, float]]) -> str:
    lines = [f"{size:>7,} trials  " + "  ".join(f"{name} {spent:.3g} s" for name, spent in each.items())
             for size, each in found.items()]  # fmt: skip
    *_, (before, few), (most, many) = found.items()
    for name in few:
        power = math.log(many[name] / few[name]) / math.log(most / before)
        lines.append(f"{name}: from {before:,} to {most:,} trials as their number to the power of {power:.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(text(measure(*map(int, sys.argv[1:]))) + "\n")
