"""What `tare show` says of a trial that LoadGen drove."""

from __future__ import annotations

from typing import Any

import pytest

from some_records import draft
from tare.report.text.trials import loadgen_sentences, record_text

SAID = {"result": "INVALID", "scenario": "Server", "reasons": ["* Only processed 25 queries."]}
FIGURES = {"end_to_end_s": 0.2868, "loadgen_mean_s": 0.2464, "loadgen_gap_s": 0.0404}


def test_the_word_the_reasons_and_the_gap_are_told() -> None:
    record = draft(facts={"outcome": {"loadgen": SAID}}, metrics=FIGURES)

    assert loadgen_sentences(record) == [
        "LoadGen reports INVALID (Server): * Only processed 25 queries.",
        "On LoadGen's clock a sample takes 246 ms on average, from its file to its answer 287 ms: "
        "LoadGen sees 40.4 ms less.",
    ]
    assert "LoadGen reports INVALID (Server)" in record_text(record, 200)


def test_a_clock_that_started_earlier_sees_more() -> None:
    figures = {"end_to_end_s": 0.1, "loadgen_mean_s": 0.10004, "loadgen_gap_s": -4e-05}
    said = {"result": "VALID", "scenario": "SingleStream", "reasons": []}
    verdict, gap = loadgen_sentences(draft(facts={"outcome": {"loadgen": said}}, metrics=figures))

    assert verdict == "LoadGen reports VALID (SingleStream)."
    assert gap.endswith("LoadGen sees 40.0 µs more.")


@pytest.mark.parametrize("facts", [{}, {"outcome": {}}, {"outcome": "broken"}, {"outcome": {"loadgen": 3}}])
def test_a_trial_that_it_did_not_drive_says_nothing_of_it(facts: dict[str, Any]) -> None:
    assert loadgen_sentences(draft(facts=facts)) == []


def test_control_characters_do_not_reach_the_terminal() -> None:
    said = {"result": "VALID\x1b[2J", "scenario": "Offline", "reasons": []}

    assert "\x1b" not in loadgen_sentences(draft(facts={"outcome": {"loadgen": said}}))[0]
