"""A real GPU: events are read without waiting, and agree with the host's clock and with what the host saw.

TARE_REQUIRE=cuda python -m pytest tests/machine/test_attach_on_a_gpu.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tare_inside
from tare_inside import activity, marks

SCRIPT = Path(__file__).with_name("train_on_a_gpu.py")
STEPS = 600


def run(folder: Path, attached: bool) -> str:
    inside = Path(tare_inside.__file__).parent
    env = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    if attached:
        env["PYTHONPATH"] = os.pathsep.join([str(inside / "inside_site"), str(inside.parent)])
        env["TARE_MARKS"] = str(folder / "marks.bin")
    done = subprocess.run([sys.executable, str(SCRIPT)], env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "tare:" not in done.stderr
    return done.stdout


@pytest.mark.machine("cuda")
def test_steps_on_a_gpu_are_marked_by_events_and_the_losses_stay(tmp_path: Path) -> None:
    assert run(tmp_path, attached=True) == run(tmp_path, attached=False)

    found, lost = marks.load(str(tmp_path / "marks.bin"))
    assert lost == 0
    spans: dict[str, dict[int, tuple[int, int]]] = {}
    begun: dict[tuple[str, int], int] = {}
    for t_ns, name, edge, step in found:
        if edge == "begin":
            begun[name, step] = t_ns
        elif edge == "end":
            spans.setdefault(name, {})[step] = (begun[name, step], t_ns)
    assert len(spans["step"]) == STEPS
    assert len(spans["gpu_step"]) >= 5  # where recording events is dear, few steps are
    for step, (begin_ns, end_ns) in spans["gpu_step"].items():
        parts_ns = sum(
            e - b for b, e in (spans[name][step] for name in ("gpu_forward", "gpu_backward", "gpu_optimiser"))
        )
        assert abs(parts_ns - (end_ns - begin_ns)) <= 10_000
        came_ns = spans["fetch"][step][1]
        assert begin_ns >= came_ns - 200_000  # no kernel of a step before its batch came
    pairs = [step for step in spans["gpu_idle"] if step - 1 in spans["gpu_step"]]
    assert pairs
    for step in pairs:  # steps and gaps fill the time
        begin_ns, end_ns = spans["gpu_idle"][step]
        assert abs(begin_ns - spans["gpu_step"][step - 1][1]) <= 200_000
        assert end_ns == spans["gpu_step"][step][0]


@pytest.mark.machine("cuda")
def test_what_ran_on_the_gpu_is_told_for_a_window_of_steps(tmp_path: Path) -> None:
    run(tmp_path, attached=True)
    seen = json.loads((tmp_path / activity.FILE).read_text())
    assert 0 < seen["busy_share"] <= 1
    assert seen["busy_share"] + seen["between_share"] + seen["idle_share"] == pytest.approx(1)
    assert seen["kernels"] >= 10
    assert seen["pageable_copies"] == 2
    assert "gpu_window" in {name for _, name, _, _ in marks.load(str(tmp_path / "marks.bin"))[0]}
