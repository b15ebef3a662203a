"""The sentence that answers a comparison: who is what, and than what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from some_weighings import comparison, weighing
from tare.analysis.answer import answer
from tare.analysis.model import Comparison
from tare.base.rulings import Ruling


def slower(level: str, against: str) -> Comparison:
    return comparison(level, against=against, verdict="slower", effect=0.2, low=0.1, high=0.3)


@pytest.mark.parametrize(
    ("levels", "against", "sentence"),
    [
        (
            ("docker, quota 2, shm 1g", "docker, quota 2"),
            ("docker", "docker"),
            "docker, quota 2, shm 1g and docker, quota 2 are slower than docker (median step +20.0 % [+10.0, +30.0]).",
        ),
        (("docker, quota 1", "docker, quota 2"), ("docker", "docker"), "quota 1 and quota 2 are slower than docker"),
        (
            ("docker, batch 1, quota 1", "docker, batch 2, quota 1"),
            ("docker, batch 1", "docker, batch 2"),
            "quota 1 is slower than the baseline with batch 1 and batch 2",
        ),
        (
            ("LSTM training in docker", "AlexNet training in docker"),
            ("LSTM training on bare metal", "AlexNet training on bare metal"),
            "docker is slower than bare metal with LSTM training and AlexNet training",
        ),
        (
            ("beside fine-tuning on bare metal", "beside fine-tuning on bare metal (cpu shares 2)"),
            ("alone", "alone"),
            "beside fine-tuning on bare metal and beside fine-tuning on bare metal (cpu shares 2) are slower",
        ),
    ],
)
def test_levels_and_baseline_keep_a_name(levels: tuple[str, str], against: tuple[str, str], sentence: str) -> None:
    found = tuple(slower(level, other) for level, other in zip(levels, against, strict=True))

    assert answer(weighing(comparisons=found)).startswith(sentence)


def test_contrasts_that_surely_differ_within_the_margin_are_not_the_same() -> None:
    sure = (comparison("docker"), comparison("runc"))
    unsure = comparison("gvisor", low=-0.004)

    assert answer(weighing(comparisons=(*sure, unsure))) == (
        "docker and runc are slower than bare, by less than the margin of 5 % (median step +1.6 % [+0.4, +2.9]). "
        "gvisor is the same as bare within 5 % (median step +1.6 % [-0.4, +2.9])."
    )


def test_a_claim_of_unlike_work_says_so() -> None:
    unlike = Ruling("compare.unlike-work", "note", "", "One step of the sides holds unlike work.")
    one, two = (replace(slower(level, "bare"), notes=(unlike,)) for level in ("batch 4", "batch 8"))

    both, some = (answer(weighing(comparisons=(one, other))) for other in (two, slower("batch 8", "bare")))

    assert answer(weighing(comparisons=(one,))).endswith("median step +20.0 % [+10.0, +30.0] (unlike work).")
    assert both == "batch 4 and batch 8 are slower than bare (median step +20.0 % [+10.0, +30.0]; unlike work)."
    assert some == "batch 4 and batch 8 are slower than bare (median step +20.0 % [+10.0, +30.0]; 1 of 2: unlike work)."
