from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from pydantic import ValidationError

from knobs import journal_in
from tare.base.errors import ControlNotHeld
from tare.base.host import LocalHost
from tare.base.units import cores
from tare.parts.controls.power import Cpu
from tare.testing import FakeHost
from tare.trial.undo.knob import hold_controls

FOLDER = "/sys/devices/system/cpu"


class Cores(FakeHost):
    """A machine with four cores, of which the first has no switch; what is switched shows in the list."""

    def __init__(self, mounts: str = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n") -> None:
        switches = {f"{FOLDER}/cpu{core}/online": "1\n" for core in (1, 2, 3)}
        super().__init__(
            files={f"{FOLDER}/present": "0-3\n", f"{FOLDER}/online": "", "/proc/self/mountinfo": mounts, **switches}
        )

    def read(self, path: object) -> str:
        if str(path) == f"{FOLDER}/online":
            on = [core for core in (1, 2, 3) if self.files[f"{FOLDER}/cpu{core}/online"].strip() == "1"]
            return ",".join(map(str, [0, *on])) + "\n"
        return super().read(str(path))


@pytest.mark.parametrize(
    ("text", "named"),
    [("0-3", [0, 1, 2, 3]), ("0,2-3\n", [0, 2, 3]), ("5", [5]), ("\n", []), ("1,1,0", [0, 1])],
)
def test_the_kernels_list_of_cores_is_read(text: str, named: list[int]):
    assert cores(text) == named


@pytest.mark.parametrize("value", ["0-", "a", "0;1", "99999", "3-1", "0,,1", [-1], [], [True], 0, [0.5], None, ["0"]])
def test_what_is_not_a_list_of_cores_is_refused(value: object):
    with pytest.raises(ValidationError):
        Cpu.model_validate({"online": value})


def test_cores_may_be_written_as_the_kernel_does_and_in_any_order():
    assert Cpu.model_validate({"online": "0-2,5"}).online == (0, 1, 2, 5)
    assert Cpu.model_validate({"online": [2, 0, 2]}) == Cpu.model_validate({"online": "0,2"})


def test_the_cores_are_as_asked_in_the_trial_and_as_found_after_it(tmp_path: Path):
    host = Cores()
    with ExitStack() as stack:
        held = hold_controls(stack, host, [Cpu(online=(0, 2))], [], journal_in(tmp_path))
        assert held == {"cpu": {"online": [0, 2]}}
        assert host.read(f"{FOLDER}/online") == "0,2\n"
    assert host.read(f"{FOLDER}/online") == "0,1,2,3\n"
    assert [line.removeprefix(f"write {FOLDER}/") for line in host.log] == [
        "cpu3/online 0", "cpu1/online 0", "cpu1/online 1", "cpu3/online 1",
    ]  # fmt: skip


def test_cores_come_online_before_others_go():
    host = Cores()
    host.files[f"{FOLDER}/cpu1/online"] = "0\n"
    Cpu(online=(0, 1)).write(host, {"online": [0, 1]})
    assert [line[-1] for line in host.log] == ["1", "0", "0"]


def test_a_core_that_stays_online_fails_the_trial_and_the_others_come_back(tmp_path: Path):
    host = Cores()
    real = host.write
    host.write = lambda path, text: None if "cpu2" in str(path) else real(path, text)  # type: ignore[method-assign]
    both = r"requested \{'online': \[0\]\}, the device reports \{'online': \[0, 2\]\}"
    with pytest.raises(ControlNotHeld, match=both), ExitStack() as stack:
        hold_controls(stack, host, [Cpu(online=(0,))], [], journal_in(tmp_path))
    assert host.read(f"{FOLDER}/online") == "0,1,2,3\n"


def test_all_of_its_settings_are_one_knob():
    assert Cpu(online=(0,)).knob() == Cpu(online=(0, 1)).knob()


def test_a_core_without_a_switch_cannot_go_offline_and_that_is_said_beforehand():
    host = Cores()
    (sentence,) = map(str, Cpu(online=(1, 2)).obstacles(host))
    assert "core 0 has no switch" in sentence
    assert "add it to `online`" in sentence
    assert Cpu(online=(0, 1)).obstacles(host) == []
    assert host.log == []


def test_a_core_that_is_not_there_is_said_with_those_that_are():
    (sentence,) = map(str, Cpu(online=(0, 7)).obstacles(Cores()))
    assert sentence == "this machine has no core 7; its cores are 0, 1, 2, 3."


def test_cpusets_of_cgroup_v1_are_kept_aside_while_a_core_is_off(tmp_path: Path):
    host = Cores("30 24 0:26 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n")
    group = "/sys/fs/cgroup/cpuset/docker/cpuset.cpus"
    host.files[group] = "0-3\n"
    host.answers = {"find": f"{group}\n"}
    with ExitStack() as stack:
        hold_controls(stack, host, [Cpu(online=(0, 1))], [], journal_in(tmp_path))
        host.files[group] = "0-1\n"  # as the kernel does
    assert host.files[group] == "0-3\n"


def test_other_hierarchies_of_cgroup_v1_are_none():
    assert (
        Cpu(online=(0,)).obstacles(Cores("30 24 0:26 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n")) == []
    )


def test_a_machine_that_does_not_list_its_cores_is_said():
    (sentence,) = map(str, Cpu(online=(0,)).obstacles(FakeHost()))
    assert "does not list its cores" in sentence


def test_on_a_tree_of_files_only_the_switches_are_written(tmp_path: Path):
    root = tmp_path / "root"
    for core in (0, 1):
        (root / FOLDER[1:] / f"cpu{core}").mkdir(parents=True)
    (root / FOLDER[1:] / "present").write_text("0-1\n")
    (root / FOLDER[1:] / "online").write_text("0-1\n")
    switch = root / FOLDER[1:] / "cpu1" / "online"
    switch.write_text("1\n")
    host = LocalHost(root=root)
    assert Cpu(online=(0,)).obstacles(host) == []
    Cpu(online=(0,)).write(host, {"online": [0]})
    assert switch.read_text() == "0\n"
    with pytest.raises(ControlNotHeld, match="without a switch"):
        Cpu(online=(1,)).write(host, {"online": [1]})
