"""How a request for cores becomes a quota or a set of cores, on machines of several shapes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tare.base.errors import ObstacleError
from tare.base.host import LocalHost
from tare.base.units import core_text, cores
from tare.drivers.cgroups import limits
from tare.drivers.cgroups.limits import Placement, PlacementRequest
from tare.parts.platforms.bare import Bare
from tare.parts.platforms.docker import Docker


def machine(root: Path, online: str, nodes: Mapping[int, str], siblings: Mapping[int, str] | None = None) -> LocalHost:
    """A device whose /sys says this about its cores."""
    files = {"cpu/online": online, "node/online": core_text(nodes)}
    files |= {f"node/node{node}/cpulist": text for node, text in nodes.items()}
    files |= {f"cpu/cpu{core}/topology/thread_siblings_list": text for core, text in (siblings or {}).items()}
    for name, text in files.items():
        path = root / "sys/devices/system" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return LocalHost(root=root)


@pytest.fixture
def one_socket(tmp_path: Path) -> LocalHost:
    return machine(tmp_path, "0-7", {0: "0-7"})


@pytest.fixture
def two_sockets(tmp_path: Path) -> LocalHost:
    """Two nodes of two cores with two threads each: 0,1 | 2,3 and their second threads 4,5 | 6,7."""
    siblings = {core: f"{core % 4},{core % 4 + 4}" for core in range(8)}
    return machine(tmp_path, "0-7", {0: "0-1,4-5", 1: "2-3,6-7"}, siblings)


def test_vanilla_is_a_quota_and_every_core(one_socket: LocalHost) -> None:
    assert limits.resolved(one_socket, PlacementRequest(cores=4)) == Placement(quota=4.0, cpuset=None, mems=None)


def test_pinned_is_a_set_of_as_many_cores_and_no_quota(one_socket: LocalHost) -> None:
    assert limits.resolved(one_socket, PlacementRequest(cores=4, pin=True)) == Placement(
        quota=None, cpuset="0-3", mems=None
    )


def test_pinning_without_a_number_takes_every_core(one_socket: LocalHost) -> None:
    assert limits.resolved(one_socket, PlacementRequest(pin=True)).cpuset == "0-7"


def test_an_idle_core_is_kept_out_of_the_set_pinned_or_not(one_socket: LocalHost) -> None:
    assert limits.resolved(one_socket, PlacementRequest(leave_idle=1)) == Placement(quota=None, cpuset="0-6", mems=None)
    assert limits.resolved(one_socket, PlacementRequest(cores=7, pin=True, leave_idle=1)).cpuset == "0-6"


def test_one_node_is_filled_before_the_next_and_first_threads_before_second(two_sockets: LocalHost) -> None:
    taken = [limits.resolved(two_sockets, PlacementRequest(cores=count, pin=True)).cpuset for count in (2, 3, 4, 5)]

    assert taken == ["0-1", "0-1,4", "0-1,4-5", "0-2,4-5"]


def test_a_node_gives_its_cores_and_its_memory(two_sockets: LocalHost) -> None:
    assert limits.resolved(two_sockets, PlacementRequest(cores=2, numa=1)) == Placement(
        quota=2.0, cpuset="2-3,6-7", mems="1"
    )


@pytest.mark.parametrize(
    ("requested", "words"),
    [
        (PlacementRequest(cores=9), "asks for more than the 8"),
        (PlacementRequest(cores=8, leave_idle=1), "asks for more than the 7"),
        (PlacementRequest(leave_idle=8), "leaves no core of 8"),
        (PlacementRequest(numa=3), "no such memory node"),
    ],
)
def test_what_the_machine_does_not_have_is_an_obstacle(
    one_socket: LocalHost, requested: PlacementRequest, words: str
) -> None:
    assert words in str(limits.obstacles(one_socket, requested)[0])
    with pytest.raises(ObstacleError):
        limits.resolved(one_socket, requested)


def test_a_machine_that_does_not_say_its_cores_is_an_obstacle_only_where_they_matter(tmp_path: Path) -> None:
    assert limits.obstacles(LocalHost(root=tmp_path), PlacementRequest()) == []
    assert "does not report which cores" in str(
        limits.obstacles(LocalHost(root=tmp_path), PlacementRequest(cores=1))[0]
    )
    assert limits.placement_facts(LocalHost(root=tmp_path), None, None) == {}


@pytest.mark.parametrize(
    ("quota", "cpuset", "usable"), [(None, None, 8.0), (2.0, None, 2.0), (None, "0-3", 4.0), (6.0, "0-1", 2.0)]
)
def test_the_container_to_host_core_ratio_counts_what_can_be_used(
    one_socket: LocalHost, quota: float | None, cpuset: str | None, usable: float
) -> None:
    assert limits.placement_facts(one_socket, quota, cpuset) == {
        "usable_cores": usable,
        "host_cores": 8,
        "chr": usable / 8,
    }


@pytest.mark.parametrize(
    "fields", [{"cores": 2, "cpuset": "0-1"}, {"cores": 2, "quota": 1.5}, {"pin": True, "cpuset": "0"}]
)
def test_cores_are_said_in_one_way(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="say which cores in one way"):
        Bare.model_validate(fields)


def test_a_quota_may_stand_beside_a_node_or_an_idle_core(one_socket: LocalHost) -> None:
    placed = Bare(quota=1.5, leave_idle=2).placed(one_socket)

    assert (placed.quota, placed.cpuset) == (1.5, "0-5")


@given(st.sets(st.integers(0, 200)))
def test_a_set_of_cores_survives_being_written_and_read(numbers: set[int]) -> None:
    assert cores(core_text(numbers)) == sorted(numbers)


@pytest.fixture
def job_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """With three cores of eight."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(limits.os, "sched_getaffinity", lambda _: {1, 5, 6})
    monkeypatch.setattr(limits, "is_root", lambda _: True)


