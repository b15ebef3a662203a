"""From a run to the GPU line of its verdict, with a made-up GPU: what the workload left and what NVML said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tare
from pretend_h200 import kept_in
from tare.records.store import Store

pytestmark = pytest.mark.machine("bare", "root")

# Steps of 5 ms, a window over five of them, and what the profiler would have left.
PROGRAM = """
import json, os, time
from tare_inside import marks
for step in range(100):
    marks.begin("step", step)
    if step == 18: marks.begin("gpu_window")
    time.sleep(0.005)
    if step == 22: marks.end("gpu_window")
    marks.end("step", step)
found = {"steps": 8, "window_s": 0.04, "busy_share": 0.25, "between_share": 0.05, "idle_share": 0.7, "copy_s": 0.0,
         "idle_for": {"launch": 0.6, "sync": 0.1, "data": 0.0}, "kernels": 57.0, "pageable_copies": 0.0,
         "synchronising": {"cudaStreamSynchronize": 1.0}, "step_s": 0.005, "launches": 57.0}
with open(os.path.join(os.path.dirname(os.environ["TARE_MARKS"]), "gpu.json"), "w") as file:
    json.dump(found, file)
"""


def test_a_run_ends_in_a_verdict_with_a_gpu_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept_in(tmp_path / "nvml.json", monkeypatch, persistence=1, busy=True)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.environ["PYTHONPATH"], str(Path(tare.__file__).parents[1])]))
    program, study, store = tmp_path / "program.py", tmp_path / "s.yaml", tmp_path / "store"
    program.write_text(PROGRAM)
    argv = json.dumps([sys.executable, str(program)])
    study.write_text(
        f"study: s\nplatform: bare\nworkload: {{command: {{argv: {argv}}}}}\nprobes: [gpu]\nrepeat: 1\naa: false\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "tare.cli", "run", str(study), "-o", str(store)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    with Store.open(store) as opened:
        (record,) = opened.records()
    assert record.metrics["warm_up_steps"] == 23  # up to the window's end
    assert record.metrics["gpu_busy_share"] == 0.25
    assert record.metrics["gpu_memory_bytes"] == 644939776
    told = subprocess.run(
        [sys.executable, "-m", "tare.cli", "compare", "-v", str(store)], capture_output=True, text=True, check=False
    )
    (line,) = [line for line in told.stdout.splitlines() if line.startswith("GPU, ")]
    assert "busy 25" in line
    assert "launch-bound" in told.stdout
