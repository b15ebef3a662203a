"""What a process has around it, read from outside: its limits, rights, control groups and file systems.

Nothing is started in it, so that this works where its image has no program but its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tare.base.host import Host
from tare.base.processes import holding, mounts, ulimits
from tare.drivers.cgroups import tree
from tare_inside.launch import process_status

_UNLIMITED = 1 << 60  # version 1 says so with a huge number


def surroundings(host: Host, pid: int) -> dict[str, Any]:
    """As tare's launcher says it inside (tare_inside/launch.py), as far as it shows from here."""
    system, mounted = os.uname(), mounts(host, pid)
    found: dict[str, Any] = {
        "kernel": system.release,
        "machine": system.machine,
        "process": process_status(tree.text_of(host, f"/proc/{pid}/status")),  # type: ignore[no-untyped-call]
        "limits": {name: list(limits) for name, limits in ulimits(host, pid).items()},
        "cgroup": group_limits(host, tree.folders_of_pid(host, pid)),
    }
    with suppress(OSError):
        size = os.statvfs(f"/proc/{pid}/root/dev/shm")
        found["shm"] = {"bytes": size.f_frsize * size.f_blocks}
    with suppress(OSError):
        folders = {"work": str(Path(f"/proc/{pid}/cwd").readlink()), "tmp": "/tmp"}
        kinds = {name: holding(mounted, folder) for name, folder in folders.items()}
        found["file_system"] = {name: mount.kind for name, mount in kinds.items() if mount is not None}
    return found


def group_limits(host: Host, groups: Mapping[str, str]) -> dict[str, float]:
    """CPU quota in cores and memory limit; what is unlimited is left out."""
    found: dict[str, float] = {}
    if (cpu := tree.locate(host, groups, "cpu")) is not None:
        names = ("cpu.max",) if cpu.version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        words = " ".join(tree.text_of(host, f"{cpu.folder}/{name}") for name in names).split()
        if len(words) == 2 and all(word.isdigit() for word in words):
            found["cpu_quota_cores"] = int(words[0]) / int(words[1])
    if (memory := tree.locate(host, groups, "memory")) is not None:
        name = "memory.max" if memory.version == 2 else "memory.limit_in_bytes"
        text = tree.text_of(host, f"{memory.folder}/{name}").strip()
        if text.isdigit() and int(text) < _UNLIMITED:
            found["memory_limit_bytes"] = int(text)
    return found


def throttled(host: Host, groups: Mapping[str, str]) -> dict[str, float]:
    """In how many periods the quota of a group was used up, and for how long it stopped tasks, over all cores."""
    cpu = tree.locate(host, groups, "cpu")
    if cpu is None:
        return {}
    name, unit_s = ("throttled_usec", 1e-6) if cpu.version == 2 else ("throttled_time", 1e-9)
    stat = numbers(tree.text_of(host, f"{cpu.folder}/cpu.stat"))
    if "nr_throttled" not in stat or name not in stat:
        return {}
    return {"cgroup_nr_throttled": stat["nr_throttled"], "cgroup_throttled_s": stat[name] * unit_s}


def numbers(text: str) -> dict[str, float]:
    """The `name number` lines of a file of a control group."""
    rows = (line.split() for line in text.splitlines())
    return {row[0]: float(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def waited_s(host: Host, pid: int, task: int | str) -> float | None:
    """How long a thread was ready and waited for a core; the kernel counts the quota's stops in it."""
    words = tree.text_of(host, f"/proc/{pid}/task/{task}/schedstat").split()
    return int(words[1]) / 1e9 if len(words) == 3 else None
