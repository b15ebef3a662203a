"""A study that names devices, run over devices behind an sshd each."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import sshd_devices
from tare.fleet.inventory import Device
from tare.fleet.ssh import command_line
from tare.records.store import Store

pytestmark = pytest.mark.machine("sshd")

ARGVS = (
    "workload:\n  - command: {argv: [sleep, '0.1'], attach: none}\n  - command: {argv: [sleep, '0.2'], attach: none}"
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    with sshd_devices.fleet(tmp_path_factory.mktemp("fleet"), "one", "two") as made:
        made.write()
        yield made


def tare(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-P", "-m", "tare.cli", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.deep
def test_devices_are_compared_without_what_one_lacks_and_cells_are_left_out_on_one_of_them(fleet, tmp_path) -> None:
    one, two = fleet.devices["one"], fleet.devices["two"]
    one.inside("cp", "/bin/true", "/run/only-on-one")
    two.inside("sh", "-c", "[ ! -d /sys/class/powercap ] || mount -t tmpfs tare-none /sys/class/powercap")
    study = tmp_path / "study.yaml"
    study.write_text(
        f"study: by-device\nplatform: bare\n{ARGVS}\n  - command: {{argv: [/run/only-on-one], attach: none}}\n"
        "probes: [cpu, power_rapl]\nmissing: leave_out\nrepeat: 1\n"
        "compare: {by: device, against: one}\nexclude: {device: two, workload.argv: [[sleep, '0.2']]}\n"
    )
    said = tare("run", str(study), "--fleet", str(fleet.inventory), "-o", str(tmp_path / "store"))

    with Store.open(tmp_path / "store") as store:
        records = store.records()
    ran = sorted((str(each.settings["device"]), str(each.settings["workload.argv"][1]), each.twin) for each in records)
    assert ran == [
        ("one", "0.1", 0), ("one", "0.1", 1), ("one", "0.2", 0), ("one", "0.2", 1), ("two", "0.1", 0),
    ], said.stderr  # fmt: skip
    assert {each.settings["probes"] for each in records} == {"cpu"}
    assert (tmp_path / "store" / "report.html").stat().st_size > 10_000  # other tests of fleets leave it out
    for part in ("probe power_rapl: ", "workload command: two: "):
        assert f"not measured here: {part}" in said.stderr


def test_a_device_that_is_not_there_is_refused_before_anything_is_begun(fleet, tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(f"study: by-device\nplatform: bare\n{ARGVS}\ncompare: {{by: device, against: six}}\n")
    said = tare("run", str(study), "--fleet", str(fleet.inventory), "-o", str(tmp_path / "store"))

    assert said.returncode == 2
    assert "no device of this run is called 'six'" in said.stderr
    assert not (tmp_path / "store").exists()


def test_ssh_itself_takes_our_rules_for_a_jump_host_against_those_of_its_configuration(tmp_path: Path) -> None:
    """OpenSSH's own word on what it would do; nothing is connected."""
    (tmp_path / "config").write_text("Host *\nStrictHostKeyChecking accept-new\nBatchMode no\nForwardAgent yes\n")
    device = Device(name="d", address="10.0.0.2", jump="me@gate.example:2222")
    words = command_line(device, ["true"], 10, str(tmp_path))
    told = subprocess.run(
        ["ssh", "-F", str(tmp_path / "config"), "-G", *words[1:-1]], capture_output=True, text=True, check=True
    ).stdout
    (proxy,) = [line.split(" ", 1)[1] for line in told.splitlines() if line.startswith("proxycommand ")]
    hop = shlex.split(proxy.replace("[%h]:%p", "[10.0.0.2]:22").replace("%%", "%"))
    said = subprocess.run(
        [hop[0], "-F", str(tmp_path / "config"), "-G", *hop[1:]], capture_output=True, text=True, check=True
    ).stdout
    wanted = {"stricthostkeychecking true", "batchmode yes", "forwardagent no", "user me", "port 2222"}
    assert wanted <= set(said.splitlines())
