"""Whose an event was: from a snapshot at the beginning, and from what the trace itself says of tasks."""

from __future__ import annotations

from typing import Any

import numpy as np

from tare.kernel.traces.roles import Roles, Snapshot, Timeline, is_daemon, tenant_role


def forks(*rows: tuple[int, int, int, bytes]) -> dict[str, Any]:
    t_ns, parent, child, name = zip(*rows, strict=True)
    return {
        "sched_process_fork": {
            "t_ns": np.array(t_ns), "parent_pid": np.array(parent), "child_pid": np.array(child),
            "child_comm": np.array(name, "S16"),
        }
    }  # fmt: skip


def attaches(*rows: tuple[int, int, bytes]) -> dict[str, Any]:
    t_ns, pid, path = zip(*rows, strict=True)
    return {
        "cgroup_attach_task": {"t_ns": np.array(t_ns), "event_pid": np.array(pid), "dst_path": np.array(path, "S40")}
    }


def renames(*rows: tuple[int, int, bytes]) -> dict[str, Any]:
    t_ns, pid, name = zip(*rows, strict=True)
    return {"task_rename": {"t_ns": np.array(t_ns), "event_pid": np.array(pid), "newcomm": np.array(name, "S16")}}


def role(roles: Roles, pid: int, t_ns: int) -> str:
    return str(roles.of(np.array([pid]), np.array([t_ns]))[0])


def name(roles: Roles, pid: int, t_ns: int) -> str:
    return str(roles.comms(np.array([pid]), np.array([t_ns]))[0])


def test_those_of_the_snapshot_keep_their_roles_and_strangers_are_the_hosts():
    roles = Roles(Snapshot(tasks=[(10, "python", "workload"), (11, "python", "tenant1"), (12, "tare", "tare")]))

    assert [role(roles, pid, 5) for pid in (10, 11, 12, 99)] == ["workload", "tenant1", "tare", "host"]
    assert (name(roles, 10, 5), name(roles, 99, 5)) == ("python", "")


def test_a_child_has_its_parents_role_from_its_birth_on():
    roles = Roles(Snapshot(tasks=[(10, "python", "workload")]))
    roles.learn(forks((100, 10, 20, b"python"), (200, 20, 30, b"python")))

    assert role(roles, 30, 200) == "workload"
    assert role(roles, 30, 199) == "host"  # whoever had the number before


def test_a_job_that_the_runner_starts_is_ours_until_it_enters_the_tenants_group():
    roles = Roles(Snapshot(tasks=[(10, "tare", "tare")], groups=[("/tare/t1", "workload")]))
    roles.learn(
        forks((100, 10, 20, b"sh"))
        | attaches((150, 20, b"/tare/t1"), (160, 20, b"/elsewhere"), (170, 20, b"/tare/t10"))
        | renames((180, 20, b"python"))
    )

    assert [role(roles, 20, t) for t in (120, 155, 175, 500)] == ["tare", "workload", "workload", "workload"]
    assert [name(roles, 20, t) for t in (120, 500)] == ["sh", "python"]


def test_runc_inside_the_group_is_the_engines_until_it_becomes_the_job():
    roles = Roles(Snapshot(tasks=[(10, "containerd-shim", "host")], groups=[("/docker/abc", "workload")]))
    roles.learn(
        forks((100, 10, 20, b"runc:[2:INIT]")) | attaches((150, 20, b"/docker/abc/x")) | renames((200, 20, b"python3"))
    )

    assert [role(roles, 20, t) for t in (100, 160, 200)] == ["daemon", "daemon", "workload"]
    assert role(roles, 10, 100) == "daemon"


def test_one_that_is_born_in_the_group_is_known_from_a_later_look():
    """cgroup v2 can start a process inside a group: no event says that it was moved."""
    roles = Roles(Snapshot(tasks=[(10, "init", "host")], sightings=[(500, 20, "workload")]))
    roles.learn(forks((100, 10, 20, b"python")))

    assert role(roles, 20, 100) == "workload"


def test_what_a_runner_without_groups_starts_is_the_workload_but_its_threads_are_its_own():
    roles = Roles(Snapshot(tasks=[(10, "tare", "tare")], makers=[(10, "workload")]))
    roles.learn(
        forks((100, 10, 20, b"tare"), (110, 10, 30, b"tare"), (300, 20, 40, b"python")) | renames((200, 20, b"python"))
    )

    assert [role(roles, pid, 400) for pid in (10, 20, 30, 40)] == ["tare", "workload", "tare", "workload"]


def test_a_kernel_that_does_not_say_who_was_renamed_means_the_task_itself():
    roles = Roles(Snapshot(tasks=[(10, "sh", "workload")]))
    roles.learn({"task_rename": {"t_ns": np.array([50]), "pid": np.array([10]), "newcomm": np.array([b"python"])}})

    assert name(roles, 10, 60) == "python"


def test_what_is_past_can_be_forgotten_without_changing_what_follows():
    roles = Roles(Snapshot(tasks=[(10, "python", "workload")]))
    roles.learn(forks((100, 10, 20, b"a"), (200, 10, 30, b"b")) | renames((150, 20, b"runc")))
    roles.forget_before(250)

    assert [role(roles, pid, 300) for pid in (10, 20, 30)] == ["workload", "daemon", "workload"]


def test_a_snapshot_survives_being_written_down():
    start = Snapshot(((1, "init", "host"),), (("/a", "workload"),), ((3, "workload"),), ((5, 6, "tenant1"),))

    assert Snapshot.from_json(start.as_json()) == start


def test_names_of_daemons_and_of_tenants():
    assert all(map(is_daemon, ("dockerd", "containerd-shim", "runc:[1:CHILD]", "qemu-system-aar", "conmon")))
    assert not any(map(is_daemon, ("python", "kworker/u8:1", "CPU 0/TCG", "")))
    assert [tenant_role(index) for index in (0, 1, 2)] == ["workload", "tenant1", "tenant2"]


def test_a_timeline_says_what_held_when():
    line = Timeline()
    line.add([1, 1, 2], [10, 20, 15], [100, 101, 200])

    asked = line.at(np.array([1, 1, 1, 2, 2, 3]), np.array([9, 10, 25, 14, 15, 99]))

    assert asked.tolist() == [-1, 100, 101, -1, 200, -1]


def test_of_two_values_at_one_time_the_later_one_holds():
    line = Timeline()
    line.add([1], [10], [100])
    line.add([1], [10], [101])

    assert line.at(np.array([1]), np.array([10])).tolist() == [101]
    line.forget_before(10)
    assert line.at(np.array([1]), np.array([10])).tolist() == [101]
