"""Whole runs on a pretended board that go wrong from outside: signals, a second run, someone else's hand, a reboot."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pretended_board import PretendedBoard

from tare.base.host import LocalHost
from tare.trial.device import device_id
from tare.trial.undo.journal import Journal

pytestmark = [pytest.mark.machine("root")]

EXPIRE = "/proc/sys/vm/dirty_expire_centisecs"
STUDY = """\
study: sleepy
platform: bare
workload: {{command: {{argv: [sleep, "{seconds}"], attach: none}}}}
control:
  power_mode: MODE_15W
  dvfs: off
  dirty: {{expire: 10 s}}
  fan: 60
probes: []
repeat: 1
aa: false
"""


@pytest.fixture
def board(tmp_path: Path) -> PretendedBoard:
    return PretendedBoard.laid(tmp_path)


def within(seconds: float, what: Callable[[], object]) -> bool:
    """Whether it comes true in time."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        if what():
            return True
        time.sleep(0.05)
    return False


def begun(
    board: PretendedBoard, seconds: int = 60, before: Sequence[str] = (), **environment: str
) -> subprocess.Popen[str]:
    """A run whose workload sleeps, with every knob turned."""
    study = board.folder / "sleepy.yaml"
    study.write_text(STUDY.format(seconds=f"{seconds}{fraction(board)}"))
    study.chmod(0o600)
    runner = board.begin("run", "sleepy.yaml", "-o", "store", before=before, **environment)
    assert within(60, lambda: sleeping(board) or runner.poll() is not None)
    assert runner.poll() is None, runner.communicate()
    assert len(board.moved()) > 5
    return runner


def sleeping(board: PretendedBoard) -> list[int]:
    """The workloads of this board's runs, by the odd fraction of a second that only they sleep."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            argv = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if argv[0] == b"sleep" and argv[1].endswith(fraction(board).encode()):
            found.append(int(path.name))
    return found


def fraction(board: PretendedBoard) -> str:
    return f".{zlib.crc32(str(board.folder).encode()):010d}"


def pending() -> list[object]:
    folder = Path(os.environ["TARE_STATE"]) / "devices" / device_id(LocalHost())
    return list(Journal(folder).pending())


def killed(board: PretendedBoard) -> None:
    """A run that was killed with every knob turned, and nobody who looks after it."""
    runner = begun(board)
    runner.kill()
    runner.communicate()


def ended(runner: subprocess.Popen[str], limit_s: float = 60) -> str:
    """What it said at its end, which is that of an interrupted run."""
    _, said = runner.communicate(timeout=limit_s)
    assert runner.returncode == 130, said
    assert "Traceback" not in said
    return said


def test_the_guardian_puts_the_knobs_back_of_a_runner_that_was_killed_with_nobody_asking_for_it(board: PretendedBoard):
    runner = begun(board, TARE_GUARDIAN="on")
    runner.kill()
    runner.wait()
    assert within(60, lambda: board.moved() == {} and not pending())
    assert sleeping(board) == []


# Read by each Python at its start; the runner alone then takes memory without end, once it is asked to.
EATS = """
import os, sys, threading, time
def eat():
    while not os.path.exists("eat"):
        time.sleep(0.05)
    held = []
    while True:
        held.append(b"x" * (16 << 20))
if any("driver_board" in word for word in sys.orig_argv):
    threading.Thread(target=eat, daemon=True).start()
"""


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with 512 MiB of memory."""
    folder, limit = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
    if not folder.exists():
        folder, limit = Path("/sys/fs/cgroup"), "memory.max"
    made = folder / f"tare-test-{os.getpid()}"
    made.mkdir()
    try:
        if not (made / limit).exists():
            pytest.skip("no group has a limit of memory here.")
        (made / limit).write_text(str(512 << 20))
        yield made
    finally:
        assert within(30, lambda: not (made / "cgroup.procs").read_text())
        made.rmdir()


