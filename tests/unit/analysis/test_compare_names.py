"""A name that is not known: those that there are, the nearest of them first."""

from __future__ import annotations

from tare.analysis.compare import LISTED, unknown_name


def test_of_many_names_the_nearest_come_first_and_the_others_are_counted():
    known = [f"a_{number:02}" for number in range(30)] + ["stall_s", "step_s", "wall_s"]

    said = unknown_name("metric", "steps", known)

    assert said.startswith("There is no metric 'steps'. There is: step_s, ")
    assert f", and {len(known) - LISTED} more. Did you mean 'step_s'?" in said


def test_of_few_names_all_are_told():
    assert unknown_name("level", "dokcer", ["bare", "docker"]) == (
        "There is no level 'dokcer'. There is: bare, docker. Did you mean 'docker'?"
    )
