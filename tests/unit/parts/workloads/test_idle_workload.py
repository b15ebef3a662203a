"""The idle workload: it sleeps, marks what is to be watched, and logs or suspends the device only where it is asked to.

No test suspends a machine: the kernel's files are pretended ones, in a folder.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from tare.base.errors import TareError
from tare.base.host import Completed, LocalHost
from tare.parts.find import find
from tare.parts.protocols import Machine
from tare.parts.workloads import idle as idle_workload
from tare.parts.workloads.idle import Idle, Null
from tare.plan.check import _sleeps_badly
from tare.plan.matrix import cells
from tare.studies.load import from_plain
from tare.testing import FakeHost
from tare_inside import marks
from tare_inside.programs import idle
from trees.files import lay

SUSPENDED = Idle(state="suspended", duration=1800.0, settle=120.0)
SLEEPER = {
    "/sys/power/state": "freeze mem disk\n",
    "/sys/class/rtc/rtc0/name": "tegra-rtc\n",  # a clock that cannot wake has no wakealarm
    "/sys/class/rtc/rtc1/wakealarm": "",
    "/sys/class/rtc/rtc1/since_epoch": "1700000000\n",
    "/sys/class/rtc/rtc1/device/power/wakeup": "enabled\n",
    "/sys/power/wakeup_count": "17\n",
    "/proc/cpuinfo": "processor : 0\nflags : fpu vme\n",
}


class Device(LocalHost):
    """A device below a folder, with these users on it."""

    users = "root     pts/0        2026-11-18 04:00 (10.0.0.2)\n"
    ended = 0

    def run(self, argv, *, limit_s=60, stdin=""):
        return Completed(tuple(argv), self.ended, self.users, "")


@pytest.fixture(autouse=True)
def _as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_workload.os, "geteuid", lambda: 0)
    monkeypatch.setattr(idle_workload.os, "getuid", lambda: 0)
    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setattr(idle_workload, "POWER_STATE", "/no/such/file")


def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str] = SLEEPER) -> Device:
    monkeypatch.setattr(idle_workload, "POWER_STATE", "/sys/power/state")
    return Device(root=lay(tmp_path / "root", files))


def test_it_is_found_by_its_name_and_a_plain_time_is_its_duration() -> None:
    assert find("workloads", "idle") is Idle
    study = from_plain({"study": "s", "platform": "bare", "workload": {"idle": "10 min"}}, "test")
    (part,) = study.workloads[0].parts()
    assert part == Idle(duration=600.0)
    assert part.units() == 1
    assert part.obstacles(FakeHost()) == []


def test_it_marks_one_step_after_it_has_settled(workdir: Path) -> None:
    job = Idle(duration=0.3, settle=0.2).job(LocalHost(), workdir, seed=1)
    before_ns = time.monotonic_ns()
    ended = LocalHost().spawn(job).wait(60)
    assert (ended.code, ended.err) == (0, "")
    rows, lost = marks.load(str(workdir / "marks.bin"))
    assert [(name, edge, step) for _, name, edge, step in rows] == [("step", "begin", 0), ("step", "end", 0)]
    assert lost == 0
    assert rows[0][0] - before_ns >= 200_000_000
    assert rows[1][0] - rows[0][0] >= 300_000_000  # no upper bound: on a busy machine a sleeper wakes late


def test_logging_reads_on_a_grid_until_the_end(monkeypatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(idle, "look", read.append)
    begin_s = time.monotonic()
    idle.log(0.25, 0.1)
    assert time.monotonic() - begin_s >= 0.25
    assert read == [*idle.LOGGED] * 3


def test_a_file_that_is_not_there_is_nothing_to_log(tmp_path: Path) -> None:
    (tmp_path / "two").write_text("a b\nc\n")
    assert idle.look(str(tmp_path / "two")) == 2
    assert idle.look(str(tmp_path / "none")) == 0


def test_only_with_logging_is_there_a_period(workdir: Path) -> None:
    quiet, logs = (Idle(logging=on).job(FakeHost(), workdir, seed=1).argv[-1] for on in (False, True))
    assert (quiet, logs) == ("0", "0.1")
    assert idle.main(["1"]) == 2


def test_a_board_with_a_clock_that_can_wake_it_can_be_suspended(tmp_path: Path, monkeypatch) -> None:
    assert SUSPENDED.obstacles(pretended(tmp_path, monkeypatch)) == []
    assert SUSPENDED.title() == "a suspended device, 1800 s"
    assert (SUSPENDED.asleep_s(), SUSPENDED.guessed_s(Machine(4))) == (1800.0, 2040.0)
    assert (Idle().asleep_s(), SUSPENDED.shortened().asleep_s()) == (0.0, 0.0)
    assert Idle().obstacles(FakeHost()) == []


@pytest.mark.parametrize(
    ("path", "text", "code"),
    [
        ("/sys/power/state", "freeze\n", "needs.kernel"),
        ("/sys/class/rtc/rtc1/wakealarm", None, "needs.hardware"),
        ("/sys/class/rtc/rtc1/device/power/wakeup", "disabled\n", "needs.hardware"),
        ("/proc/cpuinfo", "flags : fpu hypervisor lahf_lm\n", "needs.hardware"),
    ],
)
def test_a_device_that_could_not_sleep_or_not_wake_is_refused(tmp_path, monkeypatch, path, text, code) -> None:
    files = {name: told for name, told in (SLEEPER | {path: text}).items() if told is not None}
    (found,) = SUSPENDED.obstacles(pretended(tmp_path, monkeypatch, files))
    assert (found.code, found.weight) == (code, "obstacle")


def test_nobody_is_suspended_from_elsewhere_as_another_user_or_under_others(tmp_path, monkeypatch) -> None:
    device = pretended(tmp_path, monkeypatch)
    assert [each.code for each in SUSPENDED.obstacles(FakeHost(files=dict(SLEEPER)))] == ["needs.full-device"]
    device.users += "ann      pts/1        2026-11-18 04:00 (10.0.0.3)\n"
    assert "(ann)" in str(SUSPENDED.obstacles(device)[0])
    with pytest.raises(TareError, match="not suspended: others are logged in"):
        SUSPENDED.job(device, tmp_path, seed=1)
    device.users = device.users.replace("root ", "bob  ").replace("ann ", "bob ")
    assert "(bob)" in str(SUSPENDED.obstacles(device)[0])  # alone, while root's service runs tare
    monkeypatch.setenv("SUDO_USER", "bob")
    assert SUSPENDED.obstacles(device) == []
    device.ended = 127
    assert "`who` failed" in str(SUSPENDED.obstacles(device)[0])
    monkeypatch.setattr(idle_workload.os, "geteuid", lambda: 1000)
    assert SUSPENDED.obstacles(device)[0].code == "needs.root"


@pytest.mark.parametrize("fields", [{"logging": True}, {"duration": 59.0}, {"settle": 5.0}])
def test_a_sleep_that_could_not_be_measured_is_refused_where_it_is_written(fields) -> None:
    with pytest.raises(ValidationError, match="suspended"):
        Idle(**{"state": "suspended", "duration": 600.0, "settle": 60.0, **fields})


METER = {"external": {"command": ["meter"], "energy": 2}}


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"control": {"wake_on_lan": True}, "probes": [METER]}, ""),
        ({"control": {"wake_on_lan": False}, "probes": [METER], "platform": "docker"}, "takes `platform: bare`"),
        ({"control": {"wake_on_lan": True}, "probes": [METER], "tenants": 2}, "with no tenant beside it"),
        ({"probes": [METER]}, "the control `wake_on_lan: on`, or `off`"),
        ({"control": {"wake_on_lan": True}, "probes": [{"external": {"command": ["meter"]}}]}, "that counts energy"),
        ({"control": {"wake_on_lan": True}, "probes": ["cpu"]}, "that counts energy"),
    ],
)
def test_a_study_that_suspends_names_all_that_it_takes(keys, says) -> None:
    sleeper = {"idle": {"state": "suspended", "duration": "30 min", "settle": "2 min"}}
    study = from_plain({"study": "s", "platform": "bare", "workload": sleeper, **keys}, "test")
    found = [str(each) for each in _sleeps_badly(cells(study)[0])]
    assert [says in each for each in found] == ([True] if says else [])


def sleeps(root: Path, workdir: Path, monkeypatch) -> int | str | None:
    """What the program ends with, as it is run in this process; the pretended kernel is in `root`."""
    workdir.mkdir(exist_ok=True)
    monkeypatch.chdir(workdir)
    words = ["0", "1800", "0", str(root / "sys/class/rtc/rtc1"), str(root / "sys/power/state")]
    try:
        return idle.main(words)
    except SystemExit as ended:
        return ended.code


def test_the_alarm_stands_before_the_device_sleeps_and_is_cleared_after_it(tmp_path, monkeypatch) -> None:
    root = pretended(tmp_path, monkeypatch).root
    written: list[tuple[str, str]] = []
    real = idle.write

    def write(path: str, text: str) -> None:
        written.append((Path(path).name, text))
        real(path, text)

    monkeypatch.setattr(idle, "write", write)
    assert sleeps(root, tmp_path / "work", monkeypatch) == 0
    assert written == [
        ("wakealarm", "1700001800"),
        ("wakeup_count", "17"),
        ("state", "mem"),
        ("wakealarm", "0"),
    ]


def test_what_no_alarm_would_wake_is_not_suspended(tmp_path, monkeypatch) -> None:
    root = pretended(tmp_path, monkeypatch).root
    real = idle.read
    monkeypatch.setattr(idle, "read", lambda path: "" if path.endswith("wakealarm") else real(path))
    assert "1700001800 was written, and it has ''" in str(sleeps(root, tmp_path / "work", monkeypatch))
    assert (root / "sys/power/state").read_text() == "freeze mem disk\n"
    assert (root / "sys/class/rtc/rtc1/wakealarm").read_text() == "0"


def test_a_clock_that_may_not_wake_any_more_is_seen_just_before_the_sleep(tmp_path, monkeypatch) -> None:
    root = pretended(tmp_path, monkeypatch).root
    (root / "sys/class/rtc/rtc1/device/power/wakeup").write_text("disabled\n")
    assert "may not wake the device" in str(sleeps(root, tmp_path / "work", monkeypatch))
    assert (root / "sys/power/state").read_text() == "freeze mem disk\n"


def test_what_the_kernel_refused_is_not_written_again(monkeypatch) -> None:
    """A file object flushes once more when it is closed, and the device would sleep after all."""
    calls: list[bytes] = []
    real = idle.os.write
    monkeypatch.setattr(idle.os, "write", lambda file, text: calls.append(text) or real(file, text))
    with pytest.raises(OSError, match="space"):
        idle.write("/dev/full", "mem")
    assert calls == [b"mem"]


@pytest.mark.parametrize(
    ("file", "says"), [("sys/power/state", "refused to suspend"), ("sys/class/rtc/rtc1/wakealarm", "alarm of")]
)
def test_a_kernel_that_refuses_is_told_with_its_reason_and_the_alarm_is_cleared(
    tmp_path, monkeypatch, file, says
) -> None:
    root = pretended(tmp_path, monkeypatch).root
    (root / file).unlink()
    (root / file).symlink_to("/dev/full")  # takes nothing
    told = str(sleeps(root, tmp_path / "work", monkeypatch))
    assert says in told
    assert "No space left on device" in told
    if "alarm" not in file:
        assert (root / "sys/class/rtc/rtc1/wakealarm").read_text() == "0"


def test_it_is_found_by_its_name_and_works_everywhere() -> None:
    assert find("workloads", "null") is Null
    assert Null().obstacles(FakeHost()) == []
    assert Null().units() is None
    assert Null().inputs() == ()


def test_it_launches_a_program_that_does_nothing() -> None:
    job = Null().job(FakeHost(python="/opt/python"), Path("/workdir"), seed=1)

    assert job.argv[0] == "/opt/python"
    assert job.argv[-2:] == ("--", "true")
    assert not [name for name in job.env if "MALLOC_" in name]


def test_it_runs_and_says_what_it_cost(workdir: Path) -> None:
    ended = LocalHost().spawn(Null().job(LocalHost(), workdir, seed=1)).wait(60)

    assert (ended.code, ended.out, ended.err) == (0, "", "")
    assert json.loads((workdir / "result.json").read_text())["wall_s"] > 0
    assert [path.name for path in (workdir / "inside").iterdir()] == ["tare_inside"]