def test_the_guardian_outlives_a_runner_whose_group_runs_out_of_memory(board: PretendedBoard, small_group: Path):
    (board.folder / "sitecustomize.py").write_text(EATS)
    path = f"{board.folder}:{os.environ.get('PYTHONPATH', '')}"
    within_group = ["sh", "-c", f'echo $$ > {small_group}/cgroup.procs; exec "$@"', "sh"]
    runner = begun(board, before=within_group, TARE_GUARDIAN="on", PYTHONPATH=path)
    (board.folder / "eat").touch()
    assert runner.wait(60) == -signal.SIGKILL  # by the kernel
    assert within(60, lambda: board.moved() == {} and not pending())
    assert sleeping(board) == []


def test_ctrl_c_once_finishes_the_trial_and_puts_the_knobs_back(board: PretendedBoard):
    runner = begun(board, seconds=2)
    runner.send_signal(signal.SIGINT)
    assert "press Ctrl-C again" in ended(runner)
    assert board.moved() == {}


@pytest.mark.parametrize("presses", [2, pytest.param(3, marks=pytest.mark.deep)])
def test_ctrl_c_twice_or_thrice_stops_at_once_and_puts_the_knobs_back(board: PretendedBoard, presses: int):
    runner = begun(board)
    for _ in range(presses):
        runner.send_signal(signal.SIGINT)
        time.sleep(0.1)
    ended(runner, limit_s=40)
    assert board.moved() == {}
    assert sleeping(board) == []


def slow_restore(board: PretendedBoard) -> Path:
    """jetson_clocks takes two seconds for its part of the way back, and says when it begins."""
    command, sign = board.folder / "bin/jetson_clocks", board.folder / "restoring"
    waits = f'#!/bin/sh\nif [ "$1" = --restore ]; then : > {sign}; sleep 2; fi'
    command.write_text(command.read_text().replace("#!/bin/sh", waits, 1))
    return sign


