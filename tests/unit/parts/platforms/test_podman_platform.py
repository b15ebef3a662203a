"""Podman: the command line, a long-lived container, the same walls as docker's."""

from __future__ import annotations

from pathlib import Path

import pytest

from small_linux import SmallLinux, broken_openings
from tare.base.errors import ControlNotHeld
from tare.base.host import Completed, Job, Site
from tare.base.processes import Owner
from tare.drivers.containers.oci import PATH
from tare.parts.platforms.podman import Podman
from tare.testing import FakeHost

SITE = Site(name="tare-1", scratch=Path("/scratch"), reads=(Path("/tmp/set"),), writes=(Path("/dev/shm/workdir"),))


def created(host: SmallLinux) -> tuple[str, ...]:
    (command,) = [asked for asked in host.asked if "create" in asked]
    return command


def test_a_container_is_made_with_the_walls_of_the_house():
    host = SmallLinux()

    Podman(shm="64 MiB").open(host, SITE)

    flags = created(host)
    walls = {
        "--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--read-only", "--pids-limit=4096",
        "--user=0:0", "--cgroup-parent=/tare", f"--shm-size={64 << 20}b", "--label=tare.run=tare-1",
        f"--label=tare.owner={Owner.me()}", "--log-driver=none", "--ulimit=nofile=1024:4096",
    }  # fmt: skip
    assert walls <= set(flags)
    assert flags[:4] == ("podman", "--cgroup-manager=cgroupfs", "--log-level=fatal", "--runtime=runc")
    assert flags[-4:] == ("--rootfs", "/:O", "sleep", "2147483647")
    mounts = [flag for flag in flags if flag.startswith("--mount=")]
    assert mounts[0].startswith("--mount=type=bind,src=/dev/shm/workdir,dst=/dev/shm/workdir,bind-propagation")
    assert "src=/tmp/set,dst=/tmp/set,ro=true" in mounts[1]


def test_without_runc_podman_takes_its_own_runtime():
    host = SmallLinux(installed={"podman"})

    Podman().open(host, SITE)

    assert "--runtime=runc" not in created(host)


def test_limits_are_flags_and_are_read_back():
    host = SmallLinux()  # its podman sets no limits
    before = host.left_over()

    with pytest.raises(ControlNotHeld):
        Podman(quota=1.5, cpuset="0-1", memory="64 MiB").open(host, SITE)

    assert {"--cpu-quota=150000", "--cpu-period=100000", "--cpuset-cpus=0-1", f"--memory={64 << 20}b"} <= set(
        created(host)
    )
    assert host.left_over() == before


def test_a_job_gets_its_own_environment_and_no_other():
    host = SmallLinux()
    place = Podman().open(host, SITE)

    place.spawn(Job(("python", "train.py"), env={"HF_TOKEN": "hush", "HOME": "/ada"}, cwd="/work"))

    (job,) = host.spawned
    assert job.argv == (
        "podman", "--cgroup-manager=cgroupfs", "--log-level=fatal", "--runtime=runc", "exec", "--workdir=/work",
        "--env=HF_TOKEN", "tare-1", "/usr/bin/env", "-u", "HOSTNAME", "-u", "TERM", "-u", "container", "-u", "PWD",
        "-u", "TARE_KEEPER", "HOME=/ada", "TARE_NAME=tare-1", "python", "train.py",
    )  # fmt: skip
    assert job.env == {"HF_TOKEN": "hush", "PATH": PATH, "HOME": "/root"}  # podman's own: a command line is public


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PATH", "TMPDIR", "XDG_RUNTIME_DIR", "https_proxy", "GODEBUG", "TERM"])
def test_what_podman_itself_would_heed_is_not_in_its_environment(name):
    host = SmallLinux()
    place = Podman().open(host, SITE)

    place.spawn(Job(("true",), env={name: "for the job"}))

    (job,) = host.spawned
    assert f"{name}=for the job" in job.argv
    assert "for the job" not in job.env.values()
    assert ("-u", name) not in zip(job.argv, job.argv[1:], strict=False)


