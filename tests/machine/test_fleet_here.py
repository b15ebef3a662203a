"""A study over devices, each behind an sshd of its own; and what is left when something dies on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sshd_devices
from fleet_runs import Run, sleeping
from sshd_devices import KNOBS, Fleet, until
from tare.records.store import Store

pytestmark = pytest.mark.machine("sshd")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    with sshd_devices.fleet(tmp_path_factory.mktemp("fleet"), "one", "two", "three") as made:
        yield made


@pytest.fixture(autouse=True)
def _inventory(fleet):
    fleet.write()
    for device in fleet.devices.values():
        device.mend()


@pytest.fixture
def start(fleet, tmp_path):
    """Begins `tare run --fleet`; whatever the test does, none outlives it."""
    runs: list[SleepingRun] = []

    def begin(seconds: float, repeat: int, *words: str) -> SleepingRun:
        runs.append(SleepingRun(fleet, tmp_path, seconds, repeat, *words))
        return runs[-1]

    yield begin
    for run in runs:
        run.end()


class SleepingRun(Run):
    """A run whose workload sleeps for a time by which it can be found."""

    def __init__(self, fleet: Fleet, folder: Path, seconds: float, repeat: int, *words: str) -> None:
        super().__init__(fleet, folder, sleeping(seconds, repeat), *words)
        self.seconds = seconds


def is_sleeping(device: sshd_devices.SshDevice, run: SleepingRun) -> bool:
    """Whether the workload itself runs there: the knob is turned by then, and the trial is in the device's store."""
    return device.knobs()["dirty_ratio"] == "5" and bool(device.pids(f" sleep {run.seconds}"))


def test_the_settings_of_these_devices_are_never_empty_as_a_kernels_are_not(fleet):
    fleet.devices["one"].inside(
        "sh", "-c", ": > /proc/sys/vm/dirty_ratio"
    )  # as a writer that is killed before it writes
    assert fleet.devices["one"].knobs() == KNOBS


def test_a_study_runs_over_three_devices_and_leaves_each_as_it_was(fleet, start):
    run = start(0.2, 2)
    assert run.wait() == 0, run.said()
    assert run.attempts() == {name: ["ok", "ok"] for name in ("one", "two", "three")}
    for device in fleet.devices.values():
        assert device.knobs() == KNOBS
        assert device.pids("tare") == []
    with Store.open(run.store) as store:
        records = store.records()
    assert {record.settings["device.type"] for record in records} == {"pretended"}
    for name in fleet.devices:  # never two at a time on one device
        times = sorted((one.start_ns, one.end_ns) for one in records if one.settings["device"] == name)
        assert times[0][1] <= times[1][0]
    again = start(0.2, 2)
    assert again.wait() == 0, again.said()
    assert again.attempts() == {name: ["ok", "ok"] for name in ("one", "two", "three")}
    assert "0 trials to run" in again.said()


def test_a_worker_that_is_killed_is_replaced_and_its_trial_is_not_run_again(fleet, start):
    run = start(4, 1, "--on", "one")
    until(lambda: is_sleeping(fleet.devices["one"], run), "the trial runs", 90)
    (worker,) = _children(run.process.pid, f"dask_processes {run.process.pid} workers")
    os.kill(worker, signal.SIGKILL)
    assert run.wait() == 0, run.said()
    assert "the worker that drove it died; another one takes over" in run.said()
    assert run.what("one") == ["try", "worker lost", "again", "answered"]
    assert run.attempts() == {"one": ["ok"]}
    assert fleet.devices["one"].knobs() == KNOBS


