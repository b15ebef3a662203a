from __future__ import annotations

import pytest

import some_weighings as some
from tare.analysis.sentences import answer_sentence, verdict_phrase, verdict_reading
from tare.report.text.verdict import counts_text, is_complete, taints


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({}, "slower, by less than 5 %"),
        ({"low": -0.01}, "equivalent within 5 %"),
        ({"effect": 0.005, "low": 0.001}, "equivalent within 5 %"),  # below the A/A noise floor
        ({"verdict": "slower"}, "slower"),
        ({"verdict": "faster"}, "faster"),
        ({"verdict": "cannot_tell", "more_trials": 9}, "cannot tell (about 9 more blocks)"),
        ({"verdict": "cannot_tell", "more_trials": 1}, "cannot tell (about 1 more block)"),
        ({"verdict": "cannot_tell", "more_trials": 9, "paired": False}, "cannot tell (about 9 more trials per side)"),
        ({"verdict": "cannot_tell"}, "cannot tell"),
        ({"tainted": ("another torch",)}, "slower, by less than 5 % (tainted)"),
        (
            {"verdict": "cannot_tell", "more_trials": 2, "tainted": ("x",)},
            "cannot tell (about 2 more blocks; tainted)",
        ),
    ],
)
def test_a_verdict_is_one_of_four_words_and_what_to_doubt(changes: dict[str, object], phrase: str) -> None:
    assert verdict_phrase(some.comparison(**changes)) == phrase


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({}, "smaller than the margin"),
        ({"effect": 0.005, "low": 0.001}, "two runs of the same thing differ by as much (0.9 %): no claim"),
        ({"low": -0.01}, "The whole interval lies within ±5 %, the declared margin."),
        ({"verdict": "slower", "low": 0.02, "high": 0.09}, "lies above zero"),
        ({"verdict": "slower", "low": -0.09, "high": -0.02}, "lies below zero"),  # a rate: less of it is slower
        ({"verdict": "cannot_tell", "low": -0.02, "high": 0.09}, "contains zero and exceeds"),
        (
            {"verdict": "cannot_tell", "low": 0.02, "high": 0.09},
            "does not exceed the difference of two runs of the same thing (0.9 %)",
        ),
        ({"verdict": "cannot_tell", "low": None, "high": None, "n": 3}, "needs at least six on each side; here n = 3"),
        ({"verdict": "cannot_tell", "effect": None, "low": None, "high": None}, "One side has no usable trial"),
    ],
)
def test_the_reading_says_what_the_interval_does(changes: dict[str, object], part: str) -> None:
    assert part in verdict_reading(some.comparison(**changes))


def test_the_answer_says_against_whom_by_how_much_and_how_sure() -> None:
    assert answer_sentence(some.comparison(confidence=0.983)) == (
        "against bare: median step +1.6 %, 98.3 % interval [+0.4, +2.9], paired over 12 blocks."
    )


@pytest.mark.parametrize(
    ("counts", "text", "complete"),
    [
        ({"planned": 24, "ok": 22, "invalid": 2}, "22 of 24 trials; 2 invalid", False),
        ({"planned": 120, "ok": 37, "invalid": 3}, "37 of 120 trials; 3 invalid; 80 not run yet", False),
        ({"planned": 24, "ok": 20, "suspect": 4}, "24 of 24 trials (4 suspect)", False),
        ({"planned": 24, "ok": 24}, "24 of 24 trials", True),
        ({"planned": 3, "ok": 1, "running": 1}, "1 of 3 trials; 2 not run yet", False),
        ({"ok": 5}, "5 of 5 trials", True),
        ({}, "0 of 0 trials", True),
    ],
)
def test_the_counts_say_how_much_of_the_plan_is_there(counts: dict[str, int], text: str, complete: bool) -> None:
    assert counts_text(counts) == text
    assert is_complete(counts) is complete


def test_a_difference_that_matters_taints_also_where_the_comparison_does_not_say_so() -> None:
    sample = some.tainted().weighing
    told = "torch.version: docker has 2.12.1, bare has 2.13.0+cpu (another build of torch)"
    assert taints(sample) == [told]
    assert taints(some.weighing(differences=sample.differences)) == [told]
    assert taints(some.weighing()) == []
