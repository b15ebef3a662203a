"""Rows of which some trials have nothing: no ratio is made of the others alone, and nothing is hidden."""

from __future__ import annotations

from dataclasses import replace

from paper_results import held, ours, with_records, with_zeros
from tare.papers.tables.rows import NOT_HERE


def test_where_some_trials_of_a_side_have_nothing_medians_are_shown_without_a_ratio_and_how_many_have_nothing():
    store = held("s2-events", "small", metrics=["count_block_bio_frontmerge"])
    some = ours("2.20", with_zeros(store, "count_block_bio_frontmerge", {"platform": "docker"}, 4))
    whole = ours("2.20", store)
    assert (some.change, some.low, some.verdict) == (None, None, None)
    assert some.zeros == {"docker": (4, 6)}
    assert some.sides["bare"] == whole.sides["bare"]
    assert some.sides["docker"] == 0.0
    assert (whole.n, whole.zeros) == (6, {})


def test_a_side_of_zeros_is_shown_as_zero():
    store = held("s1-storage", "small", metrics=["gpu_util_share"])
    idle = with_zeros(store, "gpu_util_share", {"workload.workers": 0}, 6)
    found = ours("1.7a", idle)  # the paper has 0 % there too
    assert found.word is None
    assert found.sides == {"0 workers": 0.0, "1 worker": ours("1.7a", store).sides["1 worker"]}
    assert found.zeros == {"0 workers": (6, 6)}


def test_two_figures_of_the_same_trials_of_which_one_is_nothing_have_no_ratio():
    store = with_zeros(held("s1-dataset-scale", "small"), "stall_s", {"control.storage.emulate": "hdd"}, 1)
    found = ours("1.16", store)
    assert found.change is None
    assert found.zeros == {"stall_s": (1, 6)}
    assert list(found.sides) == ["stall_s", "epoch0_stall_s"]


def test_a_share_is_of_the_trials_that_have_something_to_share_and_says_how_many_have_not():
    store = held("s2-writebacks", "small")
    found = ours("2.25a", with_zeros(store, "writeback_count", {"platform": "docker", "tenants": 1}, 2))
    assert (found.n, found.zeros) == (4, {"writeback_count": (2, 6)})
    none = ours("2.25a", with_zeros(store, "writeback_count", {}, 6))
    assert none.word == NOT_HERE
    assert "writeback_count is zero in all 6 trials of s2-writebacks" in none.why


def test_a_twin_with_nothing_does_not_take_the_ratio_away():
    store = held("s2-events", "small", metrics=["cycles"])
    twin = replace(store.records[0], trial="twin", twin=1, metrics={"cycles": 0.0})
    assert ours("2.1", with_records(store, [*store.records, twin])).n == 6


def test_trials_with_too_few_write_backs_for_an_interval_are_counted():
    store = held("s2-writebacks", "small")
    whole = ours("2.23a", store)
    some = [
        replace(each, metrics={name: value for name, value in each.metrics.items() if name != "writeback_interval_s"})
        if each.settings["platform"] == "docker" and each.settings["tenants"] == 1 and each.block < 2
        else each
        for each in store.records
    ]
    found = ours("2.23a", with_records(store, some))
    assert found.n == 4
    assert found.conditions == (*whole.conditions, "2 of 12 trials had too few write-backs for an interval")
    assert ours("2.23b", with_records(store, some)).conditions == ours("2.23b", store).conditions
