"""Rules about heat, clocks and power: each with an input that it passes and one that it fails."""

import numpy as np
import pytest

from tare.base.host import Exit
from tare.base.rulings import Ruling
from tare.figures.evidence import THRESHOLDS
from tare.testing import FakeClock
from tare.trial.rules import sensor_trouble
from tare.trial.state import TrialState
from tare.trial.verdict import judge, stopped_for_heat

SECOND = 1_000_000_000
UNITS = {"_w": "W", "_j": "J", "_c": "C", "z": "Hz"}


def state_with(series=(), *, readings=(), facts=(), seconds=300):
    """What was seen at 10 Hz for so long: series as (times in s, values), readings as values alone."""
    found = TrialState(FakeClock())
    found.exit = Exit(code=0, seconds=float(seconds))
    found.facts = dict(facts)
    grid = np.arange(0, seconds * 10 + 1) / 10
    every = {"sampler.late_s": (grid, np.zeros(len(grid))), **dict(series)}
    found.series = {
        name: ((np.asarray(times) * SECOND).astype(np.int64), np.asarray(values, dtype=float))
        for name, (times, values) in every.items()
    }
    found.readings = {name: list(values) for name, (_, values) in found.series.items()} | dict(readings)
    found.channels = [{"name": name, "unit": unit_of(name), "kind": "gauge", "about": ""} for name in found.readings]
    return found


def unit_of(name):
    return next((unit for end, unit in UNITS.items() if name.endswith(end)), "1")


def said(trial_state):
    return [(ruling.weight, ruling.sentence) for ruling in sensor_trouble(trial_state, THRESHOLDS)]


def at_10_hz(seconds):
    return np.arange(0, seconds * 10) / 10


@pytest.mark.parametrize(
    ("channel", "quiet", "throttled", "says"),
    [
        ("thermal.core1_throttled", [3, 3, 3], [3, 3, 5], "core1_throttled rose by 2"),
        ("thermal.package0_throttled", [9, 9], [9, 10], "package0_throttled rose by 1"),
        ("thermal.soctherm_oc_oc3_events", [7, 7], [7, 8], "oc3_events rose by 1"),
        ("thermal.cooling_cpufreq_cpu0", [0, 0, 0, 0], [0, 0, 2, 0], "was at work for 25% of the time"),
        ("thermal.ina3221_curr1_crit_alarm", [0, 0], [0, 1], "an alarm was on"),
    ],
)
def test_a_device_that_slowed_itself_down_makes_the_trial_suspect(channel, quiet, throttled, says):
    assert said(state_with(readings={channel: quiet})) == []
    ((weight, sentence),) = said(state_with(readings={channel: throttled}))
    assert weight == "suspect"
    assert says in sentence


FIXED = {"dvfs": {"cpufreq.cpu0.min_khz": "2000000", "cpufreq.cpu0.governor": "performance"}}
LIMITED = {"power_mode": {"cpufreq.cpu0.max_khz": "1200000", "cpufreq.cpu0.min_khz": "102000"}}
BOARD = {"dvfs": {"jetson.CPU_DENVER_0.MIN_FREQ": "2000000", "jetson.CPU_DENVER_1.MIN_FREQ": "off"}}


@pytest.mark.parametrize(
    ("controls", "good_mhz", "bad_mhz", "says"),
    [
        (FIXED, 1990, 1800, "core 0 was set to 2000 MHz but ran at 1800"),
        (BOARD, 1990, 1800, "core 0 was set to 2000 MHz but ran at 1800"),
        (LIMITED, 300, 1500, "core 0 was limited to 1200 MHz and ran at 1500"),
    ],
)
def test_a_core_keeps_the_clock_that_was_asked_for(controls, good_mhz, bad_mhz, says):
    def clocks(mhz):
        return state_with(readings={"frequency.cpu0_hz": [mhz * 1e6] * 5}, facts={"controls": controls})

    assert said(clocks(good_mhz)) == []
    assert said(clocks(bad_mhz)) == [("invalid", f"{says}.")]


@pytest.mark.parametrize(
    ("readings_mhz", "says"),
    [
        ([670] * 5, None),
        ([0, 0, 0, 670], None),  # switched off in between
        ([318] * 5, "the GPU was set to 676 MHz but ran at 318"),
        ([1377] * 5, "the GPU was limited to 676 MHz and ran at 1377"),
    ],
)
def test_a_boards_gpu_keeps_its_clock_too(readings_mhz, says):
    held = {"dvfs": {"jetson.GPU.MIN_FREQ": "675750000"}, "power_mode": {"jetson.GPU.MAX_FREQ": "675750000"}}
    found = said(
        state_with(readings={"frequency.gpu_hz": [mhz * 1e6 for mhz in readings_mhz]}, facts={"controls": held})
    )
    assert found == ([] if says is None else [("invalid", f"{says}.")])


def test_without_a_control_any_clock_is_right():
    assert said(state_with(readings={"frequency.cpu0_hz": [3e8]})) == []


@pytest.mark.parametrize(("degrees", "weight"), [(42.9, None), (43.1, "suspect"), (37.1, None), (36.9, "note")])
def test_a_trial_starts_as_warm_as_the_study_did(degrees, weight):
    warmth = {"reference_c": {"cpu": 40.0, "gone": 99.0}, "start_c": {"cpu": degrees}, "waited_s": 120.0}
    found = said(state_with(facts={"warmth": warmth}))
    assert [kind for kind, _ in found] == ([] if weight is None else [weight])
    if weight == "suspect":
        assert "hot start: cpu was 3.1 °C warmer than at the study's start after 120 s of waiting" in found[0][1]


