"""What a process has around it, from outside: the same as tare's launcher says inside, for a process of ours."""

from __future__ import annotations

import os

from tare.base.host import LocalHost
from tare.drivers.surroundings import group_limits, surroundings, throttled, waited_s
from tare.testing import FakeHost
from tare_inside import launch

V1 = {"cpu": "/cg/cpu/tare/x", "memory": "/cg/memory/tare/x"}
V2 = {"": "/cg/tare/x"}


def test_from_outside_a_process_has_the_limits_that_it_finds_itself() -> None:
    found, inside = surroundings(LocalHost(), os.getpid()), launch.surroundings()  # type: ignore[no-untyped-call]

    assert found["process"] == inside["process"] and found["process"]
    assert found["shm"] == inside["shm"] and found["kernel"] == inside["kernel"]
    assert {name: found["limits"][name] for name in inside["limits"]} == inside["limits"]
    assert found["file_system"]["work"] == inside["file_system"]["work"]
    assert (waited_s(LocalHost(), os.getpid(), os.getpid()) or 0.0) >= 0.0
    assert waited_s(LocalHost(), 1 << 30, 1) is None


def test_a_quota_is_read_of_either_version_and_none_is_left_out() -> None:
    first = FakeHost(files={
        "/cg/cpu/tare/x/cpu.cfs_quota_us": "50000\n", "/cg/cpu/tare/x/cpu.cfs_period_us": "100000\n",
        "/cg/memory/tare/x/memory.limit_in_bytes": "9223372036854771712\n",
        "/cg/cpu/tare/x/cpu.stat": "nr_periods 40\nnr_throttled 30\nthrottled_time 2500000000\n",
    })  # fmt: skip
    second = FakeHost(files={
        "/cg/tare/x/cgroup.controllers": "cpu memory\n", "/cg/tare/x/cpu.max": "max 100000\n",
        "/cg/tare/x/memory.max": "1073741824\n",
        "/cg/tare/x/cpu.stat": "usage_usec 7\nnr_throttled 3\nthrottled_usec 1500000\n",
    })  # fmt: skip

    assert group_limits(first, V1) == {"cpu_quota_cores": 0.5}
    assert group_limits(second, V2) == {"memory_limit_bytes": 1 << 30}
    assert throttled(first, V1) == {"cgroup_nr_throttled": 30, "cgroup_throttled_s": 2.5}
    assert throttled(second, V2) == {"cgroup_nr_throttled": 3, "cgroup_throttled_s": 1.5}
    assert throttled(second, {}) == {}
