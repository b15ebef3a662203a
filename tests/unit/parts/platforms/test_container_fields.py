"""The fields of container platforms: one root, told in one way.

Limits: what a study may write, which files hold it, and that it is read back.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from small_linux import SmallLinux
from tare.base.errors import ControlNotHeld
from tare.base.host import Completed, Site
from tare.drivers.cgroups import limits, tree
from tare.parts.platforms.bare import Bare
from tare.parts.platforms.docker import Docker
from tare.parts.platforms.podman import Podman
from tare.parts.platforms.runc import Runc
from tare.testing import FakeHost

EVERY = pytest.mark.parametrize("platform", [Docker, Podman, Runc])


@EVERY
def test_the_hosts_own_root_is_the_default(platform):
    assert (platform().rootfs, platform().image) == ("host", None)


@EVERY
def test_an_image_takes_the_place_of_the_hosts_root(platform):
    assert (platform(image="pt:1").rootfs, platform(image="pt:1").image) == (None, "pt:1")


@EVERY
@pytest.mark.parametrize("fields", [{"rootfs": "host", "image": "pt:1"}, {"rootfs": None}, {"rootfs": "other"}])
def test_two_roots_or_none_are_refused(platform, fields):
    with pytest.raises(ValidationError):
        platform(**fields)


@EVERY
def test_a_part_comes_back_from_its_plain_data(platform):
    for part in (platform(), platform(image="pt:1", quota=1.5, memory="1 GiB", shm="64 MiB")):
        assert platform(**part.fields()) == part
        assert hash(platform(**part.fields())) == hash(part)


def test_a_dockerfile_is_an_image_too_but_not_a_second_one():
    assert Docker(dockerfile="some/Dockerfile").rootfs is None
    with pytest.raises(ValidationError, match="not both"):
        Docker(dockerfile="some/Dockerfile", image="pt:1")


def test_shared_memory_is_as_large_as_the_hosts_unless_the_study_has_a_size():
    host = FakeHost(answers={"df": "1B-blocks\n4096\n"})
    assert Docker().shm_bytes(host) == 4096
    assert Docker(shm="2GiB").shm_bytes(host) == 2 << 30
    assert Docker().shm_bytes(FakeHost()) == 1 << 30


def test_a_command_and_what_saves_checkpoints_may_write_and_others_may_not_unless_the_study_has_it_otherwise():
    command, built_in = Site("tare-1", Path("/s"), layered=True), Site("tare-1", Path("/s"))
    sites = (command, replace(built_in, saves=True), built_in)
    may = {value: [Docker(writable=value).may_write(site) for site in sites] for value in (None, True, False)}
    assert may == {None: [True, True, False], True: [True] * 3, False: [False] * 3}


# The user inside


@EVERY
@pytest.mark.parametrize("wrong", ["ada", "-1", "1000:", "1000:x", "0x10", "", "1000 1000", True, 1.5])
def test_a_user_is_the_caller_or_ids(platform, wrong):
    with pytest.raises(ValidationError):
        platform(user=wrong)
    assert platform(user=1000).user == "1000"


@pytest.mark.parametrize("platform", [Podman, Runc])
def test_the_user_inside_is_the_requested_one_and_owns_the_work_folder(platform):
    linux, folder = SmallLinux(), "/dev/shm/workdir"
    site = Site(name="tare-1", scratch=Path("/scratch"), writes=(Path(folder), Path("/home/ada/out")), layered=True)
    place = platform(user="1000").open(linux, site)

    assert place.facts["user"] == 1000
    assert linux.owners == {folder: "1000:1000"}  # and never a folder of the user's own
    assert platform(user="1000").capabilities(linux, site) == []  # what only root may do is root's
    assert platform().capabilities(linux, site) != []


@pytest.mark.parametrize("platform", [Podman, Runc])
def test_who_runs_as_root_keeps_the_work_folder_and_it_is_known(platform):
    linux = SmallLinux()
    place = platform().open(linux, Site(name="tare-1", scratch=Path("/scratch"), writes=(Path("/dev/shm/w"),)))
    assert (place.facts["user"], linux.owners) == (0, {})


@EVERY
def test_the_caller_is_who_called_sudo(platform, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", "1003")
    monkeypatch.setenv("SUDO_GID", "1004")
    assert platform(user="caller").user_inside(SmallLinux()).user == "1003:1004"
    monkeypatch.delenv("SUDO_UID")
    assert platform(user="caller").user_inside(SmallLinux()).user == "0:0"
    assert platform().user_inside(SmallLinux()) is None


@EVERY
def test_a_user_that_cannot_be_had_is_an_obstacle_before_the_run(platform):
    (ruling,) = platform(user="1000").user_obstacles(SmallLinux(uid=1001))
    assert ruling.code == "needs.root"
    assert platform(user="1001").user_obstacles(SmallLinux(uid=1001)) == []

    def below_root(argv):
        shut = argv[0] == "setpriv" and argv[-1].startswith("/usr/")
        return Completed(tuple(argv), int(shut), "", "") if argv[0] == "setpriv" else None

    linux = SmallLinux(answer=below_root)
    linux.python = "/usr/inner/bin/python3"
    (ruling,) = platform(user="1000").user_obstacles(linux)
    assert (ruling.code, "cannot reach the interpreter" in ruling.sentence) == ("needs.file", True)
    assert "`chmod o+x /usr/inner /usr/inner/bin`" in ruling.sentence
    assert platform(user="1000").user_obstacles(SmallLinux()) == []  # no setpriv there: it cannot be told


@pytest.mark.parametrize("version", [1, 2])
def test_every_limit_is_written_and_holds(version):
    host = SmallLinux(version=version)
    folders = tree.make(host, "one")
    asked = Bare(quota=1.5, cpuset="0-1", memory="64 MiB")

    limits.apply(host, asked, folders)
    limits.check_held(host, asked, folders)

    values = {file.rpartition("/")[2]: text for file, text in host.files.items() if "/tare/one/" in file}
    expected = {
        1: {
            "cpu.cfs_period_us": "100000",
            "cpu.cfs_quota_us": "150000",
            "cpuset.cpus": "0-1",
            "memory.limit_in_bytes": "67108864",
            "memory.memsw.limit_in_bytes": "67108864",
        },
        2: {"cpu.max": "150000 100000", "cpuset.cpus": "0-1", "memory.max": "67108864", "memory.swap.max": "0"},
    }
    assert expected[version].items() <= values.items()


@pytest.mark.parametrize(
    ("asked", "file", "found"),
    [
        (Bare(quota=1.5), "cpu/tare/one/cpu.cfs_quota_us", "-1"),
        (Bare(cpuset="0-1"), "cpuset/tare/one/cpuset.cpus", "0-3"),
        (Bare(memory="64 MiB"), "memory/tare/one/memory.limit_in_bytes", "9223372036854771712"),
    ],
)
def test_a_limit_that_did_not_hold_is_an_error_that_says_what_was_found(asked, file, found):
    host = SmallLinux(version=1)
    folders = tree.make(host, "one")
    limits.apply(host, asked, folders)
    host.files[f"/sys/fs/cgroup/{file}"] = found

    with pytest.raises(ControlNotHeld, match=f"the device reports {found}"):
        limits.check_held(host, asked, folders)


def test_the_kernel_may_round_memory_down_to_pages_and_write_cores_its_own_way():
    host = SmallLinux(version=1)
    folders = tree.make(host, "one")
    asked = Bare(memory=64_000_001, cpuset="0,1,2")
    limits.apply(host, asked, folders)
    host.files["/sys/fs/cgroup/memory/tare/one/memory.limit_in_bytes"] = str(64_000_001 // 4096 * 4096)
    host.files["/sys/fs/cgroup/memory/tare/one/memory.memsw.limit_in_bytes"] = str(64_000_001 // 4096 * 4096)
    host.files["/sys/fs/cgroup/cpuset/tare/one/cpuset.cpus"] = "0-2"

    limits.check_held(host, asked, folders)


def test_a_machine_without_swap_accounting_still_limits_memory():
    host = SmallLinux(version=1)
    folders = tree.make(host, "one")
    del host.files["/sys/fs/cgroup/memory/tare/one/memory.memsw.limit_in_bytes"]

    limits.apply(host, Bare(memory="64 MiB"), folders)
    limits.check_held(host, Bare(memory="64 MiB"), folders)


def test_a_limit_without_its_controller_is_never_quietly_unlimited():
    with pytest.raises(ControlNotHeld, match="no such controller"):
        limits.check_held(FakeHost(), Bare(quota=1), {"memory": "/m"})


def test_a_limit_that_the_kernel_offers_no_controller_for_is_an_obstacle_by_name():
    hybrid = "43 33 0:40 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    files = {"/proc/self/mountinfo": hybrid, "/sys/fs/cgroup/unified/cgroup.controllers": "hugetlb"}

    (sentence,) = map(str, limits.limit_obstacles(FakeHost(files=files), Bare(quota=2)))

    assert "`quota`" in sentence
    assert "'cpu'" in sentence
    assert "hugetlb" in sentence


def test_cores_that_are_not_online_are_an_obstacle():
    (sentence,) = map(str, limits.limit_obstacles(SmallLinux(), Bare(cpuset="2-5")))

    assert sentence == "`cpuset: 2-5` names cores that are not online: [4, 5]."


def test_no_limit_no_obstacle():
    assert limits.limit_obstacles(FakeHost(), Bare()) == []


@pytest.mark.parametrize(("text", "named"), [("0", {0}), ("0-2", {0, 1, 2}), ("0,2-3", {0, 2, 3})])
def test_cores_are_named_singly_or_as_ranges(text, named):
    every = Bare(cpuset=text)
    (sentence,) = limits.limit_obstacles(SmallLinux(files={"/sys/devices/system/cpu/online": ""}), every) or [""]

    assert every.cpuset == text
    assert sentence in ("", f"`cpuset: {text}` names cores that are not online: {sorted(named)}.")


@pytest.mark.parametrize(
    "fields",
    [
        {"quota": 0},
        {"quota": -1},
        {"quota": float("nan")},
        {"quota": float("inf")},
        {"cpuset": "all"},
        {"cpuset": "3-1"},
        {"cpuset": ""},
        {"cpuset": True},
        {"memory": "64"},
        {"memory": "1 MiB"},
        {"memory": "64 parsec"},
    ],
)
def test_a_limit_that_means_nothing_is_refused(fields):
    with pytest.raises(ValidationError):
        Bare(**fields)


def test_a_single_core_may_be_written_as_a_number():
    assert Bare(cpuset=0).cpuset == "0"


def test_swap_is_counted_with_memory_only_where_the_kernel_says_so():
    host = SmallLinux(version=1)
    assert limits.swap_is_counted(host)
    del host.files["/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"]
    assert not limits.swap_is_counted(host)
    assert limits.swap_is_counted(SmallLinux(version=2))
