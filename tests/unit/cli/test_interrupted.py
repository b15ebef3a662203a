"""What a stopped command says of the device is read from its journal, never assumed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from knobs import DEAD, FileKnob, make_findable
from tare import cli
from tare.base.files import state_dir
from tare.base.host import LocalHost
from tare.base.processes import Owner
from tare.trial.device import device_id
from tare.trial.undo import guardian
from tare.trial.undo.journal import Journal
from tare.trial.undo.restoration import restore


def journal(owner: Owner | None = None) -> Journal:
    return Journal(state_dir() / "devices" / device_id(LocalHost()), owner=owner)


def stopped(monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a `tare` that Ctrl-C stopped."""

    def interrupt(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.tare, "main", interrupt)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(str(ended.value.code))


@pytest.mark.parametrize("owner", [None, DEAD])
def test_a_setting_that_is_pending_is_70_and_the_command(owner, monkeypatch, capsys):
    make_findable(monkeypatch)
    journal(owner).note_knob(FileKnob(file="a"), "20", "13")
    assert stopped(monkeypatch) == 70
    said = capsys.readouterr().err
    assert "file_knob" in said
    assert "tare device restore` restores it" in said
    assert "as it was found" not in said


def test_nothing_pending_is_130(monkeypatch, capsys):
    assert stopped(monkeypatch) == 130
    assert "no setting of the device is left changed" in capsys.readouterr().err


def test_what_a_living_run_holds_is_its_own_to_restore(monkeypatch):
    make_findable(monkeypatch)
    with subprocess.Popen(["sleep", "30"]) as other:
        try:
            _of_a_living_run(other.pid, monkeypatch)
        finally:
            other.kill()


def _of_a_living_run(pid: int, monkeypatch) -> None:
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    alive = Owner(pid, int(stat[19]))
    assert alive.is_alive()
    journal(alive).note_knob(FileKnob(file="a"), "20", "13")
    assert stopped(monkeypatch) == 130


def test_the_guardian_tries_again_until_nothing_is_pending(monkeypatch, capsys, tmp_path: Path):
    make_findable(monkeypatch)
    journal(DEAD).note_knob(FileKnob(file="a"), "20", "13")
    knobs = {"a": "13"}
    tries: list[float] = []

    def write(self: FileKnob, host: object, state: object) -> None:
        if len(tries) < 2:
            raise OSError(16, "Device or resource busy")
        knobs["a"] = str(state)

    monkeypatch.setattr(FileKnob, "read", lambda self, host: knobs["a"])
    monkeypatch.setattr(FileKnob, "write", write)
    monkeypatch.setattr(guardian.time, "sleep", tries.append)
    monkeypatch.setattr(sys, "stdin", None)
    assert guardian.put_back() == 0
    assert knobs["a"] == "20"
    assert len(tries) == 2
    said = capsys.readouterr().err
    assert said.count("NOT restored") == 2
    assert "tries again" in said


def test_a_restore_says_where_the_guardians_log_is(monkeypatch):
    make_findable(monkeypatch)
    pending = journal(DEAD)
    pending.note_knob(FileKnob(file="a"), "20", "13")
    log = pending.folder / "guardian.log"
    log.write_text("guarding pid 7: oom_score_adj -1000\n2026-01-01 file_knob: NOT restored to 20.\n")
    monkeypatch.setattr(FileKnob, "read", lambda self, host: "20")
    notes = restore(LocalHost(), journal()).notes
    assert any(f"{log}; its last line: 2026-01-01 file_knob: NOT restored" in note for note in notes)
