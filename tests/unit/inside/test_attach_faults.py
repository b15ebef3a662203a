"""A fault of ours is never one of the script's: whatever breaks in here, the script prints what it did."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

TRAINING = (
    "steps.Steps.__init__",
    "steps.Steps.iterated",
    "steps.Steps.fetched",
    "steps.Steps.exhausted",
    "steps.Steps.went_backward",
    "steps.Steps.optimised",
    "steps.Steps.finish",
    "steps.Steps.close",
    "steps.Steps._mark",
    "steps.Steps._credit",
    "steps.Pass.__init__",
    "marks.open_marks",
    "marks.group",
    "marks.interval",
    "marks.room",
    "attach.Watch.begin",
    "attach.Watch._open",
    "attach._is_first_rank",
    "attach._write_fingerprint",
    "torch_hooks.watch_loaders",
    "torch_hooks.watch_backward",
    "torch_hooks.watch_gradients",
    "torch_hooks.watch_modes",
    "torch_hooks.watch_scaler",
    "attach.ending_from_environment",
    "steps.Steps._go_by_optimisers",
    "torch_hooks.watch_optimisers",
    "torch_hooks.watch_models",
    "torch_hooks._watch_steps_of",
)
INFERENCE = (
    "steps.InferenceSteps.iterated",
    "steps.InferenceSteps.fetched",
    "steps.InferenceSteps.exhausted",
    "steps.InferenceSteps.is_model",
    "steps.InferenceSteps.called",
    "steps.InferenceSteps.finish",
    "steps.InferenceSteps.close",
    "steps.InferenceSteps._may_write",
    "marks.group",
)
EVALUATION = ("steps.InferenceSteps.take_back", "steps.Steps._prove")
BY_HAND = ("attach.Watch.begin_without_optimiser", "steps.InferenceSteps.hand_over", "steps.Steps.resume")
CASES = [
    *(("validation.py", broken) for broken in TRAINING),
    *(("inference.py", broken) for broken in INFERENCE),
    *(("evaluates_then_trains.py", broken) for broken in EVALUATION),
    *(("by_hand.py", broken) for broken in BY_HAND),
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, torch_forks: Callable[..., None]) -> Callable[..., Path]:
    """One function is broken; then it attaches, and becomes the script."""
    folder = tmp_path_factory.mktemp("broken")

    @cache
    def once(side: str, *line: str) -> Path:
        torch_forks(folder, [line], side)
        return folder / " ".join(line) / side

    return once


@pytest.mark.parametrize(("script", "broken"), CASES)
def test_the_script_goes_on_and_the_record_says_so(ran: Callable[..., Path], script: str, broken: str) -> None:
    plain, attached = ran("plain", script), ran("attached", script, f"BREAK={broken}")

    assert (attached / "code").read_text() == "0"
    assert (attached / "out").read_text() == (plain / "out").read_text() != ""
    said = (attached / "err").read_text()
    assert said == "tare: the script runs unmarked from here on: RuntimeError('injected')\n"
    assert json.loads((attached / "attach.json").read_text()) == {
        "state": "gave up",
        "why": "RuntimeError('injected')",
        "pid": json.loads((attached / "attach.json").read_text())["pid"],
    }
