"""What a process has around it, from outside: the same as tare's launcher says inside, for a process of ours."""

from __future__ import annotations

import os
from pathlib import Path

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


def test_limits_are_read_of_either_version_and_none_is_left_out(tmp_path: Path) -> None:
    files = {
        "cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n", "cpu/cpu.shares": "2\n",
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
        "blkio/blkio.throttle.read_bps_device": "8:0 1048576\n",
        "v2/cpu.max": "max 100000\n", "v2/memory.max": "1073741824\n", "v2/memory.high": "536870912\n",
        "v2/cpu.weight": "100\n", "v2/io.max": "8:16 rbps=2097152 wbps=max riops=max wiops=120\n",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    first = {name: str(tmp_path / name) for name in ("cpu", "memory", "blkio")}

    assert group_limits(first) == {"cpu_quota_cores": 0.5, "cpu_shares": 2, "io_limit": "read_bps=1048576"}
    assert group_limits({"": str(tmp_path / "v2")}) == {
        "memory_limit_bytes": 1 << 30, "memory_high_bytes": 1 << 29, "cpu_shares": 1024,
        "io_limit": "rbps=2097152 wiops=120",
    }  # fmt: skip


def test_the_stops_of_a_quota_are_counted_of_either_version() -> None:
    first = FakeHost(files={
        "/cg/cpu/tare/x/cpu.stat": "nr_periods 40\nnr_throttled 30\nthrottled_time 2500000000\n",
    })  # fmt: skip
    second = FakeHost(files={
        "/cg/tare/x/cgroup.controllers": "cpu memory\n",
        "/cg/tare/x/cpu.stat": "usage_usec 7\nnr_throttled 3\nthrottled_usec 1500000\n",
    })  # fmt: skip

    assert throttled(first, V1) == {"cgroup_nr_throttled": 30, "cgroup_throttled_s": 2.5}
    assert throttled(second, V2) == {"cgroup_nr_throttled": 3, "cgroup_throttled_s": 1.5}
    assert throttled(second, {}) == {}