def test_a_sensor_is_covered_by_its_own_rhythm():
    slow = np.arange(0, 300)
    assert said(state_with({"temperature.cpu_c": (slow, 40 + 0 * slow)})) == []
    assert said(state_with({"external.power_w": (at_10_hz(300), 10 + at_10_hz(300))})) == []


@pytest.mark.parametrize(
    ("times", "says"),
    [
        (at_10_hz(200), "is partial: 2000 of 3000 samples"),  # lost on the way
        (at_10_hz(300)[at_10_hz(300) >= 60], "is partial: 2400 of 3000 samples"),  # came late
        (np.delete(at_10_hz(300), slice(1000, 1010)), "is partial: it has a gap of 1.1 s"),
    ],
)
def test_a_sensor_with_missing_samples_is_partial(times, says):
    ((weight, sentence),) = said(state_with({"power_rails.total_w": (times, 5 + np.sin(times))}))
    assert weight == "note"
    assert says in sentence


def test_what_the_energy_says_of_a_gap_is_not_said_twice():
    times = at_10_hz(200)
    partial = Ruling("energy.partial", "note", "", "partial: power is known for 66% of the time.").about("power_rails")
    energy = {"doubts": [partial.as_json()]}
    found = said(state_with({"power_rails.total_w": (times, 5 + np.sin(times))}, facts={"energy": energy}))
    assert [sentence for _, sentence in found] == [f"no energy is claimed: {partial}"]


def test_two_energies_that_disagree_are_suspect_and_what_is_not_claimed_is_told():
    apart = Ruling("energy.disagreement", "suspect", "gpu", "gpu: the counter and the sum of power differ by 9.0%.")
    short = Ruling("energy.too-short", "note", "gpu", "gpu: too short.")
    energy = {"suspicions": [apart.as_json()], "doubts": [short.as_json(), apart.as_json()]}
    assert said(state_with(facts={"energy": energy})) == [
        ("suspect", f"energy: {apart}"),
        ("note", "no energy is claimed: gpu: too short."),
    ]
    assert said(state_with(facts={"energy": {"suspicions": [], "doubts": []}})) == []


@pytest.mark.parametrize(("others_w", "weight"), [(4.0, None), (10.4, None), (10.6, "suspect")])
def test_rails_cannot_draw_more_than_what_feeds_them(others_w, weight):
    readings = {"power_rails.total_w": [10.0] * 3, "power_rails.others_w": [others_w] * 3}
    assert [kind for kind, _ in said(state_with(readings=readings))] == ([] if weight is None else [weight])


@pytest.mark.parametrize(("wall_w", "weight"), [(14.0, None), (9.0, "suspect")])
def test_a_meter_at_the_wall_says_no_less_than_the_module(wall_w, weight):
    readings = {"power_rails.total_w": [10.0] * 3, "external.power_w": [wall_w] * 3}
    assert [kind for kind, _ in said(state_with(readings=readings))] == ([] if weight is None else [weight])


def busy(*cores):
    """CPU time of a device that has so many cores busy in each part of five minutes."""
    times = at_10_hz(300)
    rate = np.repeat(cores, len(times) // len(cores))
    return times, np.cumsum(rate) / 10


@pytest.mark.parametrize(
    ("watts", "load", "suspect"),
    [
        (12 + 0 * at_10_hz(300), busy(0, 2), True),
        (12 + 0 * at_10_hz(300), busy(1, 1), False),  # a steady load has a steady power
        (12 + (at_10_hz(300) > 150), busy(0, 0, 2, 2), False),
    ],
)
def test_power_that_stands_still_while_the_load_changes_is_a_stuck_sensor(watts, load, suspect):
    found = said(state_with({"power_rails.total_w": (at_10_hz(300), watts), "cpu.busy_s": load}))
    assert ([kind for kind, _ in found] == ["suspect"]) is suspect
    if suspect:
        assert "power_rails.total_w was constant for 300 s while the load changed" in found[0][1]


def test_the_gpus_load_counts_too():
    times = at_10_hz(300)
    load = {"gpu.util": (times, (times > 100).astype(float)), "gpu.power_w": (times, 80 + 0 * times)}
    assert [kind for kind, _ in said(state_with(load))] == ["suspect"]


@pytest.mark.parametrize(("counted", "suspect"), [(at_10_hz(300), False), (np.minimum(at_10_hz(300), 100), True)])
def test_an_energy_counter_that_stands_still_is_suspect_whatever_the_load(counted, suspect):
    found = said(state_with({"power_rapl.total_j": (at_10_hz(300), counted)}))
    assert [kind for kind, _ in found] == (["suspect"] if suspect else [])


HOT = {"warmth": {"stopped_by": {"name": "tj", "degrees_c": 98.04, "limit_c": 97.0}}}


def test_a_trial_that_was_stopped_for_heat_failed_with_a_reason_that_is_the_same_each_time():
    verdict = stopped_for_heat(state_with(facts=HOT))
    assert verdict.state == "failed"
    assert (*map(str, verdict.reasons),) == (
        "the device was too hot, and the trial was stopped.",
        "tj was at 98.0 °C; its limit is 97 °C.",
    )
    assert stopped_for_heat(state_with(facts={"warmth": {"start_c": {}}})) is None


def test_heat_is_the_reason_even_where_the_workload_died_of_being_stopped():
    found = state_with(facts=HOT)
    found.exit = Exit(code=-9, seconds=1.0)
    assert [each.code for each in judge(None, found, None).reasons] == ["heat.stopped", "heat.limit"]
    found.interrupted = True
    assert judge(None, found, None).state == "interrupted"
