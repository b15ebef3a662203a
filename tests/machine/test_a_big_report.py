"""A report of 1,000 trials with 100 million samples: at most 10 s, 1 GB of memory and 10 MB of HTML."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import some_weighings as some
from pretended_run import new_store
from tare.base import strict_json
from tare.base.units import Channel
from tare.records.schema import MANIFEST_FILE, RECORD_FILE, TRIALS_FOLDER
from tare.records.sealed import folder_name, manifest_for
from tare.records.spool import SpoolWriter

pytestmark = pytest.mark.machine("root")

TRIALS = 1000
SAMPLES = 100_000
CHANNELS = [Channel(f"cgroup.{name}", unit, kind) for name, unit, kind in (
    ("cpu_s", "s", "counter"), ("memory_bytes", "bytes", "gauge"), ("read_bytes", "bytes", "counter"),
    ("minor_faults", "1", "counter"),
)] + [Channel("gpu.power_w", "W", "gauge")]  # fmt: skip


def big_store(root: Path) -> None:
    """One trial is really sealed; the others have records of their own and share its series, file by file."""
    trials = some.records(blocks=-(-TRIALS // 3))[:TRIALS]
    with new_store(root, trials) as store:
        first = trials[0]
        writer = store.begin(replace(first, state="running"))
        each = SAMPLES // len(CHANNELS)
        with SpoolWriter(writer.spool) as spool:
            spool.channels(CHANNELS)
            for tick in range(0, each, 100):
                rows = [
                    (at * 10**7, channel.name, float(at) * (1.0 if channel.kind == "counter" else 1 + at % 97))
                    for at in range(tick, tick + 100)
                    for channel in CHANNELS
                ]
                spool.tick(rows[-1][0], rows)
        marks = [(at * 10**7, "step", edge, at) for at in range(2000) for edge in ("begin", "end")]
        writer.seal(replace(first, attempt=1), marks, "", "")
    made = root / TRIALS_FOLDER / folder_name(first.trial, 1)
    for trial in trials[1:]:
        copy = root / TRIALS_FOLDER / folder_name(trial.trial, 1)
        copy.mkdir()
        for path in made.iterdir():
            if path.name not in (RECORD_FILE, MANIFEST_FILE):
                os.link(path, copy / path.name)
        (copy / RECORD_FILE).write_bytes(strict_json.dump(replace(trial, attempt=1).as_json()))
        (copy / MANIFEST_FILE).write_bytes(manifest_for(copy, 0))


@pytest.mark.deep
def test_it_is_quick_small_and_lean(tmp_path: Path) -> None:
    big_store(tmp_path / "store")
    command = [sys.executable, "-m", "tare.cli", "report", str(tmp_path / "store"), "-o", str(tmp_path / "r.html")]
    begin = time.monotonic()
    with (tmp_path / "said").open("w") as said:
        child = subprocess.Popen(command, stdout=said, stderr=said)
        _, status, used = os.wait4(child.pid, 0)  # of this child alone: RUSAGE_CHILDREN holds the largest child ever
    wall_s, cpu_s = time.monotonic() - begin, used.ru_utime + used.ru_stime
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, (tmp_path / "said").read_text()
    page = (tmp_path / "r.html").read_text("utf-8")
    assert "1,000 of 1,000 trials" in page
    assert len(set(re.findall(r'data-chart="([\w-]+)"', page))) >= 8
    assert len(page.encode()) < 10e6
    assert used.ru_maxrss * 1024 < 1e9
    assert min(wall_s, cpu_s) < 10, f"{wall_s:.1f} s, {cpu_s:.1f} s of CPU"  # other work on the machine is not its own
