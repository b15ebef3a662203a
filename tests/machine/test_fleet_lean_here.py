"""Devices without tare: their only Python is 3.6, and all the rest is driven from here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sshd_devices
from fleet_runs import Run, is_sleeping, sleeping
from sshd_devices import KNOBS, until
from tare.records.store import Store

pytestmark = [pytest.mark.machine("sshd"), pytest.mark.machine("python 3.6")]

MARKING = """
import os
from tare_inside import marks
marks.open_marks(os.environ["TARE_MARKS"], 1000)
for step in range(120):
    marks.begin("step", step)
    sum(number * number for number in range(50000))
    marks.end("step", step)
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    with sshd_devices.fleet(tmp_path_factory.mktemp("lean"), "old", "other", disk="kept") as made:
        yield made


@pytest.fixture(autouse=True)
def _inventory(fleet):
    lean = {"python": sshd_devices.python36(), "tare": "none"}
    fleet.write(old=lean, other=lean)
    for device in fleet.devices.values():
        device.mend()


@pytest.fixture
def start(fleet, tmp_path):
    runs: list[Run] = []

    def begin(study: str, *words: str) -> Run:
        runs.append(Run(fleet, tmp_path, study, *words))
        return runs[-1]

    yield begin
    for run in runs:
        run.end()


def is_as_it_was(device, run):
    """Nothing of this run is there: no process, nothing in memory, no control group (which all devices here share)."""
    sites = tuple(f"tare-{record.trial[:8]}-" for record in run.records())
    groups = [each for _, below, _ in os.walk("/sys/fs/cgroup") for each in below if each.startswith(sites)]
    return device.pids("tare") == [] and device.inside("ls", "/dev/shm") == "" and groups == []


def test_a_device_whose_only_python_is_3_6_gives_a_sealed_record_with_step_times(fleet, start, tmp_path):
    script = tmp_path / "marking.py"
    script.write_text(MARKING)
    python = sshd_devices.python36()
    command = f"{{argv: [{python}, {script}], attach: none}}"
    run = start(f"study: lean\nplatform: bare\nworkload: {{command: {command}}}\nrepeat: 1\n", "--on", "old")
    assert run.wait() == 0, run.said()
    assert run.attempts() == {"old": ["ok"]}
    with Store.open(run.store) as store:
        record = store.records()[0]
        series = store.readings(record.trial, record.attempt)
        marks = store.marks(record.trial, record.attempt)["t_ns"]
    times = [int(t_ns) for found, _ in series.values() for t_ns in found]
    assert record.start_ns < min(times) < min(marks) < max(marks) < max(times) < record.end_ns  # all in one time
    assert {"cpu.busy_s", "memory.available_bytes", "cgroup.cpu_s", "sampler.late_s"} <= series.keys()
    assert record.metrics["step_s"] > 0
    assert record.metrics["cgroup_cpu_s"] > 0
    assert record.facts["device"]["driven"] == record.facts["place"]["driven"] == "lean"
    assert record.facts["inside"]["python"]["version"].startswith("3.6")
    clock = record.facts["place"]["clock"]
    assert 0 < clock["bound_ns"] < 1_000_000_000
    assert abs(clock["offset_ns"]) <= clock["bound_ns"]  # it is the same clock
    assert record.facts["sampler"]["ticks"] > 5
    assert any("power manager" in sentence for sentence in record.facts["place"]["unchecked"])
    assert is_as_it_was(fleet.devices["old"], run)
    copies = fleet.devices["old"].inside("ls", "/var/lib/tare/cache/tare").split()
    assert [name.partition("-")[0] for name in copies].count("inside") == 1


def test_what_only_tare_on_the_device_can_do_is_refused_in_sentences_and_nothing_is_run(fleet, start):
    study = sleeping(0.2).replace("platform: bare", "platform: [bare, runc]").replace("[cpu]", "[cpu, perf]")
    run = start(study, "--on", "old")
    assert run.process.wait(120) == 3, run.said()
    for words in ("platform runc needs tare on the device", "control dirty needs", "probe perf needs"):
        assert words in run.said()
    assert "try" not in run.what("old")
    assert fleet.devices["old"].knobs() == KNOBS


def test_the_check_proposes_it_and_says_how_a_device_is_driven(fleet):
    fleet.write(old={"python": sshd_devices.python36()}, other={"python": sshd_devices.python36(), "tare": "none"})
    said = _check(fleet)
    assert said.returncode == 1
    assert "write 'tare: none' there" in said.stderr
    assert "other:" not in said.stderr
    (row,) = [line for line in said.stdout.splitlines() if line.startswith("other")]
    assert "lean" in row


