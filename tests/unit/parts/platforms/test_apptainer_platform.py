"""Apptainer: the command line of each command, its mounts and its environment, with root and without."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from small_linux import SmallLinux, broken_openings
from tare.base.errors import TrialError
from tare.base.host import Completed, Job, Site
from tare.drivers.containers.oci import PATH
from tare.drivers.containers.unpacked import is_sif, refuse_no_image
from tare.parts.platforms.apptainer import _MAKE_TARGETS, Apptainer
from tare.testing import FakeHost

SITE = Site(name="tare-1", scratch=Path("/scratch"), reads=(Path("/tmp/set"),), writes=(Path("/dev/shm/workdir"),))
NVIDIA = "/dev/nvidiactl c3 ff\n/dev/nvidia0 c3 0\n"


def called(host: SmallLinux) -> tuple[str, ...]:
    """The words of the last call of Apptainer, from its name on."""
    words = next(asked for asked in reversed(host.asked) if "exec" in asked)
    return words[words.index("apptainer") :]


def mounts_in(words: tuple[str, ...]) -> dict[str, str]:
    """Where something is bound to: its source, with `ro` where it can only be read."""
    found = {}
    for word in words:
        if word.startswith("--mount=type=bind,"):
            parts = dict(part.partition("=")[::2] for part in word.removeprefix("--mount=").split(","))
            found[parts["destination"]] = parts["source"] + (" ro" if "ro" in parts else "")
    return found


def test_each_command_has_the_walls_of_the_house():
    host = SmallLinux()

    Apptainer(shm="64 MiB").open(host, SITE).run(["true"])

    words = called(host)
    assert words[:3] == ("apptainer", "--silent", "exec")
    assert {"--containall", "--no-eval", "--no-privs", "--uts", "--net", "none"} <= set(words)
    assert not {"--nv", "--add-caps", "--writable"} & set(words)
    assert words[-4:] == ("--pwd", "/", "/scratch/tare-1/root", "true")
    assert any(f"size={64 << 20}" in line for line in host.table)
    assert mounts_in(words) == {
        "/run": "/scratch/tare-1/own/run",
        "/dev/shm": "/scratch/tare-1/own/dev/shm",
        "/tmp": "/scratch/tare-1/own/tmp",
        "/tmp/set": "/tmp/set ro",
        "/dev/shm/workdir": "/scratch/tare-1/link-3",  # Apptainer takes a source below /dev for a device
    }
    assert host.links["/scratch/tare-1/link-3"] == "/dev/shm/workdir"


def test_a_gpu_is_requested_with_nv_where_there_is_one():
    host, without = SmallLinux(gpu_files=NVIDIA), SmallLinux(gpu_files=NVIDIA)

    Apptainer().open(host, SITE)
    Apptainer(gpu=False).open(without, SITE)

    assert "--nv" in called(host)
    assert "--nv" not in called(without)
    assert [ruling.code for ruling in Apptainer(gpu=True).obstacles(SmallLinux())] == ["needs.gpu"]


def test_a_job_gets_its_own_environment_and_no_other():
    host = SmallLinux()
    place = Apptainer().open(host, SITE)

    place.spawn(Job(("python", "x.py"), env={"HF_TOKEN": "hush $x", "HOME": "/ada", "LANG": "C"}, cwd="/work"))

    (job,) = host.spawned
    start = job.argv.index("/scratch/tare-1/root") + 1
    assert job.argv[start:] == (
        "env", "-u", "PS1", "-u", "APPTAINER_NAME", "HOME=/ada", "TARE_NAME=tare-1", "python", "x.py",
    )  # fmt: skip
    assert job.argv[start - 3 : start - 1] == ("--pwd", "/work")
    assert job.env == {
        "PATH": PATH, "HOME": "/root", "APPTAINERENV_HF_TOKEN": "hush $x", "APPTAINERENV_LANG": "C",
    }  # fmt: skip  # a command line is public


def test_a_job_starts_in_a_group_of_ours_with_its_limits():
    host = SmallLinux()
    place = Apptainer(quota=1.5, memory="64 MiB").open(host, SITE)

    place.spawn(Job(("true",)))

    assert host.files["/sys/fs/cgroup/cpu/tare/tare-1/cpu.cfs_quota_us"] == "150000"
    assert "/sys/fs/cgroup/cpu/tare/tare-1/cgroup.procs" in host.spawned[0].argv


def test_without_root_the_folders_of_the_host_are_bound_to_be_read():
    host = SmallLinux(uid=1000)

    place = Apptainer().open(host, SITE)

    words = called(host)
    bound = mounts_in(words)
    assert (bound["/usr"], bound["/etc"]) == ("/usr ro", "/etc ro")
    assert host.links["/scratch/tare-1/root/bin"] == "usr/bin"
    assert place.facts["root"] == "binds"
    assert place.scope() == host.scope()
    assert not [line for line in host.table if "tmpfs" in line]


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"quota": 1.0}, "needs.root"), ({"shm": "1 MiB"}, "needs.root"), ({"user": "7"}, "needs.root")],
)
def test_what_only_root_can_do_is_refused_in_a_sentence_for_others(fields, code):
    assert [ruling.code for ruling in Apptainer(**fields).obstacles(SmallLinux(uid=1000))] == [code]
    assert Apptainer().obstacles(SmallLinux(uid=1000)) == []


@pytest.mark.parametrize("version", [1, 2])
def test_closing_leaves_nothing(version):
    host = SmallLinux(version=version)
    before = host.left_over()

    Apptainer().open(host, SITE).close()

    assert host.left_over() == before


def test_whichever_step_of_opening_breaks_nothing_is_left():
    before = SmallLinux().left_over()

    openings = list(broken_openings(Apptainer(), SITE))

    assert sum(not opened for _, _, opened in openings) >= 3
    for broken, host, opened in openings:
        if "umount" not in broken and "rm -rf" not in broken and opened is False:
            assert host.left_over() == before, f"left over after this broke: {broken}"


def test_a_container_in_which_nothing_starts_is_reported_with_apptainers_words_and_goes():
    host = SmallLinux()
    host.answer = lambda argv: Completed((), 255, "", "FATAL: no loop device.\n") if "exec" in argv else None
    before = host.left_over()

    with pytest.raises(TrialError, match=r"container tare-1: FATAL: no loop device\."):
        Apptainer().open(host, SITE)
    assert host.left_over() == before


def test_no_place_for_a_mount_is_made_where_a_link_of_the_image_leads_out_of_it(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "srv").mkdir(parents=True)
    outside.mkdir()
    (root / "var").symlink_to(outside)
    words = ["/", str(root / "srv/data"), str(root), "/", str(root / "var/data"), str(root)]

    done = subprocess.run(["sh", "-c", _MAKE_TARGETS, "targets", *words], capture_output=True, text=True, check=False)

    assert done.returncode == 1 and "leads out of the container's root" in done.stderr
    assert (root / "srv/data").is_dir() and not list(outside.iterdir())


def test_sweeping_removes_what_a_dead_run_left():
    host = SmallLinux()
    before = host.left_over()
    Apptainer().open(host, SITE)  # and the runner dies here

    Apptainer.sweep(host, "tare-1")
    Apptainer.sweep(host, "tare-1")

    assert host.left_over() == before


def test_singularity_serves_where_there_is_no_apptainer():
    host = SmallLinux(installed=set())
    host.answer = lambda argv: (
        Completed((), 0, "singularity-ce version 4.1.0\n" if "--version" in argv else "", "")
        if "singularity" in argv
        else None
    )
    place = Apptainer().open(host, SITE)
    place.spawn(Job(("true",), env={"A": "1"}))

    assert "singularity" in host.spawned[0].argv
    assert host.spawned[0].env["SINGULARITYENV_A"] == "1"


def test_obstacles_say_what_to_install():
    assert any("apt-get install apptainer" in str(each) for each in Apptainer().obstacles(FakeHost()))
    assert Apptainer().obstacles(SmallLinux()) == []


def test_a_sif_file_is_known_by_its_first_bytes(tmp_path):
    sif, other = tmp_path / "a.img", tmp_path / "b.sif"
    sif.write_bytes(b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0" + bytes(100))
    other.write_text("no image")

    assert is_sif(str(sif))
    assert not is_sif(str(other))
    assert not is_sif(str(tmp_path / "missing"))
    refuse_no_image(str(sif))
