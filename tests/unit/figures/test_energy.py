"""A trial's energy: which source, over which time, by which way, and when it may be claimed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tare.base.host import Job, LocalHost
from tare.drivers.guests.channel import GuestClock, Sighting
from tare.figures.energy import energy_of_trial
from tare.figures.power_series import sources, widest
from tare.figures.steps import steps_from
from tare.parts.protocols import Mark
from tare.parts.workloads.idle import Null
from tare.testing import FakeClock, FakeInnerHost
from tare.trial.engine import result_in_device_time
from tare.trial.state import TrialState
from tare.trial.tenants import Tenant

NS = 1_000_000_000
BEGIN = 100 * NS
SETTINGS = {"workload": "torch_train", "workload.batch": 16}


def steps(count: int, step_s: float = 0.1, epochs: int = 0, begin_ns: int = BEGIN) -> list[Mark]:
    """Steps one after another, in so many epochs of equal length."""
    made, per_epoch = [], count // epochs if epochs else count
    for step in range(count):
        t_ns = begin_ns + round(step * step_s * NS)
        if epochs and step % per_epoch == 0:
            made.append(Mark(t_ns, "epoch", "begin", step // per_epoch))
        made += [Mark(t_ns, "step", "begin", step), Mark(t_ns + round(step_s * NS), "step", "end", step)]
        if epochs and (step + 1) % per_epoch == 0:
            made.append(Mark(t_ns + round(step_s * NS), "epoch", "end", step // per_epoch))
    return made


def grid(seconds: float = 30.0, period_s: float = 0.1) -> np.ndarray:
    return BEGIN - NS + (np.arange(round((seconds + 2) / period_s)) * period_s * NS).astype(np.int64)


def trial_state(
    marks: list[Mark], series: dict[str, np.ndarray], t_ns: np.ndarray | None = None, **changes
) -> TrialState:
    times = grid() if t_ns is None else t_ns
    found = TrialState(FakeClock())
    found.marks = marks
    found.result = {"start_ns": BEGIN, "end_ns": BEGIN + 20 * NS}
    found.readings = {name: list(values) for name, values in series.items()}
    found.series = {name: (times, np.asarray(values, dtype=float)) for name, values in series.items()}
    found.channels = [
        {"name": name, "unit": "J" if name.endswith("_j") else "W" if name.endswith("_w") else "Hz", "kind": "gauge",
         "about": changes.pop("about", "")}
        for name in series
    ]  # fmt: skip
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def energy(found: TrialState, settings=SETTINGS):
    return energy_of_trial(settings, found, steps_from(found.marks))


def watts(power: float) -> np.ndarray:
    return np.full(len(grid()), power)


def joules(power: float) -> np.ndarray:
    return power * (grid() - grid()[0]) / NS


def test_energy_is_of_the_measured_steps_alone():
    """Two epochs of 10 s: the first is kept apart, and draws twice as much."""
    power = np.where(grid() < BEGIN + 10 * NS, 80.0, 40.0)
    found = energy(trial_state(steps(200, epochs=2), {"gpu.power_w": power}))
    assert found.facts["window"] == "the measured steps"
    assert found.metrics["energy_window_s"] == pytest.approx(10.0)
    assert found.metrics["energy_j"] == pytest.approx(400.0, rel=0.01)
    assert found.metrics["power_mean_w"] == pytest.approx(40.0, rel=0.01)
    assert found.metrics["energy_step_j"] == pytest.approx(4.0, rel=0.01)
    assert found.metrics["energy_sample_j"] == pytest.approx(0.25, rel=0.01)
    assert found.metrics["energy_epoch_j"] == pytest.approx(400.0, rel=0.01)
    assert "energy_request_j" not in found.metrics


def test_an_epoch_that_was_cut_off_is_no_epoch():
    assert "energy_epoch_j" in energy(trial_state(steps(200, epochs=2), {"gpu.power_w": watts(30.0)})).metrics
    found = energy(trial_state(steps(201, epochs=2), {"gpu.power_w": watts(30.0)}))
    assert found.metrics["energy_step_j"] == pytest.approx(3.0)
    assert "energy_epoch_j" not in found.metrics


def test_a_step_of_inference_is_a_request():
    settings = {"workload": "torch_infer", "workload.batch": 4, "workload.requests": 100}
    found = energy(trial_state(steps(100), {"gpu.power_w": watts(50.0)}), settings)
    assert found.metrics["energy_request_j"] == found.metrics["energy_step_j"] == pytest.approx(5.0)
    assert found.metrics["energy_sample_j"] == pytest.approx(1.25)
    assert "energy_epoch_j" not in found.metrics


def test_a_step_of_generation_is_a_token_of_each_prompt_and_the_first_ones_count_too():
    settings = {"workload": "generate", "workload.batch": 4, "workload.requests": 10, "workload.output": 11}
    found = energy(trial_state(steps(100), {"gpu.power_w": watts(50.0)}), settings)
    assert found.metrics["energy_step_j"] == pytest.approx(5.0)
    assert found.metrics["energy_request_j"] == pytest.approx(50.0)
    assert found.metrics["energy_token_j"] == pytest.approx(500.0 / (10 * 11 * 4))


def test_a_step_of_fine_tuning_is_the_tokens_of_all_its_texts():
    settings = {"workload": "finetune", "workload.batch": 4, "workload.accumulate": 5, "workload.length": 25}
    found = energy(trial_state(steps(100), {"gpu.power_w": watts(50.0)}), settings)
    assert found.metrics["energy_step_j"] == pytest.approx(5.0)
    assert found.metrics["energy_sample_j"] == pytest.approx(5.0 / 20)
    assert found.metrics["energy_token_j"] == pytest.approx(5.0 / 500)


def test_a_workload_without_steps_is_taken_whole():
    found = energy(trial_state([], {"gpu.power_w": watts(50.0)}))
    assert found.facts["window"] == "the whole run"
    assert found.metrics["energy_j"] == pytest.approx(1000.0)
    assert "energy_step_j" not in found.metrics


def test_no_power_is_no_energy_and_no_zero():
    assert energy(trial_state(steps(200), {})) is None


def test_counter_and_sum_are_both_kept_and_the_counter_counts():
    found = energy(trial_state(steps(200), {"gpu.power_w": watts(51.0), "gpu.energy_j": joules(50.0)}))
    told = found.facts["sources"]["gpu"]
    assert found.metrics["power_mean_w"] == pytest.approx(50.0)
    assert told["by"] == "counter"
    assert told["integral_j"] / told["counter_j"] == pytest.approx(51 / 50)
    assert found.metrics["energy_gpu_disagreement_share"] == pytest.approx(1 / 51)


def test_two_ways_that_disagree_claim_nothing():
    found = energy(trial_state(steps(200), {"gpu.power_w": watts(60.0), "gpu.energy_j": joules(50.0)}))
    assert "energy_j" not in found.metrics
    assert "energy_gpu_j" not in found.metrics
    assert found.metrics["energy_gpu_disagreement_share"] > 0.05
    assert found.facts["claimed"] is False
    assert "differ by 16.7%" in found.facts["doubts"][0]["sentence"]


def test_a_counter_that_was_reset_leaves_the_sum():
    broken = joules(50.0)
    broken[200:] -= 500
    found = energy(trial_state(steps(200), {"gpu.power_w": watts(50.0), "gpu.energy_j": broken}))
    assert found.facts["sources"]["gpu"]["by"] == "integral"
    assert found.metrics["energy_j"] == pytest.approx(50.0 * found.metrics["energy_window_s"])


def dropped(after_s: float, lacking_s: float) -> np.ndarray:
    return np.where(grid() >= BEGIN + round(after_s * 1e9), lacking_s, 0.0)


def test_a_counter_that_lacks_an_interval_of_the_steps_claims_nothing():
    series = {"power_rapl.total_j": joules(30.0), "power_rapl.dropped_s": dropped(5.0, 0.1)}
    found = energy(trial_state(steps(200), series))
    assert "energy_j" not in found.metrics
    assert "lacks the energy of 0.1 s" in found.facts["doubts"][0]["sentence"]


def test_what_a_counter_lacked_before_the_measured_steps_does_not_matter():
    series = {"power_rapl.total_j": joules(30.0), "power_rapl.dropped_s": dropped(-1.0, 0.1)}
    assert "energy_j" in energy(trial_state(steps(200), series)).metrics


def test_too_few_samples_are_marked_and_not_claimed():
    found = energy(trial_state(steps(40), {"gpu.power_w": watts(50.0)}))
    assert not [name for name in found.metrics if name.startswith(("energy", "power"))]
    assert found.facts["sources"]["gpu"]["samples"] < 60
    assert "too short" in found.facts["doubts"][0]["sentence"]
    assert found.facts["sources"]["gpu"]["power_w"] == pytest.approx(50.0)


def test_a_slow_sensor_needs_ten_of_its_windows():
    """E9: NVML's average field over a second, ten times a second: 80 samples, but not ten seconds."""
    about = "of the GPU; nvmlDeviceGetPowerUsage: averaged over 1 s since Ampere"
    marks = steps(89)
    assert energy(trial_state(marks, {"gpu.power_w": watts(50.0)})).facts["claimed"]
    slow = energy(trial_state(marks, {"gpu.power_w": watts(50.0)}, about=about))
    assert not slow.facts["claimed"]
    assert slow.facts["sources"]["gpu"]["sensor_window_s"] == 1.0
    assert "averages over 1 s takes 10 s" in slow.facts["doubts"][0]["sentence"]