@pytest.mark.deep
def test_a_line_that_breaks_ends_the_job_there_and_the_trial_is_tried_once_more(fleet, start):
    device = fleet.devices["old"]
    run = start(sleeping(12, controls=""), "--on", "old", "--patience", "8 s")
    until(lambda: is_sleeping(device, 12), "the trial runs", 60)
    device.cut()
    until(lambda: not is_sleeping(device, 12), "the agent has ended the job", 11)  # long before it would have ended
    until(lambda: device.pids("tare_inside") == [], "the agent has left", 10)
    device.mend()
    assert run.wait() == 0, run.said()
    assert sorted(run.attempts()["old"]) == ["interrupted", "ok"]
    (cut,) = [record for record in run.records() if record.state == "interrupted"]
    assert "the line to the device" in str(cut.reasons[0])
    assert run.what("old") == ["try", "answered", "try", "answered"]
    assert is_as_it_was(device, run)


@pytest.mark.deep
def test_a_lean_device_that_loses_its_power_in_mid_trial_is_tried_again_when_it_is_back(fleet, start):
    device = fleet.devices["other"]
    run = start(sleeping(8, controls=""), "--on", "other", "--patience", "30 s")
    until(lambda: is_sleeping(device, 8), "the trial runs", 60)
    device.stop()
    time.sleep(1)
    device.start()
    assert run.wait() == 0, run.said()
    assert sorted(run.attempts()["other"]) == ["interrupted", "ok"]
    assert is_as_it_was(device, run)


@pytest.mark.deep
def test_the_worker_dies_and_the_lean_trial_goes_on_without_it(fleet, start):
    device = fleet.devices["old"]
    run = start(sleeping(5, controls=""), "--on", "old")
    until(lambda: is_sleeping(device, 5), "the trial runs", 60)
    for pid in _workers(run.process.pid):
        os.kill(pid, 9)
    assert run.wait() == 0, run.said()
    assert run.attempts() == {"old": ["ok"]}
    assert run.what("old") == ["try", "worker lost", "again", "answered"]
    assert is_as_it_was(device, run)


@pytest.mark.deep
def test_a_trial_process_that_is_killed_leaves_no_job_on_the_device_and_is_tried_once_more(fleet, start):
    device = fleet.devices["old"]
    run = start(sleeping(6, controls=""), "--on", "old")
    until(lambda: is_sleeping(device, 6), "the trial runs", 60)
    (pid,) = _with_words(f"tare.cli device fleet trial {run.state}")
    os.kill(pid, 9)
    until(lambda: not is_sleeping(device, 6), "the agent has ended the job", 5)
    assert run.wait() == 0, run.said()
    assert sorted(run.attempts()["old"]) == ["interrupted", "ok"]
    assert is_as_it_was(device, run)


@pytest.mark.deep
def test_the_devices_own_lock_decides_also_against_tare_on_the_device(fleet, start):
    device = fleet.devices["old"]
    holder = device.begin("flock", "/run/lock", "sleep", "60")  # as a run of another user there has it
    try:
        until(lambda: device.pids(" 60"), "it holds the lock")
        (looked,) = json.loads(_check(fleet, "--on", "old", "--json").stdout)["devices"]
        assert "sleep 60" in looked["owner"]["run"]
        assert any("another run owns it: pid" in trouble["sentence"] for trouble in looked["troubles"])
        assert (looked["platforms"], looked["probes"]) == (["bare"], None)
        run = start(sleeping(0.2, controls=""), "--on", "old")
        assert run.wait() == 1
        assert "another run owns this device" in run.said()
        assert run.records() == []
    finally:
        device.kill("sleep 60")
        holder.wait()


@pytest.mark.deep
def test_lenet5_is_trained_on_a_lean_device(fleet, start):
    fleet.write(old={"python": sys.executable, "tare": "none"})
    fields = "model: lenet5, items: 64, batch: 4, epochs: 2, steps_per_epoch: 10, workers: 0, threads: 1"
    run = start(
        f"study: lean\nplatform: bare\nworkload: {{torch_train: {{{fields}}}}}\nprobes: [cpu]\nrepeat: 1\n",
        "--on",
        "old",
    )
    assert run.wait() == 0, run.said()
    record = run.records()[0]
    assert record.metrics["step_s"] > 0
    assert record.facts["inside"]["torch"]["version"]
    data = fleet.devices["old"].inside("ls", "/var/lib/tare/cache/tare/data")
    assert data.startswith("mnist")  # made there, not here
    assert is_as_it_was(fleet.devices["old"], run)


def _check(fleet, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-P", "-m", "tare.cli", "device", "fleet", "check", str(fleet.inventory), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def _with_words(words: str) -> list[int]:
    said = subprocess.run(["ps", "-eww", "-o", "pid,args", "--no-headers"], capture_output=True, text=True, check=True)
    rows = [line.split(None, 1) for line in said.stdout.splitlines()]
    return [int(pid) for pid, args in rows if words in args]


def _workers(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    words = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    return [int(pid) for pid, line in words.items() if b"tare.fleet.dask_processes" in line and b"worker" in line]
