"""Metrics that are made of channels: what the probe declares, over the measured steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tare.base import declare
from tare.base.declare import Metric, learn, learnt
from tare.figures.rederive import SealedEvidence, figures, needs_all_readings
from tare.figures.series import channel_metrics, declared_metrics
from tare.figures.steps import SLICES, TURNS, steps_from
from tare.parts.find import find, names
from tare.parts.protocols import Mark

S = 10**9
T = np.arange(0, 11) * S
FAN = {"name": "board.fan_hz", "unit": "Hz", "kind": "gauge", "words": "speed of the fan", "takes": ["mean", "max"]}
AIR = {"name": "board.air", "unit": "J", "kind": "counter", "takes": ["rate"], "better": "higher"}


def evidence(**more: Any) -> SealedEvidence:
    """Ten steps of a second, of which the first is the warm-up."""
    marks = [
        Mark(step * S + (edge == "end") * S, "step", edge, step) for step in range(10) for edge in ("begin", "end")
    ]
    series = {"board.fan_hz": (T, T / S * 10.0), "board.air": (T, T / S * 3.0)}
    return SealedEvidence(**{"marks": marks, "series": series, "channels": (FAN, AIR), **more})


def test_a_mean_a_highest_value_and_a_rate_are_of_the_measured_steps():
    seen = evidence()
    found = channel_metrics(seen, steps_from(seen.marks))
    assert found == {
        "board.fan_hz": pytest.approx(55.0),
        "board.fan_hz.max": 100.0,
        "board.air.rate": pytest.approx(3.0),
    }


def test_a_workload_that_marks_no_steps_is_taken_whole():
    seen = evidence(marks=(), result={"start_ns": 2 * S, "end_ns": 4 * S})
    assert channel_metrics(seen, None)["board.fan_hz"] == 30.0


def test_the_metrics_are_declared_as_their_channel_is():
    told = {name: metric.as_json() for name, metric in declared_metrics([FAN, AIR]).items()}
    assert told == {
        "board.fan_hz": {"words": "mean speed of the fan", "unit": "Hz", "better": "neutral"},
        "board.fan_hz.max": {"words": "highest speed of the fan", "unit": "Hz", "better": "neutral"},
        "board.air.rate": {"words": "board air per second", "unit": "W", "better": "higher"},
    }


def test_what_a_workload_reports_is_declared_too_but_for_what_tare_has_words_for():
    own = Metric(name="words_per_s", words="words per second", unit="1/s", better="higher")
    taken = Metric(name="step_s", words="nothing", unit="J")
    assert declared_metrics([], (own, taken)) == {"words_per_s": own}


@pytest.mark.parametrize("name", names("workloads"))
def test_a_workload_declares_what_a_record_can_hold_and_tare_has_no_words_for(name, monkeypatch):
    monkeypatch.setattr(declare, "_learnt", {})
    metrics = find("workloads", name).METRICS
    learn({each.name: each.as_json() for each in metrics})
    assert [learnt(each.name) for each in metrics] == list(metrics)


@pytest.mark.parametrize(
    "channel",
    [
        {**FAN, "takes": []},
        {**FAN, "takes": "everything"},
        {**FAN, "takes": ["rate"]},  # of a counter only
        {**AIR, "takes": ["mean"]},
        {**FAN, "name": "step_s"},  # no channel makes a metric of ours
        {**FAN, "name": "board.Fan"},
    ],
)
def test_a_channel_that_declares_nothing_that_makes_sense_gives_no_metric(channel):
    seen = evidence(channels=[channel], series={str(channel["name"]): (T, T * 1.0)})
    assert channel_metrics(seen, steps_from(seen.marks)) == {}


@pytest.mark.parametrize("fact", [TURNS, SLICES])
def test_turns_and_slices_give_none_since_a_device_has_one_series_for_all_sides(fact: str):
    seen = evidence(facts={fact: {"windows_ns": [[0, 5 * S]]}})
    assert channel_metrics(seen, steps_from(seen.marks)) == {}


def test_they_are_among_the_figures_of_a_trial_and_need_all_readings_in_a_thinned_pack():
    seen = evidence()
    assert figures(seen, steps_from(seen.marks), None)["board.fan_hz"] == pytest.approx(55.0)
    assert needs_all_readings(FAN)
    assert not needs_all_readings({"name": "board.fan_hz", "unit": "Hz", "kind": "gauge"})
