"""Checkpoints of the built-in training: real ones, outside every step, and gone afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from inference_jobs import outcome_and_marks
from tare.testing import FakeClock
from tare_inside import marks
from tare_inside.workloads.formats import make
from tare_inside.workloads.programs import train, training_loop


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "mnist"
    make.make("mnist", str(folder), 100, 0)
    return folder


def trained(folder: Path, data: Path, **changes: Any) -> tuple[dict[str, Any], list[Any]]:
    folder.mkdir(exist_ok=True)
    job = {
        "model": "lenet5", "data": "mnist", "data_path": str(data), "batch": 4, "workers": 0, "prefetch": 2,
        "epochs": 4, "steps_per_epoch": 2, "lr": 0.05, "momentum": 0.9, "threads": None, "phases": False,
        "device": "cpu", "seed": 3, "marks": str(folder / "marks.bin"), "outcome": str(folder / "outcome.json"),
        "fingerprint": str(folder / "fingerprint.json"), "checkpoint_folder": str(folder / "checkpoints"),
    } | changes  # fmt: skip
    return outcome_and_marks(train.run, job)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_loop.Checkpoints, "remove", lambda self: None)


@pytest.mark.usefixtures("kept")
def test_every_second_epoch_leaves_the_network_and_its_optimiser(tmp_path: Path, data: Path) -> None:
    outcome, _ = trained(tmp_path, data, checkpoint_every=2)

    files = sorted((tmp_path / "checkpoints").iterdir())
    assert [file.name for file in files] == ["1.pt", "3.pt"]
    early, late = (torch.load(file, weights_only=True) for file in files)
    assert (early["epoch"], late["epoch"]) == (1, 3)
    assert len(late["model"]) == 10
    assert len(late["optimiser"]["state"]) == 10  # the momenta
    assert any((early["model"][name] != late["model"][name]).any() for name in late["model"])
    assert outcome["metrics"]["checkpoints"] == 2
    assert outcome["metrics"]["checkpoint_bytes"] == files[-1].stat().st_size
    assert files[-1].stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("kept")
def test_the_same_file_is_overwritten_in_place(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inodes = set()
    write = training_loop.Checkpoints._write

    def watched(self: Any, state: Any) -> None:
        write(self, state)
        inodes.add((tmp_path / "checkpoints" / "same.pt").stat().st_ino)

    monkeypatch.setattr(training_loop.Checkpoints, "_write", watched)
    trained(tmp_path, data, checkpoint_every=1, checkpoint_file="same")

    (file,) = (tmp_path / "checkpoints").iterdir()
    assert torch.load(file, weights_only=True)["epoch"] == 3
    assert len(inodes) == 1


def test_a_checkpoint_lies_in_no_step_and_no_epoch_and_not_in_the_trainings_time(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, clock = training_loop.Checkpoints._write, FakeClock(marks.now_ns())

    def slow(self: Any, state: Any) -> None:
        write(self, state)
        clock.advance(0.2)

    monkeypatch.setattr(marks, "now_ns", lambda: clock.advance(1e-6) or clock.ns)  # no two readings are equal
    monkeypatch.setattr(training_loop.Checkpoints, "_write", slow)
    outcome, loaded = trained(tmp_path, data, checkpoint_every=1)

    spans: dict[str, list[tuple[int, int]]] = {}
    begun: dict[tuple[str, int], int] = {}
    for t_ns, name, edge, step in loaded:
        if edge == "begin":
            begun[name, step] = t_ns
        elif edge == "end":
            spans.setdefault(name, []).append((begun[name, step], t_ns))
    assert len(spans["checkpoint"]) == 4
    for begin_ns, end_ns in spans["checkpoint"]:
        assert end_ns - begin_ns >= 200_000_000
        assert all(end <= begin_ns or begin >= end_ns for begin, end in spans["step"] + spans["epoch"])
    assert outcome["metrics"]["checkpoint_s"] >= 0.2
    times_ns = {name: t_ns for t_ns, name, edge, _ in loaded if edge == "point"}
    written_s = sum(end - begin for begin, end in spans["checkpoint"]) / 1e9
    whole_s = (times_ns["train_end"] - times_ns["train_begin"]) / 1e9
    assert outcome["train_s"] == pytest.approx(whole_s - written_s, abs=1e-4)  # the readings between the two


def test_what_is_computed_is_the_same_and_nothing_stays(tmp_path: Path, data: Path) -> None:
    without, loaded = trained(tmp_path / "without", data)
    with_them, _ = trained(tmp_path / "with", data, checkpoint_every=1)

    assert without["loss_digest"] == with_them["loss_digest"]
    assert without["metrics"] == {}
    assert "checkpoint" not in {name for _, name, _, _ in loaded}
    assert with_them["metrics"]["checkpoints"] == 4
    assert not (tmp_path / "with" / "checkpoints").exists()


def test_a_folder_that_is_anothers_is_not_written_to_and_a_failure_leaves_nothing(tmp_path: Path, data: Path) -> None:
    (tmp_path / "checkpoints").write_text("not ours")
    with pytest.raises(OSError, match="checkpoints"):
        trained(tmp_path, data, checkpoint_every=1)

    assert (tmp_path / "checkpoints").read_text() == "not ours"