def test_a_gap_is_partial_and_not_claimed():
    times = grid()
    kept = (times < BEGIN + 8 * NS) | (times > BEGIN + 12 * NS)
    found = energy(trial_state(steps(200), {"gpu.power_w": watts(50.0)[kept]}, times[kept]))
    assert "energy_j" not in found.metrics
    assert any("gap of 4" in doubt["sentence"] for doubt in found.facts["doubts"])
    assert found.facts["sources"]["gpu"]["integral_j"] < 50.0 * (found.facts["window_s"] - 3.8)


def test_no_energy_is_claimed_over_a_sleep():
    """F3: the clock of the series stands still while the machine sleeps, and so shows no gap."""
    found = trial_state(steps(200), {"gpu.power_w": watts(50.0), "gpu.energy_j": joules(50.0)})
    found.clocks_before["boottime_s"] -= 312
    told = energy(found)
    assert "energy_j" not in told.metrics
    assert "slept 312 s" in told.facts["doubts"][0]["sentence"]


@pytest.mark.parametrize(
    ("channels", "chosen"),
    [
        (["external.power_w", "power_rails.total_w", "gpu.power_w"], ["external"]),
        (["power_rails.total_w", "power_rails.vdd_cpu_w"], ["power_rails"]),
        (["power_rapl.total_j", "power_rapl.package-0_j", "gpu.energy_j"], ["power_rapl", "gpu"]),
        (["gpu.power_w", "gpu1.power_w", "gpu.power_limit_w"], ["gpu", "gpu1"]),
        (["power_rapl.total_j"], ["power_rapl"]),
        (["power_rails.vdd_cpu_w"], []),  # a board whose total is not known has no energy of the module
        (["meter.power_w", "cpu.busy_s"], ["meter"]),
    ],
)
def test_the_widest_scope_that_was_measured_is_the_energy(channels, chosen):
    assert [source.name for source in widest(sources(channels))] == chosen