@pytest.mark.usefixtures("job_of_slurm")
def test_in_a_job_of_slurm_every_place_is_pinned_to_its_cores(one_socket: LocalHost) -> None:
    assert Bare().placed(one_socket).cpuset == "1,5-6"
    assert Bare(cpuset="5").placed(one_socket).cpuset == "5"
    assert Bare(cores=2, pin=True).placed(one_socket).cpuset == "1,5"
    vanilla = Bare(cores=2).placed(one_socket)
    assert (vanilla.quota, vanilla.cpuset) == (2.0, "1,5-6")


@pytest.mark.usefixtures("job_of_slurm")
def test_cores_of_others_are_refused_in_a_job_of_slurm(one_socket: LocalHost) -> None:
    assert limits.obstacles(one_socket, PlacementRequest(cores=4))
    found = limits.limit_obstacles(one_socket, Bare(cpuset="0-1"))
    assert any("not this Slurm job's: [0]" in str(each) for each in found)


@pytest.mark.usefixtures("job_of_slurm")
def test_outside_of_a_job_and_in_one_with_all_cores_nothing_is_pinned(
    one_socket: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits.os, "sched_getaffinity", lambda _: set(range(8)))
    assert Bare().placed(one_socket) == Bare()
    monkeypatch.setattr(limits.os, "sched_getaffinity", lambda _: {1})
    monkeypatch.delenv("SLURM_JOB_ID")
    assert Bare().placed(one_socket) == Bare()


@pytest.mark.usefixtures("job_of_slurm")
def test_without_root_a_child_inherits_the_cores_of_the_job_and_a_container_of_a_daemon_is_pinned(
    one_socket: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "is_root", lambda _: False)

    assert Bare().placed(one_socket).cpuset is None
    assert Docker().placed(one_socket).cpuset == "1,5-6"
    assert limits.placement_facts(one_socket, None, None)["usable_cores"] == 3.0
