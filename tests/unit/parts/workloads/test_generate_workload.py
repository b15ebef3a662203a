"""Text generation as a workload: its fields, how long it may take, and what keeps it from running."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tare.base.host import Completed
from tare.parts.find import find
from tare.parts.protocols import Machine
from tare.parts.workloads.gpt2 import Generate
from tare.testing import FakeHost


def answering(words: str, out: str, code: int = 0) -> FakeHost:
    def answer(argv: Sequence[str]) -> Completed:
        asked = any(words in word for word in argv)
        return Completed(tuple(argv), code if asked else 0, out if asked else "", "")

    return FakeHost(answer=answer, python="/opt/python")


def test_it_says_what_it_is_and_how_many_tokens_it_marks() -> None:
    workload = Generate(batch=4, requests=3, output=10, prompt=5)
    assert find("workloads", "generate") is Generate
    assert workload.title() == "GPT-2 (124 M) generation, batch 4, 5 + 10 tokens"
    assert Generate(scale=0.25, batch=1).title().startswith("GPT-2 small scaled by 0.25 generation, batch 1")
    assert workload.units() == 27
    assert workload.shortened().units() == 2 * 7
    assert hash(workload) == hash(Generate.model_validate(workload.fields()))


def test_the_order_is_what_the_program_reads(tmp_path: Path) -> None:
    order = json.loads(Generate(threads=3).job(FakeHost(), tmp_path, seed=7).argv[-1])
    wanted = {"size", "scale", "weights", "batch", "prompt", "output", "requests", "warm_up", "decode", "top_k"}
    wanted |= {"temperature", "backend", "precision", "device", "threads", "seed", "marks"}
    assert wanted <= order.keys()
    assert (order["seed"], order["threads"]) == (7, 3)


def test_more_of_everything_is_guessed_to_take_longer() -> None:
    small = Generate().guessed_s(Machine())
    assert small is not None
    for more in ({"size": "medium"}, {"batch": 8}, {"output": 200}, {"requests": 50}):
        longer = Generate.model_validate(more).guessed_s(Machine())
        assert longer is not None
        assert longer > small
    tiny = Generate(size="tiny").guessed_s(Machine())
    assert tiny is not None
    assert tiny < small


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"prompt": 1000}, "room for 1024 tokens"),
        ({"output": 1}, "greater than or equal to 2"),
        ({"precision": "int8", "device": "cuda"}, "for CPUs"),
        ({"weights": "gpt2"}, "absolute path"),
        ({"weights": "/gpt2", "scale": 0.5}, "leave `scale` out"),
    ],
)
def test_what_does_not_go_together_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Generate.model_validate(fields)


def test_the_program_is_asked_for_what_not_every_device_has() -> None:
    refusing = answering("programs import generate", "this PyTorch has no quantised engine for this CPU.")
    assert Generate().obstacles(refusing) == []  # nothing special is wanted
    (found,) = Generate(precision="int8").obstacles(refusing)
    assert (found.code, str(found)) == ("needs.backend", "this PyTorch has no quantised engine for this CPU.")
    (silent,) = Generate(precision="bf16").obstacles(answering("programs import generate", "", 1))
    assert silent.code == "host.not-asked"
    (missing,) = Generate(weights=Path("/nowhere")).obstacles(answering("-", ""))
    assert missing.code == "needs.file"
