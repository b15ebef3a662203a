"""Lightning and Hugging Face Trainer scripts, unchanged: they use the same hooks underneath.

Both must be installed (tools/setup test): without them these tests fail, for a skipped one would say nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from forked_runs import SCRIPTS

from tare.base.host import LocalHost
from tare.parts.workloads.command import Command
from tare_inside import marks

# 32 examples in batches of 4, two batches a step, two epochs
TRAINED = {"fetch": 16, "forward": 16, "backward": 16, "compute": 16, "optimiser": 8, "step": 8, "epoch": 2}
EVALUATED = {"with_lightning.py": 3, "with_hugging_face.py": 2}  # Lightning tries the test pass before it trains


@pytest.mark.parametrize("script", EVALUATED)
def test_a_framework_is_marked_as_a_loop_by_hand_would_be(script: str, workdir: Path, tmp_path: Path) -> None:
    argv = (sys.executable, script, str(tmp_path / "out"))
    command = Command.model_validate({"argv": argv, "cwd": SCRIPTS})
    ended = LocalHost().spawn(command.job(LocalHost(), workdir, seed=1)).wait(600)

    assert ended.code == 0, ended.err
    env = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    plain = subprocess.run(argv, cwd=SCRIPTS, env=env, check=True, capture_output=True, text=True)
    losses = [line for line in ended.out.splitlines() if "0x" in line]
    assert losses == [line for line in plain.stdout.splitlines() if "0x" in line] != []
    found, lost = marks.load(str(workdir / "marks.bin"))
    assert lost == 0
    seen = Counter(name for _, name, edge, _ in found if edge == "end")
    assert seen == {**TRAINED, "evaluate": EVALUATED[script]}
    assert json.loads((workdir / "attach.json").read_text())["state"] == "marked"
