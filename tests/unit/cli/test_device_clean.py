"""`tare device clean`: the private engine of a run that was killed is among what is left on the device."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tare.cli import tare as verbs
from tare.trial.undo import restoration

NOTHING = "nothing of ours is left on this device."


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A device of which nothing is known but this folder."""
    monkeypatch.setenv("TARE_STATE", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(restoration, "find_remains", lambda host, scratch: [])
    monkeypatch.setattr(restoration, "status", lambda host, journal: [])
    return tmp_path


@pytest.fixture
def engine(state: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has our engine's argument, and its pid file."""
    folder = state / "engine"
    folder.mkdir()
    waits = [sys.executable, "-c", "import time; time.sleep(60)", f"{folder}/dockerd.pid"]
    process = subprocess.Popen(waits)
    (folder / "dockerd.pid").write_text(str(process.pid))
    threading.Thread(target=process.wait, daemon=True).start()  # or it would stay as a zombie of ours
    yield process
    process.kill()


def clean(*words: str) -> Result:
    done = CliRunner().invoke(verbs, ["device", "clean", *words])
    assert done.exit_code == 0, done.output
    return done


def test_a_plan_lists_the_engine_of_a_killed_run_and_leaves_it_alone(engine):
    told = clean("--dry-run")

    assert f"would be stopped: the private Docker engine of an earlier run (pid {engine.pid})" in told.output
    assert NOTHING not in told.output
    (listed,) = json.loads(clean("--dry-run", "--json").stdout)["would_stop"]
    assert str(engine.pid) in listed
    assert engine.poll() is None


def test_the_engine_of_a_killed_run_is_stopped_and_only_then_nothing_is_left(engine):
    told = clean()

    assert "the private Docker engine of an earlier run was stopped." in told.output
    assert NOTHING not in told.output
    assert engine.wait(timeout=10) != 0
    assert NOTHING in clean().output
    assert json.loads(clean("--dry-run", "--json").stdout)["would_stop"] == []


def test_what_was_stopped_is_in_the_json(engine):
    found = json.loads(clean("--json").stdout)

    assert found["stopped"] == ["the private Docker engine of an earlier run was stopped."]
    assert found["would_stop"] == []


def test_an_engine_that_a_living_run_uses_is_not_to_be_stopped(engine, state):
    with (state / "engine" / "users.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)

        assert json.loads(clean("--dry-run", "--json").stdout)["would_stop"] == []
        assert json.loads(clean("--json").stdout)["stopped"] == []

    assert engine.poll() is None
