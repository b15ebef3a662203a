from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from knobs import DEAD, journal_in
from tare.base.errors import ControlNotHeld, TareError
from tare.base.files import state_dir
from tare.drivers.power import hotplug
from tare.parts.controls.power import Cpu, PowerMode
from tare.trial.undo.knob import hold_controls
from tare.trial.undo.restoration import restore
from trees.files import CPUS, lay
from trees.jetson import agx_orin, nano
from trees.jetson import cpusets as tree_of_cpusets
from trees.kernel import Board
from trees.server import x86

GROUPS = ("docker", "docker/3f2a", "system.slice")


def groups(root: Path) -> list[str]:
    return [(root / "sys/fs/cgroup/cpuset" / name / "cpuset.cpus").read_text().strip() for name in GROUPS]


@pytest.mark.parametrize("control", [PowerMode(cores=1), Cpu(online=(0,))])
def test_cpusets_of_version_1_are_as_before_once_the_cores_are_back(
    board: Board, tmp_path: Path, control: PowerMode | Cpu
):
    host = board(nano)
    before = groups(host.root)
    with ExitStack() as stack:
        hold_controls(stack, host, [control], [], journal_in(tmp_path))
        assert groups(host.root) == ["0", "0", "0"]
        assert (state_dir() / hotplug.FILE).exists()
    assert groups(host.root) == before == ["0-3", "0-1", "0-3"]
    assert not (state_dir() / hotplug.FILE).exists()


def test_the_first_note_of_cpusets_is_the_true_one(board: Board, tmp_path: Path):
    host = board(nano)
    crash = journal_in(tmp_path, owner=DEAD)
    control = PowerMode(cores=2)
    crash.note_knob(control, control.read(host), control.target(host, []))
    control.write(host, control.target(host, []))
    hotplug.keep(host, {0, 1})  # a second start must not take what the kernel has left for what was there
    assert restore(host, journal_in(tmp_path)).clean
    assert groups(host.root) == ["0-3", "0-1", "0-3"]


@pytest.mark.parametrize("held", [{}, {"": "0-3"}, {"": "0-3", "docker": "0-1"}])
def test_cpusets_that_hold_none_of_the_cores_that_go_are_in_nobodys_way(
    board: Board, tmp_path: Path, held: dict[str, str]
):
    host = board(nano)
    base = host.root / "sys/fs/cgroup/cpuset"
    for file in base.glob("**/cpuset.cpus"):
        file.unlink()
    lay(host.root, tree_of_cpusets(held))
    with ExitStack() as stack:
        hold_controls(stack, host, [PowerMode(cores=2)], [], journal_in(tmp_path))
        assert hotplug.cpuset_standing(host) == hotplug.KEPT
    assert hotplug.cpuset_standing(host) == hotplug.AS_FOUND


def test_a_group_that_has_gone_since_and_a_new_one_are_no_trouble(board: Board, tmp_path: Path):
    host = board(nano)
    base = host.root / "sys/fs/cgroup/cpuset"
    with ExitStack() as stack:
        hold_controls(stack, host, [PowerMode(cores=2)], [], journal_in(tmp_path))
        (base / "docker/3f2a/cpuset.cpus").unlink()
        lay(host.root, {"/sys/fs/cgroup/cpuset/new/cpuset.cpus": "0\n"})
    assert (base / "docker/cpuset.cpus").read_text() == "0-3\n"
    assert (base / "new/cpuset.cpus").read_text() == "0\n"


def test_a_group_that_someone_gave_other_cores_is_left_alone(board: Board):
    host = board(nano)
    hotplug.keep(host, {0, 1, 2, 3})
    lay(host.root, {"/sys/fs/cgroup/cpuset/docker/3f2a/cpuset.cpus": "2-3\n"})
    hotplug.put_back(host, {0, 1, 2, 3})
    assert groups(host.root) == ["0-3", "2-3", "0-3"]


