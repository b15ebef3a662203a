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
from tare.trial.sampler import Sampler, Samplers

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


def fork_of(pid):
    """The process that watches, of the one that waits for trials."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(found[0]) if found else None


@pytest.mark.parametrize("whom", ["the one that watches", "the one that waits for trials", "both"])
def test_a_sampler_that_is_killed_costs_its_series_and_not_the_trial(tmp_path, whom):
    with Samplers() as samplers:
        with samplers(PROBES, tmp_path / "spool.db", 0.02) as sampler:
            sampler.begin(Scope())
            process = sampler._process
            waiting, watching = process.child.pid, fork_of(process.child.pid)
            for pid in {"the one that watches": [watching], "both": [waiting, watching]}.get(whom, [waiting]):
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not is_running(watching) and process.child.poll() is not None)
            report = sampler.end()
        assert report.ticks >= 1
        assert "ended by itself" in str(report.lost[0])
        assert read_spool(tmp_path / "spool.db").keys() >= {"cpu.user_s"}
        with samplers(PROBES, tmp_path / "next.db", 5) as sampler:
            sampler.begin(Scope())
            assert sampler._process is not process
            assert sampler.end().lost == []


def test_one_process_watches_trial_after_trial_each_in_a_fork_of_its_own(tmp_path):
    with Samplers() as samplers:
        seen, processes = [], set()
        for name, probes in (("first", PROBES), ("second", (Memory(),)), ("third", PROBES)):
            with samplers(probes, tmp_path / name, 5) as sampler:
                sampler.begin(Scope())
                process = sampler._process
                processes.add(process.child.pid)
                seen.append(fork_of(process.child.pid))
                report = sampler.end()
                assert report.cpu_s < 0.1  # of its own watching alone
            series = read_spool(tmp_path / name)
            assert len(series["sampler.cpu_s"][1]) == report.ticks
            assert ("cpu.user_s" in series) == (Cpu() in probes)
        assert len(processes) == 1
        assert len(set(seen)) == 3
        assert process.child.poll() is None
    assert not is_running(process.child.pid)


def test_trials_that_are_watched_at_once_have_a_process_each(tmp_path):
    with Samplers() as samplers, samplers(PROBES, tmp_path / "a", 5) as one, samplers((), tmp_path / "b", 5) as two:
        one.begin(Scope())
        two.begin(Scope())
        pids = {one._process.child.pid, two._process.child.pid}
        assert len(pids) == 2
        assert (one.end().lost, two.end().lost) == ([], [])
    assert not any(map(is_running, pids))


def test_a_trial_that_never_begins_or_never_ends_leaves_the_next_one_in_order(tmp_path):
    with Samplers() as samplers:
        with samplers(PROBES, tmp_path / "never-begun", 5):
            pass
        with samplers(PROBES, tmp_path / "never-ended", 5) as sampler:
            sampler.begin(Scope())
            pid = sampler._process.child.pid
        assert not is_running(pid)
        with samplers(PROBES, tmp_path / "whole", 5) as sampler:
            sampler.begin(Scope())
            assert sampler.end().lost == []


def test_one_that_was_killed_while_it_waited_is_replaced(tmp_path):
    with Samplers() as samplers:
        for name in ("before", "after"):
            with samplers(PROBES, tmp_path / name, 5) as sampler:
                sampler.begin(Scope())
                process = sampler._process
                assert sampler.end().lost == []
            process.child.kill()
            wait_until(lambda: process.child.poll() is not None)  # noqa: B023


def test_one_whose_fork_does_not_end_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr("tare.trial.sampler.END_LIMIT_S", 0.5)
    with Samplers() as samplers:
        with samplers(PROBES, tmp_path / "first", 5) as sampler:
            sampler.begin(Scope())
            process = sampler._process
            assert sampler.end().lost == []
        wait_until(lambda: fork_of(process.child.pid) is None)
        process.line.hear(5)  # as if it had not come yet
        with samplers(PROBES, tmp_path / "second", 5) as sampler:
            sampler.begin(Scope())
            assert sampler._process is not process
            assert sampler.end().lost == []
    assert not is_running(process.child.pid)


def test_what_one_trial_printed_does_not_explain_the_end_of_the_next(tmp_path):
    with Samplers() as samplers:
        for name in ("first", "second"):
            with samplers(PROBES, tmp_path / name, 0.02) as sampler:
                sampler.begin(Scope())
                process = sampler._process
                if name == "first":
                    process._complaints.write(b"a probe has something to say\n")
                    process._complaints.flush()
                    assert "something to say" in process.complaint()
                else:
                    os.kill(fork_of(process.child.pid), signal.SIGKILL)
                report = sampler.end()
        assert "something to say" not in str(report.lost[0])


def test_a_spool_that_cannot_be_made_is_a_failed_trial_with_the_reason(tmp_path):
    sampler = Sampler(PROBES, tmp_path / "no" / "such" / "folder" / "spool.db")
    with sampler, pytest.raises(TrialError, match=r"the sampler could not go on.*spool"):
        sampler.begin(Scope())


def test_a_sampler_that_was_not_started_says_so(tmp_path):
    with pytest.raises(TrialError, match="not running"):
        Sampler(PROBES, tmp_path / "spool.db").begin(Scope())


def test_leaving_without_an_end_leaves_no_process(tmp_path):
    with Sampler(PROBES, tmp_path / "spool.db") as sampler:
        pid = sampler._process.child.pid
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
from tare.trial.sampler import Samplers

samplers = Samplers()
sampler = samplers((Cpu(),), Path(sys.argv[1]), 0.02)
sampler.start()
sampler.begin(Scope())
pid = sampler._process.child.pid
if "idle" in sys.argv[2]:
    sampler.end()
child = os.fork() if "fork" in sys.argv[2] else 0
if "fork" not in sys.argv[2] or child:
    os.write(1, json.dumps([pid, child]).encode() + b"\\n")
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


@pytest.mark.parametrize("how", ["fork", "fork, idle", "idle"])
def test_a_killed_runner_leaves_no_sampler_even_if_a_fork_of_it_holds_the_pipe(tmp_path, how):
    runner, sampler_pid, fork_pid = start_runner(tmp_path / "spool.db", how)
    if "idle" in how:
        wait_until(lambda: fork_of(sampler_pid) is None)
    watching = fork_of(sampler_pid)
    try:
        with runner:
            runner.kill()
            runner.wait()
            wait_until(lambda: not is_running(sampler_pid) and not (watching and is_running(watching)))
            if fork_pid:
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
