from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from knobs import DEAD, journal_in
from paper_results import at_scales
from tare.base.errors import ControlNotHeld, TareError
from tare.parts.controls.power import PowerMode
from tare.trial.undo.knob import hold_controls
from tare.trial.undo.restoration import restore
from trees.jetson import agx_orin, agx_xavier, nano
from trees.kernel import Board, Kernel

GPU = "/sys/devices/17000000.gv11b/devfreq/17000000.gv11b/max_freq"
CPU0 = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq"
CAP = "/sys/kernel/nvpmodel_emc_cap/emc_iso_cap"
TUPLE = PowerMode(cores=4, cpu_mhz=1200, gpu_mhz=670, mem_mhz=1333)


def dump(host: Kernel) -> dict[str, str]:
    """Every file of the tree, byte for byte."""
    return {str(path): path.read_text() for path in sorted(host.root.rglob("*")) if path.is_file()}


def test_a_tuple_goes_through_the_files_of_the_boards_own_configuration_and_back(board: Board, tmp_path: Path):
    host = board(agx_xavier)
    before = dump(host)
    with ExitStack() as stack:
        hold_controls(stack, host, [TUPLE], [], journal_in(tmp_path))
        assert host.read("/sys/devices/system/cpu/online") == "0-3\n"
        assert [host.read(path).strip() for path in (CPU0, GPU, CAP)] == ["1190400", "675750000", "1331200000"]
    assert dump(host) == before


def test_cores_are_off_before_nothing_and_on_before_their_clocks(board: Board):
    host = board(agx_xavier)
    old, new = TUPLE.read(host), TUPLE.target(host, [])
    TUPLE.write(host, new)
    host.written.clear()
    TUPLE.write(host, old)
    order = [path.rpartition("/")[2] for path, _ in host.written]
    assert order.index("online") < order.index("scaling_max_freq") < order.index("max_freq")
    assert TUPLE.read(host) == old


@pytest.mark.parametrize("name", ["MODE_15W", "2", 2, "mode_15w"])
def test_a_mode_of_the_board_is_named_or_numbered(board: Board, tmp_path: Path, name: str | int):
    host = board(agx_xavier, nvpmodel="works")
    before = dump(host)
    control = PowerMode.model_validate({"mode": name})
    assert control.obstacles(host) == []
    with ExitStack() as stack:
        held = hold_controls(stack, host, [control], [], journal_in(tmp_path))
        assert held["power_mode"]["nvpmodel.mode"] == "2"
        assert host.read(GPU).strip() == "624750000"  # the mode says 670 MHz, and the GPU has none between 624 and 675
    assert dump(host) == before


def test_a_mode_that_is_not_there_is_said_with_those_that_are(board: Board):
    (sentence,) = map(str, PowerMode(mode="30W").obstacles(board(agx_xavier, nvpmodel="works")))
    assert sentence.startswith("this board has no mode '30W'; its modes are MAXN (0), MODE_10W (1)")


def test_a_clock_that_is_not_there_is_said_with_its_neighbours(board: Board):
    (sentence,) = map(str, PowerMode(gpu_mhz=750).obstacles(board(agx_xavier)))
    assert "the board's GPU has no such value; nearest are 675.75 and 828.75" in sentence


def test_a_mode_with_other_power_gating_needs_a_reboot_and_is_refused_beforehand(board: Board):
    host = board(agx_orin, nvpmodel="works")
    (sentence,) = map(str, PowerMode(mode="MODE_15W").obstacles(host))
    assert "needs a reboot" in sentence
    assert PowerMode(mode="MODE_30W").obstacles(host) == []
    assert host.written == []


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [("reboot", "needs a reboot"), ("refuse", "failed to set power mode"), ("ignore", "the device reports mode 0")],
)
def test_an_nvpmodel_that_does_not_do_it_fails_the_trial_and_the_board_is_as_it_was(
    board: Board, tmp_path: Path, behaviour: str, said: str
):
    host = board(agx_xavier, nvpmodel=behaviour)
    before = dump(host)
    with pytest.raises(ControlNotHeld, match=said), ExitStack() as stack:
        hold_controls(stack, host, [PowerMode(mode="MODE_15W")], [], journal_in(tmp_path))
    assert dump(host) == before


def test_an_nvpmodel_that_rounds_is_corrected_by_the_files_that_it_writes(board: Board, tmp_path: Path):
    host = board(agx_xavier, nvpmodel="round")
    before = dump(host)
    with ExitStack() as stack:
        hold_controls(stack, host, [PowerMode(mode="MODE_15W")], [], journal_in(tmp_path))
        assert host.read(CPU0).strip() == "1190400"
    assert dump(host) == before


def test_an_nvpmodel_that_hangs_is_ended_and_what_it_wrote_down_is_believed(
    board: Board, tmp_path: Path, impatient: Callable[[], None]
):
    host = board(agx_xavier, nvpmodel="hang")
    impatient()
    before = dump(host)
    with pytest.raises(ControlNotHeld, match=r"nvpmodel did not end in 0\.3 s"), ExitStack() as stack:
        hold_controls(stack, host, [PowerMode(mode="MODE_15W")], [], journal_in(tmp_path))
    assert dump(host) == before


def test_an_nvpmodel_that_hangs_does_not_keep_clocks_and_cores_from_being_put_back(
    board: Board, tmp_path: Path, impatient: Callable[[], None]
):
    host = board(agx_xavier, nvpmodel="works")
    control = PowerMode(mode="MODE_15W")
    old, new = control.read(host), control.target(host, [])
    journal_in(tmp_path, owner=DEAD).note_knob(control, old, new)
    control.write(host, new)
    (tmp_path / "bin" / "nvpmodel").write_text("#!/bin/sh\nsleep 600\n")
    impatient()
    report = restore(host, journal_in(tmp_path))
    assert len(report.failed) == 1
    assert host.read("/sys/devices/system/cpu/online") == "0-7\n"
    assert host.read(GPU).strip() == "1377000000"


