"""What every platform keeps to: on a host that is nothing, and on this machine where its obstacles are empty."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import tare
from tare.base.errors import TareError
from tare.base.host import Host, InnerHost, Job, LocalHost, OwnDevice, Site, node_name
from tare.base.processes import mounts
from tare.drivers.cgroups import tree
from tare.drivers.cgroups.limits import Limits
from tare.drivers.containers.place import Container
from tare.drivers.guests.place import GuestPlace
from tare.parts import find
from tare.parts.platforms.gvisor import SandboxPlace
from tare.parts.protocols import Mark, Platform
from tare.testing import FakeHost
from tare.trial.engine import in_device_time, place_facts
from tare_inside.marks import load as load_marks

NAMES = find.names("platforms")
EVERY = pytest.mark.parametrize("name", NAMES)
LIMITED = pytest.mark.parametrize("name", [name for name in NAMES if issubclass(find.find("platforms", name), Limits)])
PARAMS = [pytest.param(each, marks=pytest.mark.machine(each)) for each in NAMES]
OWN_KERNEL = (GuestPlace, SandboxPlace)  # their processes are none of the device's, which sees one for all of them
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/", "LANG": "C.UTF-8"}
BESIDE = "-other"
LIMITS = {"quota": 0.9, "cpuset": "0", "memory": "128 MiB"}


def platform(name: str, **fields: object) -> Platform:
    part = find.find("platforms", name)(**fields)
    assert isinstance(part, Platform)
    return part


@dataclass(frozen=True)
class Ground:
    """What a place stands on: the device, and a site of its own."""

    device: LocalHost
    site: Site
    data: Path
    workdir: Path


@dataclass(frozen=True)
class Opened:
    """A place, what it was made from, and what it stands on."""

    part: Platform
    ground: Ground
    place: Host


def make_ground(folder: Path, name: str = "") -> Ground:
    data, workdir, scratch = folder / "data", folder / "workdir", folder / "scratch"
    for each in (data, workdir, scratch):
        each.mkdir()
    (data / "set").write_text("what is read\n")
    site = Site(name or f"tare-test-{secrets.token_hex(4)}", scratch, reads=(data,), writes=(workdir,))
    return Ground(LocalHost(), site, data, workdir)


@pytest.fixture(scope="module", params=PARAMS)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """A place that stays open for all tests that leave it as it was: a machine takes long to boot."""
    part = platform(request.param)
    ground = make_ground(tmp_path_factory.mktemp(request.param), f"tare-test-{secrets.token_hex(4)}{BESIDE}")
    place = part.open(ground.device, ground.site)
    yield Opened(part, ground, place)
    place.close()
    place.close()
    assert left_over(ground, place) == NOTHING


@pytest.fixture
def beside(opened: Opened, tmp_path: Path) -> Iterator[Ground]:
    """Ground for a second place, whose name is the beginning of that of the open one."""
    made = make_ground(tmp_path, opened.ground.site.name.removesuffix(BESIDE))
    yield made
    type(opened.part).sweep(made.device, made.site.name)


def left_over(ground: Ground, place: Host) -> dict[str, object]:
    """What may still be there of a place that was closed."""
    seen_by_others = f"/root{ground.site.scratch}"  # the root of a trial that another test runs shows our folder too
    own = [each for each in mounts(ground.device) if seen_by_others not in each.point]
    return {
        "mounts": [each.point for each in own if carries(each.point + each.source, ground.site.name)],
        "groups": [folder for folder in place.scope().cgroups.values() if Path(folder).exists()],
        "processes": tree.processes_named(ground.device, ground.site.name),
        "scratch": list(ground.site.scratch.iterdir()),
    }


def carries(text: str, name: str) -> bool:
    """Whether this is of the place of that name, and not of the one beside it."""
    return name in text.replace(f"{name}{BESIDE}", "")


def jobs(ground: Ground, place: Host) -> set[int]:
    """The processes of its jobs: the device sees them, unless the place has a kernel of its own."""
    if isinstance(place, SandboxPlace):
        return jobs_in_a_sandbox(ground, place)
    return tree.processes_named(place if isinstance(place, OWN_KERNEL) else ground.device, ground.site.name)


def jobs_in_a_sandbox(ground: Ground, place: Host) -> set[int]:
    """gVisor's /proc cannot be walked (`ls /proc/1` is an invalid argument there), but its files can be read."""
    script = 'for file in /proc/[0-9]*/environ; do if grep -qszxF -e "$1" -- "$file"; then echo "$file"; fi; done'
    found = place.run(["sh", "-c", script, "look", f"{tree.NAME_VARIABLE}={ground.site.name}"]).checked()
    return {int(path.split("/")[2]) for path in found.out.splitlines()}


