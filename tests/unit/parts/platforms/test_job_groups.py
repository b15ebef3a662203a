"""A job in a group: its limit, what it leaves behind, and who dies first."""

from __future__ import annotations

import threading
import time

import pytest

from tare.base.host import Completed, Exit
from tare.drivers.cgroups import job as groups
from tare.drivers.cgroups.job import Group, GroupProcess, run_in_group
from tare.testing import FakeHost


class Caller:
    """What brings a job in and ends when the job does."""

    def __init__(self) -> None:
        self.job_died = threading.Event()
        self.killed = False

    def wait(self, limit_s: float) -> Exit:
        ended = self.job_died.wait(limit_s)
        return Exit(code=137 if ended else -9, seconds=limit_s, timed_out=not ended)

    def kill(self) -> None:
        self.killed = True
        self.job_died.set()


def with_job(caller: Caller, **files: str) -> FakeHost:
    def answer(argv):
        if "kill" in argv:
            host.files["/g/cgroup.procs"] = "1\n"
            caller.job_died.set()
        return Completed(tuple(argv), 0, "", "")

    host = FakeHost(files={"/g/cgroup.procs": "1\n77\n", **files}, answer=answer)
    return host


def test_at_the_limit_the_job_dies_and_its_caller_ends_by_itself():
    caller = Caller()
    host = with_job(caller)

    ended = GroupProcess(caller, Group(host, {"cpu": "/g"}, keeper=1), None).wait(0.05)

    assert ended.timed_out
    assert ended.code == 137
    assert not caller.killed
    assert host.asked == [("sh", "-c", 'kill -KILL "$@"', "kill", "77")]


def test_without_a_group_the_caller_itself_is_killed_at_the_limit():
    caller = Caller()

    ended = GroupProcess(caller, Group(FakeHost()), None).wait(0.05)

    assert ended.timed_out
    assert caller.killed


def test_a_job_that_ends_in_time_is_left_alone():
    caller = Caller()
    caller.job_died.set()
    host = with_job(caller)

    ended = GroupProcess(caller, Group(host, {"cpu": "/g"}, keeper=1), None).wait(5)

    assert not ended.timed_out
    assert host.asked == []


def test_what_a_finished_job_left_behind_is_ended_when_it_holds_the_caller(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(groups, "_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(groups, "_LINGER_S", 0.01)
    caller = Caller()
    host = with_job(caller, **{"/proc/78/stat": "78 (job) S"})
    main = iter([None, 78, 78])
    process = GroupProcess(caller, Group(host, {"cpu": "/g"}, keeper=1), None, lambda: next(main, 79))

    ended = process.wait(300)

    assert not ended.timed_out
    assert host.asked[0][-1] == "77"


def test_a_short_command_past_its_limit_is_told_as_on_the_device():
    caller = Caller()
    host = with_job(caller)
    kill = host.answer

    def answer(argv):
        if argv[0] == "bring":
            caller.job_died.wait(5)
            return Completed(tuple(argv), 137, "so far", "")
        return kill(argv)

    host.answer = answer
    done = run_in_group(Group(host, {"cpu": "/g"}, keeper=1), ["bring", "job"], ["job"], limit_s=0.05, stdin="")

    assert (done.code, done.argv, done.out) == (124, ("job",), "so far")
    assert "ended by tare: no answer within 0.05 s" in done.err


def test_a_short_command_that_ends_is_reported_under_its_own_name():
    host = FakeHost(answers={"bring": "out"})

    done = run_in_group(Group(host), ["bring", "job"], ["job"], limit_s=5, stdin="in")

    assert (done.code, done.argv, done.out) == (0, ("job",), "out")


def test_a_short_command_past_its_limit_is_over_only_when_nobody_is_being_killed_any_more():
    """Else the killing would hit whatever comes next into the same container."""
    died, log = threading.Event(), []

    class Slow(Group):
        def kill_jobs(self) -> None:
            died.set()
            time.sleep(0.2)
            log.append("killed")

    def answer(argv):
        died.wait(5)
        return Completed(tuple(argv), 137, "", "")

    run_in_group(Slow(FakeHost(answer=answer)), ["bring", "job"], ["job"], limit_s=0.05, stdin="")

    assert log == ["killed"]
