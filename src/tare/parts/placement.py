"""Which cores a place gets: asked for as a number of cores, pinned or left to the scheduler, resolved on the device.

Vanilla (`pin: false`) is what `docker run --cpus 4` gives: a quota, and the scheduler picks among all cores of the
machine. Pinned (`pin: true`) is a cpuset: as many cores, always the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tare.errors import ObstacleError
from tare.host import Host
from tare.parts.core_list import core_text, cores

_CPUS = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node"


@dataclass(frozen=True, slots=True)
class Wish:
    """What a study asks for, before it is known which machine it is."""

    cores: int | None = None
    pin: bool = False
    numa: int | None = None
    leave_idle: int = 0

    def asked(self) -> bool:
        return self != Wish()


@dataclass(frozen=True, slots=True)
class Placement:
    """The same on one machine: a quota in cores, a set of cores, a set of memory nodes; None where there is none."""

    quota: float | None
    cpuset: str | None
    mems: str | None


def online(host: Host) -> list[int]:
    """The cores that are online; none where the kernel does not say."""
    try:
        return cores(host.read(f"{_CPUS}/online"))
    except (OSError, ValueError):
        return []


def obstacles(host: Host, wish: Wish) -> list[str]:
    """Why the wish cannot be met here, in sentences."""
    there = online(host)
    if not wish.asked():
        return []
    if not there:
        return ["this kernel does not say which cores are online, so that none can be chosen."]
    sentences = []
    if wish.numa is not None:
        node = node_cores(host, wish.numa)
        if not node:
            sentences.append(f"`numa: {wish.numa}`: this machine has no such memory node with cores online.")
        there = [core for core in there if core in node]
    left = len(there) - wish.leave_idle
    if left < 1:
        sentences.append(f"`leave_idle: {wish.leave_idle}` leaves no core of {len(there)}.")
    elif wish.cores is not None and wish.cores > left:
        sentences.append(f"`cores: {wish.cores}` asks for more than the {left} that are there to be used.")
    return sentences


def resolved(host: Host, wish: Wish) -> Placement:
    """The quota and the cores by which this machine meets the wish."""
    if sentences := obstacles(host, wish):
        raise ObstacleError("this placement cannot be had here.", sentences)
    usable = by_nearness(host, online(host) if wish.numa is None else node_cores(host, wish.numa))
    usable = usable[: len(usable) - wish.leave_idle]
    chosen = usable[: wish.cores] if wish.pin else usable
    narrowed = wish.pin or wish.leave_idle > 0 or wish.numa is not None
    return Placement(
        quota=float(wish.cores) if wish.cores is not None and not wish.pin else None,
        cpuset=core_text(chosen) if narrowed else None,
        mems=None if wish.numa is None else str(wish.numa),
    )


def node_cores(host: Host, node: int) -> list[int]:
    """The online cores of a memory node."""
    try:
        return [core for core in cores(host.read(f"{_NODES}/node{node}/cpulist")) if core in online(host)]
    except (OSError, ValueError):
        return []


def by_nearness(host: Host, among: Iterable[int]) -> list[int]:
    """Cores in the order in which they are given out: one memory node after the other, second threads last in each."""
    nodes = _node_of(host)
    return sorted(among, key=lambda core: (nodes.get(core, 0), _is_second_thread(host, core), core))


def _node_of(host: Host) -> dict[int, int]:
    try:
        nodes = cores(host.read(f"{_NODES}/online"))
    except (OSError, ValueError):
        return {}
    return {core: node for node in nodes for core in node_cores(host, node)}


def _is_second_thread(host: Host, core: int) -> bool:
    try:
        siblings = cores(host.read(f"{_CPUS}/cpu{core}/topology/thread_siblings_list"))
    except (OSError, ValueError):
        return False
    return bool(siblings) and core != siblings[0]


def facts(host: Host, quota: float | None, cpuset: str | None) -> dict[str, Any]:
    """What a record says of a place's cores: how many it may use, and the container-to-host core ratio (CHR)."""
    there = online(host)
    if not there:
        return {}
    pinned: Sequence[int] = cores(cpuset) if cpuset else there
    usable = min(float(len(pinned)), quota if quota is not None else float(len(pinned)))
    return {"usable_cores": usable, "host_cores": len(there), "chr": usable / len(there)}
