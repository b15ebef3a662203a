"""Turns on the real machine: steps by agreement, records as of any trial, and nothing left stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import warm_tare

from tare.base.host import LocalHost, Scope
from tare.drivers.cgroups import tree
from tare.drivers.cgroups.tree import Freezer, freezer_of, resume_all
from tare.trial.device import device_id
from tare.trial.undo.journal import Journal

PROGRAM = """\
import os, sys, time
from tare_inside import marks
steps = int(sys.argv[1])
said, cores = [], []
for number in range(steps):
    cores.append(len(os.sched_getaffinity(0)))
    with marks.during("step", number):
        begin, until = time.monotonic_ns(), time.process_time() + 0.004
        while time.process_time() < until:
            pass
        said.append((begin, time.monotonic_ns()))
print(" ".join("%d:%d" % each for each in said))
print(cores[0], cores[len(cores) // 2], len(os.sched_getaffinity(0)), file=sys.stderr)
"""
STUDY = """\
study: turns
platform: [bare, {platform}]
workload: {{command: {{argv: [python3, {program}, "{steps}"], reads: [{folder}]}}}}
repeat: 1
aa: false
"""


def study(folder: Path, steps: int, platform: str = "runc") -> None:
    program = folder / "program" / "steps.py"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    (folder / "study.yaml").write_text(
        STUDY.format(program=program, folder=program.parent, steps=steps, platform=platform)
    )


def within(seconds: float, what: object) -> bool:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        if what():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


def sealed(store: Path) -> list[dict[str, Any]]:
    """The records of the pair, without the rehearsals."""
    found = [json.loads(path.read_text()) for path in store.glob("trials/*/record.json")]
    return [each for each in found if each["facts"].get("role") != "rehearsal"]


@pytest.mark.machine("runc", "root")
def test_two_sides_take_turns_and_leave_records_like_any_other(tmp_path: Path) -> None:
    study(tmp_path, 300)
    run = warm_tare.run("run", "study.yaml", "-o", "store", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "design  turns of" in run.stderr + run.stdout
    records = sealed(tmp_path / "store")
    assert sorted(record["settings"]["platform"] for record in records) == ["bare", "runc"]
    assert all(record["state"] in ("ok", "suspect") for record in records), [each["reasons"] for each in records]

    turns = [record["facts"]["turns"] for record in records]
    spans = sorted(tuple(span) for each in turns for span in each["windows_ns"])
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))  # never two at once
    assert all(each["by"].startswith("cgroup") and each["done"] == each["count"] >= 4 for each in turns)
    assert turns[0]["steps"] == turns[1]["steps"]

    # By the program's own clock, which knows nothing of tare: the same turns, the same counts, the same ratio.
    own_s = []
    for record, told in zip(records, turns, strict=True):
        trial = tmp_path / "store" / "trials" / f"{record['trial']}.{record['attempt']}"
        printed = (trial / "out.txt").read_text()
        at_first, in_turns, at_last = map(int, (trial / "err.txt").read_text().split())
        assert (at_first, in_turns) == (at_last, 1 if "core" in told else at_last)
        steps = [tuple(map(int, each.split(":"))) for each in printed.split()]
        first, size = told["before"], told["steps"]
        own = [steps[first + size * n : first + size * (n + 1)] for n in range(told["count"])]
        for (begin, end), of_turn in zip(told["windows_ns"][2:], own, strict=False):
            assert begin <= of_turn[0][0] < of_turn[-1][1] <= end
        own_s.append(sum(turn[-1][1] - turn[0][0] for turn in own) / 1e9 / (size * told["count"]))
        assert record["metrics"]["steps"] == 300
        assert record["metrics"]["wall_s"] == pytest.approx(sum(e - b for b, e in told["windows_ns"]) / 1e9, rel=0.1)
    ratio = records[0]["metrics"]["step_mean_s"] / records[1]["metrics"]["step_mean_s"]
    assert ratio == pytest.approx(own_s[0] / own_s[1], rel=0.005)

    verified = warm_tare.run("store", "verify", "store", cwd=tmp_path)
    assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.mark.machine("runc", "root")
def test_a_program_of_a_fixed_time_runs_whole_once_its_first_pair_could_not_take_turns(tmp_path: Path) -> None:
    study(tmp_path, 10_000)
    program = tmp_path / "program" / "steps.py"
    timed = "for number in range(steps):\n    if time.monotonic() > ends:\n        break\n"
    program.write_text(
        "import time\nends = time.monotonic() + 2\n" + PROGRAM.replace("for number in range(steps):\n", timed)
    )
    run = warm_tare.run("run", "study.yaml", "-o", "store", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    printed = run.stderr + run.stdout
    assert "design  turns of" in printed
    assert "design  whole runs in blocks: the first pair could not take turns" in printed

    states = {(each["settings"]["platform"], each["attempt"]): each["state"] for each in sealed(tmp_path / "store")}
    assert all(state in ("ok", "suspect") for (_, attempt), state in states.items() if attempt == 2), states
    assert {platform for platform, attempt in states if attempt == 2} == {"bare", "runc"}


@pytest.mark.parametrize(
    "platform", [pytest.param(each, marks=pytest.mark.machine(each, "root")) for each in ("runc", "docker")]
)
def test_a_killed_runner_leaves_nothing_stopped(platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARE_GUARDIAN", "on")
    study(tmp_path, 600, platform)
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
        assert within(240, lambda: len(sites()) == 2 and stopped() == 1)
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
    host, name = LocalHost(), f"tare-turns-{os.getpid()}-{kind or 'v2'}"
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
    host, name = LocalHost(), f"tare-turns-{os.getpid()}-signals"
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
