"""A command that turns knobs and was left behind by a killed run is waited for before anything is put back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from knobs import DEAD, FileKnob, journal_in, make_findable
from tare.base.errors import BusyError
from tare.base.host import LocalHost
from tare.drivers.power import named_mode
from tare.trial.undo.restoration import restore

# As LocalHost.run starts it, then killed: the command goes on, and writes once more.
RUNNER = """
import sys
from tare.base.host import LocalHost
LocalHost().run(sys.argv[1:], limit_s=30)
"""


@pytest.fixture
def nvpmodel(tmp_path: Path) -> Path:
    """A pretended command that says when it began, and turns the knob late."""
    command = tmp_path / "bin" / "nvpmodel"
    command.parent.mkdir()
    knob = tmp_path / "sys/knobs/a"
    knob.parent.mkdir(parents=True)
    knob.write_text("old\n")
    command.write_text(f"#!/bin/sh\n: > {tmp_path}/begun\nsleep $2\nprintf new > {knob}\n: > {tmp_path}/done\n")
    command.chmod(0o755)
    return command


@pytest.fixture
def left_behind(nvpmodel: Path) -> Iterator[None]:
    """The command, at work, after the run that started it was killed."""
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, str(nvpmodel), "-m", "1.5"])
    while not (nvpmodel.parents[1] / "begun").exists():
        time.sleep(0.01)
    runner.kill()
    runner.wait()
    yield
    for each in named_mode.running():
        if str(nvpmodel) in Path(f"/proc/{each.pid}/cmdline").read_text().replace("\0", " "):
            os.killpg(each.pid, signal.SIGKILL)


@pytest.mark.usefixtures("left_behind")
def test_a_restore_waits_for_a_command_that_still_turns_knobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make_findable(monkeypatch)
    monkeypatch.setattr(FileKnob, "turns", lambda self: frozenset({"cores"}))
    journal_in(tmp_path / "state", owner=DEAD).note_knob(FileKnob(file="a"), "old", "new")
    report = restore(LocalHost(root=tmp_path), journal_in(tmp_path / "state"))
    assert (tmp_path / "done").exists()
    assert (tmp_path / "sys/knobs/a").read_text().strip() == "old"
    assert any("nvpmodel -m 1.5" in note and "tare waited for it" in note for note in report.notes)
    assert report.clean


@pytest.mark.usefixtures("left_behind")
def test_one_that_does_not_end_is_named():
    with pytest.raises(BusyError, match=r"nvpmodel -m 1.5` \(pid \d+\) still runs.*`kill \d+`"):
        named_mode.await_end(limit_s=0.1)


@pytest.mark.usefixtures("left_behind")
def test_what_the_command_cannot_touch_is_restored_without_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make_findable(monkeypatch)
    monkeypatch.setattr(FileKnob, "turns", lambda self: frozenset({"cores"} if self.file == "a" else ()))
    monkeypatch.setattr("tare.trial.undo.restoration.PATIENCE_S", 0.1)
    (tmp_path / "sys/knobs/b").write_text("new\n")
    for name in "ab":
        journal_in(tmp_path / "state", owner=DEAD).note_knob(FileKnob(file=name), "old", "new")
    report = restore(LocalHost(root=tmp_path), journal_in(tmp_path / "state"))
    assert (tmp_path / "sys/knobs/b").read_text().strip() == "old"
    assert not report.clean
    assert "NOT restored" in report.failed[0]
    assert "nvpmodel" in report.failed[0]
    assert [entry.knob for entry in journal_in(tmp_path / "state").pending()] == ["file_knob a"]


@pytest.mark.machine("root")
def test_a_process_of_that_name_of_another_user_stops_nothing():
    line = ["nvpmodel", "30"]
    with (
        subprocess.Popen(line, executable="/bin/sleep", user=65534) as theirs,
        subprocess.Popen(line, executable="/bin/sleep") as roots,
    ):
        try:
            end_s = time.monotonic() + 60
            while roots.pid not in (found := {each.pid for each in named_mode.running()}) and time.monotonic() < end_s:
                time.sleep(0.01)  # a process that was just started has no command line for a moment
            assert roots.pid in found
            assert theirs.pid not in found
        finally:
            theirs.kill()
            roots.kill()


def test_other_commands_that_only_speak_of_it_are_not_waited_for(tmp_path: Path):
    with subprocess.Popen(["sleep", "30", "--", "nvpmodel"], stderr=subprocess.DEVNULL) as child:
        try:
            assert child.pid not in {each.pid for each in named_mode.running()}
        finally:
            child.kill()
