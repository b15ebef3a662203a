"""`tare why STORE STORE`: a variable that only the later store has is named, with what it slows down, and tried."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import warm_tare

HERE = Path(__file__).parent
pytestmark = pytest.mark.machine("root")
VARIABLE = "CUDA_LAUNCH_BLOCKING"  # one that is recorded; the program looks at it, and there need be no GPU


def tare(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    done = warm_tare.run(*words, cwd=cwd, env={**os.environ, **variables})
    done.check_returncode()
    return done


def test_a_variable_of_the_later_store_is_named_and_removing_it_removes_the_cost(tmp_path: Path) -> None:
    # Steps that sleep for 4 ms, or for 40: however busy the machine is, the one takes longer than the other.
    work = [sys.executable, str(HERE / "planted_work.py"), "8", "--sleep", "4", "--mode", VARIABLE]
    study = {
        "study": "weekly",
        "platform": ["bare"],
        "workload": {"command": work},
        "repeat": 6,
        "aa": False,
        "rehearse": False,
    }
    (tmp_path / "study.yaml").write_text(json.dumps(study))
    tare("run", "study.yaml", "-o", "monday", cwd=tmp_path)
    tare("run", "study.yaml", "-o", "today", cwd=tmp_path, **{VARIABLE: "1"})

    done = tare("why", "monday", "today", "--try", "--set", "compare.margin=10%", "--json", "-o", "tried", cwd=tmp_path)

    found = json.loads(done.stdout)
    assert (found["slower"], found["quicker"]) == ("today", "monday")
    assert found["total"]["verdict"] == "slower"
    assert f"env.{VARIABLE}" in [each["key"] for each in found["software"]]
    assert next(iter(found["suspects"])) == "debug_variables"
    assert {each["cause"]: each["outcome"] for each in found["answer"]["tried"]} == {"debug_variables": "the cause"}
    assert found["answer"]["explained"]
