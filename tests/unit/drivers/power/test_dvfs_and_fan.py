from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from knobs import DEAD, journal_in
from tare.base.errors import ControlNotHeld, TareError
from tare.drivers.power import named_mode
from tare.parts.controls.fan import FanSpeed
from tare.parts.controls.power import Dvfs, PowerMode
from tare.trial.undo.knob import hold_controls
from tare.trial.undo.restoration import restore
from trees.files import CPUS, lay
from trees.jetson import agx_orin, agx_xavier, nano
from trees.kernel import Board
from trees.server import acpi, x86

LOW, HIGH = (f"{CPUS}/cpu0/cpufreq/scaling_{end}_freq" for end in ("min", "max"))
PWM, WHO = "/sys/devices/pwm-fan/target_pwm", "/sys/devices/pwm-fan/temp_control"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_clocks_are_fixed_where_the_power_mode_has_put_them_whatever_the_order_in_the_study(
    board: Board, tmp_path: Path, order: tuple[int, int]
):
    host = board(agx_xavier, jetson_clocks="works")
    both = [PowerMode(cores=4, cpu_mhz=1200), Dvfs(state="off")]
    with ExitStack() as stack:
        hold_controls(stack, host, [both[index] for index in order], [], journal_in(tmp_path))
        assert host.read(LOW) == host.read(HIGH) == "1190400\n"
        assert named_mode.show(host)["EMC"]["FreqOverride"] == "1"
    assert (host.read(LOW), host.read(HIGH)) == ("115200\n", "2265600\n")
    assert named_mode.show(host)["EMC"]["FreqOverride"] == "0"


def test_a_board_whose_clocks_were_fixed_before_stays_so(board: Board, tmp_path: Path):
    host = board(agx_xavier, jetson_clocks="works")
    host.run(["jetson_clocks"])
    with ExitStack() as stack:
        hold_controls(stack, host, [Dvfs(state="off")], [], journal_in(tmp_path))
    assert host.read(LOW) == "2265600\n"
    assert all(one["MinFreq"] == one["MaxFreq"] for name, one in named_mode.show(host).items() if name != "EMC")


def test_dvfs_on_frees_clocks_that_were_fixed_and_fixes_them_again_after(board: Board, tmp_path: Path):
    host = board(x86)
    host.write(LOW, "3600000")
    host.write(f"{CPUS}/cpu0/cpufreq/scaling_governor", "performance")
    with ExitStack() as stack:
        hold_controls(stack, host, [Dvfs(state="on")], [], journal_in(tmp_path))
        assert host.read(LOW) == "800000\n"
        assert host.read(f"{CPUS}/cpu0/cpufreq/scaling_governor") == "powersave\n"
    assert host.read(LOW) == "3600000\n"
    assert host.read(f"{CPUS}/cpu0/cpufreq/scaling_governor") == "performance\n"


@pytest.mark.parametrize(("behaviour", "said"), [("hang", "no answer"), ("refuse", "Must run as root")])
def test_a_jetson_clocks_that_hangs_or_refuses_fails_the_trial(
    board: Board, tmp_path: Path, impatient: Callable[[], None], behaviour: str, said: str
):
    host = board(agx_xavier, jetson_clocks=behaviour)
    if behaviour == "hang":
        impatient()
    with pytest.raises(ControlNotHeld, match=said), ExitStack() as stack:
        hold_controls(stack, host, [Dvfs(state="off")], [], journal_in(tmp_path))
    assert host.read(LOW) == "115200\n"


def test_a_jetson_clocks_that_does_nothing_is_noticed_by_the_memory_clock(board: Board, tmp_path: Path):
    host = board(agx_xavier, jetson_clocks="ignore")
    with pytest.raises(ControlNotHeld, match="FreqOverride=0"), ExitStack() as stack:
        hold_controls(stack, host, [Dvfs(state="off")], [], journal_in(tmp_path))
    assert host.read(LOW) == "115200\n"


def test_a_jetson_clocks_that_hangs_at_the_end_leaves_the_clocks_free_and_is_tried_again(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, impatient: Callable[[], None]
):
    host = board(agx_xavier, jetson_clocks="works")
    command = tmp_path / "bin" / "jetson_clocks"
    control, working = Dvfs(state="off"), command.read_text()
    journal_in(tmp_path, owner=DEAD).note_knob(control, control.read(host), control.target(host, []))
    control.write(host, control.target(host, []))
    command.write_text("#!/bin/sh\nsleep 600\n")
    impatient()
    assert not restore(host, journal_in(tmp_path)).clean
    assert host.read(LOW) == "115200\n"
    monkeypatch.setattr("tare.drivers.power.named_mode.JETSON_CLOCKS_LIMIT_S", 20.0)
    command.write_text(working)
    assert restore(host, journal_in(tmp_path)).clean


