"""The built-in program, run as a trial runs it but shorter; torch is imported once for most of these."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from inference_jobs import outcome_and_marks
from tare.base.host import LocalHost
from tare.parts.workloads.torch_train import TorchTrain
from tare.testing import FakeClock
from tare_inside import marks, named
from tare_inside.workloads.data import mnist
from tare_inside.workloads.formats import make
from tare_inside.workloads.models import LeNet5
from tare_inside.workloads.programs import running, train, training_loop


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "mnist"
    make.make("mnist", str(folder), 400, 0)
    return folder


def job(folder: Path, data: Path, **changes: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    return {
        "model": "lenet5", "data": "mnist", "data_path": str(data), "batch": 8, "workers": 0, "prefetch": 2,
        "epochs": 2, "steps_per_epoch": 5, "lr": 0.05, "momentum": 0.9, "threads": None, "phases": False,
        "device": "cpu", "seed": 3, "marks": str(folder / "marks.bin"), "outcome": str(folder / "outcome.json"),
        "fingerprint": str(folder / "fingerprint.json"),
    } | changes  # fmt: skip


def trained(folder: Path, data: Path, **changes: Any) -> tuple[dict[str, Any], list[Any]]:
    """The outcome and the marks of a short run in this process."""
    asked = job(folder, data, **changes)
    return outcome_and_marks(train.run, asked)


def counted(loaded: list[Any], edge: str) -> dict[str, int]:
    names = [name for _, name, found, _ in loaded if found == edge]
    return {name: names.count(name) for name in sorted(set(names))}


def test_every_mini_batch_is_marked(tmp_path: Path, data: Path) -> None:
    outcome, loaded = trained(tmp_path, data)

    each = {"fetch": 10, "copy": 10, "compute": 10, "step": 10, "epoch": 2, "imports": 1, "data_open": 1}
    assert counted(loaded, "begin") == counted(loaded, "end") == dict(sorted(each.items()))
    assert [step for _, name, edge, step in loaded if (name, edge) == ("step", "begin")] == list(range(10))
    assert [step for _, name, edge, step in loaded if (name, edge) == ("epoch", "begin")] == [0, 1]
    assert [name for _, name, edge, _ in loaded if edge == "point"] == ["ready", "train_begin", "train_end"]
    assert outcome["steps"] == 10


def test_fetch_copy_and_compute_fill_the_step(tmp_path: Path, data: Path) -> None:
    _, loaded = trained(tmp_path, data)
    times_ns = {(name, edge, step): t_ns for t_ns, name, edge, step in loaded}

    for step in range(10):
        assert times_ns["step", "begin", step] == times_ns["fetch", "begin", step]
        assert times_ns["fetch", "end", step] == times_ns["copy", "begin", step]
        assert times_ns["copy", "end", step] == times_ns["compute", "begin", step]
        assert times_ns["compute", "end", step] == times_ns["step", "end", step]


def test_phases_lie_in_compute(tmp_path: Path, data: Path) -> None:
    _, loaded = trained(tmp_path, data, phases=True)
    times_ns = {(name, edge, step): t_ns for t_ns, name, edge, step in loaded}

    assert counted(loaded, "end")["optimiser"] == 10
    for step in range(10):
        ordered = [
            times_ns["compute", "begin", step],
            times_ns["forward", "begin", step],
            times_ns["forward", "end", step],
            times_ns["backward", "end", step],
            times_ns["optimiser", "end", step],
            times_ns["compute", "end", step],
        ]
        assert ordered == sorted(ordered)


def test_the_same_seed_is_the_same_computation_and_another_is_not(tmp_path: Path, data: Path) -> None:
    first, _ = trained(tmp_path / "first", data)
    again, _ = trained(tmp_path / "again", data, phases=True)
    other, _ = trained(tmp_path / "other", data, seed=4)

    assert first["loss_digest"] == again["loss_digest"]
    assert first["loss_digest"] != other["loss_digest"]


def test_loader_workers_change_who_fetches_and_not_what_is_computed(tmp_path: Path, data: Path) -> None:
    alone, _ = trained(tmp_path / "alone", data)
    helped, loaded = trained(tmp_path / "helped", data, workers=2, prefetch=3)

    assert helped["loss_digest"] == alone["loss_digest"]
    assert counted(loaded, "end")["fetch"] == 10


def test_training_learns(tmp_path: Path, data: Path) -> None:
    short, _ = trained(tmp_path / "short", data, epochs=1)
    long, _ = trained(tmp_path / "long", data, epochs=2, steps_per_epoch=None)

    assert long["steps"] == 2 * 50
    assert long["loss"] < short["loss"] / 4


def test_what_training_alone_used_is_said(tmp_path: Path, data: Path) -> None:
    outcome, loaded = trained(tmp_path, data)
    (begin_ns,) = [t_ns for t_ns, name, _, _ in loaded if name == "train_begin"]
    (end_ns,) = [t_ns for t_ns, name, _, _ in loaded if name == "train_end"]

    assert 0 < outcome["cpu_train_s"] < 64 * (end_ns - begin_ns) / 1e9
    counts = ("minor_faults", "major_faults", "voluntary_switches", "involuntary_switches")
    assert all(outcome[f"{name}_training"] >= 0 for name in counts)
    assert outcome["threads"] >= 1
    assert outcome["interop_threads"] >= 1


def test_the_cpu_time_of_workers_is_counted(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = mnist.Dataset.__getitem__

    def laborious(self: mnist.Dataset, index: int) -> Any:
        for _ in range(20):
            plain(self, index)
        return plain(self, index)

    monkeypatch.setattr(mnist.Dataset, "__getitem__", laborious)
    asked = {"workers": 1, "epochs": 1, "steps_per_epoch": 20}
    before_s = running.workers_cpu_s()
    outcome, _ = trained(tmp_path, data, **asked)

    assert 0.01 < running.workers_cpu_s() - before_s <= outcome["cpu_train_s"]


def test_without_marks_there_are_none_and_the_work_is_the_same(tmp_path: Path, data: Path) -> None:
    marked, _ = trained(tmp_path / "marked", data)
    unmarked, loaded = trained(tmp_path / "unmarked", data, marked=False)

    assert loaded == []
    assert not (tmp_path / "unmarked" / "marks.bin").exists()
    assert unmarked["loss_digest"] == marked["loss_digest"]
    assert 0 < unmarked["epoch0_s"] < unmarked["train_s"]
    assert "observer_s" not in unmarked


def test_what_marking_costs_is_measured_and_phases_cost_more(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that goes on by 1 us with each reading: four more of them a step with marks, and eight with phases."""
    monkeypatch.setattr(marks, "now_ns", count(marks.now_ns(), 1000).__next__)
    plain, _ = trained(tmp_path / "plain", data)
    phases, _ = trained(tmp_path / "phases", data, phases=True)

    assert (plain["observer_s"], phases["observer_s"]) == pytest.approx((4e-6, 8e-6))
    assert sorted(path.name for path in (tmp_path / "plain").iterdir()) == ["marks.bin"]


