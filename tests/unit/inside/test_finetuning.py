"""The built-in fine-tuning, run as a trial runs it but shorter: what learns, and that every way computes the same."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inference_jobs import outcome_and_marks, spans_ns
from tare.figures.steps import step_metrics, steps_from, token_metrics
from tare.parts.protocols import Mark
from tare_inside.workloads.programs import finetune, train

WIDTH, LAYERS = 128, 2  # of the tiny network


def job(**changes: Any) -> dict[str, Any]:
    return {
        "size": "tiny", "scale": 1.0, "weights": None, "method": "full", "rank": 4, "alpha": 8.0, "batch": 2,
        "accumulate": 1, "length": 8, "checkpointing": False, "precision": "fp32", "data_path": None, "epochs": 2,
        "steps_per_epoch": 3, "lr": 1e-3, "timing": "sync", "phases": False, "marked": True, "device": "cpu",
        "threads": 1, "seed": 3, "marks": "",
    } | changes  # fmt: skip


def tuned(folder: Path, **changes: Any) -> tuple[dict[str, Any], list[Any]]:
    folder.mkdir(parents=True, exist_ok=True)
    asked = job(marks=str(folder / "marks.bin"), **changes)
    return outcome_and_marks(finetune.run, asked)


def a_step(asked: dict[str, Any], *, dropout: bool = True) -> tuple[torch.nn.Module, Any, dict[str, torch.Tensor]]:
    """The network, its loss, and the gradients that a step on the first texts gives, before the optimiser's."""
    torch.manual_seed(asked["seed"])
    dataset, _, _ = finetune.open_data(asked)
    network, optimiser = finetune.built(asked)
    network.train(dropout)
    forward, backward, _ = finetune.parts_of(asked, network, optimiser)
    ready, _ = train.arranged(asked, [], (forward, backward, lambda: None), 1, 1, marked=False)
    texts = [dataset[index] for index in range(asked["batch"] * asked["accumulate"])]
    loss = ready.compute(0, *(torch.stack(each) for each in zip(*texts, strict=True)))
    found = {name: each.grad for name, each in network.named_parameters() if each.grad is not None}
    return network, loss.detach(), found


def test_the_marks_and_figures_are_those_of_training_and_tokens(tmp_path: Path) -> None:
    outcome, loaded = tuned(tmp_path, accumulate=2)

    counted = Counter(name for _, name, edge, step in loaded if edge == "end" and step >= 0)
    assert counted == {"fetch": 6, "copy": 6, "compute": 6, "step": 6, "epoch": 2}
    steps = steps_from(Mark(*row) for row in loaded)
    assert steps is not None
    assert steps.warm_up == 3  # epoch 0
    found = step_metrics(steps)
    assert outcome["tokens_a_step"] == 2 * 2 * 8
    assert token_metrics(outcome, found)["tokens_per_s"] == pytest.approx(32 / found["step_mean_s"])
    assert token_metrics(outcome, {}) == {}
    assert outcome["metrics"]["peak_bytes"] > 10e6
    assert outcome["steps"] == 6
    assert outcome["observer_s"] < 1e-3


def test_phases_of_all_pieces_add_up_within_the_step(tmp_path: Path) -> None:
    _, loaded = tuned(tmp_path, accumulate=3, phases=True)

    counted = Counter(name for _, name, edge, step in loaded if edge == "end" and step >= 0)
    assert (counted["forward"], counted["backward"], counted["optimiser"]) == (18, 18, 6)
    steps = steps_from(Mark(*row) for row in loaded)
    assert steps is not None
    parts = sum(steps.seconds[name] for name in ("forward", "backward", "optimiser"))
    assert (parts <= steps.seconds["compute"]).all()
    assert np.median(parts / steps.seconds["compute"]) > 0.8
    spans = spans_ns(loaded)
    assert spans["step", 5] >= spans["compute", 5]


def test_accumulated_gradients_are_those_of_one_large_mini_batch() -> None:
    _, whole, at_once = a_step(job(batch=6), dropout=False)
    _, mean, pieces = a_step(job(batch=2, accumulate=3), dropout=False)

    assert float(mean) == pytest.approx(float(whole), rel=1e-5)
    assert pieces.keys() == at_once.keys()
    for name, gradient in at_once.items():
        torch.testing.assert_close(pieces[name], gradient, rtol=1e-4, atol=1e-6)
    assert max(float(each.abs().max()) for each in at_once.values()) > 1e-3  # they are no zeros


@pytest.mark.parametrize("method", ["full", "lora"])
def test_checkpointing_gives_the_same_losses_and_gradients(tmp_path: Path, method: str) -> None:
    """Dropout too: its chance is the same when a layer is computed again."""
    kept, _ = tuned(tmp_path / "kept", method=method)
    again, _ = tuned(tmp_path / "again", method=method, checkpointing=True)
    assert kept["loss_digest"] == again["loss_digest"]

    _, _, stored = a_step(job(method=method))
    _, _, recomputed = a_step(job(method=method, checkpointing=True))
    assert {name.replace(".layer.", ".") for name in recomputed} == set(stored)
    for name, gradient in recomputed.items():
        torch.testing.assert_close(gradient, stored[name.replace(".layer.", ".")])


