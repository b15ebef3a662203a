from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from knobs import journal_in
from tare.base.errors import ControlNotHeld, TareError
from tare.drivers.power import everything
from tare.drivers.power.backend import PowerRequest, in_safe_order, nearest
from tare.drivers.power.cpufreq import BACKEND
from tare.parts.controls.power import PowerMode
from tare.trial.undo.knob import hold_controls
from trees.files import CPUS, lay
from trees.kernel import Board
from trees.server import NO_TURBO, acpi, x86


def file(core: int, name: str) -> str:
    return f"{CPUS}/cpu{core}/cpufreq/{name}"


def test_limits_never_cross_on_the_way():
    assert in_safe_order((1, 2), (3, 4)) == [("max", 4), ("min", 3)]
    assert in_safe_order((3, 4), (1, 2)) == [("min", 1), ("max", 2)]
    assert in_safe_order((1, 2), (1, 2)) == []
    assert in_safe_order((1, 4), (2, 3)) == [("min", 2), ("max", 3)]


@pytest.mark.parametrize(("asked", "meant"), [(1200, 1190.4), (670, None), (float("inf"), 2265.6), (2265, 2265.6)])
def test_people_round_clocks_and_are_understood_if_it_is_near(asked: float, meant: float | None):
    assert nearest(asked, [1113.6, 1190.4, 2265.6]) == meant
    assert nearest(asked, []) is None


def test_the_limit_is_written_up_and_down_in_an_order_that_the_kernel_takes(board: Board, tmp_path: Path):
    host = board(x86)
    host.write(file(1, "scaling_min_freq"), "3000000")
    with ExitStack() as stack:
        hold_controls(stack, host, [PowerMode(cpu_mhz=1234)], [], journal_in(tmp_path))
        assert host.read(file(1, "scaling_max_freq")) == "1234000\n"
        assert host.read(file(1, "scaling_min_freq")) == "1234000\n"
    assert host.read(file(1, "scaling_max_freq")) == "3600000\n"
    assert host.read(file(1, "scaling_min_freq")) == "3000000\n"


def test_a_driver_with_a_table_takes_only_what_is_in_it(board: Board):
    host = board(acpi)
    assert PowerMode(cpu_mhz=1800).obstacles(host) == []
    (sentence,) = map(str, PowerMode(cpu_mhz=2000).obstacles(host))
    assert "nearest are 1800 and 2400" in sentence


def test_each_policy_is_written_once(board: Board):
    host = board(acpi)
    control = PowerMode(cpu_mhz=1200)
    control.write(host, control.target(host, []))
    assert [path for path, _ in host.written] == [file(0, "scaling_max_freq"), file(2, "scaling_max_freq")]


def test_a_governor_that_resets_turbo_does_not_leave_it_reset(board: Board, tmp_path: Path):
    host = board(x86)
    host.governor_resets_turbo = True
    host.write(NO_TURBO, "1")
    with ExitStack() as stack:
        hold_controls(stack, host, [PowerMode(governor="performance")], [], journal_in(tmp_path))
        assert host.read(NO_TURBO) == "1\n"
    assert (host.read(NO_TURBO), host.read(file(0, "scaling_governor"))) == ("1\n", "powersave\n")


def test_boost_is_said_the_same_way_for_both_kinds_of_switch(board: Board, tmp_path: Path):
    host = board(x86)
    assert BACKEND.read(host, PowerMode(boost=False).request()) == {"cpufreq.boost": "on"}
    PowerMode(boost=False).write(host, {"cpufreq.boost": "off"})
    assert host.read(NO_TURBO) == "1\n"
    other = type(host)(acpi(tmp_path / "other"))
    PowerMode(boost=False).write(other, {"cpufreq.boost": "off"})
    assert other.read(f"{CPUS}/cpufreq/boost") == "0\n"


def test_a_governor_that_is_not_there_is_said_with_those_that_are(board: Board):
    (sentence,) = map(str, PowerMode(governor="schedutil").obstacles(board(x86)))
    assert sentence == "`governor: schedutil`: this kernel has performance, powersave."


