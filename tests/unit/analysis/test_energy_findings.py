"""Energy of cells, its split, and what a difference is made of: from trials whose truth is known."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from metered import BARE, DOCKER, STEPS, Held, Place, idle_trials, idled, kept, trials, worked
from tare.analysis.observations import (
    baseload_folder,
    by_mode,
    columns_of,
    idle_powers,
    observations,
    records_of,
    with_baseload,
)
from tare.analysis.resources.energy import SHARE, Energy, energy_findings
from tare.analysis.weighing import weigh
from tare.base.errors import StudyError
from tare.base.rulings import Ruling, obstacle, probe_note
from tare.records.store import Store
from tare.report.sections import answer_text

EXACT = {"noise": 0.0}


def found(*records, **how):
    return energy_findings(Held(records), **how)


def text(*records, **study):
    return answer_text(Energy().answer(Held(records, **study)), 10_000)


def test_baseload_is_idle_power_times_the_time_and_the_rest_is_work():
    (cell,) = found(*trials(BARE, **EXACT), *idle_trials(BARE, **EXACT)).cells
    assert cell.figures["energy_baseload_j"].value == pytest.approx(BARE.idle_w * BARE.step_s * STEPS)
    assert cell.figures["energy_incremental_j"].value == pytest.approx(BARE.work_j * STEPS)
    assert cell.figures[SHARE].value == pytest.approx(1 / 3)
    assert cell.scope == "the module"


def test_intervals_are_over_trials():
    (cell,) = found(*trials(BARE, n=8), *idle_trials(BARE)).cells
    energy = cell.figures["energy_step_j"]
    assert (energy.n, cell.n) == (8, 8)
    assert energy.low < energy.value < energy.high
    (few,) = found(*trials(BARE, n=5)).cells
    assert few.figures["energy_step_j"].low is None


def test_a_suspended_device_is_no_baseload_and_has_a_line_of_its_own():
    asleep = Place({"platform": "bare", "workload.state": "suspended"}, idle_w=1.0)
    awake = Place({"platform": "bare", "workload.state": "awake"})
    answer = found(*trials(BARE, **EXACT), *idle_trials(awake, asleep, **EXACT))
    assert answer.cells[0].figures["energy_baseload_j"].value == pytest.approx(BARE.idle_w * BARE.step_s * STEPS)
    assert [each.power_w.value for each in answer.idle] == pytest.approx([10.0, 1.0])
    assert "suspended" in answer.idle[1].label


def test_without_a_baseload_nothing_is_split_and_it_is_said():
    answer = found(*trials(BARE, DOCKER))
    assert all("energy_baseload_j" not in cell.figures for cell in answer.cells)
    (difference,) = answer.differences
    assert difference.longer is difference.idle is difference.work is None
    assert difference.total.value == pytest.approx(0.42, rel=0.1)
    assert any("`tare device baseload`" in note for note in answer.notes)


def test_a_difference_is_split_into_its_true_parts():
    answer = found(*trials(BARE, DOCKER, **EXACT), *idle_trials(BARE, DOCKER, **EXACT))
    (difference,) = answer.differences
    assert (difference.level, difference.against, difference.unit) == ("docker", "bare", "step")
    assert difference.longer.value == pytest.approx(10.0 * 0.02)
    assert difference.idle.value == pytest.approx(1.0 * 0.12)
    assert difference.work.value == pytest.approx(0.1)
    assert difference.share == pytest.approx(0.42 / 3.0)


def test_the_parts_have_intervals_that_hold_the_truth_as_often_as_they_say():
    held = {"longer": 0, "idle": 0, "work": 0}
    for seed in range(100):
        records = [*trials(BARE, DOCKER, n=8, seed=seed), *idle_trials(BARE, DOCKER, seed=1000 + seed)]
        (difference,) = found(*records).differences
        for name, true in (("longer", 0.2), ("idle", 0.12), ("work", 0.1)):
            part = getattr(difference, name)
            held[name] += part.low < true < part.high
    # Idle power is known to half a percent, which moves the other two parts a little: they may hold less often.
    assert held["idle"] >= 89, held
    assert held["longer"] >= 85, held
    assert held["work"] >= 85, held


def test_the_same_idle_power_on_both_sides_is_exactly_no_difference():
    small = Place({"platform": "bare", "workload.batch": 4}, work_j=1.0)
    answer = found(*trials(BARE, small), *idle_trials(BARE), by="workload.batch", against="16")
    (difference,) = answer.differences
    assert (difference.idle.value, difference.idle.low, difference.idle.high) == (0.0, 0.0, 0.0)
    assert difference.unit == "sample"  # a step of fewer samples is less work
    assert difference.work.value == pytest.approx(-1.0 / 16, rel=0.1)


def test_baseload_is_of_the_same_mode_device_and_sensor_only():
    slow = replace(BARE, settings={**BARE.settings, "control.power_mode.mode": "15W"})
    wall = replace(BARE, facts={"energy": {"source": "external"}})
    mine = trials(slow, n=1)
    assert "energy_baseload_j" not in with_baseload(mine, by_mode(idle_powers(idle_trials(BARE))))[0].metrics
    assert "energy_baseload_j" not in with_baseload(mine, by_mode(idle_powers(idle_trials(wall))))[0].metrics
    assert "energy_baseload_j" in with_baseload(mine, by_mode(idle_powers(idle_trials(slow))))[0].metrics
    moved = [replace(each, facts={**each.facts, "device": {"board": "Nano"}}) for each in idle_trials(slow)]
    assert "energy_baseload_j" not in with_baseload(mine, by_mode(idle_powers(moved)))[0].metrics


def test_a_control_of_the_data_does_not_ask_for_a_baseload_of_its_own():
    cold = replace(BARE, settings={**BARE.settings, "control.page_cache.state": "cold"})
    assert "energy_baseload_j" in with_baseload(trials(cold, n=1), by_mode(idle_powers(idle_trials(BARE))))[0].metrics


def test_a_limit_of_the_workload_does_not_ask_for_a_baseload_of_its_own():
    pinned = replace(BARE, settings={**BARE.settings, "platform.cores": 2, "platform.pin": True})
    assert "energy_baseload_j" in with_baseload(trials(pinned, n=1), by_mode(idle_powers(idle_trials(BARE))))[0].metrics


@pytest.mark.parametrize(("argv", "idles"), [(["/bin/sleep", "2.5"], True), (["sh", "-c", "sleep 3"], False)])
def test_a_command_that_only_sleeps_is_an_idle_device(argv, idles):
    slept = [
        replace(each, settings={**BARE.settings, "workload": "command", "workload.argv": argv})
        for each in idle_trials(BARE)
    ]
    assert bool(idle_powers(slept)) is idles


def test_energy_of_two_scopes_is_not_compared():
    wall = replace(DOCKER, facts={"energy": {"source": "external", "scope": "the whole device, at the wall"}})
    answer = found(*trials(BARE, wall))
    assert answer.differences == ()
    assert any("not of the same thing" in note for note in answer.notes)


def test_an_idle_trial_with_logging_is_no_baseload_but_a_state():
    both = [idled(BARE, block, logging=logging) for block in range(6) for logging in (False, True)]
    states = idle_powers(both)
    assert {(each.logging, each.power_w.value) for each in states} == {(False, 10.0), (True, 10.5)}
    assert by_mode(states)[states[0].key].power_w.value == 10.0
    assert "bare: 10.5 W [10.5, 10.5] with a logging script, 10.0 W [10.0, 10.0] without." in text(*both)


GONE = probe_note("probe.not-started", "gpu", "the driver is gone (first at 0.1 s).").as_json()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"settings": {"platform": "bare", "probes": "cpu,memory"}, "facts": {}}, "`external` (a wall meter)"),
        ({"settings": {"platform": "bare", "probes": "gpu"},
          "facts": {"sampler": {"lost": [GONE]}}}, "the driver is gone"),
        ({"settings": {"platform": "bare", "probes": "power_rapl"}, "facts": {}}, "power_rapl reported no power"),
        ({"facts": {"energy": {"doubts": ["gpu: too short: 12 samples in 1.2 s, and it takes 60."]}}}, "too short"),
    ],
)  # fmt: skip
def test_missing_power_is_a_sentence_and_never_an_estimate(changes, says):
    none = [replace(each, metrics={"step_s": 0.1}, **changes) for each in trials(BARE, n=3)]
    answer = found(*none)
    (cell,) = answer.cells
    assert (cell.n, cell.without, dict(cell.figures)) == (0, 3, {})
    assert says in text(*none)


def test_traced_trials_have_no_energy_to_compare():
    traced = [replace(each, facts={**each.facts, "traced": ["ftrace"]}) for each in trials(BARE, n=2)]
    (cell,) = found(*traced).cells
    assert cell.n == 0
    assert [doubt.code for doubt in cell.doubts] == ["energy.traced"]


def test_a_shared_device_says_whose_energy_it_is():
    shared = replace(BARE, facts={"energy": {"shared_by": 4}})
    assert "4 tenants shared it" in text(*trials(shared))


def test_trials_that_ended_badly_are_no_evidence():
    with pytest.raises(StudyError, match="no usable trial"):
        found(*[replace(each, state="invalid") for each in trials(BARE)])


def test_without_marked_steps_the_run_is_compared():
    runs = [replace(each, metrics={k: v for k, v in each.metrics.items() if k != "energy_step_j"})
            for each in trials(BARE, DOCKER, **EXACT)]  # fmt: skip
    (difference,) = found(*runs, *idle_trials(BARE, DOCKER, **EXACT)).differences
    assert difference.unit == "run"
    assert difference.longer.value == pytest.approx(20.0)


def test_the_sentence_tells_all_three_parts():
    told = text(*trials(BARE, DOCKER, **EXACT), *idle_trials(BARE, DOCKER, **EXACT))
    assert "docker takes more than bare: energy per step +14.0 % [" in told
    assert "On average +420 mJ [" in told
    assert re.search(r"\+200 mJ \[.*?\] because it ran longer", told)
    assert re.search(r"\+120 mJ \[.*?\] because idle power differs", told)
    assert re.search(r"\+100 mJ \[.*?\] because it did more work", told)


def test_a_difference_without_an_interval_is_not_claimed():
    few = [each for each in trials(BARE, DOCKER, **EXACT) if each.block < 2]
    assert text(*few, *idle_trials(BARE, DOCKER, **EXACT)).startswith(
        "Cannot tell whether docker takes more or less than bare: energy per step, 2 blocks with both sides, and it "
        "takes 6.\n\n"
    )


# Stores


def test_a_store_finds_its_baseload_beside_it_whenever_that_was_measured(tmp_path):
    root = kept(tmp_path / "study", trials(BARE, DOCKER))
    with Store.open(root) as store:
        assert all("energy_baseload_j" not in each.metrics for each in records_of(store))
    kept(baseload_folder(root), idle_trials(BARE, DOCKER))
    with Store.open(root) as store:
        split = records_of(store)
    assert len(split) == 16
    assert all(math.isclose(each.metrics["energy_j"], _both(each)) for each in split)


def _both(record):
    return record.metrics["energy_baseload_j"] + record.metrics["energy_incremental_j"]


def test_a_baseload_folder_is_beside_a_store_that_is_named_by_a_dot(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert baseload_folder(tmp_path / "a") == tmp_path / "a-baseload"
    from pathlib import Path

    assert baseload_folder(Path()).name == f"{tmp_path.name}-baseload"


def test_whoever_decides_from_a_store_gets_the_split(tmp_path):
    root = kept(
        tmp_path / "study", trials(BARE, DOCKER), {"study": "study", "compare": {"against": {"platform": "bare"}}}
    )
    kept(baseload_folder(root), idle_trials(BARE, DOCKER))
    assert {"energy_step_j", "energy_baseload_j", "energy_incremental_j"} <= set(columns_of(root))
    rows = observations(root, settings=["platform"], values=["energy_baseload_j", "power_mean_w"])
    assert all({"energy_baseload_j", "power_mean_w"} <= row.metrics.keys() for row in rows)
    with Store.open(root) as store:
        (compared,) = weigh(store, metric="energy_baseload_j").comparisons
        assert compared.effect == pytest.approx(1.32 - 1, abs=0.02)
        (energy,) = weigh(store, metric="energy_step_j").comparisons
        assert energy.effect == pytest.approx(0.14, abs=0.02)


def test_a_trial_of_work_is_never_taken_for_an_idle_one():
    assert idle_powers([worked(BARE, 0)]) == []


def without_power(*records):
    return [
        replace(each, metrics={"step_s": 0.1}, facts={}, settings={**each.settings, "probes": "cpu"})
        for each in records
    ]


LEFT_OUT = [
    obstacle("needs.hardware", sentence).about(f"probe {probe}").as_json()
    for probe, sentence in {
        "frequency": "no clocks.", "gpu": "libnvidia-ml.so.1 is not installed.", "power_rails": "none.",
    }.items()
]  # fmt: skip


def test_probes_that_the_study_left_out_here_are_named_with_why_and_none_is_called_unasked():
    store = Held(without_power(*trials(BARE)), {"left_out": LEFT_OUT})
    answer = energy_findings(store)
    (cell,) = answer.cells
    assert cell.doubts == (
        Ruling(
            "energy.left-out",
            "note",
            "power_rails,gpu",
            "the power probes are not available on this device (power_rails, gpu).",
        ),
    )
    assert answer.notes == (
        "left out: probe power_rails: none.",
        "left out: probe gpu: libnvidia-ml.so.1 is not installed.",
    )
    assert "no power probe is enabled" not in answer_text(Energy().answer(store))


def test_where_nothing_was_left_out_it_is_said_that_no_such_probe_was_asked_for():
    (cell,) = found(*without_power(*trials(BARE))).cells
    assert [doubt.code for doubt in cell.doubts] == ["energy.no-probe"]


def test_of_energy_that_was_measured_it_is_not_said_what_was_left_out():
    answer = energy_findings(Held(trials(BARE), {"left_out": LEFT_OUT}))
    assert not any(note.startswith("left out") for note in answer.notes)


def test_idle_power_is_taken_off_with_its_own_uncertainty():
    work = [worked(BARE, block) for block in range(8)]
    sure = [idled(BARE, block) for block in range(8)]
    unsure = [idled(BARE, block, noise=0.02 * (block - 3.5)) for block in range(8)]
    found = [energy_findings(Held([*work, *idle])).cells[0].figures for idle in (sure, unsure)]
    widths = [figures["energy_incremental_j"].high - figures["energy_incremental_j"].low for figures in found]
    assert widths[0] == pytest.approx(0.0)
    assert widths[1] > 0.05 * 10.0 * 10.0  # of 10 W for 10 s
    assert found[1]["energy_j"].high - found[1]["energy_j"].low == pytest.approx(0.0)
