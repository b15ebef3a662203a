"""Control groups: found, made, emptied and removed, in version 1 and version 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from small_linux import CONTROLLERS, SmallLinux
from tare.base.errors import ObstacleError, TareError, TrialError
from tare.base.host import LocalHost
from tare.drivers.cgroups import tree
from tare.testing import FakeHost

HYBRID = """\
29 1 254:0 / / rw,relatime - ext4 /dev/vda rw
34 33 0:31 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
42 33 0:39 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
43 33 0:40 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate
"""


def test_a_hybrid_machine_shows_its_version_1_controllers_and_its_version_2_tree():
    found = tree.hierarchies(FakeHost(files={"/proc/self/mountinfo": HYBRID}))

    assert {key: mount.point for key, mount in found.items()} == {
        "cpu": "/sys/fs/cgroup/cpu,cpuacct",
        "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
        "name=systemd": "/sys/fs/cgroup/systemd",
        "": "/sys/fs/cgroup/unified",
    }


def test_the_folders_of_a_process_are_found_on_the_device():
    host = FakeHost(
        files={
            "/proc/self/mountinfo": HYBRID,
            "/proc/7/cgroup": "4:cpu,cpuacct:/tare/x\n2:name=systemd:/tare/x\n1:memory:/tare/x\n0::/tare/x\n",
        }
    )

    assert tree.folders_of_pid(host, 7) == {
        "cpu": "/sys/fs/cgroup/cpu,cpuacct/tare/x",
        "cpuacct": "/sys/fs/cgroup/cpu,cpuacct/tare/x",
        "": "/sys/fs/cgroup/unified/tare/x",
    }


def test_a_process_at_the_root_of_a_hierarchy_has_no_folder_there_since_that_is_the_whole_device():
    host = FakeHost(files={"/proc/self/mountinfo": HYBRID, "/proc/7/cgroup": "4:cpu,cpuacct:/\n0::/\n"})

    assert tree.folders_of_pid(host, 7) == {}


def test_where_only_a_part_of_the_tree_is_mounted_folders_are_counted_from_there():
    part = "43 33 0:40 /pod/9 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    host = FakeHost(files={"/proc/self/mountinfo": part, "/proc/7/cgroup": "0::/pod/9/tare/x\n"})
    outside = FakeHost(files={"/proc/self/mountinfo": part, "/proc/7/cgroup": "0::/pod/8/tare/x\n"})

    assert tree.folders_of_pid(host, 7) == {"": "/sys/fs/cgroup/tare/x"}
    assert tree.folders_of_pid(outside, 7) == {}


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_is_made_in_every_hierarchy_and_removed_with_its_parent(version):
    host = SmallLinux(version=version)
    before = host.left_over()

    folders = tree.make(host, "one")

    assert set(folders) == ({""} if version == 2 else set(CONTROLLERS))
    assert all(folder.endswith("/tare/one") for folder in folders.values())
    tree.remove(host, folders)
    assert host.left_over() == before


def test_a_version_1_cpuset_gets_the_cores_and_memory_nodes_of_the_one_above():
    host = SmallLinux(version=1)

    folder = tree.make(host, "one")["cpuset"]

    assert (host.files[f"{folder}/cpuset.cpus"], host.files[f"{folder}/cpuset.mems"]) == ("0-3", "0")


def test_in_version_2_every_group_above_hands_its_controllers_down():
    host = SmallLinux(version=2)

    tree.make(host, "one")

    handed = "+cpuset +cpu +io +memory +pids"
    assert host.files["/sys/fs/cgroup/cgroup.subtree_control"] == handed
    assert host.files["/sys/fs/cgroup/tare/cgroup.subtree_control"] == handed


def test_controllers_that_are_handed_down_already_are_not_written_again():
    host = SmallLinux(version=2)
    host.files["/sys/fs/cgroup/cgroup.subtree_control"] = "cpuset cpu io memory pids"

    tree.make(host, "one")

    assert not [line for line in host.log if line.startswith("write /sys/fs/cgroup/cgroup.subtree_control")]


def test_every_group_is_kept_from_filling_the_process_table():
    host = SmallLinux(version=1)

    folders = tree.make(host, "one")

    assert host.files[f"{folders['pids']}/pids.max"] == str(tree.PIDS_LIMIT)


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_that_cannot_be_made_leaves_nothing_behind_whichever_step_breaks(version):
    broken = 0
    for step in range(1, 100):
        host = SmallLinux(version=version, break_at=step)
        before = host.left_over()
        try:
            folders = tree.make(host, "one")
        except TareError:
            broken += 1
            assert host.left_over() == before, f"broken at step {step}: {host.log[step - 1]}"
            continue
        tree.remove(host, folders)
        if step > host.steps:
            break
    assert broken >= 2


def test_a_host_without_control_groups_says_so():
    with pytest.raises(ObstacleError, match="no control groups"):
        tree.make(FakeHost(files={"/proc/self/mountinfo": ""}), "one")


def test_what_is_left_in_a_group_is_killed_before_it_is_removed():
    host = SmallLinux(version=1)
    folders = tree.make(host, "one")
    left = host.start_process(folders["cpu"])

    tree.remove(host, folders)

    assert not host.alive(left)


def test_a_process_that_does_not_die_is_named_after_the_deadline():
    host = SmallLinux(version=1)
    folders = tree.make(host, "one")
    stuck = host.start_process(folders["cpu"])
    host._kill = lambda words: (0, "", "")

    with pytest.raises(TrialError, match=str(stuck)):
        tree.remove(host, folders)


def test_a_group_that_stays_busy_for_a_moment_is_removed_a_moment_later():
    host = SmallLinux(version=1)
    folders = tree.make(host, "one")
    refusals = iter([(1, "", "Device or resource busy")] * 3)
    really = host._rmdir
    host._rmdir = lambda words: next(refusals, None) or really(words)

    tree.remove(host, folders)

    assert host.left_over()["groups"] == []


def test_a_job_that_was_just_on_its_way_into_the_group_is_killed_too():
    host = SmallLinux(version=1)
    folders = tree.make(host, "one")
    really = host._rmdir
    late: list[int] = []

    def enter_first(words):
        if not late:
            late.append(host.start_process(folders["cpu"]))
        return really(words)

    host._rmdir = enter_first
    tree.remove(host, folders)

    assert not host.alive(late[0])
    assert host.left_over()["groups"] == []


def test_the_parent_stays_while_another_run_has_a_group_in_it():
    host = SmallLinux(version=1)
    other = tree.make(host, "other")

    tree.remove(host, tree.make(host, "one"))

    assert set(other.values()) <= set(host.left_over()["groups"])


def test_the_keeper_of_a_container_is_spared():
    host = SmallLinux(version=1)
    folders = tree.make(host, "one")
    keeper, job = host.start_process(folders["cpu"]), host.start_process(folders["cpu"])

    assert tree.empty(host, folders, spare=(keeper,)) == set()
    assert (host.alive(keeper), host.alive(job)) == (True, False)


@pytest.mark.parametrize(("version", "file"), [(1, "memory.oom_control"), (2, "memory.events")])
def test_out_of_memory_kills_are_read_from_either_version(version, file):
    host = SmallLinux(version=version)
    folders = tree.make(host, "one")
    folder = folders["memory" if version == 1 else ""]

    assert tree.oom_kills(host, folders) == 0
    host.files[f"{folder}/{file}"] = "oom 9\noom_kill 2\n"
    assert tree.oom_kills(host, folders) == 2


def test_a_kernel_that_does_not_count_out_of_memory_kills_gives_no_number():
    host = FakeHost(files={"/m/memory.oom_control": "under_oom 0\n"})

    assert tree.oom_kills(host, {"memory": "/m"}) is None
    assert tree.oom_kills(host, {"cpu": "/c"}) is None


def test_a_process_that_cannot_be_seen_from_here_is_no_target():
    host = FakeHost(files={"/sys/fs/cgroup/g/cgroup.procs": "0\n17\n"})
    assert tree.pids(host, {"": "/sys/fs/cgroup/g"}) == {17}


def test_the_parent_stays_while_another_run_makes_a_group_in_it(tmp_path: Path):
    """The empty parent went while runc made a group in it: "no such device"."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(HYBRID)
    parent = tmp_path / "sys/fs/cgroup/cpu,cpuacct/tare"
    parent.mkdir(parents=True)
    ours, others = LocalHost(root=tmp_path), LocalHost(root=tmp_path)

    with tree.parent_kept(others), tree.parent_kept(others):  # two runs do not wait for each other
        tree.remove_parent(ours)
        assert parent.exists()
    tree.remove_parent(ours)
    assert not parent.exists()
