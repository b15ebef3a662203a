"""Limits: what a study may write, which files hold it, and that it is read back."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from small_linux import SmallLinux
from tare.base.errors import ControlNotHeld
from tare.drivers.cgroups import limits, tree
from tare.parts.platforms.bare import Bare
from tare.testing import FakeHost


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
