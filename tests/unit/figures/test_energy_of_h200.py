"""The rules of energy on the series of real trials (tests/recordings/h200), and what their energy is made of.

The trials were sealed while a counter still needed 60 readings, and most of them claim nothing themselves: here their
series are looked at again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import recorded_stores
from metered import Held
from tare.analysis.observations import by_mode, idle_powers, is_idle, with_baseload
from tare.analysis.resources.energy import energy_findings
from tare.figures.energy import energy_of_trial
from tare.figures.power_series import sensor_step
from tare.figures.steps import steps_from
from tare.parts.protocols import Mark
from tare.records.model import USABLE, Record
from tare.records.store import Store
from tare.testing import FakeClock
from tare.trial.state import TrialState

CLOCKS = (345, 540, 780, 990, 1200, 1455, 1740, 1980)


def looked_at_again(store: Store, record: Record) -> Record:
    """The record with the energy that its series have by the rules of today."""
    key = record.trial, record.attempt
    columns = store.marks(*key)
    trial_state = TrialState(FakeClock())
    rows = [columns[name].tolist() for name in ("t_ns", "name", "edge", "step")]
    trial_state.marks = [Mark(*row) for row in zip(*rows, strict=True)]
    trial_state.series, trial_state.channels = store.readings(*key), store.channels(*key)
    trial_state.readings = {name: values.tolist() for name, (_, values) in trial_state.series.items()}
    trial_state.result = {"start_ns": record.facts["energy"]["begin_ns"], "end_ns": record.facts["energy"]["end_ns"]}
    found = energy_of_trial(record.settings, trial_state, steps_from(trial_state.marks))
    return replace(record, metrics={**record.metrics, **found.metrics}, facts={**record.facts, "energy": found.facts})


@pytest.fixture(scope="module")
def records() -> list[Record]:
    made = []
    for pack in (recorded_stores.MODES, recorded_stores.IDLE):
        with Store.open(pack) as store:
            made += [looked_at_again(store, each) for each in store.records() if each.state in USABLE]
    return made


def test_counter_and_power_agree_and_nearly_every_trial_has_energy(records):
    apart = [abs(each) for record in records if (each := gpu(record).get("disagreement_share")) is not None]
    assert len(records) == 104
    assert len(apart) >= 70
    assert np.median(apart) < 0.02
    doubted = [record for record in records if "energy_j" not in record.metrics]
    assert len(doubted) <= 9
    codes = {doubt["code"] for record in doubted for doubt in record.facts["energy"]["doubts"]}
    assert codes <= {"energy.disagreement", "energy.too-short", "energy.few-samples"}


def gpu(record: Record) -> dict:
    return record.facts["energy"]["sources"]["gpu"]


def test_idle_power_rises_with_the_clock(records):
    found = {
        float(dict(each.key[2])["control.power_mode.gpu_mhz"]): each.power_w.value for each in idle_powers(records)
    }
    assert sorted(found) == list(CLOCKS)
    assert [found[clock] for clock in CLOCKS] == sorted(found.values())
    assert found[345] == pytest.approx(78, abs=3)
    assert found[1980] == pytest.approx(123, abs=3)


def test_baseload_dominates_the_light_network_and_not_the_heavy_one(records):
    """S3 5.6.2, on a server's GPU."""
    split = with_baseload(records, by_mode(idle_powers(records)))
    shares: dict[str, list[float]] = {}
    for each in split:
        if "energy_baseload_j" in each.metrics:
            share = each.metrics["energy_baseload_j"] / each.metrics["energy_j"]
            shares.setdefault(each.settings["workload.model"], []).append(share)
    assert set(shares) == {"lenet5", "mobilenet_v3_large", "resnet18", "vgg11"}
    assert np.median(shares["lenet5"]) > 0.9
    assert np.median(shares["vgg11"]) < 0.55


def test_a_higher_clock_costs_idle_power_and_work_and_saves_time(records):
    """VGG-11 from 990 to 1740 MHz, on the cores where both have energy."""
    mine = [without_label(each) for each in records if is_idle(each) or each.settings["workload.model"] == "vgg11"]
    found = energy_findings(Held(mine), by="gpu_mhz", against="GPU 990 MHz").differences
    faster = [each for each in found if "1740" in each.level]
    assert faster
    for each in faster:
        assert each.unit == "step"
        assert each.longer.value < 0 < each.idle.value
        assert each.work.value > 0
        assert each.longer.value + each.idle.value + each.work.value == pytest.approx(each.total.value)


def without_label(record: Record) -> Record:
    """The name of a mode says again what its clock says, and would keep the clocks from being compared."""
    named = "control.power_mode.mode"
    return replace(record, settings={name: value for name, value in record.settings.items() if name != named})


def test_power_that_is_low_while_the_script_pauses_is_no_fault_of_the_sensor() -> None:
    """As on the H200: 90 steps, 2.5 s of imports at 121 W, 720 steps at 700 W; then the same without a pause."""
    ends_ns = np.cumsum([3_500_000] * 90 + [2_500_000_000] + [3_500_000] * 720)
    step_s = np.diff(ends_ns, prepend=0) / 1e9
    t_ns = np.arange(0, int(ends_ns[-1]), 50_000_000)
    paused = (t_ns > ends_ns[89]) & (t_ns <= ends_ns[90] + 100_000_000)
    watts = np.where(paused, 121.0, 700.0)
    window = (int(ends_ns[60]), int(ends_ns[-1]))
    assert sensor_step(t_ns, watts, window, ends_ns, step_s) is None

    even_ns = np.linspace(0, ends_ns[-1], len(ends_ns)).astype(np.int64)
    even_s = np.diff(even_ns, prepend=0) / 1e9
    told = sensor_step(t_ns, np.where(t_ns < t_ns[len(t_ns) // 2], 121.0, 700.0), window, even_ns, even_s)
    assert told is not None
    assert "from 121.0 W to 700.0 W" in told