NOTHING = {"mounts": [], "groups": [], "processes": set(), "scratch": []}


@EVERY
def test_on_a_host_that_is_nothing_obstacles_are_sentences(name):
    limits = {"quota": 1.5, "cpuset": "0", "memory": "64 MiB"}
    for fields in ({}, limits if issubclass(find.find("platforms", name), Limits) else {}):
        for found in platform(name, **fields).obstacles(FakeHost()):
            assert found.weight == "obstacle"
            assert found.sentence.endswith(".")
            assert len(found.sentence.split()) > 3


@LIMITED
def test_a_limit_on_a_host_without_control_groups_is_an_obstacle(name):
    assert platform(name, quota=1.5).obstacles(FakeHost())


@LIMITED
def test_it_is_a_value(name):
    part = platform(name, quota=1.5)

    assert (part, hash(part)) == (platform(name, quota=1.5), hash(platform(name, quota=1.5)))
    assert platform(name, **part.fields()) == part


def test_an_opened_place_has_all_that_a_host_inside_another_has(opened):
    assert isinstance(opened.place, InnerHost)
    assert not isinstance(opened.ground.device, InnerHost)


def test_an_opened_place_is_not_the_device_itself_and_has_a_name_all_the_same(opened):
    assert isinstance(opened.ground.device, OwnDevice)
    assert not isinstance(opened.place, OwnDevice)
    assert node_name(opened.place)


def test_a_short_command_has_its_input_and_says_what_it_did(opened):
    done = opened.place.run(["sh", "-c", "echo out; echo err >&2; exit 3"])

    assert (done.code, done.out, done.err) == (3, "out\n", "err\n")
    assert opened.place.run(["cat"], stdin="what goes in").out == "what goes in"
    assert opened.place.run(["there-is-no-such-command"]).code in (126, 127, 255)


def test_a_job_runs_where_and_with_what_it_was_given(opened):
    job = Job(("sh", "-c", "pwd; echo $A; exit 5"), env={**ENV, "A": "one two"}, cwd="/usr")
    ended = opened.place.spawn(job).wait(60)

    assert (ended.code, ended.out, ended.err) == (5, "/usr\none two\n", "")
    assert not ended.timed_out
    assert 0 < ended.seconds < 60


def test_the_job_sees_its_environment_and_no_other(opened):
    ended = opened.place.spawn(Job(("env",), env=ENV)).wait(60)

    assert sorted(ended.out.splitlines()) == sorted(
        [*(f"{key}={value}" for key, value in ENV.items()), f"TARE_NAME={opened.ground.site.name}"]
    )


def test_it_sees_what_it_reads_and_writes_what_it_may(opened):
    ground, place, source = opened.ground, opened.place, Path(tare.__file__)

    assert place.read(ground.data / "set") == "what is read\n"
    assert place.read(source) == source.read_text()
    assert place.run(["sh", "-c", f"echo made > {ground.workdir}/new"]).code == 0
    place.write(ground.workdir / "new", "changed")
    assert (ground.workdir / "new").read_text() == "changed"


