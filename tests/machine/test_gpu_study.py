"""Whole runs of `tare` with a made-up GPU: its clock is set, lost on the way, or the GPU itself is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from without_report import TARE

from pretend_h200 import FOLDER, kept_in
from tare.records.store import Store

pytestmark = pytest.mark.machine("bare", "root")

# A workload that does something to the GPU half-way, as a driver or a bus would.
CHANGES = (
    "import json, sys, time; from pathlib import Path; time.sleep(0.2); path = Path(sys.argv[1]); "
    "found = json.loads(path.read_text()); found.update(json.loads(sys.argv[2])); path.write_text(json.dumps(found)); "
    "time.sleep(0.6)"
)


class Scene:
    def __init__(self, folder: Path) -> None:
        self.folder, self.gpu, self.store = folder, folder / "nvml.json", folder / "out"

    def run(self, *, changes: dict[str, object], control: str = "", repeat: int = 1) -> subprocess.CompletedProcess:
        argv = json.dumps([sys.executable, "-I", "-c", CHANGES, str(self.gpu), json.dumps(changes)])
        text = f"study: s\nplatform: bare\nworkload: {{command: {{argv: {argv}, writes: [{self.folder}]}}}}\n{control}"
        study = self.folder / "s.yaml"
        study.write_text(f"{text}\nprobes: [gpu]\nrepeat: {repeat}\naa: false\nperiod: 50 ms\n")
        command = [*TARE, "run", str(study), "-o", str(self.store)]
        return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})

    def records(self):
        with Store.open(self.store) as store:
            return store.records()

    def now(self) -> dict[str, object]:
        return json.loads(self.gpu.read_text())


@pytest.fixture
def scene(tmp_path, monkeypatch):
    assert (FOLDER / "pynvml.py").exists()
    kept_in(tmp_path / "nvml.json", monkeypatch, persistence=1)
    return Scene(tmp_path)


def test_a_clock_is_held_during_the_trial_and_free_after_it(scene):
    done = scene.run(changes={}, repeat=2, control="control: {power_mode: {gpu_mhz: 990}}")
    records = scene.records()

    assert done.returncode == 0, done.stderr
    assert [record.state for record in records] == ["ok", "ok"]
    assert {record.metrics["gpu_clock_hz"] for record in records} == {990e6}
    assert records[0].facts["controls"]["power_mode"]["gpu.0.graphics_mhz"] == "990"
    assert scene.now()["lock"] is None


@pytest.mark.deep
def test_a_lock_that_is_lost_during_the_trial_makes_it_invalid(scene):
    done = scene.run(changes={"lock": None}, control="control: {power_mode: {gpu_mhz: 990}}")
    first = scene.records()[0]

    assert "run again: GPU 0 was set to 990 MHz" in done.stderr
    assert first.state == "invalid"
    assert "GPU 0 was set to 990 MHz but ran at " in str(first.reasons[0])


def test_a_gpu_that_is_lost_stops_the_study_after_that_trial(scene):
    done = scene.run(changes={"lost": True}, repeat=2)
    (record,) = scene.records()

    assert done.returncode == 1
    assert "no further trial can be run on this device" in done.stderr
    assert (record.state, "GPU 0 is lost" in str(record.reasons[0])) == ("invalid", True)


def test_a_gpu_that_is_lost_with_its_clock_locked_is_said_to_be_not_restored(scene):
    done = scene.run(changes={"lost": True}, repeat=2, control="control: {power_mode: {gpu_mhz: 990}}")
    (record,) = scene.records()

    assert done.returncode == 70
    assert "GPU 0 is lost" in done.stderr
    assert record.state == "invalid"
