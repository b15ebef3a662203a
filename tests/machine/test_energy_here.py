"""Energy from end to end on this machine: a meter that prints watts, a workload, the idle device, and the split."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import warm_tare

METER = """\
import os, sys, time

asked = sys.argv[1] + "-asked"
while True:
    was_asked = os.path.exists(asked)
    print(30.0 if os.path.exists(sys.argv[1]) else 10.0, flush=True)
    if was_asked:
        os.remove(asked)
    time.sleep(0.15)
"""
WORK = """\
import os, sys, time

from tare_inside import marks

asked = sys.argv[1] + "-asked"


def wait_for_the_meter():
    open(asked, "w").close()
    while os.path.exists(asked):
        time.sleep(0.01)


open(sys.argv[1], "w").close()
wait_for_the_meter()
for step in range(230):
    marks.begin("step", step)
    time.sleep(0.05)
    marks.end("step", step)
wait_for_the_meter()  # else the last steps lie between 30 W and 10 W where it prints late
os.remove(sys.argv[1])
"""
STUDY = """\
study: metered
platform: bare
workload: {{command: {{argv: ["{python}", "{folder}/work.py", "{folder}/busy"], writes: ["{folder}"]}}}}
probes: [{{external: {{command: ["{python}", "{folder}/meter.py", "{folder}/busy"]}}}}]
repeat: 1
aa: false
"""


def tare(*words: str, cwd: Path) -> dict:
    done = warm_tare.run(*words, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.machine("bare")
def test_a_meter_of_ones_own_gives_energy_and_the_idle_device_its_baseload(tmp_path):
    """30 W while it works and 10 W while nothing does: a third of the energy is the idle device's."""
    (tmp_path / "meter.py").write_text(METER)
    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "study.yaml").write_text(STUDY.format(python=sys.executable, folder=tmp_path))
    tare("run", "study.yaml", "-o", "store", cwd=tmp_path)
    (cell,) = tare("show", "energy", "store", cwd=tmp_path)["cells"]
    assert cell["scope"] == "the whole device, at the wall"
    assert cell["figures"]["power_mean_w"]["value"] == pytest.approx(30.0, rel=0.01)
    assert "energy_baseload_j" not in cell["figures"]

    (idle,) = tare("device", "baseload", "store", "--duration", "10.5s", "--blocks", "1", cwd=tmp_path)["idle"]
    assert idle["power_w"] == pytest.approx(10.0)
    found = tare("show", "energy", "store", cwd=tmp_path)
    figures = {name: figure["value"] for name, figure in found["cells"][0]["figures"].items()}
    assert figures["energy_baseload_share"] == pytest.approx(1 / 3, rel=0.01)
    assert figures["energy_baseload_j"] + figures["energy_incremental_j"] == pytest.approx(figures["energy_j"])
    assert figures["energy_step_j"] == pytest.approx(figures["energy_j"] / 207, rel=1e-6), "230 steps, a tenth apart"
    assert (tmp_path / "store-baseload" / "store.json").exists()
    assert tare("device", "baseload", "store", "--duration", "10.5s", "--blocks", "1", cwd=tmp_path)["idle"] == [idle]