def test_a_container_cannot_write_anywhere_else_on_the_host(opened):
    if not isinstance(opened.part, Container):
        return  # bare metal is the host
    script = 'for path do if (exec 3>> "$path") 2> /dev/null; then echo "$path"; fi; done'
    forbidden = [str(opened.ground.data / "set"), tare.__file__, "/etc/hostname", "/usr/bin/new", "/var/new", "/new"]

    assert opened.place.run(["sh", "-c", script, "touch", *forbidden]).out == ""


def test_files_that_are_not_there_are_not_found_and_never_made(opened):
    with pytest.raises(FileNotFoundError):
        opened.place.read(opened.ground.workdir / "missing")
    with pytest.raises(FileNotFoundError):
        opened.place.write(opened.ground.workdir / "missing", "text")

    assert not (opened.ground.workdir / "missing").exists()


@pytest.mark.machine("root")  # only in a control group of its own
def test_past_the_limit_the_job_dies_with_all_its_children(opened):
    script = "echo begun; setsid sleep 987 & sleep 987 && echo never"
    for limit_s in (1.0, 15.0):
        ended = opened.place.spawn(Job(("sh", "-c", script), env=ENV)).wait(limit_s)
        if ended.out:  # else a busy machine had not begun it yet
            break
    still = jobs(opened.ground, opened.place)
    alive = opened.place.run(["echo", "still open"])

    assert ended.timed_out
    assert (ended.out, still) == ("begun\n", set())
    assert limit_s <= ended.seconds < limit_s + 120
    assert alive.out == "still open\n"


def test_a_short_command_past_its_limit_is_ended(opened):
    done = opened.place.run(["sleep", "987"], limit_s=0.5)

    assert done.code == 124
    assert "ended by tare" in done.err


@pytest.mark.machine("root")  # only in a control group of its own
def test_its_scope_is_where_its_jobs_are_counted_on_the_device(opened):
    scope = opened.place.scope()
    process = opened.place.spawn(Job(("sleep", "987"), env=ENV))
    held = _held_within(opened, scope.cgroups.values(), 60)
    process.kill()
    assert process.wait(60).code != 0

    assert scope.cgroups
    assert held, "no job was found in any of the folders"
    assert scope.pid is None or scope.pid > 0


def _held_within(opened: Opened, folders, seconds: float) -> bool:
    """Whether every folder holds the job's process, or its whole machine, before the time is up."""
    clock = opened.ground.device.clock
    end_ns = clock.now_ns() + round(seconds * 1e9)
    while clock.now_ns() < end_ns:
        found = jobs(opened.ground, opened.place)
        if found and isinstance(opened.place, OWN_KERNEL):
            found = {opened.place.scope().pid or 0}  # on the device they are the machine
        named = {str(pid) for pid in found}
        if named and all(named & set(Path(folder, "cgroup.procs").read_text().split()) for folder in folders):
            return True
        clock.sleep_until(clock.now_ns() + 50_000_000)
    return False


