"""Who else uses this device's cores, seen before the first trial: told after an hour of invalid ones it is too late."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from tare.trial.thresholds import THRESHOLDS

LEAST_S = 0.3  # between two glances
_LEAST_TICKS = 10  # less than that is rounding
_NAMED = 3
_PROC = Path("/proc")


class Glance(NamedTuple):
    """The kernel's counts of CPU time, in ticks: of the device, of us, and of each process."""

    capacity: int
    busy: int
    ours: int
    processes: dict[tuple[int, str], int]  # pid and name


def glance(proc: Path = _PROC) -> Glance:
    """What the counts are now; ours are this process's and its children's, once they have ended."""
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, _words(proc / "stat")[1:9])
    busy = user + nice + system + irq + softirq
    processes = {}
    for folder in proc.glob("[0-9]*"):
        if (seen := _process(folder)) is not None:
            name, own, _ = seen
            processes[int(folder.name), name] = own
    me = _process(proc / str(os.getpid()))
    return Glance(busy + idle + iowait + steal, busy, me[1] + me[2] if me else 0, processes)


def advice(before: Glance, after: Glance) -> str | None:
    """A sentence where others use more than a trial may be disturbed by; None where all is quiet."""
    capacity = after.capacity - before.capacity
    foreign = (after.busy - before.busy) - (after.ours - before.ours)
    share = foreign / capacity if capacity > 0 else 0.0
    if foreign < _LEAST_TICKS or share <= THRESHOLDS.foreign_suspect_share:
        return None
    if share > THRESHOLDS.foreign_invalid_share:
        fate = f"above {THRESHOLDS.foreign_invalid_share:.0%} a trial is invalid"
    else:
        fate = f"above {THRESHOLDS.foreign_suspect_share:.0%} a trial is suspect"
    return (
        f"other processes use {share:.0%} of this device's CPU time at this moment{_who(before, after)}: {fate}.\n"
        "The run begins all the same; stop them for its time if you can."
    )


def _who(before: Glance, after: Glance) -> str:
    """The busiest of them by name, those of one name together."""
    used: dict[str, int] = {}
    for (pid, name), ticks in after.processes.items():
        if pid != os.getpid():
            used[name] = used.get(name, 0) + ticks - before.processes.get((pid, name), ticks)
    busiest = sorted((name for name in used if used[name] > 0), key=lambda name: -used[name])[:_NAMED]
    return f" ({', '.join(busiest)})" if busiest else ""


def _process(folder: Path) -> tuple[str, int, int] | None:
    """The name of a process, its own ticks, and those of its children that have ended."""
    try:
        head, _, rest = (folder / "stat").read_text(errors="replace").rpartition(")")
        words = rest.split()
        return head.partition("(")[2], int(words[11]) + int(words[12]), int(words[13]) + int(words[14])
    except (OSError, IndexError, ValueError):
        return None


def _words(path: Path) -> list[str]:
    return path.read_text().split("\n", 1)[0].split()