@pytest.mark.deep
def test_after_the_controller_is_killed_the_device_ends_its_trial_and_the_next_run_collects_it(fleet, start):
    device = fleet.devices["one"]
    run = start(4, 1, "--on", "one")
    until(lambda: is_sleeping(device, run), "the trial runs", 90)
    ours = _children(run.process.pid, "tare.fleet.dask_processes")
    assert len(ours) == 2
    run.process.kill()
    run.process.wait()
    until(lambda: not any(_runs(pid) for pid in ours), "dask is gone with it")
    assert device.knobs()["dirty_ratio"] == "5"
    until(lambda: not device.pids("tare.cli device fleet trial"), "the trial has ended", 60)
    assert device.knobs() == KNOBS
    again = start(4, 1, "--on", "one")
    assert again.wait() == 0, again.said()
    assert again.attempts() == {"one": ["ok"]}
    assert again.what("one") == ["try", "found"]


@pytest.mark.deep
def test_a_network_that_comes_back_in_time_costs_nothing(fleet, start):
    device = fleet.devices["two"]
    run = start(15, 1, "--on", "two", "--patience", "60 s")
    until(lambda: is_sleeping(device, run), "the trial runs", 90)
    device.cut()
    until(lambda: not is_sleeping(device, run), "the trial has ended, unheard", 60)
    time.sleep(30)  # until ssh has noticed: its line is tried every 10 s, and three times in vain ends it
    device.mend()
    assert run.wait() == 0, run.said()
    assert run.attempts() == {"two": ["ok"]}
    assert any(line["broken"] for line in run.ledger() if line["what"] == "answered")
    assert device.knobs() == KNOBS


@pytest.mark.deep
def test_a_device_that_vanishes_holds_up_no_other_and_its_trial_is_collected_later(fleet, start):
    device = fleet.devices["two"]
    run = start(6, 1, "--on", "one", "--on", "two", "--patience", "4 s")
    until(lambda: is_sleeping(device, run), "the trial runs", 90)
    device.cut()
    assert run.wait() == 1
    assert "skipped: " in run.said()
    assert run.attempts() == {"one": ["ok"]}
    until(lambda: not device.pids("tare.cli device fleet trial"), "the trial has ended", 60)
    assert device.knobs() == KNOBS
    device.mend()
    again = start(6, 1, "--on", "one", "--on", "two")
    assert again.wait() == 0, again.said()
    assert again.attempts() == {"one": ["ok"], "two": ["ok"]}
    assert again.what("two")[-1] == "found"


@pytest.mark.deep
def test_a_trial_that_is_killed_on_its_device_is_put_back_there_and_tried_once_more(fleet, start):
    device = fleet.devices["three"]
    run = start(5, 1, "--on", "three")
    until(lambda: is_sleeping(device, run), "the trial runs", 90)
    assert device.kill("tare.cli device fleet trial") == 1
    until(lambda: device.knobs() == KNOBS, "its own guardian has put the knobs back", 60)
    assert run.wait() == 0, run.said()
    assert sorted(run.attempts()["three"]) == ["interrupted", "ok"]
    assert run.what("three") == ["try", "answered", "try", "answered"]
    assert device.knobs() == KNOBS


@pytest.mark.deep
def test_a_trial_that_is_asked_to_end_with_its_device_is_not_done_and_is_tried_once_more(fleet, start):
    device = fleet.devices["three"]
    run = start(5, 1, "--on", "three")
    until(lambda: is_sleeping(device, run), "the trial runs", 90)
    (trial,) = device.pids("tare.cli device fleet trial")
    device.inside("kill", "-TERM", str(trial))  # as a board that is shut down in order does
    assert run.wait() == 0, run.said()
    assert sorted(run.attempts()["three"]) == ["interrupted", "ok"]
    assert run.what("three") == ["try", "answered", "try", "answered"]
    assert device.knobs() == KNOBS


@pytest.mark.deep
def test_a_full_disk_takes_out_its_device_and_no_other(fleet, start):
    device = fleet.devices["three"]
    free = int(device.inside("df", "--output=avail", "-B1", "/var/lib/tare").split()[-1])
    device.inside("fallocate", "-l", str(free - (16 << 20)), "/var/lib/tare/full")
    run = start(0.2, 1)
    try:
        code = run.wait()
    finally:
        device.inside("rm", "/var/lib/tare/full")
    assert code == 1, run.said()
    assert "three: no space left on this device" in run.said()
    assert run.attempts() == {"one": ["ok"], "two": ["ok"]}
    again = start(0.2, 1)
    assert again.wait() == 0, again.said()
    assert again.attempts() == {name: ["ok"] for name in fleet.devices}