def test_in_an_image_the_images_own_variables_stay_and_its_path_wins():
    host = SmallLinux()
    host.images["pt:1"] = {"Id": "77", "Config": {"Env": ["PATH=/opt"], "User": "app"}}
    host.answer = lambda argv: Completed((), 0, "/opt/python3\n", "") if "exec" in argv else None
    place = Podman(image="pt:1").open(host, SITE)

    place.spawn(Job(("python", "train.py"), env={"A": "1", "PATH": "/host"}))

    argv = host.spawned[0].argv
    assert place.python == "/opt/python3"
    assert "-i" not in argv
    assert "PATH=/host" not in argv
    assert {"--env=A", "TARE_NAME=tare-1"} <= set(argv)
    assert host.spawned[0].env["A"] == "1"
    assert created(host)[-3:] == ("pt:1", "sleep", "2147483647")


def test_input_reaches_a_short_command():
    host = SmallLinux()
    place = Podman().open(host, SITE)

    place.run(["cat"], stdin="text")
    place.run(["true"])

    assert "--interactive" in host.asked[-2]
    assert "--interactive" not in host.asked[-1]


@pytest.mark.parametrize("version", [1, 2])
def test_closing_leaves_no_container_and_no_group(version):
    host = SmallLinux(version=version)
    before = host.left_over()
    place = Podman().open(host, SITE)
    for controller in ("cpu",) if version == 1 else ("",):
        host._make_group(f"{host.point(controller)}/tare/conmon")

    place.close()

    assert host.left_over() == before


def test_whichever_step_of_opening_breaks_nothing_is_left():
    before = SmallLinux().left_over()

    openings = list(broken_openings(Podman(), SITE))

    assert sum(not opened for _, _, opened in openings) >= 3
    for broken, host, _ in openings:
        assert host.left_over() == before, f"left over after this broke: {broken}"


def test_sweeping_removes_by_label_only_and_is_idempotent():
    host = SmallLinux()
    before = host.left_over()
    Podman().open(host, SITE)  # and the runner dies here
    host.podman["tare-9"] = {"labels": {"someone": "else"}, "pid": 0}

    Podman.sweep(host, "tare-1")
    Podman.sweep(host, "tare-1")
    Podman.sweep(host, "tare-9")

    assert list(host.podman) == ["tare-9"]
    host.podman.clear()
    assert host.left_over() == before


def test_sweeping_without_podman_is_no_error():
    Podman.sweep(SmallLinux(installed=set()), "tare-1")


def test_obstacles_say_what_to_install():
    sentences = [*map(str, Podman().obstacles(FakeHost()))]

    assert any("apt-get install podman" in sentence for sentence in sentences)
    assert Podman().obstacles(SmallLinux()) == []


def test_an_image_that_podman_does_not_have_is_an_obstacle():
    host = SmallLinux()
    assert [*map(str, Podman(image="pt:1").obstacles(host))] == ["podman has no image pt:1: run `podman pull pt:1`."]


def test_without_root_the_folders_are_bound_and_no_group_is_named():
    host = SmallLinux(uid=1000)
    host.answer = lambda argv: Completed((), 0, "", "") if argv[0] == "newuidmap" else None

    assert Podman().obstacles(host) == []
    place = Podman().open(host, SITE)

    flags = created(host)
    assert {"--user=0:0", "--pids-limit=-1"} <= set(flags)
    assert not any(flag.startswith("--cgroup-parent") for flag in flags)
    assert flags[-4:-2] == ("--rootfs", "/scratch/tare-1/root")
    assert any("src=/usr,dst=/usr,ro=true" in flag for flag in flags)
    assert (place.facts["root"], place.scope()) == ("binds", host.scope())
    place.close()
    assert host.left_over() == SmallLinux(uid=1000).left_over()


def test_a_job_of_rootless_podman_is_ended_from_inside():
    host = SmallLinux(uid=1000)
    place = Podman().open(host, SITE)
    host.files[f"/proc/{host.next_pid}/stat"] = f"{host.next_pid} (sleep) S 1"

    place.spawn(Job(("sleep", "9"))).kill()

    assert host.asked[-1][-4:-1] == ("tare-1", "/bin/sh", "-c")
    assert "kill -KILL -1" in host.asked[-1][-1]


def test_limits_and_the_missing_program_of_rootless_podman_are_obstacles():
    found = Podman(quota=1.5).obstacles(SmallLinux(uid=1000))

    assert [ruling.code for ruling in found] == ["needs.root", "needs.program"]