def test_packages_and_gpu_are_added_and_each_has_its_own_figure():
    found = energy(trial_state(steps(200), {"power_rapl.total_j": joules(30.0), "gpu.energy_j": joules(50.0)}))
    assert found.metrics["power_mean_w"] == pytest.approx(80.0)
    assert found.metrics["energy_gpu_j"] == pytest.approx(50.0 * found.metrics["energy_window_s"])
    assert found.metrics["energy_power_rapl_j"] == pytest.approx(30.0 * found.metrics["energy_window_s"])
    assert found.facts["source"] == "power_rapl+gpu"
    assert found.facts["scope"] == "the CPU packages and the GPU"


def test_a_rail_has_a_figure_and_is_not_the_module():
    found = energy(trial_state(steps(200), {"power_rails.total_w": watts(20.0), "power_rails.VDD_CPU-0_w": watts(5.0)}))
    assert found.metrics["power_mean_w"] == pytest.approx(20.0)
    assert found.metrics["energy_power_rails_vdd_cpu_0_j"] == pytest.approx(5.0 * found.metrics["energy_window_s"])


def test_of_a_shared_device_no_tenant_gets_energy_in_its_name():
    beside = Tenant(Null(), LocalHost(), Path("/workdir"), Job(("true",)))
    beside.marks = steps(100, begin_ns=BEGIN + 5 * NS)
    found = energy(trial_state(steps(200), {"gpu.power_w": watts(50.0)}, neighbours=[beside]))
    assert found.facts["shared_by"] == 2
    assert found.metrics["energy_j"] == pytest.approx(500.0)
    assert not {"energy_step_j", "energy_sample_j", "energy_epoch_j"} & found.metrics.keys()