def test_a_kernel_that_rounds_a_clock_of_a_tuple_fails_the_trial(board: Board, tmp_path: Path):
    host = board(agx_xavier)
    before = dump(host)
    host.rounding = {"1190400": "1113600"}
    with pytest.raises(ControlNotHeld, match="1113600"), ExitStack() as stack:
        hold_controls(stack, host, [TUPLE], [], journal_in(tmp_path))
    assert dump(host) == before


def test_a_memory_clock_that_is_ignored_fails_the_trial(board: Board, tmp_path: Path):
    host = board(agx_xavier)
    host.deaf = {CAP}
    with pytest.raises(ControlNotHeld, match=r"'jetson\.EMC\.MAX_FREQ': '0'"), ExitStack() as stack:
        hold_controls(stack, host, [TUPLE], [], journal_in(tmp_path))


def test_a_mode_is_put_back_after_a_reboot_and_clocks_are_healed_by_it(board: Board, tmp_path: Path):
    host = board(agx_xavier, nvpmodel="works")
    named = PowerMode(mode="MODE_15W")
    assert (named.persistence, TUPLE.persistence) == ("reboot-persistent", "volatile")
    crash = journal_in(tmp_path, owner=DEAD)
    crash.note_knob(named, named.read(host), named.target(host, []))
    named.write(host, named.target(host, []))
    report = restore(host, journal_in(tmp_path, boot="boot-2"))
    assert report.clean
    assert host.read("/var/lib/nvpmodel/status").startswith("pmode:0000")


def test_clocks_that_someone_had_fixed_before_are_fixed_again_after_a_mode(board: Board, tmp_path: Path):
    host = board(agx_xavier, nvpmodel="works")
    low = CPU0.replace("max", "min")
    host.write(low, "2265600")  # jetson_clocks was on
    before = dump(host)
    with ExitStack() as stack:
        hold_controls(stack, host, [PowerMode(mode="MODE_15W")], [], journal_in(tmp_path))
        assert host.read(low).strip() == "115200"
    assert dump(host) == before


def test_the_lower_limit_is_taken_along_where_it_would_lie_above(board: Board, tmp_path: Path):
    host = board(agx_xavier)
    host.write(CPU0.replace("max", "min"), "2265600")
    before = dump(host)
    with ExitStack() as stack:
        hold_controls(stack, host, [TUPLE], [], journal_in(tmp_path))
        assert host.read(CPU0.replace("max", "min")).strip() == "1190400"
    assert dump(host) == before


def test_a_nano_has_the_memory_clock_that_its_modes_mention(board: Board, tmp_path: Path):
    host = board(nano)
    assert PowerMode(mem_mhz=1600).obstacles(host) == []
    assert "nearest are 1600" in str(PowerMode(mem_mhz=800).obstacles(host)[0])


@pytest.mark.parametrize(
    "state",
    [
        {"jetson./etc/passwd": "1"},
        {"jetson.GPU.MAX_FREQ": "../x"},
        {"jetson.GPU.MAX_FREQ": 5},
        {"/etc/passwd": "1"},
        {"nvpmodel.mode": "77"},
        "MAXN",
        None,
    ],
)
def test_a_state_that_is_not_one_of_its_own_is_never_written(board: Board, state: object):
    host = board(agx_xavier, nvpmodel="works")
    with pytest.raises(TareError):
        PowerMode(mode="MAXN").write(host, state)
    assert host.written == []


def test_a_board_without_its_command_says_so(board: Board, monkeypatch: pytest.MonkeyPatch):
    (sentence,) = map(str, PowerMode(mode="MAXN").obstacles(board(nano)))
    assert "`nvpmodel` is not on this board" in sentence


@pytest.mark.parametrize(
    ("study", "tree", "full_clocks"),
    [
        ("s0-power-sensitivity", agx_orin, (12, 2201.6, 1301, 3200)),
        ("s3-baseload", agx_xavier, (8, 2265, 1377, 2133)),
        ("s3-power-modes", agx_xavier, (8, 2265, 1377, 2133)),
    ],
)
def test_the_modes_of_a_papers_study_are_whole_whatever_mode_the_board_was_in(
    board: Board, tmp_path: Path, study: str, tree: Callable[[Path], Path], full_clocks: tuple[float, ...]
):
    """A clock that a mode does not name would stay as the board has it, and be compared as if it had been set."""
    fields = ("cores", "cpu_mhz", "gpu_mhz", "mem_mhz")
    tuples = {tuple(cell[f"control.power_mode.{name}"] for name in fields) for cell in at_scales(study)["full"]}
    assert full_clocks in tuples
    assert all(None not in each for each in tuples)
    modes = [PowerMode(**dict(zip(fields, each, strict=True))) for each in sorted(tuples)]
    host = board(tree, nvpmodel="works")
    for own in ("0", "2"):
        assert host.run(["nvpmodel", "-m", own], limit_s=10).code == 0
        for number, mode in enumerate(modes):
            with ExitStack() as stack:
                hold_controls(stack, host, [mode], [], journal_in(tmp_path / f"{own}-{number}"))
                assert mode.read(host) == mode.target(host, [])
                assert host.read("/sys/devices/system/cpu/online").strip() == f"0-{mode.cores - 1}"
