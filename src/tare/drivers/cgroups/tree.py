"""Control groups of a host, v1, v2 or both: found, made, emptied and removed through its files and commands.

Folders are kept as in `Scope.cgroups`: v1 by controller, v2 under the empty name. On a hybrid machine both are there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tare.base.errors import ObstacleError, TrialError
from tare.base.host import Host
from tare.base.processes import Mount, mounts

PARENT = "tare"  # everything that we make lies in this folder of each hierarchy
PIDS_LIMIT = 4096  # a fork bomb must not take the device with it
EMPTY_WITHIN_S = 10.0

_V1 = {
    "blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "hugetlb",
    "memory", "misc", "net_cls", "net_prio", "perf_event", "pids", "rdma",
}  # fmt: skip
_V2_WANTED = ("cpuset", "cpu", "io", "memory", "pids")


def hierarchies(host: Host) -> dict[str, Mount]:
    """Where each controller is mounted: v1 by its name (`name=systemd` for a named one), v2 under ''."""
    found: dict[str, Mount] = {}
    for mount in mounts(host):
        if mount.kind == "cgroup2":
            found.setdefault("", mount)
        elif mount.kind == "cgroup":
            for option in mount.options:
                if option in _V1 or option.startswith("name="):
                    found.setdefault(option, mount)
    return found


def offered(host: Host) -> set[str]:
    """The controllers that this host has, whichever version they belong to."""
    found = hierarchies(host)
    names = set(found) - {""}
    if "" in found:
        names |= set(_text(host, f"{found[''].point}/cgroup.controllers").split())
    return names


def folders_of_pid(host: Host, pid: int) -> dict[str, str]:
    """The folders that hold a process. A hierarchy where it sits at the root is left out: that is the whole device."""
    found = {key: mount for key, mount in hierarchies(host).items() if not key.startswith("name=")}
    folders = {}
    for line in _text(host, f"/proc/{pid}/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if (mount := found.get(controller)) and (below := _below(path, mount.root)):
                folders[controller] = f"{mount.point}{below}"
    return folders


def _below(path: str, root: str) -> str:
    """`path` seen from a mount that shows `root`; empty if it is the root itself or lies outside."""
    if root == "/":
        return path.rstrip("/")
    return path.removeprefix(root) if path.startswith(f"{root}/") else ""


def make(host: Host, name: str) -> dict[str, str]:
    """A group of our own in every hierarchy; raises and leaves nothing behind where we may not."""
    folders = own_folders(host, name)
    if not folders:
        raise ObstacleError(f"no control groups are mounted on {host.name}.")
    try:
        host.run(["mkdir", "-p", "--", *_distinct(folders)]).checked()
        if "" in folders:
            _hand_down_controllers(host, folders[""])
        if "cpuset" in folders:
            _fill_cpuset(host, folders["cpuset"])
        limit_pids(host, folders)
    except OSError as error:
        _undo(host, folders)
        raise TrialError(f"a control group of our own cannot be made on {host.name}: {error}") from error
    except BaseException:
        _undo(host, folders)
        raise
    return folders


def _undo(host: Host, folders: Mapping[str, str]) -> None:
    with contextlib.suppress(TrialError):  # what went wrong before is what the user must hear of
        remove(host, folders)


def own_folders(host: Host, name: str) -> dict[str, str]:
    """Where a group called `name` lies, whether it is there or not; named hierarchies belong to systemd."""
    found = hierarchies(host).items()
    return {key: f"{mount.point}/{PARENT}/{name}" for key, mount in found if not key.startswith("name=")}


def every_folder(host: Host, name: str) -> dict[str, str]:
    """The same with the named hierarchies: some programs make groups in systemd's own too."""
    return {key: f"{mount.point}/{PARENT}/{name}" for key, mount in hierarchies(host).items()}


def _hand_down_controllers(host: Host, folder: str) -> None:
    """Version 2 gives a group only the controllers that every group above hands down (runc and docker do the same).

    In a container this may be refused; the group then counts what it can, and a limit that is asked for is missed
    when it is written. It is not taken back (docs/decisions/0007-journal-before-knob.md says why).
    """
    parent = folder.rpartition("/")[0]
    for above in (parent.rpartition("/")[0], parent):
        have = _text(host, f"{above}/cgroup.controllers").split()
        given = _text(host, f"{above}/cgroup.subtree_control").split()
        if missing := [name for name in _V2_WANTED if name in have and name not in given]:
            with contextlib.suppress(OSError):
                host.write(f"{above}/cgroup.subtree_control", " ".join(f"+{name}" for name in missing))


