"""A command in a Docker container: its output taken apart, its limit, its code."""

from __future__ import annotations

import socket
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from docker.errors import APIError

from pretend_engine import frame
from tare.base.errors import TrialError
from tare.base.host import OUTPUT_LIMIT_BYTES, MonotonicClock
from tare.drivers.cgroups.job import OOM_NOTE, Group
from tare.drivers.containers.docker import ExecProcess, Inside, environment
from tare.testing import FakeHost


class Line:
    """An engine with one command, whose end of the connection the test holds."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.asked: dict[str, Any] = {}
        self.seen: list[dict[str, Any]] = [{"Running": False, "ExitCode": 0, "Pid": 7}]
        self.killed = 0

    def exec_create(self, container: str, cmd: list[str], **asked: Any) -> dict[str, str]:
        self.asked = {"cmd": cmd, **asked}
        return {"Id": "1"}

    def exec_start(self, number: str, *, socket: bool) -> Any:
        return self.ours

    def exec_inspect(self, number: str) -> dict[str, Any]:
        return self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]

    def kill(self, container: str) -> None:
        self.killed += 1
        self.theirs.close()


@pytest.fixture
def line():
    made = Line()
    yield made
    made.theirs.close()
    made.ours.close()


def started(line: Line, host: FakeHost | None = None, folders: dict[str, str] | None = None, **how: Any) -> ExecProcess:
    at = host or FakeHost()
    at.clock = MonotonicClock()  # type: ignore[assignment]
    return ExecProcess(Inside(line, "c", at, Group(at, folders or {})), ["job"], env=["A=1"], **how)


def test_output_and_errors_are_told_apart(line):
    line.theirs.sendall(frame(1, b"out") + frame(2, b"err") + frame(1, b"put\xff"))
    line.theirs.close()

    ended = started(line).wait(60)

    assert (ended.code, ended.out, ended.err) == (0, "output�", "err")
    assert not ended.timed_out
    assert not ended.truncated


class FarHost(FakeHost):
    """A host with a kernel of its own, which is told what happens around a job."""

    told: list[tuple[str, bool]]

    def reach(self, path: str) -> AbstractContextManager[str]:
        return nullcontext(path)

    def lay_out(self, *, clocked: bool) -> None:
        self.told.append(("before", clocked))

    def bring_home(self, *, clocked: bool) -> None:
        self.told.append(("after", clocked))


@pytest.mark.parametrize("clocked", [True, False])
def test_on_a_host_with_its_own_kernel_the_workdir_and_the_clock_are_seen_to_around_a_job(line, clocked):
    host = FarHost()
    host.told = []
    job = started(line, host, clocked=clocked)
    assert host.told == [("before", clocked)]
    line.theirs.close()

    job.wait(60)

    assert host.told == [("before", clocked), ("after", clocked)]


def test_output_beyond_what_we_keep_is_dropped_and_told(line):
    chunk = b"x" * (1 << 16)

    def flood() -> None:
        for _ in range(OUTPUT_LIMIT_BYTES // len(chunk) + 1):
            line.theirs.sendall(frame(1, chunk))
        line.theirs.close()

    threading.Thread(target=flood, daemon=True).start()

    ended = started(line).wait(20)

    assert len(ended.out) == OUTPUT_LIMIT_BYTES
    assert ended.truncated


def test_the_code_is_waited_for(line):
    running = {"Running": True, "ExitCode": None, "Pid": 7}
    line.seen = [running, running, {"Running": False, "ExitCode": 3, "Pid": 7}]
    line.theirs.close()

    assert started(line).wait(60).code == 3


def test_an_engine_that_forgets_the_command_is_an_error_in_words(line):
    def gone(number: str) -> None:
        raise APIError("no such exec instance")

    line.exec_inspect = gone  # type: ignore[assignment, method-assign]
    line.theirs.close()

    with pytest.raises(TrialError, match="no such exec instance"):
        started(line).wait(60)


def test_past_the_limit_the_jobs_are_killed_and_the_container_only_if_that_does_not_help(line):
    killed = []

    def answer(argv):
        killed.append(argv[-1])
        host.files["/g/cgroup.procs"] = ""
        line.theirs.close()

    host = FakeHost(files={"/g/cgroup.procs": "77\n", "/proc/7/stat": "7 (job) S"}, answer=answer)

    ended = started(line, host, {"cpu": "/g"}).wait(0.05)

    assert ended.timed_out
    assert killed == ["77"]
    assert line.killed == 0


def test_a_job_that_cannot_be_killed_takes_its_container_with_it(line, monkeypatch):
    monkeypatch.setattr("tare.drivers.containers.docker._GRACE_S", 0.05)
    host = FakeHost(files={"/proc/7/stat": "7 (job) S"})

    ended = started(line, host).wait(0.05)

    assert ended.timed_out
    assert line.killed == 1


def test_a_child_that_holds_the_output_open_does_not_hold_us(line):
    line.theirs.sendall(frame(1, b"done\n"))  # and never closes: process 7 is gone, its child is not

    ended = started(line).wait(60)

    assert (ended.out, ended.timed_out) == ("done\n", False)
    assert ended.seconds < 50


def test_input_is_sent_and_ended(line):
    process = started(line, stdin="text")

    assert line.theirs.recv(10) == b"text"
    assert line.theirs.recv(10) == b""
    assert line.asked["stdin"] is True
    line.theirs.close()
    process.wait(60)


def test_a_command_that_ends_before_it_read_its_input_is_no_error(line):
    line.theirs.close()

    assert started(line, stdin="x" * 1_000_000).wait(60).code == 0


def test_an_out_of_memory_kill_is_told(line):
    host = FakeHost(files={"/m/memory.oom_control": "oom_kill 0\n"})
    process = started(line, host, {"memory": "/m"})
    host.files["/m/memory.oom_control"] = "oom_kill 2\n"
    line.theirs.close()

    assert process.wait(60).err == f"{OOM_NOTE} (2 times).\n"


def test_a_command_that_the_engine_refuses_says_so(line):
    def refuse(*_: Any, **__: Any) -> None:
        raise APIError("container is not running")

    line.exec_create = refuse  # type: ignore[assignment, method-assign]

    with pytest.raises(TrialError, match="run job in the container: container is not running"):
        started(line)


def test_an_environment_takes_away_what_it_does_not_name():
    assert environment({"A": "1"}, present={"A": "0", "B": "2"}) == ["A=1", "B"]