def test_clocks_are_the_median_core_and_the_gpu_in_the_window():
    series = {f"frequency.cpu{core}_hz": watts(hz) for core, hz in enumerate((1.2e9, 1.2e9, 2.0e9))}
    found = energy(trial_state(steps(200), {**series, "gpu.clock_hz": watts(670e6)}))
    assert found.metrics == {"cpu_clock_hz": 1.2e9, "gpu_clock_hz": 670e6}
    assert not found.facts


def test_only_channels_in_watts_and_joules_are_power():
    found = trial_state(steps(200), {"odd.power_w": watts(1.0)})
    found.channels = [dict(each, unit="1") for each in found.channels]
    assert energy(found) is None


def test_the_run_of_a_guest_is_moved_to_device_time():
    clock = GuestClock()
    clock.add(Sighting(device_ns=7, guest_ns=0, bound_ns=1))
    guest = FakeInnerHost(guest_clock=clock)
    assert result_in_device_time({"start_ns": 1, "end_ns": 2, "wall_s": 3.0}, guest)["end_ns"] == 9
    assert result_in_device_time({"start_ns": 1}, LocalHost()) == {"start_ns": 1}


def test_steps_that_overlap_are_one_span():
    """Several requests in flight: from the first begin to the last end."""
    marks = [*steps(100), Mark(BEGIN + 3 * NS, "step", "begin", 100), Mark(BEGIN + 12 * NS, "step", "end", 100)]
    found = energy(trial_state(marks, {"gpu.power_w": watts(50.0)}))
    assert found.metrics["energy_window_s"] == pytest.approx(11.0, abs=0.11)


def test_a_step_of_power_without_one_of_work_is_the_sensors():
    """E11: two thirds of the power after half of the time, and every step as long as before."""
    power = np.where(grid() < BEGIN + 12 * NS, 50.0, 30.0) + np.sin(np.arange(len(grid())))
    found = energy(trial_state(steps(200), {"external.power_w": power}))
    assert "energy_j" not in found.metrics
    (doubt,) = found.facts["suspicions"]
    assert (doubt["code"], doubt["weight"], doubt["subject"]) == ("energy.sensor-step", "suspect", "external")
    assert "external: the power sensor: power went from 50." in doubt["sentence"]
    assert "after 10 s while the work went on as before" in doubt["sentence"]


def test_a_counter_that_slows_down_alone_is_the_sensors_too():
    slower = np.where(grid() < BEGIN + 12 * NS, 5.0, 3.0).cumsum()
    assert energy(trial_state(steps(200), {"gpu.energy_j": slower})).facts["suspicions"]


def test_power_that_follows_the_work_is_believed():
    """Half as much power, and steps that take twice as long: the device was slowed down, and that was measured."""
    slow = [Mark(mark.t_ns + 10 * NS, mark.name, mark.edge, mark.step + 100) for mark in steps(50, 0.2)]
    power = np.where(grid() < BEGIN + 10 * NS, 50.0, 25.0)
    found = energy(trial_state([*steps(100), *slow], {"external.power_w": power}))
    assert found.facts["suspicions"] == []
    assert found.metrics["energy_j"] > 0


@pytest.mark.parametrize(
    "power",
    [
        50 + 20 * np.sin(np.arange(len(grid()))),  # scatter
        np.linspace(50, 55, len(grid())),  # a device that warms up
        np.where(np.arange(len(grid())) % 2, 90.0, 20.0),  # a GPU that is busy half of each step
    ],
)
def test_scatter_drift_and_duty_cycles_are_no_steps(power):
    assert energy(trial_state(steps(200), {"external.power_w": power})).facts["suspicions"] == []


def test_a_sensor_behind_the_meter_that_says_more_than_the_meter_belies_both():
    found = energy(trial_state(steps(200), {"external.power_w": watts(30.0), "gpu.power_w": watts(60.0)}))
    assert not [name for name in found.metrics if name.endswith(("_j", "_w"))]
    assert any("the meter says 30.0 W" in doubt["sentence"] for doubt in found.facts["doubts"])
    assert energy(trial_state(steps(200), {"external.power_w": watts(90.0), "gpu.power_w": watts(60.0)})).facts[
        "claimed"
    ]


