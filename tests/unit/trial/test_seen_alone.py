"""What a rehearsal shows of a real process: that it holds after its steps, and whether a second thread computes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from tare.base.host import LocalHost, Scope
from tare.plan.turning import MOST_BESIDE
from tare.trial import alone
from tare.trial.alone import seen_alone, threads_of

SRC = Path(__file__).parents[3] / "src"
PROGRAM = """
import hashlib, os, socket, subprocess, sys, threading, time
from tare_inside import turns
folder, steps, what, data = sys.argv[1], int(sys.argv[2]), sys.argv[3], bytes(1 << 20)
def compute():
    while True:
        hashlib.sha256(data)
if what.startswith("listens"):
    kept = [socket.create_server(("127.0.0.1", port)) for port in (0, int(what.partition(" ")[2]))]
if what == "pinned":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
if what == "two":
    threading.Thread(target=compute, daemon=True).start()
mine = turns.joined(folder) if what != "unmarked" else None
for step in range(steps):
    hashlib.sha256(data), hashlib.sha256(data)
    if what == "children":
        subprocess.run([sys.executable, "-c", "sum(range(1_000_000))"])
        spent = os.times()
        with open(os.path.join(folder, "cpu.stat"), "w") as file:  # as the kernel counts it
            print("usage_usec", round(sum(spent[:4]) * 1e6), file=file)
    if mine:
        mine.stepped(step + 1)
"""


def seen(folder: Path, what: str, monkeypatch: pytest.MonkeyPatch, steps: int = 150) -> alone.Alone:
    (folder / "cpu.stat").write_text("usage_usec 0\n")
    scope = Scope(cgroups={"": str(folder)})
    tenant = SimpleNamespace(workdir=folder, place=SimpleNamespace(scope=lambda: scope))
    pids: list[int] = []
    monkeypatch.setattr(
        alone, "threads_of", lambda *_: [int(each.name) for pid in pids for each in Path(f"/proc/{pid}/task").iterdir()]
    )
    with ExitStack() as stack, seen_alone(LocalHost(), tenant, stack) as found:  # type: ignore[arg-type]
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder), str(steps), what], env={"PYTHONPATH": str(SRC)}
        )
        pids.append(child.pid)
        assert child.wait(120) == 0
    return found


def test_one_thread_that_computes_leaves_the_others_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = seen(tmp_path, "one", monkeypatch)
    others = found.others()
    assert found.holds
    assert others is not None
    assert others < 0.01
    assert not found.chooses_cores


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core leaves no choice")
def test_a_program_that_chooses_its_cores_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(tmp_path, "pinned", monkeypatch).chooses_cores


def test_a_thread_of_another_pid_namespace_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "cgroup.threads").write_text("0\n17\n18\n")
    assert alone.threads_of(LocalHost(), Scope(cgroups={"": str(tmp_path)})) == [17, 18]


def test_a_second_thread_that_computes_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = seen(tmp_path, "two", monkeypatch).others()
    assert others is not None
    assert others > 0.05


def test_children_that_have_ended_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = seen(tmp_path, "children", monkeypatch, steps=40).others()
    assert others is not None
    assert others > MOST_BESIDE, "such a program does not get one core"


def test_a_program_that_marks_nothing_does_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = seen(tmp_path, "unmarked", monkeypatch)
    assert not found.holds
    assert found.others() is None


def test_a_port_of_its_own_choice_is_seen_and_one_that_the_kernel_chose_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for port in range(20_000, 30_000):  # below those that the kernel chooses from
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            break
    found = seen(tmp_path, f"listens {port}", monkeypatch)
    assert found.listens_on == [port]
    assert 100 < found.held_at <= 150


def test_threads_of_groups_that_an_engine_makes_below_are_seen(tmp_path: Path) -> None:
    (tmp_path / "docker" / "1").mkdir(parents=True)
    for folder, text in ((tmp_path, "0\n7\n"), (tmp_path / "docker", ""), (tmp_path / "docker" / "1", "11\n12\n")):
        (folder / "cgroup.threads").write_text(text)
    assert threads_of(LocalHost(), Scope(cgroups={"": str(tmp_path)})) == [7, 11, 12]