def test_a_cpuset_that_does_not_come_back_keeps_the_record_and_is_tried_again(board: Board, tmp_path: Path):
    host = board(nano)
    control = PowerMode(cores=2)
    journal_in(tmp_path, owner=DEAD).note_knob(control, control.read(host), control.target(host, []))
    control.write(host, control.target(host, []))
    host.deaf = {"/sys/fs/cgroup/cpuset/docker/cpuset.cpus"}
    assert not restore(host, journal_in(tmp_path)).clean
    host.deaf = set()
    assert restore(host, journal_in(tmp_path)).clean
    assert groups(host.root) == ["0-3", "0-1", "0-3"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"boot": "x", "online": "0-3", "groups": {"a": "x-y"}}',
        '{"boot": "x", "online": "0-3", "groups": {"../../etc": "0"}}',
    ],
)
def test_a_note_that_tare_did_not_write_is_not_followed(board: Board, content: str):
    host = board(nano)
    state_dir().mkdir(parents=True)
    (state_dir() / hotplug.FILE).write_text(content)
    with pytest.raises(TareError, match="remove"):
        hotplug.cpuset_standing(host)


def test_a_note_that_others_can_write_is_not_trusted(board: Board):
    host = board(nano)
    hotplug.keep(host, {0, 1, 2, 3})
    (state_dir() / hotplug.FILE).chmod(0o666)
    with pytest.raises(TareError, match="not trusted"):
        hotplug.put_back(host, {0, 1, 2, 3})


def test_a_note_of_an_earlier_boot_says_nothing(board: Board):
    host = board(nano)
    hotplug.keep(host, {0, 1, 2, 3})
    file = state_dir() / hotplug.FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), "boot": "another"}))
    assert hotplug.cpuset_standing(host) == hotplug.AS_FOUND


def test_on_version_2_the_effective_set_is_looked_at(board: Board, tmp_path: Path):
    host = board(agx_orin)
    with ExitStack() as stack:
        hold_controls(stack, host, [PowerMode(cores=4)], [], journal_in(tmp_path))
    assert host.read("/sys/fs/cgroup/cpuset.cpus.effective") == "0-11\n"
    (host.root / "sys/fs/cgroup/cpuset.cpus.effective").write_text("0-3\n")
    with pytest.raises(ControlNotHeld, match=r"cpuset\.cpus\.effective: requested 0-11"):
        hotplug.check_effective(host, set(range(12)))


def test_a_core_without_a_switch_that_a_mode_wants_off_is_said_beforehand(board: Board):
    host = board(x86)
    assert PowerMode(cores=1).obstacles(host) == []  # it is the first core that has none
    (sentence,) = map(str, Cpu(online=(1,)).obstacles(host))
    assert "core 0 has no switch" in sentence


def test_more_cores_than_there_are_is_said(board: Board):
    assert [*map(str, PowerMode(cores=9).obstacles(board(x86)))] == ["`cores: 9`: this machine has 4."]


def test_a_core_that_stays_on_or_refuses_fails_the_trial(board: Board, tmp_path: Path):
    host = board(x86)
    host.deaf = {f"{CPUS}/cpu3/online"}
    with pytest.raises(ControlNotHeld, match=r"'cores\.cpu3': '1'"), ExitStack() as stack:
        hold_controls(stack, host, [PowerMode(cores=2)], [], journal_in(tmp_path))
    host.deaf, host.refusing = set(), {f"{CPUS}/cpu2/online"}
    with pytest.raises(ControlNotHeld, match="Invalid argument"), ExitStack() as stack:
        hold_controls(stack, host, [PowerMode(cores=2)], [], journal_in(tmp_path))
    assert host.read(f"{CPUS}/online") == "0-3\n"


def test_a_record_that_names_some_cores_leaves_the_others_alone(board: Board):
    host = board(x86)
    before = hotplug.online(host)
    hotplug.BACKEND.write(host, {"cores.cpu1": "0"})
    assert hotplug.online(host) == before - {1}
    hotplug.BACKEND.write(host, {"cores.cpu1": "1"})
    assert hotplug.online(host) == before


def test_a_position_that_no_switch_has_is_never_written(board: Board):
    host = board(x86)
    with pytest.raises(TareError, match="no position"):
        hotplug.BACKEND.write(host, {"cores.cpu1": "maybe"})
    assert host.written == []
