"""Tenants side by side on the real machine: each with series of its own, and none left behind, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import warm_tare

from tare.base.host import LocalHost
from tare.base.processes import mounts
from tare.drivers.containers.oci import STATE
from tare.records.model import Record
from tare.records.store import Store

LIKE = "without_reruns"
WORK = str(Path(__file__).parent / "steps_of_work.py")
LONG = "100000"  # steps that nobody waits for

pytestmark = [pytest.mark.machine("runc", "root"), pytest.mark.machine("bare")]


def command(*argv: str) -> dict[str, Any]:
    return {"command": {"argv": [sys.executable, *argv], "attach": "none"}}


def write_study(folder: Path, work: dict[str, Any], tenants: Any) -> None:
    # Named after its test: the ids of trials come of it, and other tests of this file may run at the same time.
    study = {"study": folder.name.replace("_", "-"), "platform": "runc", "workload": work, "tenants": tenants}
    study |= {"repeat": 1, "aa": False}
    (folder / "study.yaml").write_text(json.dumps(study))


def tare(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return warm_tare.run(*words, cwd=cwd, timeout=200, like=LIKE)


def run(folder: Path, work: dict[str, Any], tenants: Any) -> list[Record]:
    """Every attempt: a busy machine makes some of them invalid for reasons of its own."""
    write_study(folder, work, tenants)
    done = tare("run", "study.yaml", "-o", "store", cwd=folder)
    with Store.open(folder / "store") as store:
        records = store.records()
    assert records, done.stderr
    return records


def left(trials: set[str]) -> list[str]:
    """What is still there of these trials, by the name that everything of theirs carries."""
    names = [f"tare-{trial[:8]}-" for trial in trials]
    found = [mount.point for mount in mounts(LocalHost())]
    # Not by a glob: those of others go meanwhile.
    for top in ("/sys/fs/cgroup", STATE, "/dev/shm"):
        found += [str(Path(above, each)) for above, below, files in os.walk(top) for each in (*below, *files)]
    return [path for path in found if any(name in path for name in names)]


def test_each_tenant_has_its_own_series_and_nothing_is_left(tmp_path: Path) -> None:
    other = {"beside": command(WORK, "80", "--calls", "500"), "platform": "bare"}

    records = run(tmp_path, command(WORK, "80"), [2, other])

    assert {record.settings["tenants"] for record in records} == {2, "beside command in bare"}
    with Store.open(tmp_path / "store") as store:
        for record in records:
            marks = store.marks(record.trial, record.attempt)
            readings = store.readings(record.trial, record.attempt)
            assert {"step", "tenant1.step"} <= set(marks["name"])
            assert record.metrics["overlap_s"] > 0
            assert record.metrics["tenant0_step_s"] > 0
            assert record.metrics["tenant1_step_s"] > 0
            for channel in ("cgroup.cpu_s", "tenant1.cgroup.cpu_s"):
                _, values = readings[channel]
                assert values[-1] > values[0], channel
    assert left({record.trial for record in records}) == []


def test_what_the_neighbour_was_is_in_the_record_without_its_secrets(tmp_path: Path) -> None:
    neighbour = command(WORK, "40", "--write", "/dev/null")
    neighbour["command"]["env"] = {"HF_TOKEN": "hf_dontkeepme"}

    records = run(tmp_path, command(WORK, "40"), {"beside": neighbour, "platform": "bare"})

    (beside,) = records[0].facts["beside"]
    assert (beside["platform"], beside["workload"]) == ("bare", "command")
    assert beside["workload.argv"][1:] == [WORK, "40", "--write", "/dev/null"]
    kept = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if b"hf_dontkeepme" in path.read_bytes()]


def test_a_tenant_that_dies_makes_the_trial_invalid(tmp_path: Path) -> None:
    dying = command("-c", "import time; time.sleep(0.3); raise SystemExit('no room')")

    records = run(tmp_path, command(WORK, LONG), {"beside": dying})

    assert {record.state for record in records} == {"invalid"}
    assert "ended early with code 1: no room" in str(records[0].reasons[0])
    assert left({record.trial for record in records}) == []


@contextmanager
def two_at_work(folder: Path) -> Iterator[tuple[warm_tare.Started, str]]:
    """A run whose two tenants have been let go, and the trial's id."""
    write_study(folder, command(WORK, LONG), 2)
    runner = warm_tare.start("run", "study.yaml", "-o", "store", cwd=folder, like=LIKE)
    try:
        yield runner, until_let_go(folder)
    finally:
        runner.kill()
        runner.wait(60)


def until_let_go(folder: Path) -> str:
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        sites = [path.name for path in (folder / "state" / "scratch").glob("tare-*")]
        if len(sites) == 2 and all(Path(f"/dev/shm/{site}-workdir/go").exists() for site in sites):
            return sites[0].split("-")[1]
        time.sleep(0.05)
    raise AssertionError("the tenants did not start")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_ends_both_tenants_and_seals_the_trial(tmp_path: Path, number: signal.Signals) -> None:
    with two_at_work(tmp_path) as (runner, trial):
        runner.send_signal(number)
        if number == signal.SIGINT:  # once is heeded after the trial, twice is at once
            time.sleep(0.3)
            runner.send_signal(number)
        assert runner.wait(60) == 130

    assert left({trial}) == []
    with Store.open(tmp_path / "store") as store:
        assert [record.state for record in store.records()] == ["interrupted"]


def test_what_a_killed_runner_left_of_both_is_cleaned_up(tmp_path: Path) -> None:
    with two_at_work(tmp_path) as (runner, trial):
        os.kill(runner.pid, signal.SIGKILL)
        runner.wait(60)

    restored = tare("device", "restore", cwd=tmp_path)

    assert restored.returncode == 0, restored.stderr
    assert left({trial}) == []
    again = tare("device", "restore", "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
