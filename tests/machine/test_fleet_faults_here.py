"""Devices that lose their power, their sshd, or their way to us; and two who want the same one."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sshd_devices
from fleet_runs import TARE, Run, is_sleeping, sleeping
from sshd_devices import KNOBS, SshDevice, until
from tare.fleet.inventory import load_inventory
from tare.fleet.ssh import Refused, Unreachable, ask
from tare.records.store import Store

pytestmark = [pytest.mark.machine("sshd")]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    with sshd_devices.fleet(tmp_path_factory.mktemp("faults"), "one", "two", disk="kept") as made:
        yield made


@pytest.fixture(autouse=True)
def _inventory(fleet):
    fleet.write()


@pytest.fixture
def start(fleet, tmp_path):
    runs: list[Run] = []

    def begin(study: str, *words: str, folder: Path = tmp_path) -> Run:
        folder.mkdir(exist_ok=True)
        runs.append(Run(fleet, folder, study, *words))
        return runs[-1]

    yield begin
    for run in runs:
        run.end()


def turned(device: SshDevice) -> bool:
    return device.knobs()["dirty_ratio"] == "5"


@pytest.mark.deep
def test_a_device_that_loses_its_power_in_mid_trial_is_put_back_when_it_returns_and_nothing_is_lost(fleet, start):
    device = fleet.devices["one"]
    run = start(sleeping(20), "--on", "one", "--patience", "4 s")
    until(lambda: is_sleeping(device, 20) and turned(device), "the trial runs", 90)
    device.stop()
    assert run.wait() == 1
    assert "skipped: " in run.said()
    assert turned(device)  # nobody was left to turn it back
    device.start()
    again = start(sleeping(20).replace("20", "0.5"), "--on", "one", folder=run.store.parent / "other")
    assert again.wait() == 0, again.said()  # whoever comes next puts back what the dead trial left
    assert device.knobs() == KNOBS
    last = start(sleeping(20), "--on", "one")
    until(lambda: is_sleeping(device, 20), "it runs again", 90)
    assert last.wait() == 0, last.said()
    assert last.attempts() == {"one": ["interrupted", "ok"]}
    assert "found" in last.what("one")
    assert device.knobs() == KNOBS


def test_an_sshd_that_dies_costs_nothing_once_it_is_back(fleet, start):
    device = fleet.devices["two"]
    run = start(sleeping(6), "--on", "two", "--patience", "60 s")
    until(lambda: is_sleeping(device, 6), "the trial runs", 90)
    assert device.kill("sshd") >= 2  # the one that listens, and the one that has our line
    until(lambda: not is_sleeping(device, 6), "the trial has ended, unheard", 60)
    device.restart_sshd()
    assert run.wait() == 0, run.said()
    assert run.attempts() == {"two": ["ok"]}
    assert any(line["broken"] for line in run.ledger() if line["what"] == "answered")
    assert device.knobs() == KNOBS


@pytest.mark.deep
def test_a_device_behind_another_one_is_reached_through_it_and_in_no_other_way(fleet, start):
    gate, behind = fleet.devices["one"], fleet.devices["two"]
    address = gate.wire_to(behind)
    through = {"address": address, "jump": f"root@{gate.address}", "jump_host_key": gate.host_key}
    fleet.write(two=through)
    run = start(sleeping(0.2), "--on", "two")
    assert run.wait() == 0, run.said()
    assert run.attempts() == {"two": ["ok"]}
    look = {"do": "look", "engine": sys.executable}
    for wrong in ({"address": address}, through | {"jump_host_key": behind.host_key}):  # no other way, no other gate
        fleet.write(two=wrong)
        (device,) = load_inventory(fleet.inventory).called(["two"])
        with pytest.raises((Refused, Unreachable)):
            ask(device, look)


@pytest.mark.deep
def test_of_two_controllers_that_want_one_device_the_second_is_told_who_has_it(fleet, start, tmp_path):
    device = fleet.devices["one"]
    first = start(sleeping(200), "--on", "one")
    until(lambda: is_sleeping(device, 200), "the trial runs", 90)
    second = start(sleeping(0.2), "--on", "one", folder=tmp_path / "second")
    assert second.wait() == 1
    assert "another run owns this device" in second.said()
    assert second.records() == []
    device.kill("sleep 200")
    first.wait()
    assert first.attempts() == {"one": ["failed"]}  # once, and by nobody but us
    assert device.knobs() == KNOBS


@pytest.mark.deep
def test_a_device_with_another_version_of_tare_is_refused_and_nothing_is_run(fleet, start, tmp_path):
    other = tmp_path / "python"
    changed = "import sys, tare; tare.__version__ = '9.9'; sys.argv = ['tare', *sys.argv[4:]]; import tare.cli.__main__"
    other.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "{changed}" "$@"\n')
    other.chmod(0o755)
    fleet.write(one={"tare": other})
    run = start(sleeping(0.2), "--on", "one", "--on", "two")
    assert run.wait() == 3
    assert "one: tare 9.9 is here" in run.said()
    assert "try" not in run.what("two")


class TlsCluster:
    """A scheduler of someone else's, on one address of this machine."""

    def __init__(self, folder: Path, address: str) -> None:
        from distributed import Security

        made = Security.temporary().get_tls_config_for_role("worker")
        self.keys = {name: folder / f"{name}.pem" for name in ("ca_file", "cert", "key")}
        for name, path in self.keys.items():
            path.touch(mode=0o600)
            path.write_text(str(made[name]))
        with socket.socket() as line:
            line.bind((address, 0))
            self.address = f"tls://{address}:{line.getsockname()[1]}"
        argv = [sys.executable, "-m", "dask", "scheduler", "--host", address, "--port", self.address.rpartition(":")[2]]
        argv += ["--protocol", "tls", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
        argv += ["--tls-ca-file", self.keys["ca_file"], "--tls-cert", self.keys["cert"], "--tls-key", self.keys["key"]]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(argv, cwd=folder, **quiet)

    def environ(self) -> dict[str, str]:
        """dask's own settings, as its other clients have them."""
        prefix = "DASK_DISTRIBUTED__COMM__TLS__"
        files = {"CA_FILE": "ca_file", "CLIENT__CERT": "cert", "CLIENT__KEY": "key"}
        return {f"{prefix}{setting}": str(self.keys[name]) for setting, name in files.items()}

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def test_a_worker_on_the_device_takes_trials_from_a_cluster_over_tls(fleet, tmp_path):
    device = fleet.devices["one"]
    cluster = TlsCluster(tmp_path, device.near)
    words = ["tare.cli", "device", "fleet", "worker", "--cluster", cluster.address, "--name", "board"]
    keys = ["--ca", cluster.keys["ca_file"], "--cert", cluster.keys["cert"], "--key", cluster.keys["key"]]
    log = tmp_path / "worker.log"
    script = 'exec "$@" > ' + str(log) + " 2>&1"
    worker = device.begin(
        "env", "-u", "TARE_STATE", "sh", "-c", script, "sh", sys.executable, "-P", "-m", *words, *map(str, keys)
    )
    try:
        until(lambda: "Registered to" in log.read_text() if log.exists() else False, "the worker is there", 90)
        listening = device.inside("ss", "-Hltn").split("\n")
        assert not any("0.0.0.0" in row.split()[3] for row in listening if row and ":22" not in row), listening
        study = tmp_path / "study.yaml"
        study.write_text(sleeping(0.2))
        argv = [*TARE, "run", study, "--cluster", cluster.address]
        said = subprocess.run(
            [*argv, "-o", tmp_path / "out"], capture_output=True, text=True, timeout=200, check=False,
            env=os.environ | cluster.environ(),
        )  # fmt: skip
        assert "board" in said.stderr
        with Store.open(tmp_path / "out") as store:
            assert {record.settings["device"] for record in store.records()} == {"board"}
        assert device.knobs() == KNOBS
        assert idle_share(worker.pid, 5) < 0.05, "a worker that waits costs its device nearly nothing"
        without = subprocess.run(
            [*argv, "-o", tmp_path / "not"], capture_output=True, text=True, timeout=100, check=False
        )  # fmt: skip
        assert without.returncode == 3
        assert "no dask cluster" in without.stderr
    finally:
        for pid in device.pids("--resources device=1"):
            device.inside("kill", "-9", str(pid))
        worker.wait()
        cluster.close()


def idle_share(starter: int, seconds: float) -> float:
    """What share of a core a process and its children use while nothing is asked of them."""
    pids = [starter]
    for pid in pids:
        pids += [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    before = sum(map(spent_s, pids))
    time.sleep(seconds)
    return (sum(map(spent_s, pids)) - before) / seconds


def spent_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
