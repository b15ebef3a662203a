"""The data set on another medium: placed, throttled, measured, and all of it taken away again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from pydantic import ValidationError

from pretend_disks import GROUP, V2_GROUP, PretendDisks
from tare.base.errors import ControlNotHeld, TareError, TrialError
from tare.base.host import Completed, Scope
from tare.drivers.storage import loop, placing
from tare.drivers.storage.residency import residency
from tare.parts.controls.storage import Storage
from tare.parts.protocols import TenantPlace
from tare.testing import FakeHost
from tare.trial.undo.journal import Journal
from tare.trial.undo.knob import hold_controls
from tare.trial.undo.restoration import restore

NOTHING = {"medium": [], "placed": []}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "a.bin").write_bytes(b"a" * 10_000)
    return folder


class Inside(FakeHost):
    """A place that sees what lies at a path as the device does, unless it is blind."""

    def __init__(self, folders: dict[str, str], stamp: str | None = None) -> None:
        super().__init__(scope_value=Scope(cgroups=folders))
        self.stamp = stamp

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        seen = self.stamp or str(Path(argv[-1]).stat().st_mtime_ns)
        return Completed(tuple(argv), 0, f"{seen}\n", "")


def tenant(data: Path, folders: dict[str, str] | None = None, stamp: str | None = None) -> TenantPlace:
    return TenantPlace(Inside({"blkio": GROUP} if folders is None else folders, stamp), data.parent, (data,))


def held(control: Storage, host: PretendDisks, data: Path) -> None:
    control.write(host, control.target(host, [data]))


def test_the_data_set_is_on_the_medium_under_its_own_path_and_back_afterwards(data: Path):
    host, control = PretendDisks(), Storage(emulate="sd")
    target = control.target(host, [data])
    assert control.read(host) == NOTHING

    control.write(host, target)

    name = placing.name_of(str(data))
    assert control.read(host) == target == {"medium": ["image", "loop", "mount"], "placed": [name]}
    assert host.table[-1] == ("/dev/loop7", f"/{name}", str(data))
    assert ("mount", "-o", "remount,bind,ro", "--", str(data)) in host.asked

    control.write(host, NOTHING)

    assert control.read(host) == NOTHING
    assert (host.loops, host.table) == ({}, [])
    assert not loop.folder().exists()


def test_once_it_is_full_it_is_read_only_and_nothing_of_it_is_cached(data: Path):
    host = PretendDisks()
    held(Storage(emulate="sd"), host, data)

    commands = [words[:3] for words in host.asked]
    assert commands.index(("mount", "-o", "remount,ro")) > commands.index(("cp", "-a", "--reflink=never"))
    with (loop.point() / placing.name_of(str(data)) / "train" / "a.bin").open("rb") as file:
        seen = residency(file.fileno())
    assert seen is not None
    assert seen.resident == 0


def test_the_group_of_each_tenant_gets_its_part_of_the_limits_and_is_measured(data: Path):
    host, control = PretendDisks(), Storage(emulate={"read_bps": "80 MB/s", "read_iops": 150})
    held(control, host, data)
    said = control.settle(host, [tenant(data), tenant(data)])

    assert said["limits"] == {"read_bps": 40_000_000, "read_iops": 75}
    assert host.files[f"{GROUP}/blkio.throttle.read_bps_device"] == "7:7 40000000"
    assert host.files[f"{GROUP}/blkio.throttle.read_iops_device"] == "7:7 75"
    assert [one["read_bps"] for one in said["measured"]] == [40_000_000, 40_000_000]
    assert (said["direct_io"], said["read_ahead_kib"]) == (True, 1024)
    assert host.measured[0]["groups"] == [f"{GROUP}/cgroup.procs"]


def test_version_2_takes_the_limits_in_one_file(data: Path):
    host, control = PretendDisks(rates={"bps": 8e7, "iops": 150}), Storage(emulate="read_bps=80000000 read_iops=150")
    held(control, host, data)
    said = control.settle(host, [tenant(data, {"": V2_GROUP})])

    assert host.files[f"{V2_GROUP}/io.max"] == "7:7 rbps=80000000 7:7 riops=150"
    assert said["measured"][0]["cgroup_version"] == 2


@pytest.mark.parametrize(
    ("seen", "why"),
    [(1.11, "the limit does not hold"), (0.89, "the disk below is slower"), (0.01, "the disk below is slower")],
)
def test_a_medium_that_does_not_read_at_its_limit_is_not_held(data: Path, seen: float, why: str):
    host, control = PretendDisks(rates={"bps": 100e6 * seen}), Storage(emulate="sd")
    held(control, host, data)
    with pytest.raises(ControlNotHeld, match=why):
        control.settle(host, [tenant(data)])
    assert len(host.measured) == 3  # a neighbour may have been at the disk once


@pytest.mark.parametrize("seen", [0.91, 1.09])
def test_a_tenth_off_is_near_enough(data: Path, seen: float):
    host, control = PretendDisks(rates={"bps": 100e6 * seen}), Storage(emulate={"read_bps": "100 MB/s"})
    held(control, host, data)

    assert control.settle(host, [tenant(data)])["measured"][0]["read_bps"] == pytest.approx(100e6 * seen)


def test_a_kernel_that_ignores_the_limit_is_noticed_before_anything_is_measured(data: Path):
    host, control = PretendDisks(ignores_limits=True), Storage(emulate="sd")
    held(control, host, data)
    with pytest.raises(ControlNotHeld, match=r"read_bps_device: requested 7:7 100000000, the device reports nothing"):
        control.settle(host, [tenant(data)])
    assert host.measured == []


def test_a_workload_without_a_group_of_its_own_cannot_be_limited(data: Path):
    host, control = PretendDisks(), Storage(emulate="sd")
    held(control, host, data)
    with pytest.raises(ControlNotHeld, match="no control group of its own"):
        control.settle(host, [tenant(data, {})])


def test_a_place_that_sees_the_original_and_not_the_copy_is_refused(data: Path):
    host, control = PretendDisks(), Storage(emulate="sd")
    held(control, host, data)
    with pytest.raises(ControlNotHeld, match="another one"):
        control.settle(host, [tenant(data, stamp="12345")])


@pytest.mark.parametrize(
    "command", ["fallocate", "mkfs.ext4", "losetup --find", "mount -t", "cp", "sync", "mount --bind"]
)
def test_whatever_fails_on_the_way_the_device_is_left_as_it_was(data: Path, tmp_path: Path, command: str):
    host, journal = PretendDisks(refuse=(command,)), Journal(tmp_path / "device", boot="b")
    with pytest.raises(TareError), ExitStack() as stack:
        hold_controls(stack, host, [Storage(emulate="sd")], [data], journal)

    assert journal.pending() == []
    assert (host.loops, host.table) == ({}, [])
    assert not loop.folder().exists()


def test_a_dead_run_is_cleaned_up_after_from_the_journal_alone(data: Path, tmp_path: Path, monkeypatch):
    host, journal = PretendDisks(), Journal(tmp_path / "device", boot="b")
    control = Storage(emulate="sd")
    journal.note_knob(control, control.read(host), control.target(host, [data]))
    held(control, host, data)
    monkeypatch.setattr("tare.parts.controls.storage._sources", {})  # another process knows no paths

    report = restore(host, journal)

    assert report.clean, report.sentences()
    assert (host.loops, host.table) == ({}, [])


def test_what_a_reboot_leaves_of_it_is_the_image_and_that_goes_too(data: Path, tmp_path: Path):
    host, control = PretendDisks(), Storage(emulate="sd")
    before = Journal(tmp_path / "device", boot="before")
    before.note_knob(control, control.read(host), control.target(host, [data]))
    held(control, host, data)
    host.loops.clear()
    host.table.clear()
    host._show_table()

    report = restore(host, Journal(tmp_path / "device", boot="after"))

    assert report.clean
    assert not loop.folder().exists()


@pytest.mark.parametrize(
    "state",
    [
        None,
        {"medium": ["image"]},
        {"medium": ["/etc/passwd"], "placed": []},
        {"medium": [], "placed": ["/etc"]},
        {"medium": [], "placed": ["etc-0123456789abcdef"]},  # a name that this run never gave
        {"medium": [], "placed": "x"},
    ],
)
def test_a_state_that_tare_did_not_write_is_refused_and_nothing_is_mounted(state):
    host = PretendDisks()
    with pytest.raises(TareError):
        Storage(emulate="sd").write(host, state)
    assert host.table == []


def test_something_that_is_there_already_is_not_built_upon(data: Path):
    host, control = PretendDisks(), Storage(emulate="sd")
    held(control, host, data)
    with pytest.raises(ControlNotHeld, match="tare device clean"):
        held(control, host, data)


def test_a_real_medium_keeps_the_copy_and_uses_it_again_while_it_is_current(data: Path, tmp_path: Path):
    host, medium = PretendDisks(), tmp_path / "card"
    medium.mkdir()
    control = Storage(path=medium)

    held(control, host, data)
    control.write(host, NOTHING)
    held(control, host, data)
    control.write(host, NOTHING)
    assert sum(words[0] == "cp" for words in host.asked) == 1

    (data / "train" / "a.bin").write_bytes(b"b" * 10_001)
    held(control, host, data)

    assert sum(words[0] == "cp" for words in host.asked) == 2
    (copy,) = (medium / placing.KEPT).iterdir()
    assert (copy / "train" / "a.bin").read_bytes() == b"b" * 10_001
    assert control.read(host) == {"medium": [], "placed": [copy.name]}
    assert control.settle(host, [tenant(data)]) == {"path": str(medium)}


def test_a_folder_that_holds_the_program_is_no_data_set(data: Path, monkeypatch):
    host = PretendDisks(python=str(data / "bin" / "python"))
    with pytest.raises(TrialError, match="the interpreter"):
        Storage(emulate="sd").target(host, [data])
    monkeypatch.chdir(data)
    with pytest.raises(TrialError, match="started in"):
        Storage(emulate="sd").target(PretendDisks(), [data])
    assert Storage(emulate="sd", paths=(data / "train",)).target(PretendDisks(), [data])["placed"]


def test_a_workload_that_reads_nothing_has_nothing_to_put_there():
    with pytest.raises(TrialError, match="name them in `paths`"):
        Storage(emulate="sd").target(PretendDisks(), [])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "say where the data lie"),
        ({"path": "/x", "emulate": "sd"}, "and not both"),
        ({"path": "sd"}, r"write \{emulate: sd\}"),
        ({"path": "here"}, "from / on"),
        ({"emulate": "floppy"}, "Available: hdd, sd, ssd"),
        ({"emulate": {"read_bps": 80}}, "has no unit"),
        ({"emulate": {"reads": 80}}, "no figure of a medium"),
        ({"emulate": {}}, "say how fast"),
        ({"emulate": {"read_iops": 0}}, "one or more"),
    ],
)
def test_what_a_study_writes_wrong_is_said(fields: dict, said: str):
    with pytest.raises(ValidationError, match=said):
        Storage.model_validate(fields)


def test_the_figures_are_one_level_whichever_way_they_are_written():
    by_mapping = Storage(emulate={"read_bps": "80 MB/s", "read_iops": 150})  # type: ignore[arg-type]
    assert by_mapping.fields()["emulate"] == "read_bps=80000000 read_iops=150"
    assert Storage.model_validate(by_mapping.fields()) == by_mapping


def test_room_to_write_makes_it_writable_and_its_writes_are_measured(data: Path):
    host, control = PretendDisks(), Storage(emulate="sd", tenant=64 << 20)
    held(control, host, data)
    said = control.settle(host, [tenant(data)])

    assert said["measured"][0]["write_bps"] == 20e6
    assert not any("remount,bind,ro" in words for words in host.asked)
    assert not (loop.point() / "check").exists()


def test_a_loop_device_that_another_namespace_holds_is_let_go_of_and_its_image_is_gone(data: Path):
    host, control = PretendDisks(loop_is_held=True), Storage(emulate="sd")
    held(control, host, data)

    control.write(host, NOTHING)

    assert control.read(host) == NOTHING
    assert host.let_go == {"/dev/loop7"}
    assert not loop.folder().exists()
