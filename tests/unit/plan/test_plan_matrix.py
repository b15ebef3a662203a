"""The cells of a study."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from stand_in_parts import TorchTrain, stand_ins
from tare.base.errors import StudyError
from tare.plan.matrix import Cell, baseline, cells, size, trials
from tare.studies.load import from_plain, loads
from tare.studies.model import Study


@pytest.fixture(autouse=True)
def parts() -> Iterator[None]:
    with stand_ins():
        yield


def study(**keys: Any) -> Study:
    return from_plain({"study": "s", "platform": ["bare", "docker"], "workload": "torch_train"} | keys)


def batches(found: list[Cell]) -> list[tuple[str, int]]:
    return [(cell.settings["platform"], cell.settings["workload.batch"]) for cell in found]


def test_cells_are_every_combination_in_the_order_of_the_file() -> None:
    found = cells(study(workload={"torch_train": {"batch": [64, 16]}}))

    assert batches(found) == [("bare", 64), ("bare", 16), ("docker", 64), ("docker", 16)]


def test_a_stack_is_one_platform_made_of_several() -> None:
    (found,) = cells(study(platform=[["qemu", {"docker": {"cpus": 1}}]]))

    assert found.settings["platform"] == "qemu+docker"
    assert found.settings["platform.1.docker.cpus"] == 1.0


def test_fields_of_platforms_and_controls_are_factors_too() -> None:
    made = study(
        platform=["bare", {"docker": {"cpus": [1, 2]}}],
        control={"page_cache": ["cold", "warm"], "cpu": [{"online": [0]}, {"online": [0, 1]}]},
    )

    assert size(made) == len(cells(made)) == 3 * 2 * 2


def test_each_cell_has_the_probes_and_controls_of_the_study() -> None:
    cell = cells(study(control={"page_cache": "cold"}, probes=["cpu", {"cgroup": {"depth": 3}}]))[0]

    assert cell.settings["control.page_cache.state"] == "cold"
    assert cell.settings["probes"] == "cpu,cgroup"


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        ({"platform": "docker", "workload.batch": 64}, [("bare", 16), ("bare", 64), ("docker", 16)]),
        ({"workload.batch": [16, 64], "platform": "bare"}, [("docker", 16), ("docker", 64)]),
        ({"platform": ["bare", "qemu"]}, [("docker", 16), ("docker", 64)]),
        ([{"platform": {"docker": {"memory": "2048 MiB"}}}], [("bare", 16), ("bare", 64)]),
        ([{"platform.memory": "2 GiB"}], [("bare", 16), ("bare", 64)]),
        ([{"workload": {"torch_train": {"batch": 16}}}], [("bare", 64), ("docker", 64)]),
        ([{"platform": "docker"}, {"workload.batch": 16}], [("bare", 64)]),
    ],
)
def test_exclusions_take_out_the_cells_that_have_all_of_their_levels(exclude: Any, left: list[Any]) -> None:
    made = {"platform": ["bare", {"docker": {"memory": "2 GiB"}}], "workload": {"torch_train": {"batch": [16, 64]}}}
    against = {"platform": left[0][0]}

    assert batches(cells(study(**made, exclude=exclude, compare={"against": against}))) == left


def test_a_stack_is_excluded_by_its_name_or_as_a_list() -> None:
    for level in ("qemu+docker", [["qemu", "docker"]]):
        found = cells(study(platform=["bare", "docker", ["qemu", "docker"]], exclude=[{"platform": level}]))
        assert [cell.settings["platform"] for cell in found] == ["bare", "docker"]


def test_a_control_is_excluded_by_its_short_value() -> None:
    made = study(control={"page_cache": ["cold", "warm"]}, exclude=[{"control.page_cache": "cold", "platform": "bare"}])

    assert [cell.settings["control.page_cache.state"] for cell in cells(made)] == ["warm", "cold", "warm"]


def test_an_exclusion_whose_levels_never_meet_is_refused_at_its_line() -> None:
    text = "study: s\nplatform: [bare, {docker: {cpus: 1}}]\nworkload: torch_train\nexclude:\n"
    text += "  - {platform: bare, platform.cpus: 1}\n"

    with pytest.raises(StudyError, match=r"^f\.yaml:5: no cell has all of platform: bare, platform\.cpus: 1: "):
        cells(loads(text, "f.yaml"))


def test_exclusions_that_leave_nothing_are_refused() -> None:
    with pytest.raises(StudyError, match="leave no cell"):
        cells(study(exclude=[{"workload": "torch_train"}]))


def test_a_baseline_that_is_excluded_is_refused() -> None:
    with pytest.raises(StudyError, match=r"every cell to compare with \(platform: bare\) is excluded"):
        cells(study(exclude=[{"platform": "bare"}], platform=["bare", "docker", "qemu"]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "study: s\nplatform:\n  - bare\n  - docker\n  - docker: {}\nworkload: torch_train\n",
            r"^f\.yaml:5: this platform makes the same cell as the one on line 4: platform docker,",
        ),
        (
            "study: s\nplatform: bare\nworkload:\n  - torch_train: {batch: [16, 64]}\n  - torch_train: {batch: 64}\n",
            r"^f\.yaml:5: this workload makes the same cell as the one on line 4: .*workload\.batch 64",
        ),
        (
            "study: s\nplatform: bare\nworkload: torch_train\ncontrol:\n  cpu:\n    - online: [0]\n    - online: [0]\n",
            r"^f\.yaml:7: this control makes the same cell as the one on line 6",
        ),
    ],
)
def test_a_cell_that_is_given_twice_is_refused_with_both_lines(text: str, words: str) -> None:
    with pytest.raises(StudyError, match=words):
        cells(loads(text, "f.yaml"))


def test_a_cell_given_twice_in_code_names_both_levels() -> None:
    with pytest.raises(StudyError, match="this platform makes the same cell as level 1"):
        cells(study(platform=["docker", "docker"]))


def test_a_billion_cells_are_counted_and_refused_before_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = list(range(1, 1001))
    made = study(platform="bare", workload={"torch_train": {"batch": levels, "workers": levels, "epochs": levels}})
    made_parts: list[object] = []
    monkeypatch.setattr(TorchTrain, "model_validate_json", lambda *given, **more: made_parts.append(given))

    start = time.process_time()
    with pytest.raises(StudyError) as caught:
        cells(made)

    assert time.process_time() - start < 30
    assert made_parts == []
    assert "1,000,000,000 cells" in str(caught.value)
    assert "6,000,000,000 trials, about 1,041,667 days" in str(caught.value)


def test_ten_thousand_trials_are_a_study_and_one_block_more_is_not() -> None:
    made = {"platform": "bare", "workload": {"torch_train": {"batch": list(range(1, 1001))}}, "aa": False}

    assert len(cells(study(**made, repeat=10))) == 1000
    with pytest.raises(StudyError, match=r"1,000 workload\.batch"):
        cells(study(**made, repeat=11))
    assert len(cells(study(**made, repeat=11), most_trials=20_000)) == 1000


def test_twins_count_as_trials() -> None:
    made = {"workload": {"torch_train": {"batch": list(range(1, 1001))}}, "repeat": 4}

    assert len(cells(study(**made, aa=False))) == 2000
    with pytest.raises(StudyError, match=r"2,000 cells and 1,000 A/A repeats .* 12,000 trials"):
        cells(study(**made))


def test_exclusions_may_bring_a_large_matrix_under_the_limit() -> None:
    made = study(
        workload={"torch_train": {"batch": list(range(1, 1001))}}, repeat=8, aa=False, exclude=[{"platform": "docker"}]
    )

    assert len(cells(made)) == 1000


def test_the_baseline_is_every_cell_that_the_comparison_names() -> None:
    made = study(workload={"torch_train": {"batch": [16, 64]}})

    assert batches(baseline(made, cells(made))) == [("bare", 16), ("bare", 64)]


def test_a_combination_that_a_part_refuses_is_said_in_its_words() -> None:
    text = "study: s\nplatform:\n  - bare\n  - docker: {cpus: [null, 1], cpuset: ['0', null]}\nworkload: torch_train\n"

    with pytest.raises(StudyError, match=r"^f\.yaml:4: docker: cpus and cpuset both limit"):
        cells(loads(text, "f.yaml"))


def _ids(**keys: Any) -> set[str]:
    made = study(**keys)
    return {trial.id for trial in trials(made, cells(made))}


def test_another_neighbour_is_another_trial_though_its_level_has_the_same_name() -> None:
    few, many = ({"beside": {"torch_train": {"batch": batch}}} for batch in (16, 64))

    assert not _ids(tenants=few) & _ids(tenants=many)
    assert _ids(tenants=few) == _ids(tenants=few)


def test_more_of_the_same_are_told_by_their_number_alone() -> None:
    found = cells(study(tenants=[1, 3], platform="bare"))

    assert [cell.settings["tenants"] for cell in found] == [1, 3]
    assert [cell.beside() for cell in found] == [[], []]