def test_energy_by_a_counter_has_a_bound_and_is_refused_only_beyond_it():
    """M34: it misses nothing between two readings; what blurs its edges is how seldom it is read."""
    times = grid(period_s=0.3)
    joules_seen = 50.0 * (times - times[0]) / NS
    enough = energy(trial_state(steps(40), {"gpu.energy_j": joules_seen}, times))
    assert enough.facts["sources"]["gpu"]["samples"] < 60
    assert enough.metrics["power_mean_w"] == pytest.approx(50.0)
    assert enough.metrics["energy_bound_share"] < 0.15
    short = energy(trial_state(steps(8), {"gpu.energy_j": joules_seen}, times))
    assert "energy_j" not in short.metrics
    assert short.facts["doubts"][0]["code"] == "energy.too-short"
    assert "and 20% is the limit" in short.facts["doubts"][0]["sentence"]


def test_edges_of_a_counter_are_split_as_power_has_it():
    """2.5 s at 535 W after an idle second at 100 W, the counter read every 0.75 s: 1.34 kJ within 2 %, not 12 % off."""
    fine = grid(5.0, 0.001)
    inside = (fine >= BEGIN) & (fine < BEGIN + 2.5 * NS)
    risen = np.concatenate(([0.0], np.cumsum(np.where(inside, 535.0, 100.0) * 0.001)[:-1]))
    seldom, often = slice(130, None, 750), slice(50, None, 100)
    found = trial_state(steps(1000, 0.0025), {})
    found.series = {
        "gpu.energy_j": (fine[seldom], risen[seldom]),
        "gpu.power_w": (fine[often], np.where(inside, 535.0, 100.0)[often]),
    }
    found.channels = [{"name": name, "unit": name[-1].upper(), "kind": "gauge", "about": ""} for name in found.series]
    told = energy(found)
    really = 535.0 * told.metrics["energy_window_s"]
    assert told.metrics["energy_j"] == pytest.approx(really, rel=0.02)
    assert abs(told.metrics["energy_j"] / really - 1) < told.metrics["energy_bound_share"] < 0.1


def test_nine_runs_on_an_h200_have_the_energy_that_the_script_read_itself():
    """2.6 s of steps at 700 W; power every 0.1 s, the counter every 0.4 to 2 s, as the probe reads them."""
    runs = json.loads((Path(__file__).parents[2] / "recordings" / "h200" / "energy-runs.json").read_text())
    assert len(runs) == 9
    for run in runs:
        (_, begin_ns, low_j, end_ns, _, high_j), (power, counter) = run["reads"], run["series"]
        step_s = (end_ns - begin_ns) / 900 / NS
        found = trial_state(steps(1000, step_s, begin_ns=begin_ns - round(100 * step_s * NS)), {})
        found.series = {
            name: (np.array([t for t, _ in rows], np.int64), np.array([value for _, value in rows]))
            for name, rows in (("gpu.power_w", power), ("gpu.energy_j", counter))
        }
        found.channels = [{"name": name, "unit": name[-1].upper(), "kind": "", "about": ""} for name in found.series]
        told = energy(found)
        assert told.facts["begin_ns"] == pytest.approx(begin_ns, abs=1e5)
        assert told.metrics["energy_j"] == pytest.approx(high_j - low_j, rel=0.05)
        assert abs(told.metrics["energy_j"] / (high_j - low_j) - 1) < told.metrics["energy_bound_share"] < 0.1


def test_the_whole_run_has_an_energy_beside_that_of_the_steps():
    found = energy(trial_state(steps(150), {"gpu.power_w": watts(50.0), "gpu.energy_j": joules(50.0)}))
    assert found.metrics["energy_j"] == pytest.approx(50.0 * 13.5)
    assert found.metrics["energy_run_j"] == pytest.approx(50.0 * 20)


def test_figures_of_gpus_are_of_those_that_were_used():
    used = np.full(len(grid()), 0.9)
    series = {
        "gpu.util": used * 0, "gpu1.util": used, "gpu.memory_used_bytes": used * 1e6,
        "gpu1.memory_used_bytes": used * 5e9, "gpu.energy_j": joules(60.0), "gpu1.energy_j": joules(300.0),
    }  # fmt: skip
    found = energy(trial_state(steps(200), series))
    assert found.metrics["gpu_power_w"] == pytest.approx(300.0)
    assert found.metrics["energy_gpus_step_j"] == pytest.approx(30.0)
    assert found.metrics["gpu_memory_bytes"] == pytest.approx(4.5e9)
    assert found.metrics["power_mean_w"] == pytest.approx(360.0)  # of all GPUs of the device
