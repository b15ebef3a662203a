"""Why a paper's row has no figure on a machine, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paper_results import DEVICE, changed, held, machine, ours, with_records
from tare.analysis.derived import SOURCES
from tare.base.rulings import Ruling, obstacle
from tare.papers.tables.machines import cannot_be_run
from tare.papers.tables.model import paper
from tare.papers.tables.rows import NOT_HERE, answered

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
        ("3.14a", ("s0-phase-breakup", "step_s"), "a meter at the socket"),
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
