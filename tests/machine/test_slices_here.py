"""`design: slices` on the real machine: two sides in turns, records as of any trial, and nothing left stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest
import warm_tare

from tare.base.host import LocalHost, Scope
from tare.drivers.cgroups import tree
from tare.drivers.cgroups.tree import Freezer, freezer_of, resume_all
from tare.trial.device import device_id
from tare.trial.undo.journal import Journal

PROGRAM = """\
import sys, time
from tare_inside import marks
fails = sys.argv[2:] and open("/proc/1/comm").read().strip() == "sleep"  # in the container
for number in range(int(sys.argv[1])):
    if fails and number == 20:
        sys.exit(3)
    with marks.during("step", number):
        until = time.process_time() + 0.004
        while time.process_time() < until:
            pass
"""
STUDY = """\
study: turns
platform: [bare, runc]
workload: {{command: {{argv: [python3, {program}, "{steps}"{more}], reads: [{folder}]}}}}
design: {{slices: {{leave_out: 1}}, cpu_time: true}}
repeat: 1
aa: false
rehearse: false
"""


def study(folder: Path, steps: int, more: str = "") -> None:
    program = folder / "program" / "steps.py"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    (folder / "study.yaml").write_text(STUDY.format(program=program, folder=program.parent, steps=steps, more=more))


def within(seconds: float, what: object) -> bool:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        if what():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


@pytest.mark.machine("runc", "root")
def test_two_sides_take_turns_and_leave_records_like_any_other(tmp_path: Path) -> None:
    study(tmp_path, 300)
    run = warm_tare.run("run", "study.yaml", "-o", "store", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    records = [json.loads(path.read_text()) for path in (tmp_path / "store").glob("trials/*/record.json")]
    assert sorted(record["settings"]["platform"] for record in records) == ["bare", "runc"]
    assert all(record["state"] in ("ok", "suspect") for record in records), [each["reasons"] for each in records]

    slices = [record["facts"]["slices"] for record in records]
    spans = sorted(tuple(span) for each in slices for span in each["windows_ns"])
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))  # never two at once
    assert all(each["by"].startswith("cgroup") and len(each["windows_ns"]) > 2 for each in slices)
    for record in records:
        metrics = record["metrics"]
        alive_s = (record["facts"]["counted"]["end_ns"] - record["facts"]["counted"]["start_ns"]) / 1e9
        assert metrics["wall_s"] < 0.8 * alive_s  # the stops are not in it
        assert metrics["cpu_s"] >= 300 * 0.004
        assert metrics["steps"] == 300

    verified = warm_tare.run("store", "verify", "store", cwd=tmp_path)
    assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.mark.machine("runc", "root")
def test_a_side_that_fails_takes_the_other_with_it_and_only_it_is_to_blame(tmp_path: Path) -> None:
    study(tmp_path, 100_000, more=", inside-fails")
    warm_tare.run("run", "study.yaml", "-o", "store", cwd=tmp_path)
    records = [json.loads(path.read_text()) for path in (tmp_path / "store").glob("trials/*/record.json")]
    found = {each["settings"]["platform"]: (each["state"], each["reasons"][0]["code"]) for each in records}
    assert found == {"bare": ("invalid", "slices.partner"), "runc": ("failed", "workload.exit")}


@pytest.mark.machine("runc", "root")
def test_a_killed_runner_leaves_nothing_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARE_GUARDIAN", "on")
    study(tmp_path, 100_000)
    state = Path(os.environ["TARE_STATE"])
    journal = state / "devices" / device_id(LocalHost())
    runner = warm_tare.start("run", "study.yaml", "-o", "store", cwd=tmp_path)

    def sites() -> list[str]:
        return [entry.site for entry in Journal(journal).pending()] if journal.exists() else []  # type: ignore[union-attr]

    def stopped() -> int:
        walked = os.walk("/sys/fs/cgroup")  # groups of others come and go meanwhile
        files = [
            Path(at, name) for at, _, held in walked for name in held if name in ("cgroup.freeze", "freezer.state")
        ]
        named = [path for path in files if any(site in str(path) for site in sites())]
        return sum(path.read_text().strip() in ("1", "FROZEN") for path in named)

    try:
        assert within(90, lambda: len(sites()) == 2 and stopped() == 1)
        names = sites()
    finally:
        os.kill(runner.pid, signal.SIGKILL)
        runner.wait()
    assert within(60, lambda: not sites())
    assert not [pid for name in names for pid in tree.processes_named(LocalHost(), name)]
    assert not [at for at, _, _ in os.walk("/sys/fs/cgroup") if Path(at).name in names]


def sleeper(name: str, *, waits: str = "while :; do :; done") -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sh", "-c", waits], env={**os.environ, tree.NAME_VARIABLE: name})


def ticks(pid: int) -> int:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


@pytest.mark.machine("root")
@pytest.mark.parametrize("kind", ["", "freezer"])
def test_a_frozen_group_computes_nothing_and_can_be_ended_after_a_dead_run(kind: str) -> None:
    host, name = LocalHost(), f"tare-slices-{os.getpid()}-{kind or 'v2'}"
    if kind not in tree.hierarchies(host):
        pytest.skip(f"there is no {kind or 'v2'} hierarchy here")
    folders = {kind: tree.make(host, name)[kind]}
    child = sleeper(name)
    try:
        host.write(f"{folders[kind]}/cgroup.procs", str(child.pid))
        freezer = freezer_of(host, name, Scope(cgroups=folders))
        freezer.stop()
        before = ticks(child.pid)
        time.sleep(0.3)
        assert ticks(child.pid) == before
        resume_all(host, name)  # as whoever cleans up does
        assert within(60, lambda: ticks(child.pid) > before)
        freezer.stop()
        resume_all(host, name)
        tree.kill_named(host, name)
        assert child.wait(60) == -signal.SIGKILL
    finally:
        Freezer(host, "cgroup v1" if kind else "cgroup v2", folders[kind]).resume()
        child.kill()
        child.wait()
        tree.remove(host, tree.own_folders(host, name))


@pytest.mark.machine("root")
def test_without_a_group_signals_stop_the_processes_and_their_children() -> None:
    host, name = LocalHost(), f"tare-slices-{os.getpid()}-signals"
    parent = sleeper(name, waits="(while :; do :; done) & while :; do :; done")
    try:
        assert within(60, lambda: len(tree.processes_named(host, name)) == 2)
        pids = tree.processes_named(host, name)
        freezer = freezer_of(host, name, Scope())
        freezer.stop()
        before = {pid: ticks(pid) for pid in pids}
        time.sleep(0.3)
        assert {pid: ticks(pid) for pid in pids} == before
        freezer.resume()
        assert within(60, lambda: all(ticks(pid) > before[pid] for pid in pids))
    finally:
        tree.kill_named(host, name)
        parent.wait()
