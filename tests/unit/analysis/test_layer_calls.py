"""System calls beside each layer come from traced trials of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from some_layers import container
from tare.analysis.why.layers import calls_by_layer, waterfall
from tare.report.text.why import waterfall_text

COUNTS = {0: 100.0, 1: 101.0, 2: 101.0, 3: 150.0, 4: 150.0}


def traced(leave_one_out: bool = False):
    """One trial of each stage; the third layer (cpu) adds calls."""
    first = [record for record in container({}, leave_one_out=leave_one_out) if record.block == 0]
    return [
        replace(
            record,
            metrics={"system_calls_step": _count(record), "step_s": 9.0},
            facts={"traced": {"probes": ["syscalls"]}},
        )
        for record in first
    ]


def _count(record):
    return 90.0 if record.settings["platform"] == "bare" else COUNTS[len(record.settings["platform.isolation"])]


def test_each_layer_has_its_calls_with_and_without():
    found = calls_by_layer(traced())
    assert [(each.layer, each.without, each.with_it) for each in found.layers] == [
        ("mounts", 90, 100), ("pid", 100, 101), ("network", 101, 101), ("cpu", 101, 150), ("seccomp", 150, 150),
    ]  # fmt: skip
    assert found.of("cpu").share == pytest.approx(150 / 101 - 1)


def test_a_trial_that_cannot_be_used_leaves_its_layers_out():
    records = traced()
    records[2] = replace(records[2], state="failed")  # with the pid layer
    assert [each.layer for each in calls_by_layer(records).layers] == ["mounts", "pid+network", "cpu", "seccomp"]


def test_without_counts_there_is_a_sentence():
    assert "not counted" in calls_by_layer([]).missing


def test_the_text_shows_calls_beside_each_layer_and_says_where_they_are_from():
    found = waterfall(container({"cpu": 0.2}), margin=0.05)
    text = waterfall_text(found, {}, 160, calls_by_layer(traced()))
    assert "system calls per step" in text
    assert "150 (+48.5 %)" in text
    assert "whose times are not compared" in text


def test_traced_trials_never_enter_the_timed_comparison():
    timed = container({})
    with_traced = waterfall([*timed, *(replace(record, trial=f"t-{record.trial}") for record in traced())], margin=0.05)
    assert with_traced.total.effect == waterfall(timed, margin=0.05).total.effect