def test_items_in_memory_are_the_first_ones_of_the_data_again_and_again(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "MOST_KEPT_ITEMS", 24)
    stored = mnist.Dataset(str(data))
    kept = train.Kept(stored)

    assert len(kept) == 400
    assert torch.equal(kept[25][0], stored[1][0])
    assert kept[25][1] == stored[1][1]
    outcome, loaded = trained(tmp_path, data, source="memory")
    assert outcome["steps"] == counted(loaded, "end")["step"] == 10


def test_memory_is_kept_within_bounds_but_holds_an_item_at_least(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "MOST_KEPT_BYTES", 1)
    kept, stored = train.Kept(mnist.Dataset(str(data))), mnist.Dataset(str(data))

    assert torch.equal(kept[7][0], stored[0][0])


def test_a_text_has_a_loss_for_each_of_its_tokens() -> None:
    logits, labels = torch.randn(2, 5, 7, requires_grad=True), torch.randint(0, 7, (2, 5))
    forward, backward, _ = training_loop.parts_of(lambda inputs: logits, None, cross_entropy)
    loss = forward(None, labels)
    backward(loss)

    each = torch.stack([cross_entropy(logits[n], labels[n], reduction="none") for n in range(2)])
    assert torch.allclose(loss, each.mean())
    assert logits.grad is not None


def test_fewer_classes_than_the_labels_have_are_refused(tmp_path: Path, data: Path) -> None:
    with pytest.raises(ValueError, match=r"`classes` is 4, and .* has labels of 10 classes: make it 10 or more"):
        trained(tmp_path, data, classes=4)


def test_more_classes_than_the_labels_have_make_a_wider_network(tmp_path: Path, data: Path) -> None:
    narrow, _ = trained(tmp_path / "narrow", data)
    wide, _ = trained(tmp_path / "wide", data, classes=1000)

    assert wide["loss"] > narrow["loss"]


