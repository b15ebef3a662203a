"""Tenants in a study: how many, or who else; a factor like the others."""

from __future__ import annotations

from typing import Any

import pytest

from tare.base.errors import StudyError
from tare.base.sides import Neighbours
from tare.plan.matrix import cells
from tare.studies.load import from_plain
from tare.studies.model import Study


def study(tenants: Any, **more: Any) -> Study:
    plain = {"study": "s", "platform": "bare", "workload": {"torch_train": {"batch": 16}}, "tenants": tenants}
    return from_plain(plain | more, "a test")


def test_a_number_of_tenants_is_a_factor() -> None:
    found = cells(study([1, 2, 4]))

    assert [cell.tenants for cell in found] == [1, 2, 4]
    assert [len(cell.neighbours) for cell in found] == [0, 1, 3]
    assert found[2].neighbours[0].workload is found[2].workload
    assert [cell.settings["tenants"] for cell in found] == [1, 2, 4]


def test_without_tenants_there_is_one() -> None:
    plain = {"study": "s", "platform": "bare", "workload": "null"}

    assert cells(from_plain(plain, "a test"))[0].settings["tenants"] == 1


def test_others_may_run_beside_it_on_platforms_of_their_own() -> None:
    mixed = {"beside": [{"torch_train": {"batch": 4}}, "null"], "platform": ["runc"]}
    cell = cells(study([1, mixed]))[1]

    assert [tenant.workload.part_name() for tenant in cell.neighbours] == ["torch_train", "null"]
    assert [platform.part_name() for platform in cell.neighbours[0].platforms] == ["runc"]
    assert cell.tenants == "beside torch_train, null in runc"


def test_two_levels_of_one_name_are_told_apart_by_their_fields() -> None:
    found = cells(study([{"beside": {"torch_train": {"batch": batch}}} for batch in (1, 4)]))

    assert [cell.tenants for cell in found] == ["beside torch_train (batch 1)", "beside torch_train (batch 4)"]


def test_levels_that_differ_in_the_neighbours_platform_alone_name_that_alone() -> None:
    beside = {"torch_train": {"batch": 1, "epochs": 2}}
    found = cells(study([{"beside": beside, "platform": platform} for platform in ("bare", {"bare": {"cores": 1}})]))
    assert [cell.tenants for cell in found] == ["beside torch_train in bare", "beside torch_train in bare (cores 1)"]


def test_of_fields_that_all_such_levels_share_none_is_named() -> None:
    shared = {"torch_train": {"batch": 1}}
    places = ({"leave_idle": 1}, {"leave_idle": 1, "cpu_shares": 2})
    found = cells(study([{"beside": [shared, "null"], "platform": {"bare": fields}} for fields in places]))
    names = [cell.tenants for cell in found]
    assert names == ["beside torch_train, null in bare", "beside torch_train, null in bare (cpu_shares 2)"]


def test_a_field_that_is_null_is_not_one_that_is_left_out() -> None:
    found = cells(
        study([{"beside": "null", "platform": {"docker": {"image": None}}}, {"beside": "null", "platform": "docker"}])
    )
    assert [cell.tenants for cell in found] == ["beside null in docker (image None)", "beside null in docker"]


def test_a_study_with_tenants_survives_being_written_and_read() -> None:
    first = study([1, {"beside": {"torch_train": {"batch": 4}}}])

    assert from_plain(first.as_plain(), "a test") == first


def test_the_levels_are_compared_with_one_by_default() -> None:
    compare = study([1, 4]).compare

    assert (compare.by, compare.against) == ("tenants", {"tenants": 1})


def test_a_level_can_be_excluded() -> None:
    found = cells(study([1, 2, 4], platform=["bare", "runc"], exclude={"tenants": [2, 4], "platform": "bare"}))

    assert [(cell.tenants, cell.platforms[0].part_name()) for cell in found] == [
        (1, "bare"),
        (1, "runc"),
        (2, "runc"),
        (4, "runc"),
    ]


@pytest.mark.parametrize(
    ("tenants", "says"),
    [
        (0, "whole number from 1 to 64"),
        (65, "whole number from 1 to 64"),
        ("four", "a level of tenants is a number"),
        ([], "list of tenants is empty"),
        ([2, 2], "given twice"),
        ({"beside": "nul"}, "no workload"),
        ({"beside": {"torch_train": {"batch": [1, 2]}}}, "no factor"),
        ({"beside": "null", "platform": "dokcer"}, "no platform"),
        ({"besides": "null"}, "a level of tenants is a number"),
    ],
)
def test_what_is_wrong_with_tenants_is_said(tenants: Any, says: str) -> None:
    with pytest.raises(StudyError, match=says):
        study(tenants)


def test_an_unknown_level_in_an_exclusion_is_said() -> None:
    with pytest.raises(StudyError, match="no cell has 3 as its tenants"):
        study([1, 2], exclude={"tenants": 3})


@pytest.mark.parametrize(
    "level",
    [
        "beside torch_infer",
        "beside torch_train (batch 1), null in qemu+docker (image a in b, cores 1)",
        "beside command (argv ['a=b']) in runc (env A=B)",
    ],
)
def test_the_name_of_a_level_is_read_back_as_its_neighbours(level: str) -> None:
    assert str(Neighbours.read(level)) == level
    assert Neighbours.read("beside null in bare(cpu_shares=2)") == Neighbours(
        (("null", ""),), (("bare", "cpu_shares 2"),)
    )
    assert Neighbours.read(4) is Neighbours.read("4") is None


@pytest.mark.parametrize(
    "field", ["argv sh -c 'echo ('", "label a) b", "label :), x 1", "label (a), b in (c)", "label ("]
)
def test_a_bracket_too_many_in_a_field_hides_nothing_of_the_level(field: str) -> None:
    neighbours = Neighbours((("command", field), ("null", "")), (("qemu", "cores 1"), ("docker", field)))
    assert Neighbours.read(str(neighbours)) == neighbours
