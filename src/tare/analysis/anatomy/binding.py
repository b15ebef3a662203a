"""What a step waits for: the disk, the CPU that pre-processes, or the computation itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tare.analysis.anatomy.model import Binds
from tare.analysis.anatomy.parts import Group

WARM = ("warm", "cached", "hot", "synthetic")


def fetch_s(group: Group) -> float | None:
    """Fetch and pre-process of a step: what it waits for when nothing fetches beside it."""
    return float(np.median(group.values(0.0, "stall"))) if 0.0 in group.trials else None


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk's part of a fetch."""

    seconds: float
    at_least: bool  # measured against a faster medium, which has a part of its own


def disk_part(group: Group, all_of_them: Sequence[Group]) -> Disk | None:
    """What a warm cache, or else the fastest medium, takes off the fetch; None where neither was measured."""
    ours = fetch_s(group)
    if ours is None:
        return None
    if _is_warm(group):
        return Disk(0.0, at_least=False)
    peers = [other for other in all_of_them if other.cell == group.cell and other is not group]
    warm = _fetches([other for other in peers if other.medium == group.medium and _is_warm(other)])
    if warm:
        return Disk(max(0.0, ours - min(warm)), at_least=False)
    faster = [found for found in _fetches([each for each in peers if each.cache == group.cache]) if found < ours]
    return Disk(ours - min(faster), at_least=True) if faster else None


def binds(hidden: bool, fetch: float | None, disk: Disk | None) -> Binds:
    """The computation where the stall is hidden, else the larger part of what is waited for, where that is known."""
    if hidden:
        return "compute"
    if fetch is None or disk is None:
        return "input"
    if disk.seconds > fetch - disk.seconds:
        return "disk"
    return "input" if disk.at_least else "cpu"


def _is_warm(group: Group) -> bool:
    return (group.cache or "").lower() in WARM


def _fetches(found: Sequence[Group]) -> list[float]:
    return [fetch for each in found if (fetch := fetch_s(each)) is not None]
