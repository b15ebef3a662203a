"""A name that is not known: the names there are, and the one that was probably meant."""

from __future__ import annotations

import pytest

from tare.base.errors import LISTED, did_you_mean, near_names, unknown_name


def test_of_many_names_the_nearest_come_first_and_the_others_are_counted():
    known = [f"a_{number:02}" for number in range(30)] + ["stall_s", "step_s", "wall_s"]

    said = unknown_name("metric", "steps", known)

    assert said.startswith("No metric 'steps'. Did you mean 'step_s'? Available: step_s, ")
    assert said.endswith(f", and {len(known) - LISTED} more.")


def test_a_usual_name_is_meant_before_a_shorter_one():
    known = ["steps", "step_s", "step_mean_s"]

    assert did_you_mean("step", known) == "Did you mean 'steps'?"
    assert did_you_mean("step", known, ["step_mean_s", "step_s"]) == "Did you mean 'step_mean_s'?"


def test_of_few_names_all_are_listed():
    assert unknown_name("level", "dokcer", ["bare", "docker"]) == (
        "No level 'dokcer'. Did you mean 'docker'? Available: bare, docker."
    )
    assert unknown_name("figure", "x", []) == "No figure 'x'. Available: none."


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("rnu", ["weigh", "why", "run", "plan"], "run"),
        ("mobilenet", ["mobilenet_v3_large", "mobilenet_v2", "alexnet"], "mobilenet_v2"),
        ("batch", ["workload.batch", "platform"], "workload.batch"),
        ("BARE", ["docker", "bare"], "bare"),
        ("bare", ["Bare", "docker"], "Bare"),
    ],
)
def test_beginnings_slips_endings_and_case_are_understood(name: str, known: list[str], meant: str):
    assert did_you_mean(name, known) == f"Did you mean {meant!r}?"


def test_nothing_is_suggested_where_nothing_is_near():
    assert did_you_mean("zzz", ["run", "plan"]) == ""
    assert did_you_mean("", ["run", "plan"]) == ""
    assert near_names("step", ["step_s", "step_mean_s", "wall_s"], 2) == ["step_s", "step_mean_s"]