def test_lora_trains_the_adapters_and_nothing_else(tmp_path: Path) -> None:
    torch.manual_seed(3)
    asked = job(method="lora", rank=4)
    dataset, _, _ = finetune.open_data(asked)
    network, optimiser = finetune.built(asked)
    before = {name: each.detach().clone() for name, each in network.named_parameters()}
    parts = finetune.parts_of(asked, network, optimiser)
    compute = train.arranged(asked, [], parts, 1, 1, marked=False)[0].compute
    texts = [torch.stack(each) for each in zip(*(dataset[index] for index in range(2)), strict=True)]
    for step in range(3):
        compute(step, *texts)

    changed = {name for name, each in network.named_parameters() if not torch.equal(each, before[name])}
    wanted = {f"layers.{at}.joined.{way}.weight" for at in range(LAYERS) for way in ("down", "up")}
    assert changed == wanted
    outcome, _ = tuned(tmp_path, method="lora", rank=4)
    assert outcome["trained_parameters"] == LAYERS * 4 * (WIDTH + 3 * WIDTH)  # down: rank x width, up: 3 x width x rank
    whole, _ = tuned(tmp_path / "full")
    assert whole["trained_parameters"] == whole["parameters"]
    assert outcome["parameters"] == whole["parameters"] + outcome["trained_parameters"]


def test_adapters_begin_as_nothing_and_count_alpha_over_rank() -> None:
    texts = torch.arange(8).reshape(1, 8)
    torch.manual_seed(3)
    plain, _ = finetune.built(job())
    torch.manual_seed(3)
    adapted, _ = finetune.built(job(method="lora", rank=4, alpha=8.0))
    with torch.no_grad():
        assert torch.equal(plain.eval()(texts), adapted.eval()(texts))
        layer = adapted.layers[0].joined
        torch.nn.init.ones_(layer.up.weight)
        tokens = torch.randn(1, 8, WIDTH)
        added = layer(tokens) - layer.linear(tokens)
        torch.testing.assert_close(added[..., 0], 2 * layer.down(tokens).sum(-1), rtol=1e-4, atol=1e-4)


def test_the_same_seed_is_the_same_computation(tmp_path: Path) -> None:
    cases: dict[str, dict[str, Any]] = {
        "first": {}, "again": {"phases": True}, "other": {"seed": 4}, "lora": {"method": "lora"},
    }  # fmt: skip
    digests = {name: tuned(tmp_path / name, **changes)[0]["loss_digest"] for name, changes in cases.items()}
    assert digests["first"] == digests["again"]
    assert len(set(digests.values())) == 3


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # a CPU without bf16 computes it by other means
def test_bf16_is_mixed_precision_close_to_fp32() -> None:
    network, loss, gradients = a_step(job(precision="bf16"), dropout=False)
    _, whole, _ = a_step(job(), dropout=False)

    assert {each.dtype for each in network.parameters()} == {torch.float32}
    assert {each.dtype for each in gradients.values()} == {torch.float32}
    assert float(loss) == pytest.approx(float(whole), rel=0.01)
    assert float(loss) != float(whole)


def test_a_loss_on_few_texts_falls(tmp_path: Path) -> None:
    for method, rate in (("full", 1e-3), ("lora", 1e-2)):
        short, _ = tuned(tmp_path / method, method=method, epochs=1, lr=rate)
        long, _ = tuned(tmp_path / f"{method}-long", method=method, epochs=6, lr=rate)
        assert long["loss"] < short["loss"]


def test_tokens_come_from_a_file_by_their_numbers(tmp_path: Path) -> None:
    numbers = [index * 7 % 1000 for index in range(2 * 3 * 8 + 1)]
    (tmp_path / "tokens.txt").write_text("\n".join(map(str, numbers)))
    (tmp_path / "tokens.bin").write_bytes(struct.pack(f"<{len(numbers)}H", *numbers))
    digests = {
        tuned(tmp_path / ending, data_path=str(tmp_path / f"tokens.{ending}"))[0]["loss_digest"]
        for ending in ("txt", "bin")
    }
    assert len(digests) == 1
    assert digests != {tuned(tmp_path / "random")[0]["loss_digest"]}
    dataset, steps, _ = finetune.open_data(job(data_path=str(tmp_path / "tokens.txt")))
    text, following = dataset[1]
    assert (text.tolist(), following.tolist()) == (numbers[8:16], numbers[9:17])
    assert (len(dataset), steps) == (6, 3)


@pytest.mark.parametrize(
    ("content", "changes", "says"),
    [
        ("1 2 3", {}, "an epoch needs 49 tokens .* and there are 3"),
        ("1 two 3", {}, "not only numbers of tokens"),
        (" ".join(["1024"] * 60), {}, "token 1024 is not one of the network's 1024"),
        (" ".join(["-1"] * 60), {}, "token -1 is not"),
        ("1 2 3", {"length": 2000}, "room for 1024 tokens and `length` is 2000"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_a_sentence(
    tmp_path: Path, content: str, changes: dict[str, Any], says: str
) -> None:
    (tmp_path / "tokens.txt").write_text(content)
    with pytest.raises(ValueError, match=says):
        tuned(tmp_path, data_path=str(tmp_path / "tokens.txt"), **changes)


def test_what_an_old_pytorch_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert finetune.obstacle("cpu", "bf16", None, True) is None
    monkeypatch.setattr(finetune, "checkpoint", lambda function, *inputs: None)
    assert "PyTorch 1.11" in str(finetune.obstacle("cpu", "fp32", None, True))
    monkeypatch.delattr(torch, "autocast")
    assert "PyTorch 1.10" in str(finetune.obstacle("cpu", "bf16"))