def test_images_of_another_number_of_colours_are_refused(tmp_path: Path, data: Path) -> None:
    with pytest.raises(ValueError, match=r"resnet18 takes images of 3 channel\(s\), and those in .* have 1"):
        trained(tmp_path, data, model="resnet18", pixels=32)


def test_a_loss_that_is_no_number_is_left_out() -> None:
    said = train.loss_digest([torch.tensor(1.0), torch.tensor(float("nan"))])

    assert said["steps"] == 2
    assert "loss" not in said


def test_lenet5_has_its_five_layers_and_61706_parameters() -> None:
    model = LeNet5.build()

    assert sum(parameter.numel() for parameter in model.parameters()) == 61_706
    assert len([layer for layer in model if hasattr(layer, "weight")]) == 5


def test_a_name_finds_a_file_and_a_wrong_one_is_told_what_there_is() -> None:
    assert named.find("models", "lenet5") is LeNet5
    with pytest.raises(ValueError, match=r"no 'lenet' in models\. Available: alexnet, .*lenet5"):
        named.find("models", "lenet")


def test_a_job_runs_as_a_trial_runs_it(workdir: Path, data: Path) -> None:
    workload = TorchTrain(data_path=data, batch=8, workers=0, epochs=2, steps_per_epoch=5, threads=1)
    ended = LocalHost().spawn(workload.job(LocalHost(), workdir, seed=3)).wait(120)

    assert (ended.code, ended.err) == (0, "")
    outcome = json.loads((workdir / "outcome.json").read_text())
    assert json.loads(ended.out) == {name: outcome[name] for name in ("steps", "loss", "loss_digest")}
    assert outcome["steps"] == workload.units()
    assert outcome["threads"] == 1
    assert len([mark for mark in marks.load(str(workdir / "marks.bin"))[0] if mark[1:3] == ("step", "end")]) == 10
    fingerprint = json.loads((workdir / "fingerprint.json").read_text())
    assert fingerprint["torch"]["threads"] == 1
    assert fingerprint["env"]["MALLOC_TOP_PAD_"] == "67108864"
    assert sorted(path.name for path in workdir.iterdir()) == [
        "fingerprint.json", "inside", "marks.bin", "outcome.json", "result.json",
    ]  # fmt: skip


def test_a_job_without_marks_leaves_no_file_of_them(workdir: Path, data: Path) -> None:
    workload = TorchTrain(data_path=data, batch=8, workers=0, epochs=1, steps_per_epoch=2, threads=1, marks=False)
    order = workload.job(LocalHost(), workdir, seed=3).argv[-1]

    assert train.main([order]) == 0
    assert (workdir / "outcome.json").exists()
    assert not list(workdir.glob("marks*"))
    assert workload.units() == 0


def test_data_that_are_too_few_end_the_program_with_a_sentence(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = tmp_path / "job.json"
    asked.write_text(json.dumps(job(tmp_path, data, steps_per_epoch=51)))

    assert train.main([str(asked)]) == 1
    assert capsys.readouterr().err == (
        f"tare: {data}: an epoch needs 408 images and there are 400; ask for fewer steps_per_epoch.\n"
    )


def test_an_epoch_that_is_to_begin_cold_does_and_its_cooling_is_in_no_time(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tare_inside.programs import cold_epochs

    clock = FakeClock(marks.now_ns())

    def slow(paths: list[str]) -> float:
        clock.advance(0.1)
        return 0.0

    monkeypatch.setattr(marks, "now_ns", lambda: clock.advance(1e-6) or clock.ns)
    monkeypatch.setattr(cold_epochs, "dropped", slow)
    (tmp_path / cold_epochs.ORDER).write_text(json.dumps({"paths": [str(data)]}))
    outcome, loaded = trained(tmp_path, data)

    times_ns = {(name, edge, step): t_ns for t_ns, name, edge, step in loaded}
    gap_ns = times_ns["step", "begin", 5] - times_ns["step", "end", 4]
    assert gap_ns > 100_000_000
    assert times_ns["epoch", "begin", 1] <= times_ns["step", "begin", 5]
    whole_s = sum(times_ns["epoch", "end", epoch] - times_ns["epoch", "begin", epoch] for epoch in (0, 1)) / 1e9
    assert outcome["train_s"] == pytest.approx(whole_s, abs=1e-4)  # the readings between the passes
    assert json.loads((tmp_path / cold_epochs.SAID).read_text())["shares"] == [0.0, 0.0]
