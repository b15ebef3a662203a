"""What the verdict says of GPUs: each rule with an input that it passes and one that it fails."""

import pytest

from tare.base.errors import DeviceLost
from tare.base.host import Exit
from tare.base.rulings import probe_note
from tare.figures.evidence import THRESHOLDS
from tare.testing import FakeClock
from tare.trial.rules import gpu_trouble, is_lost
from tare.trial.sampler_report import SamplerReport
from tare.trial.state import TrialState
from tare.trial.verdict import judge

HELD = {"power_mode": {"gpu.0.persistence": "on", "gpu.0.graphics_mhz": "990"}}
LOST = "GPU 0 is lost: it no longer answers its driver. `dmesg | grep -i xid` says why."


def trial_state(controls=None, lost=(), **readings):
    found = TrialState(FakeClock())
    found.exit = Exit(code=0, seconds=10.0)
    found.sampler = SamplerReport(
        ticks=100, missed=0, late_p99_s=0.0, cpu_s=0.01, seconds=10.0, lost=list(lost), longest_gap_s=0.1
    )
    found.facts["controls"] = controls or {}
    quiet = {"gpu.lost": [0.0, 0.0], "gpu.clock_hz": [990e6, 990e6], "gpu.foreign_processes": [0.0, 0.0]}
    found.readings = quiet | {f"gpu.{name}": values for name, values in readings.items()}
    return found


def trouble(found):
    return [(ruling.weight, ruling.sentence) for ruling in gpu_trouble(found, THRESHOLDS)]


def test_a_quiet_gpu_gives_no_trouble():
    assert trouble(trial_state(HELD, throttle_sw_power_s=[1.0, 1.2], throttle_hw_thermal_s=[3.0, 3.0])) == []


def test_a_device_without_a_gpu_is_asked_nothing():
    assert trouble(TrialState(FakeClock())) == []


@pytest.mark.parametrize("reason", ["hw_slowdown", "hw_thermal", "hw_power_brake", "sw_thermal"])
def test_a_gpu_that_was_slowed_down_makes_its_trial_suspect(reason):
    ((weight, sentence),) = trouble(trial_state(**{f"throttle_{reason}_s": [5.0, 5.25]}))

    assert weight == "suspect"
    assert "0.25 s" in sentence


def test_a_gpu_at_its_power_limit_is_worth_a_note_and_no_mark():
    ((weight, sentence),) = trouble(trial_state(throttle_sw_power_s=[0.0, 1.0]))

    assert (weight, "10%" in sentence) == ("note", True)


def test_a_power_limit_that_the_study_sets_is_meant_to_be_met():
    limited = {"power_mode": {"gpu.0.graphics_mhz": "990", "gpu.0.power_mw": "250000"}}

    assert trouble(trial_state(limited, throttle_sw_power_s=[0.0, 9.0], clock_hz=[525e6] * 3)) == []


@pytest.mark.parametrize("clock_hz", [345e6, 1980e6])
def test_a_clock_that_was_not_kept_makes_the_trial_invalid(clock_hz):
    ((weight, sentence),) = trouble(trial_state(HELD, clock_hz=[990e6, clock_hz, clock_hz]))

    assert weight == "invalid"
    assert f"was set to 990 MHz but ran at {clock_hz / 1e6:.0f}" in sentence


def test_free_clocks_may_be_anywhere():
    free = {"power_mode": {"gpu.0.graphics_mhz": "free"}, "dvfs": {"gpu.0.graphics_mhz": "345-990"}}

    assert trouble(trial_state(free, clock_hz=[345e6, 1980e6])) == []


def test_a_control_whose_state_is_no_mapping_is_passed_over():
    assert trouble(trial_state({"page_cache": "cold"})) == []


def test_company_on_the_gpu_is_suspect():
    ((weight, sentence),) = trouble(trial_state(foreign_processes=[0.0, 2.0, 0.0]))

    assert (weight, sentence[0]) == ("suspect", "2")


def test_each_gpu_is_judged_by_itself():
    found = trial_state()
    found.readings |= {"gpu1.lost": [0.0], "gpu1.throttle_hw_thermal_s": [0.0, 1.0]}

    assert [sentence[:5] for _, sentence in trouble(found)] == ["GPU 1"]


def test_the_rules_are_part_of_the_verdict():
    verdict = judge(_Planned(), trial_state(throttle_hw_thermal_s=[0.0, 1.0]), None)

    assert (verdict.state, "GPU 0 was slowed down" in str(verdict.reasons[0])) == ("suspect", True)


def test_a_lost_gpu_makes_the_trial_invalid_however_the_workload_ended():
    found = trial_state(lost=[probe_note("gpu.lost", "gpu", LOST)])
    found.exit = Exit(code=1, seconds=1.0, err="CUDA error: unspecified launch failure")
    verdict = judge(_Planned(), found, None)

    assert verdict.state == "invalid"
    assert is_lost(verdict.reasons)


def test_a_gpu_lost_before_its_clock_could_be_set_is_told_the_same_way():
    found = trial_state()
    found.error = DeviceLost(LOST)
    verdict = judge(_Planned(), found, None)

    assert (verdict.state, is_lost(verdict.reasons)) == ("invalid", True)


def test_an_ordinary_loss_of_a_probe_is_no_lost_gpu():
    verdict = judge(
        _Planned(), trial_state(lost=[probe_note("probe.file-gone", "cgroup", f"cpu.stat vanished. {LOST}")]), None
    )

    assert (verdict.state, is_lost(verdict.reasons)) == ("ok", False)


class _Planned:
    """As much of a trial as the verdict looks at."""

    def __init__(self):
        self.cell = self
        self.workload = self
        self.platforms = ()
        self.probes = ()
        self.strict = False

    def units(self):
        return None

    def asleep_s(self):
        return 0.0