def quota_of(place: Host) -> float:
    """The cores' worth of time that the device gives to the place, as its control group has it."""
    folders = place.scope().cgroups
    if "cpu" in folders:
        quota_us, period_us = (Path(folders["cpu"], f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    else:
        quota_us, period_us = Path(folders[""], "cpu.max").read_text().split()
    return float(quota_us) / float(period_us)


def assert_limits_hold(place: Host) -> None:
    assert quota_of(place) == LIMITS["quota"]
    look = [place.python, "-I", "-S", "-c", "import os; print(os.sched_getaffinity(0))"]
    assert place.run(look, limit_s=60).out == "{0}\n"
    hungry = "x = [bytearray(1 << 20) for _ in range(256)]; print(len(x))"
    ended = place.spawn(Job((place.python, "-I", "-S", "-c", hungry), env=ENV)).wait(60)
    assert ended.code in (-9, 137)
    assert ended.out == ""
    assert "tare: the kernel killed a process here for want of memory (once)." in ended.err


def test_limits_hold_and_sweeping_removes_a_place_that_was_never_closed_and_no_other_one(opened, beside):
    """Both on one place, since a machine takes long to boot; sweeping twice is no error."""
    limits = LIMITS if os.geteuid() == 0 else {}  # they need a control group of its own
    place = platform(opened.part.part_name(), **limits).open(beside.device, beside.site)
    if limits:
        assert_limits_hold(place)
        (beside.site.scratch / "oom").unlink(missing_ok=True)  # conmon's note of the kill, in a folder of this test
    process = place.spawn(Job(("sleep", "987"), env=ENV))

    for _ in range(2):
        type(opened.part).sweep(beside.device, beside.site.name)

    assert left_over(beside, place) == NOTHING
    assert opened.place.run(["echo", "still open"]).out == "still open\n"
    with contextlib.suppress(TareError):  # the engine does not know the job any more
        process.wait(5)
    with contextlib.suppress(TareError):
        place.close()


def test_output_beyond_what_is_kept_is_cut_and_told(opened):
    ended = opened.place.spawn(Job(("head", "-c", "3000000", "/dev/zero"), env=ENV)).wait(60)

    assert ended.code == 0
    assert ended.truncated
    assert len(ended.out) == 1 << 20


def test_a_child_that_holds_the_output_open_does_not_hold_the_job(opened):
    ended = opened.place.spawn(Job(("sh", "-c", "setsid sleep 987 & echo done"), env=ENV)).wait(60)

    assert (ended.code, ended.out, ended.timed_out) == (0, "done\n", False)
    assert ended.seconds < 50


MARKING = """
import sys, time
sys.path.insert(0, sys.argv[1])
from tare_inside import marks
marks.open_marks(sys.argv[2])
for step in range(3):
    marks.begin("step", step)
    if step == 1:  # the guest's clock is set back by an hour in the middle of the work
        time.clock_settime(time.CLOCK_REALTIME, time.time() - 3600)
    sum(range(1000))
    marks.end("step", step)
"""


def test_marks_made_in_a_machine_whose_clock_is_set_come_back_in_device_time(opened):
    if not isinstance(opened.place, GuestPlace):
        return  # the others have the device's clock
    guest, clock, file = opened.place, opened.ground.device.clock, opened.ground.workdir / "marks.bin"
    source = str(Path(tare.__file__).parents[1])
    before_ns = clock.now_ns()
    told_s = float(guest.run(["date", "+%s"]).out)
    ended = guest.spawn(Job((guest.python, "-I", "-S", "-c", MARKING, source, str(file)), env=ENV)).wait(300)
    after_ns = clock.now_ns()

    assert ended.code == 0, ended.err
    assert float(guest.run(["date", "+%s"]).out) < told_s - 3000, "settimeofday took effect"
    marks, lost = load_marks(str(file))
    assert (len(marks), lost) == (6, 0)
    moved = in_device_time([Mark(*mark) for mark in marks], guest)
    bound_ns = place_facts(guest)["clock"]["bound_ns"]
    assert before_ns - bound_ns <= moved[0].t_ns <= moved[-1].t_ns <= after_ns + bound_ns
    assert not before_ns <= marks[0][0] <= after_ns, "the guest's own time is another, or nothing was shown"
    assert bound_ns < 600_000_000_000  # of the hour by which it was set; beside other work an answer takes seconds


def test_a_machine_says_what_it_is_and_how_long_it_took_to_boot_and_cannot_change_the_devices_software(opened):
    if not isinstance(opened.place, GuestPlace):
        return
    guest = opened.place
    done = guest.run(["sh", "-c", "echo changed >> /etc/os-release; tail -n 1 /etc/os-release"])

    assert guest.facts["accel"] in ("kvm", "tcg")
    assert ("accel_note" in guest.facts) == (guest.facts["accel"] == "tcg")
    assert guest.run(["uname", "-r"]).out.strip() == guest.facts["kernel"]
    assert guest.phases["open.boot"] > 0
    assert done.out == "changed\n"  # in its own memory
    assert "changed" not in Path("/etc/os-release").read_text()
