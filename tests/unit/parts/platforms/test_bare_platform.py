"""Bare metal: the device itself, in a control group of its own where we may make one."""

from __future__ import annotations

from pathlib import Path

import pytest

from small_linux import SmallLinux, broken_openings
from tare.base.errors import ObstacleError
from tare.base.host import Exit, Job, Scope, Site
from tare.drivers.cgroups.job import OOM_NOTE
from tare.parts.platforms.bare import Bare

SITE = Site(name="tare-1", scratch=Path("/scratch"))
JOB = Job(("python", "train.py"), env={"A": "1"}, cwd="/work")


def test_a_job_starts_inside_the_group_and_keeps_its_environment_and_folder():
    host = SmallLinux(version=2)
    place = Bare().open(host, SITE)

    place.spawn(JOB)

    (spawned,) = host.spawned
    assert spawned.argv[:2] == ("/bin/sh", "-c")
    assert spawned.argv[3:] == ("tare", "/sys/fs/cgroup/tare/tare-1/cgroup.procs", "--", "python", "train.py")
    assert spawned.env == {"A": "1", "TARE_NAME": "tare-1"}
    assert spawned.cwd == "/work"


def test_a_short_command_is_reported_as_it_was_asked():
    host = SmallLinux(version=2)

    done = Bare().open(host, SITE).run(["true"])

    assert done.argv == ("true",)
    assert host.asked[-1][-2:] == ("--", "true")


def test_its_scope_is_the_group():
    place = Bare().open(SmallLinux(version=2), SITE)

    assert place.scope() == Scope(pid=None, cgroups={"": "/sys/fs/cgroup/tare/tare-1"})


@pytest.mark.parametrize("version", [1, 2])
def test_closing_kills_what_is_left_and_removes_the_group(version):
    host = SmallLinux(version=version)
    before = host.left_over()
    place = Bare(quota=1).open(host, SITE)
    left = host.start_process(next(iter(place.scope().cgroups.values())))

    place.close()
    place.close()

    assert not host.alive(left)
    assert host.left_over() == before


@pytest.mark.parametrize("version", [1, 2])
def test_whichever_step_of_opening_breaks_nothing_is_left(version):
    before = SmallLinux(version=version).left_over()

    openings = list(broken_openings(Bare(quota=1, cpuset="0", memory="64 MiB"), SITE, version=version))

    assert sum(not opened for _, _, opened in openings) >= 6
    for broken, host, _ in openings:
        assert host.left_over() == before, f"left over after this broke: {broken}"


def test_without_rights_it_runs_without_a_group():
    host = SmallLinux(uid=1000)
    place = Bare().open(host, SITE)

    place.spawn(JOB)

    assert host.spawned[0].argv == ("python", "train.py")
    assert place.scope() == host.scope()


def test_without_rights_a_limit_is_an_obstacle_in_a_sentence():
    host = SmallLinux(uid=1000)

    (sentence,) = map(str, Bare(quota=1).obstacles(host))

    assert "run as root" in sentence
    with pytest.raises(ObstacleError, match="run as root"):
        Bare(quota=1).open(host, SITE)
    assert Bare().obstacles(host) == []


def test_without_a_group_what_is_left_is_found_by_its_name():
    host = SmallLinux(uid=1000)
    place = Bare().open(host, SITE)
    ours = host.start_process(environ="A=1\0TARE_NAME=tare-1\0")
    others = [
        host.start_process(environ="TARE_NAME=tare-1\0", uid=1001),
        host.start_process(environ="TARE_NAME=tare-12\0"),
        host.start_process(environ="XTARE_NAME=tare-1\0"),
    ]

    place.close()

    assert not host.alive(ours)
    assert all(host.alive(pid) for pid in others)


@pytest.mark.parametrize("uid", [0, 1000])
def test_sweeping_after_a_crash_removes_what_is_ours_and_is_idempotent(uid):
    host = SmallLinux(uid=uid)
    before = host.left_over()
    place = Bare().open(host, SITE)  # and the runner dies here
    left = [host.start_process(folder) for folder in place.scope().cgroups.values()]
    left.append(host.start_process(environ="TARE_NAME=tare-1\0"))
    other = host.start_process(environ="TARE_NAME=tare-2\0")

    Bare.sweep(host, "tare-1")
    Bare.sweep(host, "tare-1")

    assert not any(host.alive(pid) for pid in left)
    assert host.alive(other)
    assert host.left_over() == before


def test_sweeping_spares_another_runs_group():
    host = SmallLinux()
    other = Bare().open(host, Site(name="tare-2", scratch=Path("/scratch")))
    living = host.start_process(other.scope().cgroups["cpu"])

    Bare.sweep(host, "tare-1")

    assert host.alive(living)


def test_an_out_of_memory_kill_is_told_in_the_jobs_error_output():
    host = SmallLinux(exit=Exit(code=-9, seconds=1, err="Killed\n"))
    place = Bare().open(host, SITE)
    process = place.spawn(JOB)
    host.files[f"{place.scope().cgroups['memory']}/memory.oom_control"] = "oom_kill 1\n"

    ended = process.wait(10)

    assert ended.err == f"Killed\n{OOM_NOTE} (once).\n"


def test_a_job_that_was_not_killed_for_memory_keeps_its_output():
    host = SmallLinux(exit=Exit(code=0, seconds=1, err="fine\n"))

    assert Bare().open(host, SITE).spawn(JOB).wait(10).err == "fine\n"


def test_files_are_the_devices_own():
    host = SmallLinux(files={"/x": "1"})
    place = Bare().open(host, SITE)

    place.write("/x", "2")

    assert (place.read("/x"), host.files["/x"]) == ("2", "2")
