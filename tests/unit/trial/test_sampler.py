"""The sampler as it really runs: another process, a pipe, a spool."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recorded import recorded_host
from tare.base.errors import TrialError
from tare.base.host import Scope
from tare.base.units import Channel
from tare.parts.probes.cpu import Cpu
from tare.parts.probes.memory import Disk, Memory
from tare.parts.protocols import Probe, Reading
from tare.records.spool import read_spool
from tare.trial.sampler import Sampler, Samplers, Watch, pinned, spare_core
from tare.trial.sampler_report import Tally, Tick

PROBES = (Cpu(), Memory(), Disk())


def wait_until(true, limit_s=60.0):
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
    with Sampler(PROBES, tmp_path / "spool.db", period_s=300) as sampler:
        sampler.begin(Scope())
        assert len(read_spool(tmp_path / "spool.db")["cpu.user_s"][1]) == 1
        begin = time.monotonic()
        report = sampler.end()
    assert time.monotonic() - begin < 60  # it does not wait for the next point of the grid
    assert (report.ticks, report.missed, report.lost, report.errors) == (2, 0, [], {})
    times_ns, _ = read_spool(tmp_path / "spool.db")["cpu.user_s"]
    assert len(times_ns) == 2
    assert time.monotonic_ns() - 300e9 < times_ns[0] < times_ns[1] < time.monotonic_ns()


def test_the_grid_is_kept_and_the_report_agrees_with_the_spool(tmp_path):
    with Sampler(PROBES, tmp_path / "spool.db", period_s=0.02) as sampler:
        sampler.begin(Scope())
        time.sleep(0.3)
        report = sampler.end()
    series = read_spool(tmp_path / "spool.db")
    _, cpu_s = series["sampler.cpu_s"]
    assert len(cpu_s) == report.ticks
    assert report.seconds >= 0.3
    # A busy machine may have let it sleep through the last points, which it had no time left to count.
    assert report.ticks + report.missed >= (report.seconds - report.longest_gap_s) / 0.02 - 1
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


def cpu_s(pid):
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


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
                assert report.cpu_s < cpu_s(process.child.pid) / 4  # of its own watching, without the imports
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
    with Samplers() as samplers:
        with samplers(PROBES, tmp_path / "first", 5) as sampler:
            sampler.begin(Scope())
            process = sampler._process
            assert sampler.end().lost == []
        wait_until(lambda: fork_of(process.child.pid) is None)
        process.line.hear(60)  # as if it had not come yet
        monkeypatch.setattr("tare.trial.sampler.END_LIMIT_S", 0.5)
        with samplers(PROBES, tmp_path / "second", 5) as sampler:
            monkeypatch.setattr("tare.trial.sampler.END_LIMIT_S", 60.0)
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


PERIOD_NS = 100_000_000


class MemorySpool:
    """A spool that is a list, and on some days full."""

    def __init__(self):
        self.declared, self.rows, self.closed, self.full = [], [], False, False

    def channels(self, channels):
        self.declared += channels

    def tick(self, t_ns, readings):
        if self.full:
            raise OSError(28, "No space left on device")
        if any(not isinstance(value, int | float) for _, _, value in readings):
            raise TypeError("not a number")
        self.rows.append((t_ns, list(readings)))

    def close(self):
        self.closed = True

    def series(self, channel):
        return [reading.value for _, readings in self.rows for reading in readings if reading.channel == channel]


class StandIn(Probe):
    """A probe that does what a test tells its feed to do."""

    may_block = False

    def obstacles(self, host):
        return []

    def open(self, host, scope):
        return StandInFeed(host)


class StandInFeed:
    channels = (Channel("stand_in.count", "1", "counter"),)
    answer = staticmethod(lambda host: [])

    def __init__(self, host):
        self._host = host

    def poll(self):
        return self.answer(self._host)

    def close(self):
        return []


def started(probes, host=None):
    host = host or recorded_host("hybrid_6_18")
    spool = MemorySpool()
    watch = Watch(spool, host, PERIOD_NS)
    watch.open(probes, host.scope())
    return watch, spool, host


def run(watch, host, count):
    for _ in range(count):
        watch.take(Tick(host.clock.now_ns(), 0, 0))
        host.clock.advance(0.1)


def test_every_reading_reaches_the_spool_in_order():
    watch, spool, host = started([Cpu(), Memory()])
    run(watch, host, 25)
    report = watch.close(core=None)
    assert len(spool.series("cpu.user_s")) == len(spool.series("memory.free_bytes")) == report.ticks == 25
    assert spool.closed
    assert {channel.name for channel in spool.declared} >= {"cpu.user_s", "sampler.late_s"}


def test_rows_are_written_at_the_first_tick_then_once_a_second_and_at_the_end():
    watch, spool, host = started([Cpu()])
    run(watch, host, 1)
    assert len(spool.rows) == 1
    run(watch, host, 24)
    watch.close(core=None)
    assert len(spool.rows) == 4


def test_the_sampler_is_a_channel_itself():
    watch, spool, _ = started([])
    watch.take(Tick(1_000, 20_000_000, 0))
    watch.take(Tick(300_001_000, 0, 2))
    watch.close(core=None)
    assert spool.series("sampler.late_s") == [0.02, 0.0]
    assert spool.series("sampler.missed") == [0, 2]
    assert spool.series("sampler.cpu_s") == sorted(spool.series("sampler.cpu_s"))


def test_the_report_says_how_the_grid_was_kept():
    watch, _, _ = started([])
    for due_ns, late_ns, missed in [(0, 0, 0), (100, 5, 0), (400, 90, 2)]:
        watch.take(Tick(due_ns * 1_000_000, late_ns * 1_000_000, missed))
    report = watch.close(core=3)
    assert (report.ticks, report.missed, report.core) == (3, 2, 3)
    assert report.seconds == 0.49
    assert report.longest_gap_s == 0.385
    assert report.late_p99_s == 0.005  # the worst but one of three


def test_a_feed_that_fails_is_counted_and_stops_no_other(monkeypatch):
    def broken(host):
        raise RuntimeError("the sensor is on fire")

    monkeypatch.setattr(StandInFeed, "answer", staticmethod(broken))
    watch, spool, host = started([StandIn(), Cpu()])
    run(watch, host, 3)
    report = watch.close(core=None)
    assert len(spool.series("cpu.user_s")) == 3
    assert report.errors == {"test_sampler": 3}
    assert [*map(str, report.lost)] == ["test_sampler: could not be read: the sensor is on fire (first at 0.0 s)."]


def test_a_probe_that_cannot_start_is_said_and_stops_no_other(monkeypatch):
    def broken(self, host, scope):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(StandIn, "open", broken)
    watch, spool, host = started([StandIn(), Cpu()])
    run(watch, host, 1)
    (sentence,) = map(str, watch.close(core=None).lost)
    assert sentence.startswith("test_sampler: could not start: ")
    assert spool.series("cpu.user_s")


def test_a_feed_that_takes_longer_than_the_period_is_named(monkeypatch):
    monkeypatch.setattr(StandInFeed, "answer", staticmethod(lambda host: host.clock.advance(0.7) or []))
    watch, _, host = started([Cpu(), StandIn()])
    run(watch, host, 2)
    (sentence,) = map(str, watch.close(core=None).lost)
    assert sentence == "test_sampler: took 0.7 s to read (first at 0.7 s)."


def test_a_value_that_is_no_number_costs_only_itself(monkeypatch):
    def odd(host):
        return [Reading(host.clock.now_ns(), "stand_in.count", "N/A")]

    monkeypatch.setattr(StandInFeed, "answer", staticmethod(odd))
    watch, spool, host = started([StandIn(), Cpu()])
    run(watch, host, 15)
    report = watch.close(core=None)
    assert len(spool.series("cpu.user_s")) == 15
    assert spool.series("stand_in.count") == []
    assert report.errors["spool"] == len(spool.rows) == 3


def test_a_full_disk_is_waited_for_and_what_was_seen_is_kept():
    watch, spool, host = started([Cpu()])
    spool.full = True
    run(watch, host, 15)
    spool.full = False
    report = watch.close(core=None)
    assert len(spool.series("cpu.user_s")) == 15
    assert "No space left" in str(report.lost[0])


def test_errors_of_files_are_counted_by_probe():
    watch, _, host = started([Memory()])
    host.files["/proc/meminfo"] = host.files["/proc/meminfo"].replace("23773036", "-1")
    run(watch, host, 4)
    report = watch.close(core=None)
    assert report.errors == {"memory": 4}
    assert [*map(str, report.lost)] == ["memory: meminfo gave nothing usable 4 times; those readings are left out."]


def test_two_cores_or_fewer_have_none_to_spare():
    assert spare_core({0}) is None
    assert spare_core({0, 1}) is None
    assert spare_core({0, 1, 2, 5}) == 5


def test_a_core_that_is_refused_is_said_and_not_reported_as_held():
    tally = Tally(recorded_host("hybrid_6_18").clock)
    assert pinned(None, tally) is None
    assert pinned(100_000, tally) is None
    report = tally.report([], None)
    assert str(report.lost[0]).startswith("sampler: could not keep to core 100000")


def test_a_core_that_is_allowed_is_held():
    allowed = os.sched_getaffinity(0)
    try:
        assert pinned(min(allowed), Tally(recorded_host("hybrid_6_18").clock)) == min(allowed)
        assert os.sched_getaffinity(0) == {min(allowed)}
    finally:
        os.sched_setaffinity(0, allowed)
