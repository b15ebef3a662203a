"""A runner that is killed with its container open: its guardian cleans up with nobody asking for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tare.base.host import LocalHost
from tare.trial.device import device_id
from tare.trial.undo.journal import Entry, Journal, SiteEntry

TARE = (sys.executable, str(Path(__file__).with_name("without_reruns.py")))

STUDY = """\
study: sleepy
platform: runc
workload: {command: {argv: [sh, -c, "sleep 60"], attach: none}}
repeat: 1
aa: false
"""


def pending(state: Path) -> list[Entry]:
    folder = state / "devices" / device_id(LocalHost())
    return list(Journal(folder).pending()) if folder.exists() else []


def within(seconds: float, what: object) -> bool:
    """Whether it comes true in time."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        if what():  # type: ignore[operator]
            return True
        time.sleep(0.1)
    return False


def sites(state: Path) -> list[str]:
    return [entry.site for entry in pending(state) if isinstance(entry, SiteEntry)]


def left(names: list[str]) -> list[Path]:
    """Groups of these sites; those of others may go meanwhile."""
    found = [Path(above, each) for above, below, _ in os.walk("/sys/fs/cgroup") for each in below]
    return [path for path in found if path.name.startswith(tuple(names))]


def guardian_of(runner: subprocess.Popen[bytes]) -> int:
    """Its pid."""
    words = ["pgrep", "-P", str(runner.pid), "-f", "tare.trial.undo.guardian"]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def memory_group(pid: int | str) -> str:
    lines = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    return next((path for _, names, path in lines if "memory" in names.split(",")), lines[-1][2])


def mounted(state: Path) -> bool:
    return str(state) in Path("/proc/self/mounts").read_text()


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> subprocess.Popen[bytes]:
    """A run whose container is open."""
    monkeypatch.setenv("TARE_GUARDIAN", "on")
    (tmp_path / "study.yaml").write_text(STUDY)
    command = [*TARE, "run", "study.yaml", "-o", "store"]
    started = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert within(60, lambda: mounted(tmp_path / "state"))
    return started


@pytest.mark.machine("runc", "root")
def test_the_guardian_removes_what_a_killed_runner_left(runner: subprocess.Popen[bytes], tmp_path: Path) -> None:
    names = sites(tmp_path / "state")
    assert within(30, lambda: left(names)), "the run has groups of its own, by these names"
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()

    assert within(60, lambda: not pending(tmp_path / "state"))
    assert within(20, lambda: not mounted(tmp_path / "state"))
    assert within(20, lambda: not left(names))


@pytest.mark.machine("runc", "root")
def test_the_guardian_is_out_of_the_runners_group_and_spared_where_that_is_permitted(
    runner: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    pid = guardian_of(runner)
    try:
        assert memory_group(pid).endswith(f"/tare/guardian-{pid}")
        assert memory_group(pid) != memory_group(runner.pid)
        score = Path(f"/proc/{pid}/oom_score_adj").read_text().strip()
        may = int(next(line for line in Path("/proc/self/status").read_text().splitlines() if "CapEff" in line)[7:], 16)
        assert score == ("-1000" if may >> 24 & 1 else score)
        (log,) = (tmp_path / "state").glob("devices/*/guardian.log")
        assert f"oom_score_adj {score}, group {memory_group(pid)}" in log.read_text()
    finally:
        os.kill(runner.pid, signal.SIGKILL)
        runner.wait()
    assert within(60, lambda: not Path(f"/proc/{pid}").exists())
    assert within(10, lambda: not left([f"guardian-{pid}"]))


@pytest.mark.machine("runc", "root")
def test_a_run_that_follows_at_once_waits_for_the_guardian(runner: subprocess.Popen[bytes], tmp_path: Path) -> None:
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    (tmp_path / "short.yaml").write_text(STUDY.replace("sleep 60", "true").replace("sleepy", "short"))

    command = [*TARE, "run", "short.yaml", "-o", "other"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    assert "another run owns this device" not in done.stderr
    assert list((tmp_path / "other/trials").iterdir()), done.stderr
    assert not pending(tmp_path / "state")


@pytest.mark.machine("runc", "root")
def test_a_run_that_ends_well_leaves_no_guardian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARE_GUARDIAN", "on")
    (tmp_path / "short.yaml").write_text(STUDY.replace("sleep 60", "true"))
    command = [*TARE, "run", "short.yaml", "-o", "store"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False)

    (log,) = (tmp_path / "state").glob("devices/*/guardian.log")
    assert log.read_text().startswith("guarding pid "), "there was one"
    said = subprocess.run(
        ["pgrep", "-f", "tare.trial.undo.guardian"], capture_output=True, text=True, check=False
    ).stdout
    ours = [pid for pid in said.split() if f"{tmp_path}" in Path(f"/proc/{pid}/environ").read_text(errors="replace")]
    assert ours == []