@pytest.mark.parametrize("trouble", ["deaf", "refusing"])
def test_a_lower_limit_that_does_not_take_fails_the_trial(board: Board, tmp_path: Path, trouble: str):
    host = board(acpi)
    setattr(host, trouble, {LOW})
    with pytest.raises(ControlNotHeld), ExitStack() as stack:
        hold_controls(stack, host, [Dvfs(state="off")], [], journal_in(tmp_path))
    assert host.read(LOW) == "1200000\n"


def test_a_board_without_jetson_clocks_cannot_fix_its_memory_clock_and_says_so(board: Board):
    host = board(agx_xavier)
    assert "memory clock is fixed by `jetson_clocks`" in str(Dvfs(state="off").obstacles(host)[0])
    assert Dvfs(state="on").obstacles(host) == []


def test_yaml_words_for_on_and_off_are_understood():
    assert Dvfs.model_validate({"state": False}).state == "off"
    assert Dvfs.model_validate({"state": True}).state == "on"


# The fan


def test_a_fan_is_taken_over_and_given_back(board: Board, tmp_path: Path):
    host = board(nano)
    with ExitStack() as stack:
        hold_controls(stack, host, [FanSpeed(speed=60)], [], journal_in(tmp_path))
        assert (host.read(WHO), host.read(PWM)) == ("0\n", "153\n")
    assert host.read(WHO) == "1\n"


def test_a_fan_with_nobody_who_sets_it_is_put_back_to_its_speed(board: Board, tmp_path: Path):
    host = board(agx_orin)
    assert "no automatic mode" in str(FanSpeed(speed="auto").obstacles(host)[0])
    with ExitStack() as stack:
        hold_controls(stack, host, [FanSpeed(speed="max")], [], journal_in(tmp_path))
        assert host.read("/sys/class/hwmon/hwmon0/pwm1") == "255\n"
    assert host.read("/sys/class/hwmon/hwmon0/pwm1") == "62\n"


def test_a_fan_that_follows_a_curve_of_its_chip_is_given_back_to_that(board: Board, tmp_path: Path):
    host = board(nano)
    chip = "/sys/class/hwmon/hwmon7"
    lay(host.root, {f"{chip}/name": "nct6775\n", f"{chip}/pwm1": "80\n", f"{chip}/pwm1_enable": "5\n"})
    with ExitStack() as stack:
        hold_controls(stack, host, [FanSpeed(speed="max")], [], journal_in(tmp_path))
        assert host.read(f"{chip}/pwm1_enable") == "1\n"
        (host.root / f"{chip}/pwm1".lstrip("/")).write_text("97\n")  # a speed that is not the one of before
    assert host.read(f"{chip}/pwm1_enable") == "5\n"
    assert host.read(f"{chip}/pwm1") == "97\n"


@pytest.mark.parametrize(("temperature", "first"), [("98000", "fan"), ("40000", "power_mode")])
def test_the_fan_is_put_back_first_where_it_is_hot(board: Board, tmp_path: Path, temperature: str, first: str):
    host = board(nano)
    for number, (zone, now) in enumerate({"off": "-256000", "CPU-therm": temperature, "PMIC-Die": "100000"}.items()):
        folder = f"/sys/class/thermal/thermal_zone{number}"
        lay(host.root, {f"{folder}/type": f"{zone}\n", f"{folder}/temp": f"{now}\n"})
    crash = journal_in(tmp_path, owner=DEAD)
    for control in (FanSpeed(speed=30), PowerMode(cores=2)):
        crash.note_knob(control, control.read(host), control.target(host, []))
        control.write(host, control.target(host, []))
    report = restore(host, journal_in(tmp_path))
    assert report.clean
    assert report.restored[0].startswith(first)


@pytest.mark.parametrize("trouble", ["deaf", "refusing"])
def test_a_fan_that_does_not_take_its_speed_fails_the_trial(board: Board, tmp_path: Path, trouble: str):
    host = board(nano)
    setattr(host, trouble, {PWM})
    with pytest.raises(ControlNotHeld), ExitStack() as stack:
        hold_controls(stack, host, [FanSpeed(speed="max")], [], journal_in(tmp_path))
    assert host.read(WHO) == "1\n"


@pytest.mark.parametrize("state", [{"fan0.speed": "256"}, {"fan9.speed": "1"}, {"/etc/x": "1"}, "max", None])
def test_a_state_that_no_fan_has_is_never_written(board: Board, state: object):
    host = board(nano)
    with pytest.raises(TareError):
        FanSpeed(speed="max").write(host, state)
    assert host.written == []