def _fill_cpuset(host: Host, folder: str) -> None:
    """A version 1 cpuset starts empty and refuses processes until it has cores and memory nodes."""
    parent = folder.rpartition("/")[0]
    for below in (parent, folder):
        above = below.rpartition("/")[0]
        for file in ("cpuset.cpus", "cpuset.mems"):
            if not _text(host, f"{below}/{file}").strip():
                host.write(f"{below}/{file}", host.read(f"{above}/{file}").strip())


def limit_pids(host: Host, folders: Mapping[str, str]) -> None:
    if (found := locate(host, folders, "pids")) is not None:
        host.write(f"{found.folder}/pids.max", str(PIDS_LIMIT))


@dataclass(frozen=True, slots=True)
class Located:
    """The folder where a controller's files of one group are, and which kernel interface they follow."""

    folder: str
    version: int


def locate(host: Host, folders: Mapping[str, str], controller: str) -> Located | None:
    """Where `controller` of this group is; None if no hierarchy of this host has it."""
    if controller in folders:
        return Located(folders[controller], 1)
    if "" in folders and controller in _text(host, f"{folders['']}/cgroup.controllers").split():
        return Located(folders[""], 2)
    return None


def pids(host: Host, folders: Mapping[str, str]) -> set[int]:
    """Every process in any folder of the group. One that went in the meantime is no error."""
    found: set[int] = set()
    for folder in _distinct(folders):
        found |= {int(pid) for pid in _text(host, f"{folder}/cgroup.procs").split()}
    return found


def empty(
    host: Host, folders: Mapping[str, str], *, spare: Collection[int] = (), within_s: float = EMPTY_WITHIN_S
) -> set[int]:
    """Kill what is in the group, again and again until it is empty or the time is up; returns what is left."""
    deadline_ns = host.clock.now_ns() + round(within_s * 1e9)
    while left := pids(host, folders) - set(spare):
        kill(host, left)
        if host.clock.now_ns() >= deadline_ns:
            return left
        host.clock.sleep_until(host.clock.now_ns() + 10_000_000)
    return set()


def kill(host: Host, targets: Collection[int]) -> None:
    """SIGKILL; one that is gone already is no error."""
    if targets:
        host.run(["sh", "-c", 'kill -KILL "$@"', "kill", *(str(pid) for pid in sorted(targets))])


def remove(host: Host, folders: Mapping[str, str], *, within_s: float = EMPTY_WITHIN_S) -> None:
    """Empty the group and remove it; a folder that is not there is no error (faults.md D11p)."""
    deadline_ns = host.clock.now_ns() + round(within_s * 1e9)
    while there := _existing(host, folders):
        _empty_or_raise(host, folders, within_s)  # each time anew: a job may just have been on its way in
        done = host.run(["rmdir", "--", *there])
        if done.code == 0:
            break
        if host.clock.now_ns() >= deadline_ns:  # a group stays busy for a moment after its last process
            raise TrialError(f"the control group cannot be removed: {done.err.strip()}")
        host.clock.sleep_until(host.clock.now_ns() + 10_000_000)
    remove_parent(host)


def _empty_or_raise(host: Host, folders: Mapping[str, str], within_s: float) -> None:
    if left := empty(host, folders, within_s=within_s):
        raise TrialError(
            f"{len(left)} processes in {next(iter(folders.values()))} do not die: {sorted(left)}.\n"
            "They hang in the kernel (state D in `ps`), mostly on a disk or a network drive that does not answer; "
            "if they stay, only a reboot frees them. Then run `tare device restore`."
        )


def remove_parent(host: Host) -> None:
    """Remove our parent folder where it is empty; other groups in it (another run's) keep it."""
    parents = _distinct({key: f"{mount.point}/{PARENT}" for key, mount in hierarchies(host).items()})
    if parents:
        host.run(["rmdir", "--", *parents])


def oom_kills(host: Host, folders: Mapping[str, str]) -> int | None:
    """How often the kernel killed a process of this group for want of memory; None if it does not say."""
    found = locate(host, folders, "memory")
    if found is None:
        return None
    file = {1: "memory.oom_control", 2: "memory.events"}[found.version]
    for line in _text(host, f"{found.folder}/{file}").splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return int(count)
    return None


def _existing(host: Host, folders: Mapping[str, str]) -> list[str]:
    return [folder for folder in _distinct(folders) if _is_there(host, folder)]


def _is_there(host: Host, folder: str) -> bool:
    try:
        host.read(f"{folder}/cgroup.procs")
    except OSError:
        return False
    return True


def _distinct(folders: Mapping[str, str]) -> list[str]:
    """Each folder once: cpu and cpuacct often share one."""
    return list(dict.fromkeys(folders.values()))


def _text(host: Host, path: str) -> str:
    try:
        return host.read(path)
    except OSError:
        return ""