@pytest.mark.deep
def test_after_the_death_of_the_controller_the_others_do_not_wait_for_the_device_that_is_at_a_trial(fleet, start):
    one, two = fleet.devices["one"], fleet.devices["two"]
    run = start(200, 1, "--on", "one")
    until(lambda: is_sleeping(one, run), "the trial runs", 90)
    run.process.kill()
    run.process.wait()
    again = start(200, 1, "--on", "one", "--on", "two")
    until(lambda: is_sleeping(two, again), "the other one has begun", 90)
    assert is_sleeping(one, run)
    assert one.kill(" sleep 200")
    assert two.kill(" sleep 200")
    again.wait()
    assert again.attempts() == {"one": ["failed"], "two": ["failed"]}  # each once, and by nobody but us
    assert again.what("one") == ["try", "found"]
    assert f"new in {again.store}: two." in again.said()


@pytest.mark.deep
def test_a_run_that_is_asked_to_end_says_who_goes_on_without_it(fleet, start):
    device = fleet.devices["one"]
    run = start(4, 1, "--on", "one")
    until(lambda: is_sleeping(device, run), "the trial runs", 90)
    run.process.terminate()
    assert run.wait() == 130, run.said()
    assert "still running a trial: one." in run.said()
    assert "as it was found" not in run.said()
    until(lambda: not device.pids("tare.cli device fleet trial"), "the trial has ended", 60)
    assert device.knobs() == KNOBS


def test_a_wrong_host_key_is_refused_and_the_others_go_on(fleet, start):
    fleet.write(two={"host_key": fleet.devices["one"].host_key})
    run = start(0.2, 1, "--on", "one", "--on", "two")
    assert run.wait() == 1
    assert "two: ssh was refused" in run.said()
    assert run.attempts() == {"one": ["ok"]}


@pytest.mark.machine("python 3.6")
@pytest.mark.deep
def test_a_device_with_an_old_python_runs_its_workload_on_it(fleet, start):
    fleet.write(one={"python": sshd_devices.python36(), "tare": sys.executable})
    run = start(0.2, 1, "--on", "one")
    assert run.wait() == 0, run.said()
    with Store.open(run.store) as store:
        (record,) = store.records()
    assert record.facts["inside"]["python"]["version"].startswith("3.6")


def test_the_check_says_what_each_device_is_and_what_stands_in_its_way(fleet):
    fleet.write(
        one={"python": sshd_devices.without_tare()},
        two={"host_key": fleet.devices["one"].host_key},
    )
    fleet.devices["three"].inside("sh", "-c", "mkdir -p /run/tare/locks && exec true")
    argv = [sys.executable, "-P", "-m", "tare.cli", "device", "fleet", "check", str(fleet.inventory), "--json"]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=200, check=False)
    assert said.returncode == 1
    one, two, three = json.loads(said.stdout)["devices"]
    assert (one["reachable"], one["ready"]) == (True, False)
    assert "does not run tare" in one["troubles"][0]["sentence"]
    assert (two["reachable"], two["ready"]) == (False, False)
    assert "ssh was refused" in two["troubles"][0]["sentence"]
    assert three["ready"], three["troubles"]
    assert "bare" in three["platforms"]
    assert abs(three["clock_offset_s"]) <= three["clock_within_s"] + 0.05  # it is the same clock
    assert three["owner"] is None


def _children(parent: int, words: str) -> list[int]:
    said = subprocess.run(
        ["ps", "-eww", "-o", "pid,ppid,args", "--no-headers"], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in said.stdout.splitlines()]
    return [int(pid) for pid, ppid, args in rows if int(ppid) == parent and words in args]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