@pytest.mark.parametrize("trouble", ["deaf", "refusing"])
def test_a_clock_that_is_ignored_or_refused_fails_the_trial_and_the_others_are_put_back(
    board: Board, tmp_path: Path, trouble: str
):
    host = board(x86)
    setattr(host, trouble, {file(2, "scaling_max_freq")})
    with pytest.raises(ControlNotHeld), ExitStack() as stack:
        hold_controls(stack, host, [PowerMode(cpu_mhz=1200)], [], journal_in(tmp_path))
    assert [host.read(file(core, "scaling_max_freq")) for core in range(4)] == ["3600000\n"] * 4


def test_a_clock_that_is_rounded_fails_the_trial_with_both_values(board: Board, tmp_path: Path):
    host = board(acpi)
    host.rounding = {"1800000": "1200000"}
    with pytest.raises(ControlNotHeld, match=r"1800000.*1200000"), ExitStack() as stack:
        hold_controls(stack, host, [PowerMode(cpu_mhz=1800)], [], journal_in(tmp_path))
    assert host.read(file(0, "scaling_max_freq")) == "2400000\n"


def test_little_cores_are_not_limited_by_a_clock_that_only_big_ones_have(board: Board, tmp_path: Path):
    host = board(acpi)
    folder = f"{CPUS}/cpufreq/policy2"
    little = {"scaling_available_frequencies": "600000 1000000\n", "cpuinfo_max_freq": "1000000\n"}
    lay(host.root, {f"{folder}/{name}": text for name, text in little.items()})
    target = PowerMode(cpu_mhz=1800).target(host, [])
    assert (target["cpufreq.cpu0.max_khz"], target["cpufreq.cpu2.max_khz"]) == ("1800000", "1000000")


@pytest.mark.parametrize(
    "state",
    [{"cpufreq.cpu0.max_khz": "fast"}, {"cpufreq.cpu99.max_khz": "1"}, {"cpufreq.boost": "perhaps"},
     {"cpufreq.cpu0.governor": "../x"}, {"cpufreq.cpu0.scaling_driver": "x"}],
)  # fmt: skip
def test_a_state_that_is_not_one_of_its_own_is_never_written(board: Board, state: dict[str, str]):
    host = board(x86)
    with pytest.raises(TareError):
        everything.write(host, state)
    assert host.written == []


def test_maxn_means_no_limits_also_where_no_board_knows_it(board: Board, tmp_path: Path):
    host = board(x86)
    host.write(file(0, "scaling_max_freq"), "1200000")
    host.write(f"{CPUS}/cpu3/online", "0")
    assert PowerMode(mode="maxn").obstacles(host) == []
    with ExitStack() as stack:
        hold_controls(stack, host, [PowerMode(mode="MAXN")], [], journal_in(tmp_path))
        assert host.read(file(0, "scaling_max_freq")) == "3600000\n"
        assert host.read(f"{CPUS}/online") == "0-3\n"
    assert host.read(file(0, "scaling_max_freq")) == "1200000\n"
    assert host.read(f"{CPUS}/online") == "0-2\n"


def test_a_core_that_does_not_come_back_does_not_keep_the_others_from_their_clocks(board: Board):
    host = board(x86)
    before = BACKEND.read(host, PowerRequest(governor="performance", cpu_mhz=1200))
    host.write(file(0, "scaling_max_freq"), "1200000")
    host.write("/sys/devices/system/cpu/cpu1/online", "0")
    with pytest.raises(ControlNotHeld, match="core is offline"):
        BACKEND.write(host, before)
    assert host.read(file(0, "scaling_max_freq")).strip() == before["cpufreq.cpu0.max_khz"]


def test_a_switch_for_boost_without_any_limits_is_still_one(board: Board, tmp_path: Path):
    host = board(x86)
    for folder in (host.root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq"):
        folder.unlink() if folder.is_symlink() else shutil.rmtree(folder)
    assert "boost" in BACKEND.offers(host)
    assert BACKEND.obstacles(host, PowerRequest(boost=False)) == []
