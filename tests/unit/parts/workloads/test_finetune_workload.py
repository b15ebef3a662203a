"""Fine-tuning as a workload: its fields, how long it may take, and what keeps it from running."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from test_generate_workload import answering

from tare.parts.find import find
from tare.parts.protocols import Machine
from tare.parts.workloads.gpt2 import Finetune
from tare.testing import FakeHost


def test_it_says_what_it_is_and_how_many_steps_it_marks() -> None:
    assert find("workloads", "finetune") is Finetune
    assert Finetune().title() == "GPT-2 (124 M) fine-tuning, batch 4, 128 tokens"
    adapters = Finetune(method="lora", accumulate=8, epochs=2, steps_per_epoch=50)
    assert adapters.title() == "GPT-2 (124 M) fine-tuning (LoRA, rank 8), batch 8 x 4, 128 tokens"
    assert (adapters.units(), adapters.shortened().units(), Finetune(marks=False).units()) == (100, 3, 0)


def test_the_order_is_what_the_program_reads(tmp_path: Path) -> None:
    order = json.loads(Finetune(threads=3).job(FakeHost(), tmp_path, seed=7).argv[-1])
    wanted = {"size", "scale", "weights", "method", "rank", "alpha", "batch", "accumulate", "length", "checkpointing"}
    wanted |= {"precision", "data_path", "epochs", "steps_per_epoch", "lr", "timing", "phases", "device", "marks"}
    assert wanted <= order.keys()
    assert (order["seed"], order["threads"], order["marked"]) == (7, 3, True)


@pytest.mark.parametrize(
    "more", [{"size": "medium"}, {"batch": 8}, {"accumulate": 2}, {"length": 200}, {"checkpointing": True}]
)
def test_more_of_everything_is_guessed_to_take_longer(more: dict[str, Any]) -> None:
    usual, longer = Finetune().guessed_s(Machine()), Finetune.model_validate(more).guessed_s(Machine())
    adapters = Finetune(method="lora").guessed_s(Machine())
    assert usual is not None and longer is not None and adapters is not None
    assert adapters < usual < longer


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"length": 2000}, "room for 1024 tokens"),
        ({"precision": "int8"}, "'fp32' or 'bf16'"),
        ({"weights": "gpt2"}, "absolute path"),
        ({"weights": "/gpt2", "scale": 0.5}, "leave `scale` out"),
        ({"data_path": "tokens.txt"}, "absolute path"),
        ({"timing": "async"}, "is for a GPU"),
        ({"phases": True, "marks": False}, "set one of them"),
    ],
)
def test_what_does_not_go_together_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Finetune.model_validate(fields)


def test_the_program_is_asked_for_what_not_every_device_has(tmp_path: Path) -> None:
    refusing = answering("programs import finetune", "`checkpointing` needs PyTorch 1.11 or later: leave it out.")
    assert Finetune().obstacles(refusing) == []  # nothing special is wanted
    (found,) = Finetune(checkpointing=True).obstacles(refusing)
    assert (found.code, str(found)[:15]) == ("needs.backend", "`checkpointing`")
    (missing,) = Finetune(data_path=tmp_path / "none.txt").obstacles(refusing)
    assert missing.code == "needs.file"
    (folder,) = Finetune(weights=Path("/nowhere")).obstacles(answering("-", ""))
    assert folder.code == "needs.file"
    (tmp_path / "tokens.txt").touch()
    assert Finetune(data_path=tmp_path / "tokens.txt").inputs() == (tmp_path / "tokens.txt",)
