"""From Python, on the real machine: a callable is weighed in a container, and its store is read back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.machine("root", "runc")

PROGRAM = """
import json, sys
sys.path.insert(0, {tests!r})
import undisturbed
undisturbed.relax()
import tare, work
result = tare.weigh(work.step, setup=work.setup, calls=20, on="runc", blocks=2, store={store!r}, progress=False)
steps = tare.open({store!r}).marks("step")
print(json.dumps({{"metric": result.weighing.metric, "steps": len(steps), "trials": len(set(steps["trial"]))}}))
"""


def test_a_callable_is_weighed_in_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("def setup():\n    return range(20000)\n\n\ndef step(xs):\n    sum(xs)\n")
    program = PROGRAM.format(tests=str(Path(__file__).parent), store=str(tmp_path / "store"))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["steps"] == 20 * found["trials"]
    assert found["trials"] == 6  # two blocks of bare metal, its A/A repeat, and the container
    assert found["metric"] == "step_mean_s"
