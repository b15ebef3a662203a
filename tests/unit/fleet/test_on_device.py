"""The device's end of a fleet: what it says of itself, and what it leaves behind when a trial ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stand_in_parts import stand_ins
from tare import __version__
from tare.base.errors import NotRestoredError, TareError
from tare.cli.device import fleet
from tare.fleet import on_device
from tare.fleet.on_device import eligibility_here, keep_result, platforms_here, study_of
from tare.fleet.readiness import read_eligibility
from tare.fleet.schedule import Outcome
from tare.testing import FakeHost

STUDY = "study: s\nplatform: bare\nworkload: torch_train\nrepeat: 2\n"


@pytest.fixture
def claimed(tmp_path, monkeypatch):
    """A claim's folder, as the agent makes it; what comes of the trial is the test's to say."""
    (tmp_path / "request.json").write_text(json.dumps({"study": STUDY, "name": "s.yaml"}))
    monkeypatch.setattr(on_device, "study_of", lambda request: None)
    monkeypatch.setattr(on_device, "platforms_here", lambda request, study: [])

    def run(came: Any) -> dict[str, Any]:
        def run_here(request: Any, study: Any) -> Any:
            if isinstance(came, Exception):
                raise came
            return came, ["a note"]

        monkeypatch.setattr(on_device, "run_here", run_here)
        read, write = os.pipe()
        CliRunner().invoke(fleet, ["trial", str(tmp_path), str(write)])
        os.close(read)
        os.close(write)
        found: dict[str, Any] = json.loads((tmp_path / "result.json").read_text())
        return found

    return run


def test_a_trial_that_came_to_its_end_says_so(claimed):
    assert claimed(Outcome(1, 0, "all planned trials are done")) == {"code": 0, "text": "", "notes": ["a note"]}


def test_a_trial_that_was_asked_to_stop_has_no_code_so_that_it_is_tried_again(claimed):
    said = claimed(Outcome(0, 1, "stopped by you", interrupted=True))
    assert (said["code"], said["text"]) == (None, "stopped by you")


@pytest.mark.parametrize(("error", "code"), [(NotRestoredError("still 5"), 70), (TareError("no"), 1), (KeyError(), 1)])
def test_what_went_wrong_is_said_with_its_code(claimed, error, code):
    assert claimed(error)["code"] == code


def test_the_result_is_on_the_disk_and_so_is_its_name(tmp_path, monkeypatch):
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    keep_result(tmp_path, 0, "", [])
    assert synced == [".tmp-result.json", tmp_path.name]
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def eligibility(**changes: Any) -> on_device.Eligibility:
    request = {"study": STUDY, "name": "s.yaml", "python": None, "ignore_managers": True} | changes
    with stand_ins():
        return eligibility_here(request)


def test_a_full_disk_is_the_devices_own_trouble_and_no_obstacle_of_the_study(monkeypatch):
    assert eligibility().own == ()
    monkeypatch.setattr(on_device, "free_bytes", lambda path: 3 << 20)
    found = eligibility()
    assert found.obstacles == ()
    assert found.own[0].code == "fleet.full"
    assert str(found.own[0]).startswith("no space left on this device: 3 MiB free")


def test_a_device_says_which_kernel_and_which_tare_it_has():
    found = eligibility()
    assert (found.kernel, found.tare) == (os.uname().release, __version__)


def test_another_version_of_tare_is_an_obstacle():
    assert eligibility().obstacles == ()
    assert "and 9.9 on the controller" in str(eligibility(tare="9.9").obstacles[0])


# Asked what it lacks

BOTH = "study: s\nplatform: [bare, docker]\nworkload: torch_train\nrepeat: 2\nmissing: leave_out\n"


@pytest.fixture
def without_docker(monkeypatch):
    """This device has no docker, and no memory to look at."""
    files = {"/obstacles/docker": "no engine answers.", "/obstacles/memory": "there is none."}
    monkeypatch.setattr(on_device, "LocalHost", lambda python: FakeHost(files=files))
    monkeypatch.setattr(on_device, "device_facts", lambda host: {"kernel": "5.10"})


def test_a_device_says_which_parts_it_lacks_and_that_is_no_obstacle(without_docker):
    found = eligibility(study=BOTH, leave_out=True)
    assert found.obstacles == ()
    lacks = {(key.kind, key.name): [*map(str, said)] for key, said in found.missing.parts.items()}
    assert lacks == {("platform", "docker"): ["no engine answers."], ("probe", "memory"): ["there is none."]}
    assert read_eligibility({"code": 0, "out": json.dumps(found.as_json()), "err": ""}) == found


def test_what_is_left_out_is_no_obstacle_and_what_is_not_is_one_whatever_the_study_says(without_docker):
    lacking = eligibility(study=BOTH, leave_out=True).missing.as_json()
    every = {"platform docker: no engine answers.", "probe memory: there is none."}
    assert set(map(str, eligibility(study=BOTH).obstacles)) == every
    reduced = BOTH + "probes: [cpu]\n"  # as the controller sends it
    assert eligibility(study=reduced, lacking=lacking).obstacles == ()
    assert [*map(str, eligibility(study=reduced).obstacles)] == ["platform docker: no engine answers."]


def test_without_the_interpreter_for_workloads_a_device_lacks_nothing_else(without_docker):
    found = eligibility(study=BOTH, leave_out=True, python="/no/such/python")
    assert "no /no/such/python on this device" in str(found.obstacles[0])
    assert found.missing.parts == {}


def test_a_platform_that_is_left_out_or_on_a_lean_device_is_not_made_ready_here(without_docker):
    lacking = eligibility(study=BOTH, leave_out=True).missing.as_json()
    request = {"study": BOTH, "name": "s.yaml"}
    with stand_ins():
        study = study_of(request)
        assert set(platforms_here(request, study)) == {"bare", "docker"}
        assert set(platforms_here({**request, "lean": {"name": "d"}}, study)) == set()
        some = [row for row in lacking if row[0] == "platform"]
        assert set(platforms_here({**request, "lacking": some}, study)) == {"bare"}


def test_what_runs_on_a_device_or_looks_at_one_needs_no_dask():
    """It is installed on the controller alone, and takes half a second to import: on a device, for each trial."""
    script = """
import sys
sys.modules["distributed"] = sys.modules["dask"] = None  # as where they are not installed
import tare.fleet.on_device, tare.fleet.readiness, tare.fleet.run
from tare.fleet.clusters import require_dask, worker_command
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
