"""Which sides are rehearsed, in which form, and what follows for the trials."""

from __future__ import annotations

from typing import Any

import pytest

from tare.base.sides import is_rehearsal, side_of
from tare.plan.matrix import cells, trials
from tare.plan.rehearsals import FIRST_LIMIT_S, MOST_SIDES, followed_limit_s, length_of, rehearsals
from tare.studies.model import Study


def study(**keys: Any) -> Study:
    plain = {"study": "s", "platform": ["docker", "bare"], "workload": {"command": {"argv": ["true"]}}, "repeat": 2}
    return Study.model_validate({**plain, "compare": {"against": {"platform": "bare"}}, **keys})


def planned(made: Study) -> list[Any]:
    return rehearsals(made, trials(made, cells(made)))


def test_there_is_one_for_each_platform_and_workload_whatever_else_varies():
    made = study(workload={"command": {"argv": [["true"], ["false"]]}}, tenants=[1, 2])
    found = planned(made)
    assert len({side_of(each.settings) for each in found}) == len(found) == 4
    assert [each.settings["platform"] for each in found][:2] == ["bare", "bare"]
    assert all(each.cell.neighbours == () for each in found)


def test_its_id_is_never_taken_for_a_trials_and_does_not_depend_on_seed_or_block():
    made = study()
    ids = [each.id for each in planned(made)]
    assert all(map(is_rehearsal, ids))
    assert not any(is_rehearsal(trial.id) for trial in trials(made, cells(made)))
    assert ids == [each.id for each in planned(study(order={"seed": 9}))]


def test_of_very_many_sides_each_platform_is_tried_once():
    lines = [["echo", str(number)] for number in range(MOST_SIDES)]
    found = planned(study(workload={"command": {"argv": lines}}))
    assert sorted(each.settings["platform"] for each in found) == ["bare", "docker"]


@pytest.mark.parametrize(
    ("workload", "expected"),
    [({"command": {"argv": ["true"]}}, True), ("null", False), ("torch_train", False)],
)
def test_programs_of_the_users_own_are_rehearsed_and_built_in_ones_not(workload, expected):
    assert study(workload=workload).rehearses is expected
    assert study(workload=workload, rehearse=False).rehearses is False
    assert study(workload=workload, rehearse=True).rehearses is True


def test_a_built_in_workload_is_rehearsed_in_a_short_form_under_the_settings_of_the_whole():
    made = study(workload={"torch_train": {"epochs": 3, "model": "resnet50", "data": "imagenet"}}, rehearse=True)
    first = planned(made)[0]
    assert first.settings["workload.epochs"] == 3
    assert first.cell.workload.units() == 5
    assert length_of(first, 4.0, 2.0, {"step_s": 0.01}) is None  # five steps say nothing of the rest


@pytest.mark.parametrize(
    ("fields", "steps"),
    [({}, range(60, 400)), ({"steps_per_epoch": 30}, (30,)), ({"items": 320, "steps_per_epoch": None}, (20,))],
)
def test_quick_steps_are_rehearsed_for_a_second_or_as_long_as_their_epoch(fields, steps):
    made = study(workload={"torch_train": {"epochs": 3, **fields}}, rehearse=True)
    assert planned(made)[0].cell.workload.units() in steps


def test_a_script_that_is_ended_at_a_step_is_rehearsed_with_few_of_them():
    bounded = planned(study(workload={"command": {"argv": ["true"], "steps": 200}}))[0]
    assert bounded.cell.workload.steps == 20
    assert length_of(bounded, 5.0, 4.0, {"step_s": 0.1}).run_s == pytest.approx(4 + 180 * 0.1)
    timed = planned(study(workload={"command": {"argv": ["true"], "minutes": 3}}))[0]
    assert (timed.cell.workload.steps, timed.cell.workload.minutes) == (20, None)
    assert length_of(timed, 5.0, 4.0, {}).run_s == 184
    requests = {"step_s": 2.0, "requests_per_s": 50.0}  # a hundred at once
    assert length_of(bounded, 5.0, 4.0, requests).run_s == pytest.approx(4 + 180 / 50)


def test_the_limit_is_three_times_the_longest_and_some_slack():
    assert followed_limit_s([]) is None
    assert followed_limit_s([1.0]) == 120
    assert followed_limit_s([10.0, 100.0]) == 360
    assert {each.limit_s for each in planned(study())} == {FIRST_LIMIT_S}
    assert {each.limit_s for each in planned(study(limit="1 min"))} == {60}


def test_a_limit_that_nobody_set_is_not_written_down_as_if_it_were():
    made = study()
    assert "limit" not in made.as_plain()
    assert not Study.model_validate(made.as_plain()).sets_limit
    assert study(workload="null").as_plain()["limit"] == "600.0 s"  # as in every store so far
