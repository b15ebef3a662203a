"""Killed at every step of locking and freeing a GPU's clock, the GPU is as it was found after a restore."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pretend_h200 import FOLDER

TESTS = FOLDER.parent


@pytest.mark.parametrize(("persistent", "stride"), [(1, 1), (0, 3)])
def test_a_gpu_is_as_it_was_found_wherever_its_owner_was_killed(tmp_path, persistent, stride):
    places = {"PRETEND_NVML": str(tmp_path / "nvml.json"), "TARE_STATE": str(tmp_path / "state")}
    env = {**os.environ, **places, "PYTHONPATH": os.pathsep.join([str(FOLDER), str(TESTS)])}
    program = [sys.executable, str(Path(TESTS) / "gpu_dies_at_every_step.py"), str(persistent), str(stride)]
    done = subprocess.run(program, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    as_found = {"lock": None, "limit_mw": 700000, "on": persistent, "pending": 0}

    assert len(told) > 20 / stride
    assert [case["code"] for case in told] == [-9] * (len(told) - 1) + [0]
    assert any(case["died"]["lock"] == [990, 990] for case in told)
    assert [(case["step"], case["end"]) for case in told if case["end"] != as_found or case["last"] != 0] == []
