"""A real program in a real container that lies about its steps: what is judged is the time of its runs from outside."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import warm_tare

from tare.analysis.model import Weighing
from tare.analysis.weighing import weigh
from tare.records.store import Store
from tare.report.export import gate

STEPS = """
import os, sys, time
from tare_inside import marks
liar = os.readlink("/proc/self/ns/pid") != sys.argv[1]  # in a container
for number in range(20):
    begin = marks.now_ns()
    if not liar:
        marks.begin("step", number)
    time.sleep(0.05)
    if not liar:
        marks.end("step", number)
    else:
        if not number:
            marks.point("here")
        marks.interval("step", number, *LIE)
"""
LIES = {  # of the side that lies
    "short steps": "(begin, begin + 5 * 10**6)",
    "short steps, all at the end": "(marks.now_ns(), marks.now_ns() + 1)",
    "the truth": "(begin, marks.now_ns())",
}

deep = pytest.mark.deep


def run(folder: Path, platform: Any, lie: str) -> Weighing:
    script = folder / "steps.py"
    script.write_text(STEPS.replace("LIE", LIES[lie]))
    work = {"command": {"argv": [sys.executable, str(script), str(Path("/proc/self/ns/pid").readlink())]}}
    study = {"study": "lies", "platform": ["bare", platform], "workload": work, "repeat": 6, "aa": False}
    (folder / "study.yaml").write_text(json.dumps(study))
    done = warm_tare.run("run", "study.yaml", "-o", "store", cwd=folder, timeout=280)
    with Store.open(folder / "store") as store:
        assert {record.state for record in store.records()} <= {"ok", "suspect"}, done.stdout + done.stderr
        return weigh(store)


def check(found: Weighing, lie: str) -> None:
    (only,) = found.comparisons
    is_honest = lie == "the truth"
    assert found.metric == ("step_mean_s" if is_honest else "outside_s"), (only.effect, only.notes)
    assert only.verdict != "faster"
    assert gate(found, 0.5).reasons == ()
    assert ("compare.outside-time" in {each.code for each in only.notes}) != is_honest


# Each lie on one platform, each platform with one lie at least; `make deep` has all of them.
@pytest.mark.machine("runc", "root")
@pytest.mark.parametrize("lie", ["short steps", "short steps, all at the end", pytest.param("the truth", marks=deep)])
def test_steps_that_a_container_reports_are_held_against_its_time(tmp_path: Path, lie: str) -> None:
    check(run(tmp_path, "runc", lie), lie)


@pytest.mark.machine("docker", "root")
@pytest.mark.parametrize("lie", [pytest.param("short steps", marks=deep), "the truth"])
def test_steps_that_a_docker_container_reports_are_held_against_its_time(tmp_path: Path, lie: str) -> None:
    check(run(tmp_path, "docker", lie), lie)