def test_ctrl_c_in_the_middle_of_tare_device_restore_says_what_is_left_and_the_next_one_finishes(board: PretendedBoard):
    """As a terminal sends it: to the command and to what it has started, which a shell's `&` makes deaf to it."""
    sign = slow_restore(board)
    killed(board)
    words = ["env", "--default-signal=INT", *board.driver("tare", "device", "restore")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    restoring = subprocess.Popen(
        words, cwd=board.folder, env=board.environment(), start_new_session=True, text=True, **pipes
    )
    assert within(30, sign.exists)
    os.killpg(restoring.pid, signal.SIGINT)
    said, _ = restoring.communicate(timeout=60)
    assert restoring.returncode == 70, said
    assert "THE DEVICE WAS NOT RESTORED" in said
    assert "tare device restore` restores it." in said
    assert "as it was found" not in said
    assert "Traceback" not in said
    assert board.moved()
    assert board.tare("device", "restore").returncode == 0
    assert board.moved() == {}


@pytest.mark.deep
def test_a_request_to_end_that_comes_during_the_restore_does_not_break_it_off(board: PretendedBoard):
    sign = slow_restore(board)
    runner = begun(board)
    runner.send_signal(signal.SIGTERM)
    assert within(30, sign.exists)
    runner.send_signal(signal.SIGTERM)
    assert "being restored" in ended(runner)
    assert board.moved() == {}


def test_a_runner_that_is_killed_during_its_restore_is_finished_by_the_guardian(board: PretendedBoard):
    sign = slow_restore(board)
    runner = begun(board, TARE_GUARDIAN="on")
    runner.send_signal(signal.SIGTERM)
    assert within(30, sign.exists)
    runner.kill()
    runner.communicate()
    assert within(60, lambda: board.moved() == {} and not pending())


def test_a_second_run_is_told_who_has_the_device_and_the_first_is_unharmed(board: PretendedBoard):
    runner = begun(board)
    turned = board.moved()
    second = board.tare("run", "study.yaml", "-o", "other")
    assert second.returncode == 75
    assert f"pid {runner.pid}" in second.stderr
    assert board.moved() == turned
    assert sleeping(board)
    runner.send_signal(signal.SIGTERM)
    ended(runner)
    assert board.moved() == {}


def test_what_someone_else_changed_during_a_run_is_left_alone_until_it_is_forced(board: PretendedBoard):
    runner = begun(board, seconds=3)
    board.file(EXPIRE).write_text("1234\n")
    _, said = runner.communicate(timeout=60)
    assert runner.returncode == 70
    assert "THE DEVICE WAS NOT RESTORED" in said
    assert said.count("someone else has changed it") == 1  # and in words
    assert "and now it is 1234" in said.replace("dirty_expire_centisecs ", "")
    assert "{" not in said
    assert board.moved() == {EXPIRE.lstrip("/"): (board.found[EXPIRE.lstrip("/")], b"1234\n")}
    assert board.tare("device", "restore", "--force").returncode == 0
    assert board.moved() == {}


def test_after_a_reboot_what_is_volatile_is_healed_and_the_boards_mode_is_put_back(board: PretendedBoard):
    killed(board)
    board.file("boot_id").write_text("1c1f8d2f-8a6f-4b5c-8d67-4a7b0a2e3d12\n")
    modes = ("sys/devices/", "sys/kernel/nvpmodel_emc_cap", "var/lib/nvpmodel")  # nvpmodel sets them at each boot
    board.lay_back({name: text for name, text in board.found.items() if not name.startswith(modes)})
    board.file(EXPIRE).write_text("777\n")  # as this boot's own settings have it
    free = {name: text for name, text in board.found.items() if name.endswith("min_freq") and "cpuinfo" not in name}
    board.lay_back(free)
    done = board.tare("device", "restore")
    assert done.returncode == 0, done.stderr
    assert "healed by the reboot" in done.stdout + done.stderr
    assert board.moved() == {EXPIRE.lstrip("/"): (board.found[EXPIRE.lstrip("/")], b"777\n")}


@pytest.mark.machine("strace")
def test_a_journal_that_cannot_be_written_leaves_every_knob_alone(board: PretendedBoard):
    path = Path(os.environ["TARE_STATE"]) / "devices" / device_id(LocalHost()) / "undo.jsonl"
    full = ["-P", str(path), "-e", "trace=write", "-e", "inject=write:error=ENOSPC:when=2"]
    done = board.tare("run", "study.yaml", "-o", "store", strace=full)
    assert done.returncode != 0
    assert "was left alone" in done.stderr
    assert "No space left on device" in done.stderr
    assert board.moved() == {}


@pytest.mark.deep
def test_a_core_without_a_switch_is_refused_before_anything_runs(board: PretendedBoard):
    board.file("/sys/devices/system/cpu/cpu0/online").unlink()
    cores = STUDY.format(seconds=1).replace("power_mode: MODE_15W", "cpu: {online: 1-3}")
    (board.folder / "study.yaml").write_text(cores)
    done = board.tare("run", "study.yaml", "-o", "store")
    assert done.returncode == 3
    assert "core 0 has no switch" in done.stderr
    assert not (board.folder / "store").exists()


@pytest.mark.deep
def test_the_status_says_what_a_killed_run_left_and_nothing_once_it_is_put_back(board: PretendedBoard):
    killed(board)
    left = json.loads(board.tare("device", "status", "--json").stdout)
    assert {"power_mode", "dvfs", "dirty", "fan"} <= {row["knob"] for row in left["knobs"] if row["changed"]}
    plan = board.tare("device", "restore", "--dry-run")
    assert plan.returncode == 0
    assert len(board.moved()) > 5
    assert board.tare("device", "restore").returncode == 0
    assert json.loads(board.tare("device", "status", "--json").stdout)["changed"] == 0
    assert board.moved() == {}
