"""What a trial takes of the CPU beside its workload: tare's own process, and the engine that serves the container.

Neither is foreign load. A container engine works for the side that it serves, and a system's dockerd does so as well as
one that tare started: that it has to run is part of what the platform costs. If its time were counted as foreign, every
short trial in a container would be marked, and none on bare metal.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tare.base.host import Host, Served

_PROC = Path("/proc")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Upkeep(NamedTuple):
    """CPU time while the sampler watched."""

    spent_s: float = 0.0  # of these processes themselves
    reaped_s: float = 0.0  # of their children that ended: jobs, which their groups count too, and commands like `runc`


NO_UPKEEP = Upkeep()


class UpkeepMeter:
    """Counts from when it is made. It reads one file for each of a few processes, twice."""

    def __init__(self, places: Iterable[Host], proc: Path = _PROC) -> None:
        helpers = {pid for place in places if isinstance(place, Served) for pid in place.helpers()}
        self._proc = proc
        self._before = {pid: seen for pid in {os.getpid(), *helpers} if (seen := ticks(proc / str(pid))) is not None}

    def used(self) -> Upkeep:
        """One that has ended in the meantime is left out."""
        spent = reaped = 0
        for pid, (_, own, children) in self._before.items():
            if (now := ticks(self._proc / str(pid))) is not None:
                spent, reaped = spent + now[1] - own, reaped + now[2] - children
        return Upkeep(spent * _TICK_S, reaped * _TICK_S)


def ticks(folder: Path) -> tuple[str, int, int] | None:
    """The name of a process, its own ticks, and those of its children that have ended."""
    try:
        head, _, rest = (folder / "stat").read_text(errors="replace").rpartition(")")
        words = rest.split()
        return head.partition("(")[2], int(words[11]) + int(words[12]), int(words[13]) + int(words[14])
    except (OSError, IndexError, ValueError):
        return None
