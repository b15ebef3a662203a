"""What holds for every study: its cells, its blocks, its ids."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stand_in_parts import stand_ins
from tare.base.errors import StudyError
from tare.plan.matrix import baseline, cells, changes, size, trials
from tare.studies.load import from_plain
from tare.studies.model import Study

PLATFORMS = ("bare", "docker", "qemu", ("qemu", "docker"))


def distinct(values: Any, most: int = 4) -> Any:
    return st.lists(values, min_size=1, max_size=most, unique=True)


STUDIES = st.fixed_dictionaries(
    {
        "study": st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}", fullmatch=True),
        "platform": distinct(st.sampled_from(PLATFORMS)),
        "workload": st.fixed_dictionaries(
            {
                "torch_train": st.fixed_dictionaries(
                    {
                        "batch": distinct(st.integers(1, 512)),
                        "workers": distinct(st.integers(0, 8), 3),
                        "lr": distinct(st.floats(1e-6, 10, allow_nan=False), 2),
                    }
                )
            }
        ),
        "control": st.fixed_dictionaries({"page_cache": distinct(st.sampled_from(["cold", "warm"]))}),
        "repeat": st.integers(1, 8),
        "order": st.fixed_dictionaries({"shuffle": st.booleans(), "seed": st.integers(0, 2**31 - 1)}),
        "aa": st.booleans(),
    }
)


def made(data: dict[str, Any]) -> Study:
    return from_plain(data)


@given(STUDIES)
@settings(max_examples=60)
def test_the_matrix_is_the_product_of_its_levels(data: dict[str, Any]) -> None:
    train = data["workload"]["torch_train"]
    levels = [data["platform"], train["batch"], train["workers"], train["lr"], data["control"]["page_cache"]]

    with stand_ins():
        study = made(data)
        found = cells(study)

    assert len(found) == size(study) == math.prod(map(len, levels))
    assert len({str(cell.settings) for cell in found}) == len(found)


@given(STUDIES, st.data())
@settings(max_examples=60)
def test_exclusions_take_out_exactly_what_they_name(data: dict[str, Any], draw: st.DataObject) -> None:
    batch = draw.draw(st.sampled_from(data["workload"]["torch_train"]["batch"]))
    platform = draw.draw(st.sampled_from(data["platform"]))
    label = platform if isinstance(platform, str) else "+".join(platform)
    data = data | {"aa": False, "exclude": [{"platform": label, "workload.batch": batch}]}

    with stand_ins():
        whole = made({key: value for key, value in data.items() if key != "exclude"})
        everything = cells(whole)
        kept = [
            cell
            for cell in everything
            if (cell.settings["platform"], cell.settings["workload.batch"]) != (label, batch)
        ]
        try:
            found = cells(made(data))
        except StudyError as error:
            # Nothing is left at all, or nothing to compare with.
            bases = [cell.settings for cell in baseline(whole, everything)]
            assert not any(cell.settings in bases for cell in kept)
            assert ("leave no cell" if not kept else "every cell to compare with") in str(error)
            return

    assert [cell.settings for cell in found] == [cell.settings for cell in kept]


@given(STUDIES)
@settings(max_examples=60)
def test_every_block_holds_each_cell_exactly_once_and_each_baseline_cell_once_more(data: dict[str, Any]) -> None:
    with stand_ins():
        study = made(data)
        found = cells(study)
        planned = trials(study, found)
        bases = baseline(study, found) if study.aa and len(found) > 1 else []

    wanted = sorted([(str(cell.settings), 0) for cell in found] + [(str(cell.settings), 1) for cell in bases])
    for block in range(study.repeat.max):
        members = [trial for trial in planned if trial.block == block]
        assert sorted((str(trial.settings), trial.twin) for trial in members) == wanted
        assert [trial.position for trial in members] == list(range(len(members)))
        assert len({trial.seed for trial in members}) == 1
    assert len({trial.seed for trial in planned}) == study.repeat.max


@given(STUDIES)
@settings(max_examples=40)
def test_order_is_a_function_of_the_study_and_ids_are_unique(data: dict[str, Any]) -> None:
    with stand_ins():
        study = made(data)
        once = trials(study, cells(study))
        again = Study.model_validate(study.as_plain())
        twice = trials(again, cells(again))

    assert [trial.id for trial in once] == [trial.id for trial in twice]
    assert len({trial.id for trial in once}) == len(once)
    assert not changes([trial.id for trial in once], twice).new


@given(STUDIES, st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_the_order_of_the_file_changes_no_id(data: dict[str, Any], random: Any) -> None:
    batch = data["workload"]["torch_train"]["batch"]
    data = data | {"compare": {"against": {"workload.batch": batch[0]}}}
    shuffled = random.sample(batch, len(batch))
    other = data | {"workload": {"torch_train": data["workload"]["torch_train"] | {"batch": shuffled}}}

    with stand_ins():
        first, second = made(data), made(other)
        ids = {trial.id for trial in trials(first, cells(first))}
        others = {trial.id for trial in trials(second, cells(second))}

    assert ids == others
