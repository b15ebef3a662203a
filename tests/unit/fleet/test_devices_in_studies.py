"""Studies that name devices of a fleet, in `compare` and in `exclude`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stand_in_parts import stand_ins
from tare.base.errors import StudyError
from tare.fleet.inventory import Device, factors, planned_on, plans
from tare.fleet.on_device import eligibility_here
from tare.plan.matrix import cells
from tare.studies.load import loads
from tare.studies.model import Study

PLAIN = "study: s\nplatform: [bare, docker]\nworkload: torch_train\nrepeat: 2\n"


def study(more: str = "", text: str = PLAIN) -> Study:
    with stand_ins():
        return loads(text + more, "study.yaml")


def fleet(*names: str, type_: str | None = "orin") -> list[Device]:
    return [Device(name=name, address=f"10.0.0.{place}", type=type_) for place, name in enumerate(names, 1)]


def planned(study_: Study, *devices: Device) -> dict[str, list[Any]]:
    with stand_ins():
        return {device.name: its for device, its in plans(study_, devices or fleet("a", "b")).items()}


def refused(study_: Study, *devices: Device) -> str:
    with stand_ins(), pytest.raises(StudyError) as caught:
        plans(study_, devices or fleet("a", "b"))
    return str(caught.value)


def wrong(more: str) -> str:
    with pytest.raises(StudyError) as caught:
        study(more)
    return str(caught.value)


# Of the version before devices could be named.
IDS = [
    "a0dbbdec79e8f717",
    "8fc88b16756bbe36",
    "2eb65b54f6e0707b",
    "422bc0b644952a14",
    "b535946c57aafb96",
    "13dde60dd1c3abff",
]


def test_a_study_that_names_no_device_has_the_ids_that_it_always_had() -> None:
    assert sorted(trial.id for trial in planned(study())["a"]) == sorted(IDS)
    with stand_ins():
        assert sorted(trial.id for trial in planned_on(study(), factors(fleet("a")[0]))) == sorted(IDS)


def test_the_device_makes_the_plan_that_the_controller_made() -> None:
    one = study("compare: {by: device, against: a}\nexclude: [{device: b, platform: docker}]\n")
    with stand_ins():
        again = loads(json.dumps(one.as_plain()), "study.yaml")  # as it is sent to a device

    for device in fleet("a", "b"):
        with stand_ins():
            there = planned_on(again, factors(device))
        assert [trial.id for trial in there] == [trial.id for trial in planned(one)[device.name]]


def test_cells_are_excluded_on_one_device_alone() -> None:
    found = planned(study("exclude: {device: b, platform: docker}\n"))

    assert {trial.settings["platform"] for trial in found["a"]} == {"bare", "docker"}
    assert {trial.settings["platform"] for trial in found["b"]} == {"bare"}


def test_a_type_is_excluded() -> None:
    devices = [*fleet("a"), Device(name="n", address="x", type="nano"), Device(name="u", address="y")]
    found = planned(study("exclude: {device.type: nano, platform: docker}\n"), *devices)

    assert [name for name, its in found.items() if any(t.settings["platform"] == "docker" for t in its)] == ["a", "u"]


def test_a_device_that_is_excluded_altogether_runs_nothing() -> None:
    assert list(planned(study("exclude: {device: b}\n"))) == ["a"]


def test_exclusions_that_leave_no_device_are_refused() -> None:
    assert "leave no cell to run on any device" in refused(study("exclude: {device: [a, b]}\n"))


def test_compared_by_device_the_baseline_device_runs_its_cells_twice() -> None:
    found = planned(study("compare: {by: device, against: a}\n"))

    assert [sum(trial.twin for trial in its) for its in found.values()] == [4, 0]  # 2 cells in 2 blocks
    assert [len(its) for its in found.values()] == [8, 4]


def test_one_cell_on_several_devices_has_an_a_a_twin_too() -> None:
    one = "study: s\nplatform: bare\nworkload: torch_train\nrepeat: 2\n"
    found = planned(study("compare: {by: device, against: a}\n", one))

    assert [sorted(trial.twin for trial in its) for its in found.values()] == [[0, 0, 1, 1], [0, 0]]


def test_a_platform_may_be_compared_with_one_devices_bare_metal() -> None:
    found = planned(study("compare: {against: {platform: bare, device: a}}\n"))

    assert {trial.settings["platform"] for trial in found["a"] if trial.twin} == {"bare"}
    assert not any(trial.twin for trial in found["b"])


@pytest.mark.parametrize(
    ("more", "where"),
    [("compare: {by: device, against: a}\n", "study.yaml:5: "), ("exclude: {device: b}\n", "study.yaml:5: ")],
)
def test_without_a_fleet_it_is_refused_with_its_line(more: str, where: str) -> None:
    one = study(more)
    with stand_ins(), pytest.raises(StudyError) as caught:
        cells(one)

    assert str(caught.value).startswith(f"{where}this names a device of a fleet, but no fleet is given.")
    assert "--fleet devices.yaml" in str(caught.value)


def test_a_device_that_the_run_has_not_is_refused_with_those_that_it_has() -> None:
    said = refused(study("compare: {by: device, against: orin-1}\n"), *fleet("orin1", "orin2"))

    assert said.startswith("study.yaml:5: no device of this run is called 'orin-1'.\n  Available: orin1, orin2.")
    assert "Did you mean 'orin1'?" in said


def test_a_type_where_no_device_has_one_is_refused() -> None:
    said = refused(study("exclude: {device.type: orin}\n"), *fleet("a", "b", type_=None))

    assert said.endswith("no device.type of this run is called 'orin'.\n  No device of this run has one.")


def test_one_device_is_compared_with_nothing() -> None:
    assert "takes two of them" in refused(study("compare: {by: device, against: a}\n"), *fleet("a"))
    assert "takes two of them" in refused(study("compare: {by: device.type, against: orin}\n"), *fleet("a", "b"))


def test_beside_a_device_levels_that_no_cell_has_are_still_said() -> None:
    assert "no cell has 64 as its workload.batch" in wrong("exclude: {device: a, workload.batch: 64}\n")


def test_by_device_takes_a_device_to_compare_with() -> None:
    assert wrong("compare: {by: device}\n") == (
        "study.yaml:5: compare.against must say which device the others are compared with: "
        "only a run over a fleet knows them."
    )


@pytest.mark.parametrize("value", ["3", "{a: b}", "[]", "[a, 4]", "''"])
def test_a_device_is_a_name(value: str) -> None:
    assert "device is a name in the fleet's inventory, or a list of them, not" in wrong(
        f"exclude: {{device: {value}}}\n"
    )


def test_a_device_is_asked_about_its_own_cells_alone() -> None:
    one = study("exclude: {device: b, platform: docker}\n")
    request = {"study": json.dumps(one.as_plain()), "name": "study.yaml", "python": None, "ignore_managers": True}
    with stand_ins():
        assert eligibility_here({**request, "device": [["device", "b"]]}).obstacles == ()
        with pytest.raises(StudyError, match="no fleet is given"):
            eligibility_here(request)
