"""The workloads' interpreter, named beside a study: who gets it, who keeps its own, and what a store remembers."""

from __future__ import annotations

from typing import Any

import pytest

from tare.api.running import built_in
from tare.base.errors import StudyError
from tare.drivers.torch_programs import TorchWorkload
from tare.plan.matrix import cells, trials
from tare.studies.load import at_every_scale, begun_with, from_plain, with_python
from tare.studies.model import Study

BOARD = "/usr/bin/python3"
TRAINING = {"torch_train": {"batch": 4}}


def study(workload: Any, **more: Any) -> Study:
    return from_plain({"study": "s", "platform": ["bare", "runc"], "workload": workload, **more}, "a test")


def ids(of: Study) -> list[str]:
    return [trial.id for trial in trials(of, cells(of))]


def test_every_workload_that_can_have_one_and_names_none_gets_it() -> None:
    own = {"torch_infer": {"python": "/opt/own/bin/python"}}
    made = with_python(study([TRAINING, own, "application", "idle"]), BOARD)

    assert made.as_plain()["workload"] == [
        {"torch_train": {"batch": 4, "python": BOARD}}, own, {"application": {"python": BOARD}}, "idle",
    ]  # fmt: skip


def test_a_trial_is_the_same_as_if_the_study_had_said_it() -> None:
    said = study({"torch_train": {"batch": 4, "python": BOARD}})

    assert ids(with_python(study(TRAINING), BOARD)) == ids(said)
    assert not set(ids(study(TRAINING))) & set(ids(said))


def test_neighbours_get_it_as_well() -> None:
    made = with_python(study("null", tenants=[1, {"beside": {"torch_infer": {"requests": 8}}}]), BOARD)

    (neighbour,) = cells(made)[-1].neighbours
    assert neighbour.workload.fields()["python"] == BOARD


def test_a_secret_beside_it_is_still_there() -> None:
    made = with_python(study([TRAINING, {"command": {"argv": "train", "env": {"HF_TOKEN": "CANARY"}}}]), BOARD)

    (command,) = made.workloads[1].parts()
    assert command.env == {"HF_TOKEN": "CANARY"}  # type: ignore[attr-defined]


def test_the_factors_are_those_of_the_study_that_has_it() -> None:
    before = study(TRAINING)
    assert before.factors.values["workload.python"] == [None]

    assert with_python(before, BOARD).factors.values["workload.python"] == [BOARD]


@pytest.mark.parametrize("workload", ["null", {"command": "python train.py"}, {"torch_train": {"python": "/own"}}])
def test_one_that_no_workload_takes_is_refused(workload: Any) -> None:
    with pytest.raises(StudyError, match="--python changes nothing: each workload of s"):
        with_python(study(workload), BOARD)


def test_the_one_that_the_study_says_itself_is_no_mistake() -> None:
    said = study({"torch_train": {"python": BOARD}})

    assert with_python(said, BOARD) == said


@pytest.mark.parametrize("tenants", [1, [1, {"beside": "torch_infer"}]])
def test_a_store_knows_what_it_was_begun_with(tenants: Any) -> None:
    asked = study([TRAINING, "null"], tenants=tenants)

    assert begun_with(with_python(asked, BOARD).as_plain(), asked) == BOARD


def test_a_store_that_was_begun_without_one_or_with_other_workloads_names_none() -> None:
    asked, said = study(TRAINING), study({"torch_train": {"batch": 4, "python": BOARD}})

    assert begun_with(asked.as_plain(), asked) is None
    assert begun_with(said.as_plain(), said) is None
    assert begun_with(study({"torch_train": {"batch": 8, "python": BOARD}}).as_plain(), asked) is None
    assert begun_with(said.as_plain(), study("null")) is None


@pytest.mark.parametrize("name", ["s0-colocation", "s3-baseload", "s4-platforms"])
def test_in_a_ready_study_all_that_needs_torch_gets_it_at_every_scale(name: str) -> None:
    for ready in at_every_scale(built_in()[name], trust=True).values():
        found = cells(with_python(ready, BOARD))
        workloads = [tenant for cell in found for tenant in (cell.workload, *(one.workload for one in cell.neighbours))]
        told = {(isinstance(each, TorchWorkload), each.fields().get("python")) for each in workloads}
        assert (True, BOARD) in told <= {(True, BOARD), (False, None)}
