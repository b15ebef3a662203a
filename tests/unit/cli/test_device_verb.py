from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from knobs import DEAD
from tare.base import host as hosts
from tare.base.errors import NotPermittedError
from tare.base.files import state_dir
from tare.base.host import LocalHost
from tare.cli.device import command, supported
from tare.drivers.power import everything
from tare.parts.controls.power_mode import PowerMode
from tare.testing import FakeHost
from tare.trial.device import DeviceLock, device_id
from tare.trial.undo.journal import Journal
from trees.jetson import agx_xavier, nano
from trees.kernel import Kernel
from trees.server import x86

TUPLE = PowerMode(cores=4, cpu_mhz=1200)
everything.backends()  # loaded before any test puts another LocalHost into their way


@pytest.fixture
def xavier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """The device of the verbs is a pretended board."""
    kernel = Kernel(agx_xavier(tmp_path / "root"))
    monkeypatch.setattr(hosts, "LocalHost", lambda: kernel)
    return kernel


def left_changed(host: Kernel) -> None:
    """A run has died in the middle."""
    journal = Journal(state_dir() / "devices" / device_id(host), "out/modes", owner=DEAD)
    journal.note_knob(TUPLE, TUPLE.read(host), TUPLE.target(host, []))
    TUPLE.write(host, TUPLE.target(host, []))


def said(*arguments: str) -> str:
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_device_as_found_says_so(xavier: Kernel):
    assert json.loads(said("status", "--json"))["changed"] == 0
    assert said("status") == ""


def test_status_names_each_setting_that_stands_otherwise_and_whose_run_it_was(xavier: Kernel):
    left_changed(xavier)
    shown = json.loads(said("status", "--json"))
    assert shown["changed"] == 1
    (row,) = shown["knobs"]
    assert (row["baseline"]["cores.cpu7"], row["now"]["cores.cpu7"], row["run"]) == ("1", "0", "out/modes")
    text = said("status")
    assert "cores.cpu7" in text
    assert f"pid {DEAD.pid}" in text
    assert "cores.cpu1 " not in text  # it stands as it was found


def test_restore_plans_first_and_then_puts_back(xavier: Kernel):
    left_changed(xavier)
    planned = json.loads(said("restore", "--plan", "--json"))
    assert "would be restored" in planned["planned"][0]
    assert json.loads(said("status", "--json"))["changed"] == 1
    assert json.loads(said("restore", "--json"))["clean"]
    assert json.loads(said("status", "--json")) | {"device": ""} == {
        "device": "", "changed": 0, "knobs": [], "problems": [],
    }  # fmt: skip
    assert xavier.read("/sys/devices/system/cpu/online") == "0-7\n"


def test_a_plan_while_a_run_owns_the_device_says_whose_it_is_even_if_nothing_is_changed_yet(xavier: Kernel):
    with DeviceLock(state_dir(), device_id(xavier), "out/modes"):
        told = CliRunner().invoke(command, ["restore", "--plan"], catch_exceptions=False)
        plain = json.loads(said("restore", "--plan", "--json"))
    assert f"pid {os.getpid()}, run 'out/modes', owns this device" in told.stderr
    assert "Until it ends a restore is refused" in told.stderr
    assert "as it was found" not in told.stderr
    assert "run 'out/modes'" in plain["in_use"]
    assert "in_use" not in json.loads(said("restore", "--plan", "--json"))


def test_a_plan_shows_each_setting_on_a_line_of_its_own_and_no_json(xavier: Kernel):
    left_changed(xavier)
    told = CliRunner().invoke(command, ["restore", "--plan"], catch_exceptions=False)
    assert "{" not in told.output
    assert any(line.split()[:4] == ["power_mode", "cores.cpu7", "1", "0"] for line in told.stdout.splitlines())


def test_an_agx_xavier_has_8_x_29_x_14_x_9_modes(xavier: Kernel):
    shown = json.loads(said("modes", "--json"))
    counts = [len(shown["values"][field]) for field in ("cores", "cpu_mhz", "gpu_mhz", "mem_mhz")]
    assert counts == [8, 29, 14, 9]
    assert shown["combinations"] == 29_232
    assert shown["modes"] == ["MAXN", "MODE_10W", "MODE_15W", "MODE_30W_ALL"]
    assert "8 x 29 x 14 x 9 = 29,232 combinations" in said("modes")


def test_a_driver_that_takes_any_clock_says_from_where_to_where(tmp_path: Path):
    found = supported(LocalHost(root=x86(tmp_path)))
    assert found["values"]["cpu_mhz"] == {"from": 800.0, "to": 3600.0}
    assert found["combinations"] is None
    assert found["values"]["boost"] == [False, True]


def test_a_nano_and_a_device_with_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert supported(LocalHost(root=nano(tmp_path)))["modes"] == ["MAXN", "5W"]
    monkeypatch.setattr(hosts, "LocalHost", FakeHost)
    assert json.loads(said("modes", "--json")) == {"modes": [], "values": {}, "combinations": None}
    assert said("modes") == ""


def test_a_user_from_whom_roots_journal_is_hidden_is_not_told_that_all_is_well(
    xavier: Kernel, monkeypatch: pytest.MonkeyPatch
):
    hidden = "what root's runs left is noted in /var/lib/tare, which only root can read"
    monkeypatch.setattr("tare.trial.device.out_of_sight", lambda: hidden)
    for arguments in (["restore"], ["restore", "--plan", "--json"]):
        done = CliRunner().invoke(command, arguments)
        assert isinstance(done.exception, NotPermittedError)
        assert done.exception.exit_code == 77
    told = CliRunner().invoke(command, ["status"], catch_exceptions=False)
    assert hidden in told.stderr
    assert "as it was found" not in told.stderr
    assert json.loads(said("status", "--json"))["out_of_sight"] == hidden
