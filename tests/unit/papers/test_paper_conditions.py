"""In what the trials behind a paper's row differ from what the paper had."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paper_results import changed, held, ours, trials, with_records
from tare.analysis.derived import SOURCES
from tare.papers.tables.rows import behind, conditions, remarks
from tare.records.model import Record

TAX = "s0-container-tax"


def test_conditions_are_those_in_which_the_trials_differ_from_the_paper():
    store = held(TAX, "small", metrics=["compute_s"])
    assert ours("0.1", store).conditions == (
        "scale small", "on the CPU", "0 workers", "1 thread", "960 items", "60 mini-batches per epoch",
    )  # fmt: skip
    assert ours("0.2", changed(store, scale="full")).conditions[0] == "on the CPU"


def test_the_state_of_the_page_cache_is_told_though_a_row_names_it():
    slow = ours("1.1a", held("s1-storage", "small")).conditions
    kept = ours("1.4a", held("s1-workers", "small")).conditions
    assert {"emulated hdd", "page cache emptied before every epoch"} <= set(slow)
    assert {"emulated hdd", "page cache emptied before the trial"} <= set(kept)
    assert not any("worker" in said for said in slow)
    both = ours("3.2a", held("s3-pipeline", "small")).conditions  # the row compares two states of it
    assert not any("page cache" in said for said in both)


def test_what_only_a_second_choice_has_is_told():
    assert "2 workers" in ours("3.2a", held("s3-pipeline", "small")).conditions
    assert not any("worker" in said for said in ours("3.2a", held("s3-pipeline", "full")).conditions)
    assert "2 tenants" in ours("2.29a", held("s2-writebacks", "smoke")).conditions
    assert not any("tenant" in said for said in ours("2.29a", held("s2-writebacks", "small")).conditions)


def test_a_level_that_is_not_the_first_that_the_row_asks_for_is_told():
    for row, study, said in (
        ("3.10e", "s3-batch", "batch 64"),
        ("3.1b", "s3-pipeline", "2 workers"),
        ("3.3a", "s3-pipeline", "2 workers"),
        ("4.6b", "s4-pinning", "1 core"),
        ("1.14b", "s1-dataset-scale", "0 workers"),
    ):
        assert said in ours(row, held(study, "small")).conditions
        first = ours(row, held(study, "full", blocks=1)).conditions
        assert not any(each.startswith("batch") or "worker" in each or "core" in each for each in first), row


def test_a_row_that_means_any_model_tells_the_one_that_it_shows():
    assert "model lenet5" in ours("0.10a", held("s0-syscalls", "small", metrics=["system_calls"])).conditions
    assert "model lenet5" in ours("0.10b", held("s0-seccomp", "small", metrics=["step_s"])).conditions


def test_of_a_claim_the_scale_and_what_was_run_are_told():
    told = ours("4.7c", held("s4-pinning", "small", metrics=["step_s", "step_mean_s"])).conditions
    assert told[0] == "scale small"
    assert "applications image and recommendation and question" in told
    assert any(said.startswith("platform") and "docker" in said for said in told)
    assert ours("4.7c", held(TAX, "small", metrics=["step_s"])).conditions == ()


PROBABLY_NOT_FELT = (
    "the emulated hdd probably slowed nothing: less than half of the 125 requests per second and 12 at once that it "
    "allows were requested"
)


def on_a_disk(batch: int, step_s: float, limits: object, state: str = "cold_every_epoch") -> tuple[str, ...]:
    """What is told of trials with mini-batches of this size, of which each took so long in epoch 0."""
    store = held("s1-storage", "small", metrics=["step_mean_s"])
    made = [
        replace(
            each,
            settings={**each.settings, "workload.batch": batch, "control.page_cache.state": state},
            metrics={**each.metrics, "epoch0_step_s": step_s},
            facts={**each.facts, "settled": {"storage": {"limits": limits, "shared_by": 1}}},
        )
        for each in store.records
        if _medium(each) == "hdd"
    ]
    return remarks(made, ())


def test_an_emulated_medium_that_was_asked_for_far_less_than_it_gives_was_probably_not_felt_and_this_is_told():
    disk = {"read_bps": 120_000_000, "read_iops": 125}
    assert on_a_disk(2, 0.15, disk) == (PROBABLY_NOT_FELT,)
    assert on_a_disk(2, 0.15, {"read_iops": 125}) == (PROBABLY_NOT_FELT,)
    assert on_a_disk(16, 0.6, disk) == ()  # sixteen at once are more than pass in a tenth of a second
    assert on_a_disk(2, 0.02, disk) == ()  # a hundred a second
    assert on_a_disk(2, 0.15, disk, "warm") == ()  # nobody asked it
    assert on_a_disk(2, 0.15, {"read_bps": 120_000_000}) == ()
    assert on_a_disk(2, 0.15, None) == ()


def test_where_bytes_could_hold_a_reader_up_nothing_is_told_since_no_record_has_the_size_of_an_item():
    few_bytes = {"read_bps": 20_000_000, "read_iops": 125}
    assert on_a_disk(2, 0.15, few_bytes) == ()  # 13 items a second, of a MiB each, would be more than half of it
    assert on_a_disk(2, 0.15, {**few_bytes, "read_bps": 110_000_000}) == (PROBABLY_NOT_FELT,)


def test_one_trial_that_may_have_felt_a_medium_speaks_for_all_of_it():
    record = next(each for each in trials("s1-storage", "small", blocks=1) if _medium(each) == "hdd")
    made = [
        replace(
            record,
            settings={**record.settings, "workload.batch": batch, "control.page_cache.state": "cold"},
            metrics={"epoch0_step_s": 0.15},
            facts={"settled": {"storage": {"limits": {"read_iops": requests}}}},
        )
        for batch, requests in ((2, 125), (16, 124))
    ]
    assert remarks(made[:1], ()) == (PROBABLY_NOT_FELT,)
    assert remarks(made, ()) == ()


def _medium(record: Record) -> str:
    return record.settings["control.storage.emulate"]


def test_a_slow_medium_is_felt_and_the_fast_one_beside_it_is_not():
    store = held("s1-storage", "small", metrics=["step_mean_s", "epoch0_step_s"])
    gives = {"hdd": 125, "sd": 1500, "ssd": 12500}
    made = [
        replace(
            each,
            metrics={**each.metrics, "epoch0_step_s": 0.3},
            facts={**each.facts, "settled": {"storage": {"limits": {"read_iops": gives[_medium(each)]}}}},
        )
        for each in store.records
    ]
    told = [said for said in ours("1.10a", with_records(store, made)).remarks if "slowed nothing" in said]
    assert [said.split()[2] for said in told] == ["ssd"]


def test_the_sensor_behind_a_figure_is_told_apart_from_the_conditions():
    store = held(TAX, "small", metrics=["power_median_w", "energy_j"])
    told = {SOURCES: {"power_median_w": "from gpu.power_w: the GPU alone"}, "energy": {"scope": "the GPU"}}
    found = with_records(store, [replace(each, facts={**each.facts, **told}) for each in store.records])
    assert ours("0.5", found).remarks == ("from gpu.power_w: the GPU alone",)
    assert ours("0.11a", found).remarks == ("energy of the GPU",)
    assert ours("0.11a", found).conditions == ours("0.11a", store).conditions
    assert ours("0.11a", store).remarks == ()
    assert ours("0.5", found).as_json()["remarks"] == ("from gpu.power_w: the GPU alone",)


def test_what_a_scale_does_to_our_figure_is_told_of_that_scale_alone():
    store = held("s2-writebacks", "small")
    (told,) = ours("2.25a", store).remarks
    assert told.startswith("the study decides this share")
    assert ours("2.25a", changed(store, scale="full")).remarks == ()
    assert ours("2.25b", store).remarks == (told,)  # what is not written back in the background is periodic
    assert ours("2.25c", store).remarks == ()
    assert "20 mini-batches" in ours("3.4d", held("s3-pipeline", "small")).remarks[-1]
    assert not any("20 mini-batches" in said for said in ours("3.4d", held("s3-pipeline", "full")).remarks)


def test_what_stands_in_for_power_modes_is_told_of_a_claim_about_them():
    stand_ins = "shares of the CPU's time in place of power modes"
    shares = trials("s3-predict", "small", blocks=1)
    assert behind(shares, ["small"], of_modes=True)[-1] == stand_ins
    assert stand_ins not in behind(shares, ["small"])
    alike = [replace(each, settings={**each.settings, "platform.quota": 1.0}) for each in shares]
    assert stand_ins not in behind(alike, ["small"], of_modes=True)
    set_ones = [replace(each, settings={**each.settings, "control.power_mode.cpu_mhz": 1200}) for each in shares]
    assert stand_ins not in behind(set_ones, ["small"], of_modes=True)
    assert stand_ins in ours("3.23a", held("s3-predict", "small", metrics=["step_mean_s"])).conditions


def test_an_emulated_machine_is_a_condition_and_a_kvm_one_is_not():
    (record, *_) = trials("s4-platforms", "small", blocks=1)
    for accel, said in (("tcg", ("emulated machine (TCG)",)), ("kvm", ())):
        mine = replace(record, facts={**record.facts, "place": {"accel": accel}})
        assert conditions([mine], {"scale": "full"}, {"place.accel": ("kvm",)}) == said


def test_what_decides_when_pages_are_written_back_is_told():
    told = ours("2.25a", held("s2-writebacks", "small")).conditions
    assert {
        "background write-back from 16 MiB of dirty pages on", "writers held up at 64 MiB of dirty pages",
        "batch 4", "0 workers", "4 epochs", "6 mini-batches per epoch", "dirty pages expire after 2.0 s",
    } <= set(told)  # fmt: skip
    full = ours("2.25a", held("s2-writebacks", "full", blocks=1)).conditions
    assert not any("dirty" in said or "batch" in said or "epoch" in said for said in full)


@pytest.mark.parametrize(
    ("row", "study", "told"),
    [
        ("0.1", TAX, "60 mini-batches per epoch"),
        ("1.1a", "s1-storage", "2 epochs"),
        ("3.4a", "s3-pipeline", "60 mini-batches per epoch"),
        ("3.4e", "s3-pipeline", "2 epochs"),
    ],
)
def test_how_long_a_trial_was_is_told_where_the_paper_had_more(row, study, told):
    assert told in ours(row, held(study, "small")).conditions
    assert not any("epoch" in said and "page cache" not in said for said in ours(row, held(study, "full")).conditions)


def test_other_data_than_the_papers_are_told():
    assert "data cifar10" in ours("3.19f", held("s3-power-modes", "cuda", metrics=["stall_mean_s"])).conditions
    assert not any(said.startswith("data ") for said in ours("3.19f", held("s3-power-modes", "small")).conditions)
