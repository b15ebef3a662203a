"""`tare run --python`: the workload runs with that interpreter, and a second run goes on without being told."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import warm_tare

from tare.records.store import Store

STUDY = """\
study: two-pythons
platform: bare
workload: {torch_train: {epochs: 1, steps_per_epoch: 3, items: 12, batch: 4, workers: 0, threads: 1}}
probes: [cpu]
repeat: 1
aa: false
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study, and an interpreter beside tare's own that notes what it was asked to run."""
    monkeypatch.setenv("TARE_DATA", str(tmp_path / "data"))
    (tmp_path / "study.yaml").write_text(STUDY)
    board = tmp_path / "python"
    board.write_text(
        f'#!/bin/sh\necho "$@" >> {shlex.quote(str(tmp_path))}/asked\nexec {shlex.quote(sys.executable)} "$@"\n'
    )
    board.chmod(0o755)
    return tmp_path


def tare(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return warm_tare.run("run", "study.yaml", "-o", "store", *words, cwd=folder, timeout=120)


def trained(folder: Path) -> int:
    """How many trainings the other interpreter was asked for."""
    return (folder / "asked").read_text().count("-m tare_inside.")


def test_the_workload_runs_with_it_and_so_it_does_when_gone_on_with(folder: Path) -> None:
    first = tare(folder, "--python", "./python")
    assert first.returncode == 0, first.stderr
    assert trained(folder) == 1

    again = tare(folder)
    assert again.returncode == 0, again.stderr
    assert f"resuming with --python {folder}/python" in again.stderr
    other = tare(folder, "--python", sys.executable)
    assert other.returncode == 2
    assert "the study has changed" in other.stderr
    assert trained(folder) == 1
    with Store.open(folder / "store") as store:
        assert [record.settings["workload.python"] for record in store.records()] == [f"{folder}/python"]
