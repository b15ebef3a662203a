"""Counters read at switches belong to the task that ran before the switch."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from tare.kernel.traces.formats import parse_event
from tare.kernel.traces.perf import Group, Ring, WholeEvents, binned, roles_of
from tare.kernel.traces.roles import Snapshot

GROUP = Group((1, 2), ("context-switches", "page-faults"))
FORMAT = """name: cgroup_attach_task
ID: 77
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
\tfield:int dst_root;\toffset:8;\tsize:4;\tsigned:1;
\tfield:int pid;\toffset:12;\tsize:4;\tsigned:1;
\tfield:__data_loc char[] dst_path;\toffset:16;\tsize:4;\tsigned:0;
"""


def record(kind: int, body: bytes, misc: int = 0) -> bytes:
    return struct.pack("=IHH", kind, misc, 8 + len(body)) + body


def sample(t_ns: int, pid: int, tid: int, values: tuple[int, ...], enabled: int = 0, running: int = 0) -> bytes:
    head = struct.pack("=QIIQII", 1, pid & 0xFFFFFFFF, tid & 0xFFFFFFFF, t_ns, 0, 0)
    return record(9, head + struct.pack(f"={3 + len(values)}Q", len(values), enabled, running, *values))


def trailer(t_ns: int) -> bytes:
    return struct.pack("=IIQIIQ", 0, 0, t_ns, 0, 0, 1)


def exited(t_ns: int, pid: int) -> bytes:
    return record(4, struct.pack("=IIIIQ", pid, 1, pid, 1, t_ns) + trailer(t_ns))


def forked(t_ns: int, pid: int, parent: int) -> bytes:
    return record(7, struct.pack("=IIIIQ", pid, parent, pid, parent, t_ns) + trailer(t_ns))


def named(t_ns: int, pid: int, name: bytes) -> bytes:
    return record(3, struct.pack("=II", pid, pid) + name.ljust(8, b"\0") + trailer(t_ns), misc=0x2000)


def attached(t_ns: int, pid: int, path: bytes) -> bytes:
    own = struct.pack("=HHiiiI", 77, 0, pid, 0, pid, 20 | (len(path) + 1) << 16) + path + b"\0"
    own += b"\0" * (-(len(own) + 4) % 8)
    return record(9, struct.pack("=QIIQII", 5, pid, pid, t_ns, 0, 0) + struct.pack("=I", len(own)) + own)


@pytest.fixture
def ring(tmp_path: Path):
    def made(*records: bytes) -> Ring:
        (tmp_path / "cpu0.ring").write_bytes(b"".join(records))
        return Ring(tmp_path / "cpu0.ring", [GROUP], WholeEvents(frozenset({5}), parse_event(FORMAT)))

    return made


def test_what_a_counter_grew_by_belongs_to_the_task_that_ran(ring):
    (slices,) = ring(sample(10, 1, 1, (1, 5)), sample(20, 2, 2, (2, 5)), sample(30, 1, 1, (3, 9))).slices()
    assert slices.pid.tolist() == [1, 2, 1]
    assert slices.counts["page-faults"].tolist() == [5, 0, 4]


def test_the_last_switch_of_a_task_that_has_ended_is_its_own(ring):
    (slices,) = ring(sample(10, 1, 1, (1, 5)), exited(15, 9), sample(20, 9, -1, (2, 8))).slices()
    assert slices.tid.tolist() == [1, 9]


def test_lost_records_are_counted(ring):
    made = ring(sample(10, 1, 1, (1, 5)), record(2, struct.pack("=QQ", 1, 42) + trailer(11)))
    assert len(list(made.slices())) == 1
    assert made.lost == 42


def test_a_damaged_file_is_said_to_be_damaged(ring):
    with pytest.raises(ValueError, match="damaged"):
        list(ring(struct.pack("=IHH", 9, 0, 3)).slices())


def test_half_a_record_at_the_end_is_left_out(ring):
    (slices,) = ring(sample(10, 1, 1, (1, 5)), sample(20, 2, 2, (2, 6))[:20]).slices()
    assert len(slices.t_ns) == 1


def test_sums_by_time_role_and_event(ring):
    made = ring(sample(10, 1, 1, (1, 5), 10, 5), sample(110, 1, 1, (2, 7), 110, 55), sample(120, 2, 2, (3, 8), 120, 60))
    (slices,) = made.slices()
    table = binned(slices, np.array(["workload", "workload", "host"], object), 100)
    rows = {
        (t_ns, role, event): (count, enabled, running)
        for t_ns, role, event, count, enabled, running in zip(*(table[name].tolist() for name in table), strict=True)
    }
    assert rows[0, "workload", "page-faults"] == (5, 10e-9, 5e-9)
    assert rows[100, "workload", "page-faults"] == (2, pytest.approx(100e-9), pytest.approx(50e-9))
    assert rows[100, "host", "page-faults"][0] == 1


def test_a_task_that_joins_a_group_and_what_it_makes_is_the_workload(ring):
    made = ring(
        forked(10, 50, 2),
        named(20, 50, b"sh"),
        attached(30, 50, b"/tare/x"),
        forked(40, 51, 50),
        named(45, 52, b"other"),
    )
    start = Snapshot(tasks=((2, "bash", "host"),), groups=(("/tare/x", "workload"),))
    roles = roles_of(start, made.tasks())
    asked = np.array([50, 50, 51, 52]), np.array([25, 35, 50, 50])
    assert roles.of(*asked).tolist() == ["host", "workload", "workload", "host"]
    assert roles.comms(*asked).tolist() == ["sh", "sh", "sh", "other"]
