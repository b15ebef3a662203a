"""The order of the trials."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from stand_in_parts import stand_ins
from tare.plan.matrix import Trial, cells, changes, trials
from tare.studies.load import from_plain


@pytest.fixture(autouse=True)
def parts() -> Iterator[None]:
    with stand_ins():
        yield


def plan(**keys: Any) -> list[Trial]:
    made = from_plain({"study": "s", "platform": ["bare", "docker", "qemu"], "workload": "torch_train"} | keys)
    return trials(made, cells(made))


def blocks(planned: list[Trial]) -> list[list[Trial]]:
    return [list(members) for _, members in groupby(planned, key=lambda trial: trial.block)]


def names(planned: list[Trial]) -> list[str]:
    return [trial.settings["platform"] + "'" * trial.twin for trial in planned]


def test_every_block_holds_every_cell_once_and_the_baseline_twice() -> None:
    for members in blocks(plan(repeat=12)):
        assert sorted(names(members)) == ["bare", "bare'", "docker", "qemu"]
        assert [trial.position for trial in members] == [0, 1, 2, 3]


def test_without_aa_nothing_runs_twice() -> None:
    assert all(trial.twin == 0 for trial in plan(aa=False))


def test_a_single_cell_has_no_twin() -> None:
    assert names(plan(platform="bare", repeat=3)) == ["bare"] * 3


def test_blocks_run_up_to_the_last_that_the_stop_rule_allows() -> None:
    assert len(blocks(plan(repeat={"min": 6, "max": 20, "until": "2%"}))) == 20


def test_blocks_are_shuffled_each_in_its_own_way_and_every_place_is_taken() -> None:
    orders = [tuple(names(members)) for members in blocks(plan(repeat=40))]

    assert len(set(orders)) > 10
    first = Counter(order[0] for order in orders)
    assert set(first) == {"bare", "bare'", "docker", "qemu"}


@pytest.mark.parametrize("seed", range(5))
def test_every_second_block_has_the_order_of_the_one_before_reversed(seed: int) -> None:
    orders = [names(members) for members in blocks(plan(repeat=12, order={"seed": seed}))]

    assert all(odd == even[::-1] for even, odd in zip(orders[::2], orders[1::2], strict=True))
    assert [trial.position for trial in plan(repeat=2)] == [0, 1, 2, 3] * 2


def test_unshuffled_blocks_keep_the_order_of_the_file() -> None:
    for members in blocks(plan(order={"shuffle": False})):
        assert names(members) == ["bare", "docker", "qemu", "bare'"]


def test_another_seed_is_another_order_and_other_trials() -> None:
    one, two = plan(order={"seed": 1}), plan(order={"seed": 2})

    assert names(one) != names(two)
    assert not {trial.id for trial in one} & {trial.id for trial in two}


def test_within_a_block_all_compute_from_the_same_seed_and_no_other_block_does() -> None:
    seeds = [{trial.seed for trial in members} for members in blocks(plan(repeat=200))]

    assert all(len(each) == 1 for each in seeds)
    assert len(set.union(*seeds)) == 200
    assert all(0 <= seed < 2**31 for seed in set.union(*seeds))


def test_a_shuffle_that_is_taken_back_leaves_the_trials_what_they_are() -> None:
    assert {trial.id for trial in plan()} == {trial.id for trial in plan(order={"shuffle": False})}


def test_the_limit_goes_with_each_trial() -> None:
    assert {trial.limit_s for trial in plan(limit="90 s")} == {90.0}


def test_ids_are_the_same_in_another_process() -> None:
    script = (
        "from stand_in_parts import stand_ins\n"
        "from tare.studies.load import from_plain\n"
        "from tare.plan.matrix import cells\n"
        "from tare.plan.matrix import trials\n"
        "with stand_ins():\n"
        "    s = from_plain({'study': 's', 'platform': ['bare', 'docker', 'qemu'], 'workload': 'torch_train'})\n"
        "    print([t.id for t in trials(s, cells(s))])\n"
    )
    tests = Path(__file__).parents[2]
    env = {"PYTHONPATH": str(tests), "PYTHONHASHSEED": "12345"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == str([trial.id for trial in plan()])


def test_a_changed_study_says_what_is_new_gone_and_unchanged() -> None:
    old = plan(workload={"torch_train": {"batch": [16, 64]}}, aa=False, repeat=6)
    new = plan(workload={"torch_train": {"batch": [64, 128]}}, aa=False, repeat=6)

    found = changes([trial.id for trial in old], new)

    assert (len(found.new), len(found.gone), len(found.unchanged)) == (18, 18, 18)
    assert {trial.settings["workload.batch"] for trial in found.new} == {128}
    assert {trial.settings["workload.batch"] for trial in found.unchanged} == {64}
    assert set(found.gone) == {trial.id for trial in old if trial.settings["workload.batch"] == 16}


def test_an_unchanged_study_changes_nothing_and_more_repeats_only_add() -> None:
    old = plan(repeat=6)

    same = changes({trial.id: "ok" for trial in old}, plan(repeat=6))
    assert (same.new, same.gone, len(same.unchanged)) == ((), (), len(old))
    more = changes([trial.id for trial in old], plan(repeat=8))
    assert (len(more.new), more.gone) == (8, ())
