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
from tare.base.processes import ulimits, words_of
from tare.drivers.cgroups import tree
from tare_inside import around, launch


def surroundings(host: Host, pid: int) -> dict[str, Any]:
    """As tare's launcher says it inside (tare_inside/launch.py), as far as it shows from here."""
    system = os.uname()
    found: dict[str, Any] = {
        "kernel": system.release,
        "machine": system.machine,
        "process": launch.process_status(tree.text_of(host, f"/proc/{pid}/status")),  # type: ignore[no-untyped-call]
        "limits": {name: list(limits) for name, limits in ulimits(host, pid).items()},
        "cgroup": group_limits(tree.folders_of_pid(host, pid)),
    }
    with suppress(OSError):
        size = os.statvfs(f"/proc/{pid}/root/dev/shm")
        found["shm"] = {"bytes": size.f_frsize * size.f_blocks}
    with suppress(OSError):
        root, folder = f"/proc/{pid}/root", str(Path(f"/proc/{pid}/cwd").readlink())
        folders = launch.looked_at(words_of(pid), environ(pid) or {}, folder)  # type: ignore[no-untyped-call]
        libraries = around.libraries_of(pid, root)  # type: ignore[no-untyped-call]
        folders |= {"python": libraries[0]} if libraries else {}
        real = {name: around.inside(root, path)[len(root) :] for name, path in folders.items()}  # type: ignore[no-untyped-call]
        mounted = tree.text_of(host, f"/proc/{pid}/mountinfo")
        found["file_system"] = launch.file_systems(mounted, real)  # type: ignore[no-untyped-call]
        found["mount_options"] = launch.file_systems(mounted, real, launch.mount_options)  # type: ignore[no-untyped-call]
    return found


def installed(pid: int) -> dict[str, Any]:
    """What is installed in the root of a process; nothing where it ended meanwhile, so that not all was read."""
    found: dict[str, Any] = around.observed(pid, f"/proc/{pid}/root")  # type: ignore[no-untyped-call]
    return {name: value for name, value in found.items() if value} if words_of(pid) else {}


def environ(pid: int) -> dict[str, str] | None:
    """The variables that a process was started with; None where they are not for us to read."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return None
    return dict(each.split("=", 1) for each in text.split("\0") if "=" in each)


def group_limits(groups: Mapping[str, str]) -> dict[str, float]:
    """As `cgroup_limits` of the launcher, of the groups of another process."""
    folders = {controller: [folder] for controller, folder in groups.items()}
    limits: dict[str, float] = launch.cgroup_limits(folders)  # type: ignore[no-untyped-call]
    return limits


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
