"""The sampler as it really runs: another process, a pipe, a spool."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tare.base.errors import TrialError
from tare.base.host import Scope
from tare.parts.probes.cpu import Cpu
from tare.parts.probes.disk import Disk
from tare.parts.probes.memory import Memory
from tare.records.spool import read_spool
from tare.trial.sampler import Sampler

PROBES = (Cpu(), Memory(), Disk())


def wait_until(true, limit_s=10.0):
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_begin_returns_after_the_first_tick_and_end_takes_a_last_one(tmp_path):
    with Sampler(PROBES, tmp_path / "spool.db", period_s=30) as sampler:
        sampler.begin(Scope())
        assert len(read_spool(tmp_path / "spool.db")["cpu.user_s"][1]) == 1
        begin = time.monotonic()
        report = sampler.end()
    assert time.monotonic() - begin < 5  # it does not wait for the next point of the grid
    assert (report.ticks, report.missed, report.lost, report.errors) == (2, 0, [], {})
    times_ns, _ = read_spool(tmp_path / "spool.db")["cpu.user_s"]
    assert len(times_ns) == 2
    assert time.monotonic_ns() - 60e9 < times_ns[0] < times_ns[1] < time.monotonic_ns()


def test_the_grid_is_kept_and_the_report_agrees_with_the_spool(tmp_path):
    with Sampler(PROBES, tmp_path / "spool.db", period_s=0.02) as sampler:
        sampler.begin(Scope())
        time.sleep(0.3)
        report = sampler.end()
    series = read_spool(tmp_path / "spool.db")
    _, cpu_s = series["sampler.cpu_s"]
    assert len(cpu_s) == report.ticks
    assert report.ticks + report.missed >= 14
    assert report.cpu_s == pytest.approx(cpu_s[-1] - cpu_s[0])
    assert report.seconds == pytest.approx((series["sampler.late_s"][0][-1] - series["sampler.late_s"][0][0]) / 1e9)
    assert {"cpu.busy_s", "memory.available_bytes", "memory.pgfault"} <= series.keys()


def test_a_sampler_without_probes_still_says_what_it_costs(tmp_path):
    with Sampler((), tmp_path / "spool.db") as sampler:
        sampler.begin(Scope())
        assert sampler.end().ticks >= 2
    assert set(read_spool(tmp_path / "spool.db")) == {"sampler.late_s", "sampler.missed", "sampler.cpu_s"}


def test_a_sampler_that_is_killed_costs_its_series_and_not_the_trial(tmp_path):
    with Sampler(PROBES, tmp_path / "spool.db", period_s=0.02) as sampler:
        sampler.begin(Scope())
        sampler._child.kill()
        sampler._child.wait()
        report = sampler.end()
    assert report.ticks >= 1
    assert "ended by itself" in str(report.lost[0])
    assert read_spool(tmp_path / "spool.db").keys() >= {"cpu.user_s"}


def test_a_spool_that_cannot_be_made_is_a_failed_trial_with_the_reason(tmp_path):
    sampler = Sampler(PROBES, tmp_path / "no" / "such" / "folder" / "spool.db")
    with sampler, pytest.raises(TrialError, match=r"the sampler could not go on.*spool"):
        sampler.begin(Scope())


def test_a_sampler_that_was_not_started_says_so(tmp_path):
    with pytest.raises(TrialError, match="not running"):
        Sampler(PROBES, tmp_path / "spool.db").begin(Scope())


def test_leaving_without_an_end_leaves_no_process(tmp_path):
    with Sampler(PROBES, tmp_path / "spool.db") as sampler:
        pid = sampler._child.pid
        sampler.begin(Scope())
    assert not is_running(pid)


def test_a_file_in_the_working_folder_is_not_taken_for_a_module(tmp_path, monkeypatch):
    (tmp_path / "array.py").write_text("raise SystemExit('the wrong array')")
    monkeypatch.chdir(tmp_path)
    with Sampler((), tmp_path / "spool.db") as sampler:
        sampler.begin(Scope())
        assert sampler.end().lost == []


RUNNER = """
import json, os, sys, time
from pathlib import Path
from tare.base.host import Scope
from tare.parts.probes.cpu import Cpu
from tare.trial.sampler import Sampler

sampler = Sampler((Cpu(),), Path(sys.argv[1]), period_s=0.02)
sampler.start()
sampler.begin(Scope())
child = os.fork() if sys.argv[2] == "fork" else 0
if sys.argv[2] != "fork" or child:
    os.write(1, json.dumps([sampler._child.pid, child]).encode() + b"\\n")
time.sleep(60)
"""


def start_runner(spool, how):
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(spool), how], stdout=subprocess.PIPE, start_new_session=True
    )
    return runner, *json.loads(runner.stdout.readline())


def test_when_the_runner_is_killed_the_sampler_ends_and_the_spool_is_whole(tmp_path):
    runner, sampler_pid, _ = start_runner(tmp_path / "spool.db", "plain")
    time.sleep(0.1)
    with runner:
        runner.kill()
    wait_until(lambda: not is_running(sampler_pid))
    series = read_spool(tmp_path / "spool.db")
    assert len(series["cpu.user_s"][1]) == len(series["sampler.late_s"][1]) >= 2


def test_a_fork_of_the_runner_that_holds_the_pipe_does_not_keep_the_sampler_alive(tmp_path):
    runner, sampler_pid, fork_pid = start_runner(tmp_path / "spool.db", "fork")
    try:
        with runner:
            runner.kill()
            runner.wait()
            wait_until(lambda: not is_running(sampler_pid))
            assert is_running(fork_pid)
            os.kill(fork_pid, signal.SIGKILL)
    finally:
        if is_running(sampler_pid):
            os.kill(sampler_pid, signal.SIGKILL)


def test_an_interrupt_at_the_terminal_is_for_the_runner_alone(tmp_path):
    runner, sampler_pid, _ = start_runner(tmp_path / "spool.db", "plain")
    with runner:
        assert os.getpgid(sampler_pid) != os.getpgid(runner.pid)
        runner.kill()
    wait_until(lambda: not is_running(sampler_pid))
