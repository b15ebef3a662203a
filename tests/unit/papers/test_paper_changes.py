"""How a change is told: in percent or in times, with its interval or not at all.

Rows of which some trials have nothing: no ratio is made of the others alone, and nothing is hidden.

Why a paper's row has no figure on a machine, in words.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from paper_results import DEVICE, changed, held, machine, ours, with_records, with_zeros
from tare.analysis.derived import SOURCES
from tare.base.rulings import Ruling, obstacle
from tare.papers.pages.rows import Change, change_texts, excludes_zero, known_change, range_text
from tare.papers.tables.model import paper
from tare.papers.tables.picking import cannot_be_run
from tare.papers.tables.rows import NOT_HERE, Ours, answered


@pytest.mark.parametrize(
    ("change", "printed", "said"),
    [
        (Change(0.016, 0.004, 0.029), "+53.7 %", "+1.6 % [+0.4, +2.9]"),
        (Change(-0.842, -0.85, -0.834), "", "-84.2 % [-85.0, -83.4]"),
        (Change(0.99, 0.9, 1.2), "", "+99 % [+90, +120]"),
        (Change(1.0, 0.9, 1.2), "", "2.0x [1.90x, 2.2x]"),
        (Change(2.57, 2.1, 3.2), "1.4x", "3.6x [3.1x, 4.2x]"),
        (Change(93.099, 46.808, 184.215), "", "94.1x [47.8x, 185x]"),
        (Change(1.2, -0.03, 4.0), "", "2.2x [0.97x, 5.0x]"),
        (Change(-0.02, -0.05, 0.01), "0.888x", "0.98x [0.95x, 1.01x]"),
        (Change(-0.836, -0.857, -0.808), "4x to 9x less", "6.1x less [5.2x, 7.0x]"),
        (Change(-0.684, -0.78, -0.546), "far less than that", "3.2x less [2.2x, 4.5x]"),
        (Change(-0.03, -0.05, -0.01), "far less than that", "-3.0 % [-5.0, -1.0]"),
        (Change(-0.03, -0.05, -0.01), "2.5x less", "1.03x less [1.01x, 1.05x]"),
        (Change(-0.75, -0.8, -0.5), "6.7x", "4.0x less [2.0x, 5.0x]"),
        (Change(0.2, 0.1, 0.3), "2.5x less", "1.20x [1.10x, 1.30x]"),
        (Change(-0.999, -1.0, -0.99), "2.5x less", "-100 % [-100, -99]"),
        (Change(-0.00001, -0.00002, 0.00003), "", "0.00 % [0.00, 0.00]"),
        (Change(0.0, 0.0, 0.0), "", "0.0 % [0.0, 0.0]"),
    ],
)
def test_a_change_is_told_in_percent_unless_it_is_large_or_the_paper_has_it_in_times(change, printed, said):
    assert " ".join(change_texts(change, printed)) == said


def test_a_decrease_of_s1_is_told_by_its_own_formula():
    change = Change(-0.75, -0.8, -0.5)
    assert change_texts(change, "decreases by 3.1x", as_decrease=True) == ("decreases by 3x", "[1x, 4x]")
    assert range_text([-0.5, -0.75], change, as_decrease=True) == "3x to 1x"
    rise = Change(0.68, 0.58, 0.79)
    assert change_texts(rise, "decreases by 8.19x", as_decrease=True) == ("rises to 1.68x", "[1.58x, 1.79x]")


def test_other_changes_are_told_as_the_first_is():
    assert range_text([0.1, -0.2], Change(0.05, 0.01, 0.1)) == "-20.0 % to +10.0 %"
    assert range_text([1.5, 4.0], Change(2.0, 1.0, 3.0)) == "2.5x to 5.0x"
    assert range_text([0.1, 0.1], None) == "+10.0 %"


def test_a_change_without_an_interval_is_no_change_that_is_known():
    assert known_change(Ours(change=0.3, n=4)) is None
    assert known_change(Ours(low=0.1, high=0.2)) is None
    assert known_change(Ours(change=0.3, low=0.1, high=0.4)) == (0.3, 0.1, 0.4)


@pytest.mark.parametrize(
    ("change", "excludes"),
    [
        (Change(0.014, 0.003, 0.025), True),
        (Change(-0.014, -0.025, -0.003), True),
        (Change(0.014, -0.003, 0.025), False),
        (Change(0.014, 0.0001, 0.025), False),  # shown as [0.0, +2.5]
        (Change(0.0, 0.0, 0.0), False),
    ],
)
def test_an_interval_excludes_zero_where_one_can_see_it(change, excludes):
    assert excludes_zero(change) is excludes


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


TAX = "s0-container-tax"


@pytest.mark.parametrize(
    ("row", "store", "why"),
    [
        ("0.1", (), "s0-container-tax was not run"),
        ("0.5", (TAX, "compute_s"), "no power sensor (power_median_w)"),
        ("0.12a", (TAX, "energy_j"), "no idle power was measured"),
        ("0.12a", (TAX, "compute_s"), "no power sensor (energy_j)"),
        ("2.23a", ("s2-writebacks", "writeback_count"), "too few write-backs in the trials of s2-writebacks"),
        ("0.8", ("s0-phase-breakup", "step_s"), "no trial of s0-phase-breakup has optimiser_s"),
        ("3.9a", ("s3-storage", "stall_mean_s"), "no trial of s3-storage has workers 4"),
        ("1.1a", ("s1-workers", "stall_mean_s"), "s1-storage was not run"),
        ("3.13a", ("s3-dvfs", "step_s"), "no trial of s3-dvfs has model resnet18"),
        ("4.6c", ("s4-gpu", "step_mean_s"), "no trial of s4-gpu has name question"),
        ("4.8b", ("s4-idle-core", "step_mean_s"), "cores to spare"),
        ("4.12a", ("s4-platforms", "step_mean_s"), "it takes an edge board"),
        ("3.14a", ("s0-phase-breakup", "step_s"), "s3-idle-states was not run"),
        ("3.14a", ("s3-idle-states", "power_mean_w"), "no trial of s3-idle-states has state suspended"),
        ("3.19a", ("s3-power-modes", "stall_mean_s"), "no trial of s3-power-modes sets cpu_mhz"),
        ("4.5c", ("s4-pinning", "step_mean_s"), "no trial of s4-pinning has platform qemu+docker"),
        ("1.17b", ("s1-dataset-scale", "step_s"), "no trial of s1-dataset-scale has read_step_bytes"),
    ],
)
def test_a_row_without_a_figure_says_why(row, store, why):
    found = ours(row, *([held(store[0], "small", metrics=store[1:])] if store else []))
    assert found.word == NOT_HERE
    assert why in found.why
    assert found.sides == {}


def test_a_suspended_board_fills_its_row_and_is_no_idle_board_of_the_others():
    store = held("s3-idle-states", "suspended", metrics=["power_mean_w"])
    assert len(ours("3.14a", store).sides) == 1
    assert list(ours("3.14g", store).sides) == ["off", "on"]


def test_of_several_ways_to_a_figure_the_reason_is_that_of_the_one_that_got_furthest():
    """Cores are the platform's at this scale, and a power mode's at others."""
    assert ours("3.20g", held("s3-power-modes", "cuda", metrics=["compute_s"])).why == (
        "no trial of s3-power-modes has workers 0"
    )


@pytest.mark.parametrize(("board", "answers"), [("Raspberry Pi 4 Model B", True), ("linux,dummy-virt", False)])
def test_a_row_of_the_edge_is_answered_by_a_board_and_not_by_a_virtual_machine(board, answers):
    store = held("s4-platforms", "small", metrics=["step_mean_s"])
    told = [replace(each, facts={**each.facts, "device": {**DEVICE, "board": board}}) for each in store.records]
    found = ours("4.12a", with_records(store, told))
    assert list(found.sides) == (["bare", "docker"] if answers else [])
    assert found.word == (None if answers else NOT_HERE)


def of(subject: str, sentence: str) -> Ruling:
    return obstacle("needs.hardware", sentence).about(subject)


def test_an_energy_that_was_read_and_not_believed_says_why_and_not_that_there_is_no_sensor():
    store = held(TAX, "small", metrics=["compute_s"])
    energy = {"source": "gpu", "doubts": ["gpu: too short: 1.9 s, and a counter that is read every 0.4 s takes 4 s."]}
    read = [replace(each, facts={**each.facts, "energy": energy}) for each in store.records]
    assert ours("0.11a", with_records(store, read)).why == (
        "energy was read and is not claimed (energy_j): "
        "gpu: too short: 1.9 s, and a counter that is read every 0.4 s takes 4 s"
    )


def test_a_trial_whose_energy_was_doubted_is_not_why_the_idle_power_is_missing():
    store = held(TAX, "small", metrics=["energy_j"])
    energy = {"source": "gpu", "doubts": ["gpu: too short."]}
    doubted = [replace(each, facts={**each.facts, "energy": energy}) for each in store.records]
    assert "no idle power was measured" in ours("0.12a", with_records(store, doubted)).why


def test_a_study_that_the_machine_refused_is_not_told_as_forgotten():
    refused = replace(machine(held(TAX, "small")), not_run={"s3-dvfs": (of("dvfs", "no clocks."), of("gpu", "none."))})
    rows = answered(paper("s3"), [refused])
    assert rows.rows["3.13a"]["here"].why == "s3-dvfs cannot be run there: dvfs: no clocks; gpu: none"
    assert rows.rows["3.8b"]["here"].why == "s3-storage was not run"
    (claim,) = (each for each in rows.claims["here"] if each.id == "s3.dvfs-changes-clocks-only")
    assert claim.why == "s3-dvfs cannot be run there: dvfs: no clocks; gpu: none."
    ran = replace(refused, held=(held("s3-dvfs", "small", metrics=["step_s"]),))
    assert "cannot be run" not in answered(paper("s3"), [ran]).rows["3.13a"]["here"].why


def test_of_a_refusal_what_stopped_the_study_is_told_and_not_every_probe_that_was_missing():
    probes = (of("probe gpu", "none."), of("probe power_rapl", "none."))
    controls = tuple(of("control power_mode", f"no `{name}`.") for name in "abcde")
    assert cannot_be_run("s", (*probes, controls[0])) == "s cannot be run there: control power_mode: no `a`"
    assert cannot_be_run("s", controls).endswith("no `c`; and 2 more")
    assert cannot_be_run("s", probes) == "s cannot be run there: probe gpu: none; probe power_rapl: none"


def test_the_reason_is_that_of_the_study_that_was_run():
    assert ours("3.14e", held("s3-power-modes", "small", metrics=["step_s"])).why == (
        "no trial of s3-power-modes sets gpu_mhz"
    )
    assert ours("3.14e", held("s3-batch", "small", metrics=["step_s"])).why == "s3-baseload was not run"


def test_what_the_machine_said_of_a_missing_part_is_passed_on():
    store = changed(
        held(TAX, "small", metrics=["compute_s"]),
        left_out=[
            of("probe power_rapl", "this kernel has no RAPL.").as_json(),
            of("probe gpu", "no NVIDIA driver.").as_json(),
        ],
    )
    assert ours("0.5", store).why.endswith("probe power_rapl: this kernel has no RAPL")
    assert ours("0.4", store).why.endswith("probe gpu: no NVIDIA driver")


def test_one_platform_alone_and_failed_trials_are_no_comparison():
    store = held(TAX, "small", metrics=["compute_s"])
    bare = [record for record in store.records if record.settings["platform"] == "bare"]
    assert "have platform bare only" in ours("0.1", with_records(store, bare)).why
    failed = [replace(record, state="failed") for record in store.records]
    assert "no trial of s0-container-tax ended well" in ours("0.1", with_records(store, failed)).why


def test_a_series_that_is_too_thin_is_the_reason_and_not_a_missing_sensor():
    store = held(TAX, "small", metrics=["step_s"])
    said = {SOURCES: {"power_median_w": "no reading of gpu.power_w fell into the measured steps"}}
    thin = with_records(store, [replace(each, facts={**each.facts, **said}) for each in store.records])
    assert ours("0.5", thin).why == (
        "no reading of gpu.power_w fell into the measured steps of s0-container-tax (power_median_w)"
    )
