"""The sentence that answers a comparison: who is what, and than what."""

from __future__ import annotations

import pytest

from some_weighings import comparison, weighing
from tare.analysis.answer import answer
from tare.analysis.model import Comparison


def slower(level: str, against: str) -> Comparison:
    return comparison(level, against=against, verdict="slower", effect=0.2, low=0.1, high=0.3)


@pytest.mark.parametrize(
    ("levels", "against", "sentence"),
    [
        (
            ("docker, quota 2, shm 1g", "docker, quota 2"),
            ("docker", "docker"),
            "docker, quota 2, shm 1g and docker, quota 2 are slower than docker (median step).",
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
        "docker and runc are slower than bare, by less than the margin of 5 % (median step). "
        "gvisor is the same as bare within 5 % (median step)."
    )
