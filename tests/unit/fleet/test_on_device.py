"""The device's end of a fleet: what it says of itself, and what it leaves behind when a trial ends."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stand_in_parts import stand_ins
from tare import __version__
from tare.cli.fleet import command
from tare.errors import NotRestoredError, TareError
from tare.fleet import on_device
from tare.fleet.local import Outcome
from tare.fleet.on_device import keep_result, standing_here

STUDY = "study: s\nplatform: bare\nworkload: torch_train\nrepeat: 2\n"


@pytest.fixture
def claimed(tmp_path, monkeypatch):
    """A claim's folder, as the agent makes it; what comes of the trial is the test's to say."""
    (tmp_path / "request.json").write_text(json.dumps({"study": STUDY, "name": "s.yaml"}))
    monkeypatch.setattr(on_device, "study_of", lambda request: None)
    monkeypatch.setattr("tare.cli.fleet.needs_of_study", lambda study: nullcontext())

    def run(came: Any) -> dict[str, Any]:
        def run_here(request: Any, study: Any) -> Any:
            if isinstance(came, Exception):
                raise came
            return came, ["a note"]

        monkeypatch.setattr(on_device, "run_here", run_here)
        read, write = os.pipe()
        CliRunner().invoke(command, ["trial", str(tmp_path), str(write)])
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


def standing(**changes: Any) -> on_device.Standing:
    request = {"study": STUDY, "name": "s.yaml", "python": None, "ignore_managers": True} | changes
    with stand_ins():
        return standing_here(request)


def test_a_full_disk_is_the_devices_own_trouble_and_no_obstacle_of_the_study(monkeypatch):
    assert standing().own == ()
    monkeypatch.setattr(on_device, "free_bytes", lambda path: 3 << 20)
    found = standing()
    assert found.obstacles == ()
    assert found.own[0].startswith("no space left on this device: 3 MiB free")


def test_a_device_says_which_kernel_and_which_tare_it_has():
    found = standing()
    assert (found.kernel, found.tare) == (os.uname().release, __version__)


def test_another_version_of_tare_is_an_obstacle():
    assert standing().obstacles == ()
    assert "and 9.9 on the controller" in standing(tare="9.9").obstacles[0]
