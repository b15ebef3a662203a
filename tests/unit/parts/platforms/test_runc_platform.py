"""runc: an OCI bundle, no daemon; everything through the host, so that it stacks on any.

crun: runc's bundle, by another program, which is called so that it starts on machines with both control groups.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from small_linux import BOOT_ID, SmallLinux, broken_openings
from tare.base.errors import ControlNotHeld, TrialError
from tare.base.host import Completed, Exit, Job, LocalHost, Scope, Site
from tare.parts.platforms.bare import Bare
from tare.parts.platforms.crun import _HYBRID, Crun
from tare.parts.platforms.runc import Runc
from tare.testing import FakeHost

SITE = Site(name="tare-1", scratch=Path("/scratch"), reads=(Path("/tmp/set"),), writes=(Path("/dev/shm/workdir"),))


def test_a_bundle_is_made_and_started():
    host = SmallLinux()

    Runc().open(host, SITE)

    assert host.runc == {"tare-1": 501}
    config = json.loads(host.files["/scratch/tare-1/config.json"])
    assert config["root"]["path"] == "/scratch/tare-1/root"
    assert [m["destination"] for m in config["mounts"] if m["type"] == "bind"] == ["/dev/shm/workdir", "/tmp/set"]


def test_a_job_comes_in_by_exec_and_its_environment_is_in_a_file_not_on_the_command_line():
    host = SmallLinux()
    place = Runc().open(host, SITE)

    place.spawn(Job(("python", "train.py"), env={"A": "secret"}, cwd="/work"))

    (spawned,) = host.spawned
    *command, file, _, _, name = spawned.argv
    # By its whole path: it need not lie on the PATH that the container's commands get.
    assert command == ["/usr/sbin/runc", "--root", "/run/tare/runc", "exec", "--process"]
    assert name == "tare-1"
    process = json.loads(host.files[file])
    assert (process["args"], process["cwd"]) == (["python", "train.py"], "/work")
    assert process["env"] == ["A=secret", "TARE_NAME=tare-1"]
    assert "secret" not in " ".join(spawned.argv)


def test_a_container_in_a_guest_is_two_platforms_stacked():
    guest = SmallLinux(name="guest", scope_value=Scope(pid=9, cgroups={"cpu": "/sys/fs/cgroup/cpu/qemu"}))
    place = Runc().open(guest, SITE)

    place.spawn(Job(("true",)))

    assert guest.spawned[0].argv[:4] == ("/usr/sbin/runc", "--root", "/run/tare/runc", "exec")
    # The guest's pids mean nothing on the device: seen from there, all of it is the guest.
    assert place.scope() == guest.scope()


def test_on_the_devices_own_kernel_its_scope_is_its_own():
    host = SmallLinux()
    host.files["/proc/sys/kernel/random/boot_id"] = LocalHost().read("/proc/sys/kernel/random/boot_id")

    scope = Runc().open(host, SITE).scope()

    assert scope.pid == 501
    assert scope.cgroups["cpu"] == "/sys/fs/cgroup/cpu/tare/tare-1"
    assert host.files["/proc/sys/kernel/random/boot_id"] != BOOT_ID


@pytest.mark.parametrize("version", [1, 2])
def test_closing_leaves_no_container_mount_folder_or_group(version):
    host = SmallLinux(version=version)
    before = host.left_over()
    place = Runc().open(host, SITE)

    place.close()
    place.close()

    assert host.left_over() == before


@pytest.mark.parametrize("version", [1, 2])
def test_whichever_step_of_opening_breaks_nothing_is_left(version):
    before = SmallLinux(version=version).left_over()

    openings = list(broken_openings(Runc(), SITE, version=version))

    assert sum(not opened for _, _, opened in openings) >= 4
    for broken, host, _ in openings:
        assert host.left_over() == before, f"left over after this broke: {broken}"


def test_a_limit_that_runc_did_not_set_closes_the_container_again():
    host = SmallLinux()  # its runc sets no limits
    before = host.left_over()

    with pytest.raises(ControlNotHeld):
        Runc(quota=1.5).open(host, SITE)

    assert host.left_over() == before


def test_what_runc_says_when_it_cannot_start_reaches_the_user():
    host = SmallLinux()
    really = host._runc
    host._runc = lambda words: (1, "", "no such thing as a rootfs") if "run" in words else really(words)

    with pytest.raises(TrialError, match="no such thing as a rootfs"):
        Runc().open(host, SITE)


def test_sweeping_after_a_crash_removes_everything_and_is_idempotent():
    host = SmallLinux()
    before = host.left_over()
    Runc().open(host, SITE)  # and the runner dies here
    other = Runc().open(host, Site(name="tare-2", scratch=Path("/scratch")))
    host.start_process("/sys/fs/cgroup/cpu/tare/tare-1")

    Runc.sweep(host, "tare-1")
    Runc.sweep(host, "tare-1")

    assert list(host.runc) == ["tare-2"]
    other.close()
    assert host.left_over() == before


def test_sweeping_without_runc_still_removes_mounts_and_groups():
    host = SmallLinux()
    before = host.left_over()
    Runc().open(host, SITE)
    host.installed.clear()
    host.runc.clear()

    Runc.sweep(host, "tare-1")

    assert host.left_over() == before


def test_obstacles_say_what_to_install_and_who_may():
    host = SmallLinux(uid=1000, installed=set())

    sentences = [*map(str, Runc(image="/nowhere").obstacles(host))]

    assert any("apt-get install runc" in sentence for sentence in sentences)
    assert any("root" in sentence for sentence in sentences)
    assert any("/nowhere" in sentence for sentence in sentences)
    assert Runc().obstacles(SmallLinux()) == []


def test_an_unpacked_image_is_the_lower_layer_so_that_it_is_never_changed():
    host = SmallLinux()
    inside = Completed((), 0, "/opt/bin/python3\n", "")
    host.answer = lambda argv: inside if "exec" in argv else None

    place = Runc(image="/images/pt").open(host, SITE)

    assert "lowerdir=/images/pt," in host.table[-1]
    assert place.python == "/opt/bin/python3"


def test_an_image_without_python_says_what_to_name_and_is_closed_again():
    host = SmallLinux()
    host.answer = lambda argv: Completed((), 127, "", "") if "exec" in argv else None
    before = host.left_over()

    with pytest.raises(TrialError, match="python: /path"):
        Runc(image="/images/pt").open(host, SITE)

    assert host.left_over() == before


def test_a_job_past_its_limit_is_killed_inside_before_runc_itself():
    host = SmallLinux(exit=Exit(code=-9, seconds=10, timed_out=True))
    place = Runc().open(host, SITE)
    job = host.start_process("/sys/fs/cgroup/cpu/tare/tare-1")

    ended = place.spawn(Job(("sleep", "99"))).wait(10)

    assert ended.timed_out
    assert not host.alive(job)
    assert host.alive(501)


def test_a_short_command_past_its_limit_leaves_nothing_running_inside():
    host = SmallLinux()
    place = Runc().open(host, SITE)
    job = host.start_process("/sys/fs/cgroup/cpu/tare/tare-1")
    host.answer = lambda argv: Completed((), 124, "", "ended by tare") if "exec" in argv else None

    assert place.run(["sleep", "99"], limit_s=1).code == 124
    assert not host.alive(job)


def test_files_inside_are_read_and_written_by_commands():
    host = SmallLinux()
    place = Runc().open(host, SITE)
    host.answer = lambda argv: Completed((), 0, "text", "") if "exec" in argv else None

    assert place.read("/etc/x") == "text"
    place.write("/etc/x", "new")
    assert host.stdins[-1] == "new"


def test_a_file_that_is_not_inside_is_not_found():
    host = SmallLinux()
    place = Runc().open(host, SITE)
    host.answer = lambda argv: Completed((), 66, "", "") if "exec" in argv else None

    with pytest.raises(FileNotFoundError):
        place.read("/x")
    with pytest.raises(FileNotFoundError):
        place.write("/x", "1")


def test_a_file_that_cannot_be_read_says_why():
    host = SmallLinux()
    place = Runc().open(host, SITE)
    host.answer = lambda argv: Completed((), 1, "", "cat: /x: Permission denied") if "exec" in argv else None

    with pytest.raises(OSError, match="Permission denied"):
        place.read("/x")


def test_on_a_host_that_is_nothing_obstacles_are_sentences():
    assert all(sentence.endswith((".", "it.")) for sentence in map(str, Runc(quota=1).obstacles(FakeHost())))
    assert Bare(quota=1).obstacles(FakeHost())


def test_its_fields_are_those_of_runc_and_its_state_is_its_own():
    assert set(Crun.model_fields) == set(Runc.model_fields)
    assert (Crun.runtime().state, Runc.runtime().state) == ("/run/tare/crun", "/run/tare/runc")
    assert any("apt-get install crun" in str(each) for each in Crun().obstacles(FakeHost()))


def test_every_call_goes_through_what_hides_the_second_version():
    words = Crun.runtime().argv("tare-1")

    assert words[:4] == ("sh", "-c", _HYBRID, "crun")
    assert words[4:] == ("crun", "--root", "/run/tare/crun")
    assert Crun.runtime().found(LocalHost()).argv("tare-1")[:4] == words[:4]


def test_where_there_is_one_version_the_program_is_called_as_it_is(tmp_path: Path):
    script = _HYBRID.replace("/sys/fs/cgroup/unified/cgroup.controllers", str(tmp_path / "missing"))

    done = subprocess.run(["sh", "-c", script, "crun", "echo", "a b"], capture_output=True, text=True, check=True)

    assert done.stdout == "a b\n"
