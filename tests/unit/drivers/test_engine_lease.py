"""A private Docker engine: whoever uses it waits for nobody, and nobody stops it meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tare.base.errors import ObstacleError
from tare.base.host import LocalHost
from tare.drivers.containers import engine

HERE = LocalHost()
USES = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(descriptor, fcntl.LOCK_SH)
print("uses it", flush=True)
sys.stdin.read()
"""


class Engine:
    """What is asked of the real one."""

    def __init__(self) -> None:
        self.runs, self.started, self.stopped = False, 0, 0
        self.refuses = False

    def find(self) -> object:
        return type("Found", (), {"ours": True}) if self.runs else None

    def start(self, _: object) -> None:
        if self.refuses:
            raise ObstacleError("no dockerd:", ["none"])
        self.runs, self.started = True, self.started + 1

    def stop(self, _: object) -> bool:
        was, self.runs = self.runs, False
        self.stopped += was
        return was


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(engine, "folder", lambda: tmp_path / "engine")
    monkeypatch.setattr(engine, "own_pid", lambda _: 4711 if made.runs else None)
    for name in ("find", "start", "stop"):
        monkeypatch.setattr(engine, name, getattr(made, name))
    return made


@pytest.fixture
def another_user(private: Engine, tmp_path: Path) -> Iterator[None]:
    """A process that uses the engine for as long as a run takes."""
    private.runs = True
    (tmp_path / "engine").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", USES, str(tmp_path / "engine" / "users.lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "uses it\n"
        yield
        process.kill()


def test_the_last_user_stops_what_the_first_one_started(private: Engine):
    with engine.held(HERE) as said:
        assert said == engine.STARTED
        with engine.held(HERE) as second:
            assert second is None
        assert private.runs
    assert (private.started, private.stopped) == (1, 1)


@pytest.mark.usefixtures("another_user")
def test_a_second_user_waits_for_nobody_and_leaves_the_engine_to_the_first(private: Engine):
    with engine.held(HERE) as said:
        assert said is None
    assert private.runs and private.stopped == 0


@pytest.mark.usefixtures("another_user")
def test_an_engine_in_use_is_nothing_that_a_dead_run_left(private: Engine):
    assert engine.left_over(HERE) is None
    assert engine.stop_left_over(HERE) is None
    assert private.runs


def test_an_engine_that_nobody_uses_is_told_and_stopped(private: Engine):
    private.runs = True
    assert "pid 4711" in str(engine.left_over(HERE))
    assert private.runs  # it was only looked at
    assert engine.stop_left_over(HERE) == engine.STOPPED
    assert not private.runs


def test_where_none_can_be_started_the_platform_says_why(private: Engine):
    private.refuses = True
    with engine.held(HERE) as said:
        assert said is None
    assert private.stopped == 0
