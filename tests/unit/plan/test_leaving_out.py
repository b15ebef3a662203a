"""`missing: leave_out`: what a device cannot run is left out and said; what is left must still ask the question."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from stand_in_parts import stand_ins
from tare.base.errors import NothingLeft, ObstacleError
from tare.plan.check import MissingParts, ObstacleCheck, Possible, left_of, parts_of, possible
from tare.plan.matrix import cells
from tare.studies.load import from_plain
from tare.testing import FakeHost

PLAIN: dict[str, Any] = {
    "study": "s",
    "platform": ["bare", "docker", "qemu"],
    "workload": "torch_train",
    "missing": "leave_out",
}


@pytest.fixture(autouse=True)
def parts() -> Iterator[None]:
    with stand_ins():
        yield


def left(obstacles: dict[str, str], **keys: Any) -> Possible:
    host = FakeHost(files={f"/obstacles/{part}": text for part, text in obstacles.items()})
    return possible(from_plain(PLAIN | keys), host)


def platforms(found: Possible) -> list[str]:
    return [cell.settings["platform"] for cell in found.cells]


def test_a_device_that_can_do_all_leaves_nothing_out() -> None:
    found = left({})

    assert platforms(found) == ["bare", "docker", "qemu"]
    assert found.study.left_out == ()


def test_a_level_with_an_obstacle_is_left_out_and_said() -> None:
    found = left({"qemu": "no qemu."})

    assert platforms(found) == ["bare", "docker"]
    assert [*map(str, found.study.left_out)] == ["platform qemu: no qemu."]
    (kept,) = found.study.as_plain()["left_out"]
    assert (kept["code"], kept["subject"]) == ("needs.hardware", "platform qemu")
    assert from_plain(found.study.as_plain()).left_out == found.study.left_out


def test_a_study_that_does_not_say_so_keeps_every_level() -> None:
    assert platforms(left({"qemu": "no qemu."}, missing="refuse")) == ["bare", "docker", "qemu"]


def test_a_probe_that_does_not_work_is_left_out_of_every_cell() -> None:
    found = left({"cgroup": "no cgroups."}, probes=["cpu", "cgroup"])

    assert {cell.settings["probes"] for cell in found.cells} == {"cpu"}
    assert [choice.name for choice in found.study.probes] == ["cpu"]
    assert [*map(str, found.study.left_out)] == ["probe cgroup: no cgroups."]


def test_a_condition_that_cannot_be_set_is_left_out_and_the_cells_stay() -> None:
    found = left({"page_cache": "this needs root."}, control={"page_cache": "cold"})

    assert len(found.cells) == 3
    assert not any("control.page_cache.state" in cell.settings for cell in found.cells)
    assert [*map(str, found.study.left_out)] == ["control page_cache: this needs root."]


def test_a_neighbour_that_cannot_run_takes_its_cells_with_it() -> None:
    found = left({"null": "not here."}, tenants=[1, {"beside": "null"}])

    assert {cell.tenants for cell in found.cells} == {1}


def test_where_nothing_is_left_nothing_is_run_and_every_reason_is_told() -> None:
    with pytest.raises(ObstacleError) as refusal:
        left({"torch_train": "no torch."})

    assert refusal.value.exit_code == 3
    assert str(refusal.value) == (
        "nothing of s can be measured here, and nothing was run:\n  - workload torch_train: no torch."
    )


def test_what_stops_it_is_told_first_and_what_would_only_be_missing_apart() -> None:
    with pytest.raises(NothingLeft) as refusal:
        left({"torch_train": "no torch.", "cgroup": "no cgroups."}, probes=["cpu", "cgroup"])

    stopped = "  - workload torch_train: no torch."
    assert str(refusal.value).splitlines()[1:] == [stopped, "would only be missing:", "  - probe cgroup: no cgroups."]
    assert [each.subject for each in refusal.value.obstacles] == ["workload torch_train"]
    assert [each.subject for each in refusal.value.gaps] == ["probe cgroup"]


def test_whoever_only_looks_is_not_told_that_nothing_was_run() -> None:
    with pytest.raises(NothingLeft) as nothing:
        left({"torch_train": "no torch."})
    with pytest.raises(NothingLeft) as incomparable:
        left({"qemu": "no.", "docker": "no."})

    said = [str(each.value.for_a_look()) for each in (nothing, incomparable)]
    assert said[0].splitlines()[0] == "nothing of s can be measured here:"
    assert said[1].startswith("s is not measured here: of platform only bare is left")


def test_a_single_level_that_is_left_of_what_is_compared_is_not_run() -> None:
    with pytest.raises(ObstacleError, match="of platform only bare is left, and there is nothing to compare it with"):
        left({"qemu": "no.", "docker": "no."})


def test_without_what_the_others_are_compared_with_nothing_is_run() -> None:
    with pytest.raises(ObstacleError, match=r"what the others are compared with \(platform bare\) cannot be run"):
        left({"bare": "not even that."})


def test_a_study_that_varied_nothing_may_have_one_level() -> None:
    assert platforms(left({}, platform="bare")) == ["bare"]


def test_what_is_known_to_be_lacking_is_left_out_as_if_the_device_had_said_so() -> None:
    obstacles = {"qemu": "no qemu.", "cgroup": "no cgroups.", "page_cache": "this needs root."}
    keys = {"probes": ["cpu", "cgroup"], "control": {"page_cache": "cold"}}
    study = from_plain(PLAIN | keys)
    checks = ObstacleCheck(FakeHost(files={f"/obstacles/{part}": text for part, text in obstacles.items()}))
    for kind, part in (each for cell in cells(study) for each in parts_of(cell)):
        checks.ask(kind, part)
    known = MissingParts.from_json(json.loads(json.dumps(MissingParts(checks.stopped).as_json())))

    assert left_of(study, known) == left(obstacles, **keys)
    assert known.kept(cells(left_of(study, known).study)) == list(left(obstacles, **keys).cells)
