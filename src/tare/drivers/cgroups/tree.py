"""Control groups of a host, v1, v2 or both: found, made, emptied and removed through its files and commands.

Folders are kept as in `Scope.cgroups`: v1 by controller, v2 under the empty name. On a hybrid machine both are there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tare.base.errors import ObstacleError, TrialError
from tare.base.host import Host, OwnDevice, Scope, kill
from tare.base.processes import Mount, identity, mounts
from tare.drivers.places import comes_true

PARENT = "tare"  # everything that we make lies in this folder of each hierarchy
PIDS_LIMIT = 4096  # a fork bomb must not take the device with it
EMPTY_WITHIN_S = 10.0
REMOVED_WITHIN_S = 2.0  # a removal takes less than a millisecond

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
        names |= set(text_of(host, f"{found[''].point}/cgroup.controllers").split())
    return names


def folders_of_pid(host: Host, pid: int) -> dict[str, str]:
    """The folders that hold a process. A hierarchy where it sits at the root is left out: that is the whole device."""
    found = {key: mount for key, mount in hierarchies(host).items() if not key.startswith("name=")}
    folders = {}
    for line in text_of(host, f"/proc/{pid}/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if (mount := found.get(controller)) is None:
                continue
            root = mount.root.rstrip("/")  # what the mount shows: a group in a container, as a rule all of them
            if path.startswith(f"{root}/") and (below := path.removeprefix(root).rstrip("/")):
                folders[controller] = f"{mount.point}{below}"
    return folders


def make(host: Host, name: str) -> dict[str, str]:
    """A group of our own in every hierarchy; raises and leaves nothing behind where we may not."""
    folders = own_folders(host, name)
    if not folders:
        raise ObstacleError(f"no control groups are mounted on {host.name}.")
    try:
        with parent_kept(host):
            host.run(["mkdir", "-p", "--", *_distinct(folders)]).checked()
            if "" in folders:
                _hand_down_controllers(host, folders[""])
            if "cpuset" in folders:
                _fill_cpuset(host, folders["cpuset"])
        limit_pids(host, folders)
    except BaseException as error:
        with contextlib.suppress(TrialError):  # what went wrong before is what the user must hear of
            remove(host, folders)
        if isinstance(error, OSError):
            raise TrialError(f"a control group of our own cannot be made on {host.name}: {error}") from error
        raise
    return folders


def own_folders(host: Host, name: str) -> dict[str, str]:
    """Where a group called `name` lies, whether it is there or not; named hierarchies belong to systemd."""
    found = hierarchies(host).items()
    return {key: f"{mount.point}/{PARENT}/{name}" for key, mount in found if not key.startswith("name=")}


def _hand_down_controllers(host: Host, folder: str) -> None:
    """Version 2 gives a group only the controllers that every group above hands down (runc and docker do the same).

    In a container this may be refused; the group then counts what it can, and a limit that is asked for is missed
    when it is written. It is not taken back (docs/decisions/0007-journal-before-knob.md says why).
    """
    parent = folder.rpartition("/")[0]
    for above in (parent.rpartition("/")[0], parent):
        have = text_of(host, f"{above}/cgroup.controllers").split()
        given = text_of(host, f"{above}/cgroup.subtree_control").split()
        if missing := [name for name in _V2_WANTED if name in have and name not in given]:
            with contextlib.suppress(OSError):
                host.write(f"{above}/cgroup.subtree_control", " ".join(f"+{name}" for name in missing))


def _fill_cpuset(host: Host, folder: str) -> None:
    """A version 1 cpuset starts empty and refuses processes until it has cores and memory nodes."""
    parent = folder.rpartition("/")[0]
    for below in (parent, folder):
        above = below.rpartition("/")[0]
        for file in ("cpuset.cpus", "cpuset.mems"):
            if not text_of(host, f"{below}/{file}").strip():
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
    if "" in folders and controller in text_of(host, f"{folders['']}/cgroup.controllers").split():
        return Located(folders[""], 2)
    return None


def pids(host: Host, folders: Mapping[str, str]) -> set[int]:
    """Every process in any folder of the group. One that went in the meantime is no error.

    The kernel lists one that is not visible from here as 0, which as a target would be all of our own.
    """
    found: set[int] = set()
    for folder in _distinct(folders):
        found |= {int(pid) for pid in text_of(host, f"{folder}/cgroup.procs").split()}
    return found - {0}


def empty(
    host: Host, folders: Mapping[str, str], *, spare: Collection[int] = (), within_s: float = EMPTY_WITHIN_S
) -> set[int]:
    """Kill what is in the group, again and again until it is empty or the time is up; returns what is left."""
    begin_ns = host.clock.now_ns()
    while left := pids(host, folders) - set(spare):
        kill(host, left)
        spent_ns = host.clock.now_ns() - begin_ns
        if spent_ns >= round(within_s * 1e9):
            return left
        host.clock.sleep_until(host.clock.now_ns() + min(10_000_000, 1_000_000 + spent_ns))  # most are gone at once
    return set()


def remove(host: Host, folders: Mapping[str, str], *, within_s: float = EMPTY_WITHIN_S) -> None:
    """Empty the group and remove it; a folder that is not there is no error (faults.md D11p)."""
    deadline_ns = host.clock.now_ns() + round(within_s * 1e9)
    while there := [folder for folder in _distinct(folders) if is_there(host, f"{folder}/cgroup.procs")]:
        # Each time anew: a job may just have been on its way in.
        if left := empty(host, folders, within_s=within_s):
            raise TrialError(
                f"{len(left)} processes in {next(iter(folders.values()))} do not die: {sorted(left)}.\n"
                "They hang in the kernel (state D in `ps`), mostly on a disk or a network drive that does not answer; "
                "if they stay, only a reboot frees them. Then run `tare device restore`."
            )
        if not (trouble := _remove_folders(host, there)):
            break
        if host.clock.now_ns() >= deadline_ns:  # a group stays busy for a moment after its last process
            raise TrialError(f"the control group cannot be removed: {trouble}")
        host.clock.sleep_until(host.clock.now_ns() + 10_000_000)
    remove_parent(host)


def remove_parent(host: Host, below: Iterable[str] = ()) -> None:
    """Remove our parent folder where it is empty, after groups `below` that are; other groups in it keep it."""
    parents = _distinct({key: f"{mount.point}/{PARENT}" for key, mount in hierarchies(host).items()})
    if not parents:
        return
    with _above_parent(host) as folder:
        # Where another run makes a group at this moment, that run removes the parent when it ends.
        if folder is None or _locked(folder, fcntl.LOCK_EX):
            _remove_folders(host, [*below, *parents])


@contextlib.contextmanager
def parent_kept(host: Host) -> Iterator[None]:
    """No other run on this device removes the empty parent meanwhile: a group in it is made in several steps."""
    with _above_parent(host) as folder:
        if folder is not None:  # not for ever: a run that was stopped (SIGSTOP) while it removed keeps its lock
            comes_true(host.clock, lambda: _locked(folder, fcntl.LOCK_SH), REMOVED_WITHIN_S, every_s=0.001)
        yield


@contextlib.contextmanager
def _above_parent(host: Host) -> Iterator[int | None]:
    """The folder above one of our parent folders, to lock it: no file of ours stays there, as with a lock of its own.

    None on another device, where a run has a lock of its own or none.
    """
    point = min((mount.point for mount in hierarchies(host).values()), default=None)
    descriptor = None
    if point is not None and isinstance(host, OwnDevice):
        with contextlib.suppress(OSError):
            descriptor = os.open(host.file(point), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _locked(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_folders(host: Host, folders: Iterable[str]) -> str:
    """Remove those that are empty; what went wrong, if anything did."""
    if not isinstance(host, OwnDevice):
        done = host.run(["rmdir", "--", *folders])
        return "" if done.code == 0 else done.err.strip() or f"code {done.code}"
    trouble = []
    for folder in folders:  # without a command, which takes milliseconds
        try:
            host.file(folder).rmdir()
        except OSError as error:
            trouble.append(f"{folder}: {error.strerror}")
    return "\n".join(trouble)


def oom_kills(host: Host, folders: Mapping[str, str]) -> int | None:
    """How often the kernel killed a process of this group for want of memory; None if it does not say."""
    found = locate(host, folders, "memory")
    if found is None:
        return None
    file = {1: "memory.oom_control", 2: "memory.events"}[found.version]
    for line in text_of(host, f"{found.folder}/{file}").splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return int(count)
    return None


def _distinct(folders: Mapping[str, str]) -> list[str]:
    """Each folder once: cpu and cpuacct often share one."""
    return list(dict.fromkeys(folders.values()))


def text_of(host: Host, path: str) -> str:
    """The text of a file; empty where it cannot be read."""
    try:
        return host.read(path)
    except OSError:
        return ""


def is_there(host: Host, path: str) -> bool:
    """Whether a file can be read."""
    try:
        host.read(path)
    except OSError:
        return False
    return True


def state_of(host: Host, pid: int | str | None) -> str:
    """The kernel's letter for what a process does; X where it is no more."""
    try:
        return host.read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "X"


def own_groups(host: Host, cgroups: Mapping[str, str]) -> dict[str, str]:
    """Controller to folder, version 2 under "", without root groups: those count the whole device."""
    apart = {name: folder for key, folder in cgroups.items() for name in key.split(",")}
    # Only a root group of version 1 has `release_agent`; only a root group of version 2 lacks `cgroup.events`.
    return {
        name: folder
        for name, folder in apart.items()
        if (not is_there(host, f"{folder}/release_agent") if name else is_there(host, f"{folder}/cgroup.events"))
    }


def threads_file(groups: Mapping[str, str]) -> str | None:
    """The file that lists every thread of the group."""
    if "" in groups:
        return f"{groups['']}/cgroup.threads"
    return next((f"{folder}/tasks" for folder in groups.values()), None)


# Processes that a dead run left behind on the device, found by the name that every job of ours carries.

NAME_VARIABLE = "TARE_NAME"  # of every job
KEEPER_VARIABLE = "TARE_KEEPER"  # of what keeps a container open, which is no job


def kill_named(host: Host, name: str, *, within_s: float = 5.0) -> None:
    """Kill what carries `TARE_NAME=<name>` and belongs to our own user; nobody else's process is touched."""
    deadline_ns = host.clock.now_ns() + round(within_s * 1e9)
    while found := processes_named(host, name):
        kill(host, found)
        if host.clock.now_ns() >= deadline_ns:
            return
        host.clock.sleep_until(host.clock.now_ns() + 10_000_000)


def processes_named(host: Host, name: str, variable: str = NAME_VARIABLE) -> set[int]:
    """The living processes of our own user that were started with `TARE_NAME=<name>`, ourselves left out."""
    found = host.run(
        ["find", "/proc", "-mindepth", "2", "-maxdepth", "2", "-path", "/proc/[0-9]*/environ",
         "-exec", "grep", "-lszxF", "-e", f"{variable}={name}", "--", "{}", "+"]
    )  # fmt: skip
    pids = {int(path.split("/")[2]) for path in found.out.splitlines() if path.count("/") == 3}
    if not pids:
        return set()
    us, ours = int(host.read("/proc/self/stat").split()[0]), identity(host).uid
    return {pid for pid in pids if pid != us and _uid(host, pid) == ours}


def _uid(host: Host, pid: int) -> int | None:
    """The effective user of a process that still runs; a zombie waits for its parent, not for us."""
    try:
        lines = host.read(f"/proc/{pid}/status").splitlines()
    except OSError:
        return None
    values = dict(line.split(":", 1) for line in lines if ":" in line)
    return None if values["State"].strip().startswith("Z") else int(values["Uid"].split()[1])


# Processes of a place stopped and resumed: by the freezer of their control group, or by signals where there is none.
#
# A group that is frozen stays so when the runner dies. `resume_all` finds it by the processes in it, for whoever cleans
# up: with version 1 a frozen process cannot even be killed.

STOPPED_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.001
Way = Literal["cgroup v2", "cgroup v1", "SIGSTOP"]


@dataclass(frozen=True)
class Freezer:
    """Stops and resumes what runs at one place."""

    host: Host  # the device
    way: Way
    target: str  # the group's folder, or the name that the processes carry

    def stop(self) -> None:
        """Returns when nothing of it runs any more; raises where that takes too long."""
        if self.way == "SIGSTOP":
            self._signal("STOP", until=lambda pid: state_of(self.host, pid) in "TtZX")
            return
        _write(self.host, self._file(), "1" if self.way == "cgroup v2" else "FROZEN")
        if not comes_true(self.host.clock, self._is_stopped, STOPPED_WITHIN_S, _LOOK_EVERY_S):
            raise TrialError(f"the processes in {self.target} did not stop within {STOPPED_WITHIN_S:g} s.")

    def resume(self) -> None:
        """A group that is gone has nothing to resume."""
        if self.way == "SIGSTOP":
            self._signal("CONT")
            return
        with contextlib.suppress(FileNotFoundError):
            _write(self.host, self._file(), "0" if self.way == "cgroup v2" else "THAWED")

    def _file(self) -> str:
        return f"{self.target}/{'cgroup.freeze' if self.way == 'cgroup v2' else 'freezer.state'}"

    def _is_stopped(self) -> bool:
        if self.way == "cgroup v1":
            return self.host.read(self._file()).strip() == "FROZEN"
        return "frozen 1" in self.host.read(f"{self.target}/cgroup.events").splitlines()

    def _signal(self, name: str, until: Callable[[int], bool] = lambda _pid: True) -> None:
        """Signal each process; again while there are new ones, for a process may be on its way to start another."""
        deadline_ns = self.host.clock.now_ns() + round(STOPPED_WITHIN_S * 1e9)
        done: set[int] = set()
        while new := processes_named(self.host, self.target) - done:
            _kill(self.host, name, new)
            left_s = (deadline_ns - self.host.clock.now_ns()) / 1e9
            if not comes_true(self.host.clock, lambda: all(map(until, new)), left_s, _LOOK_EVERY_S):
                raise TrialError(f"the processes of {self.target} did not stop within {STOPPED_WITHIN_S:g} s.")
            done |= new


def freezer_of(host: Host, name: str, scope: Scope) -> Freezer:
    """What stops the processes of the place that is called `name`."""
    folders = scope.cgroups
    if "" in folders and is_there(host, f"{folders['']}/cgroup.freeze"):
        return Freezer(host, "cgroup v2", folders[""])
    if "freezer" in folders:
        return Freezer(host, "cgroup v1", folders["freezer"])
    return Freezer(host, "SIGSTOP", name)


def resume_all(host: Host, name: str) -> None:
    """Resume whatever a dead run left stopped under this site name, so that it can be ended."""
    carried = processes_named(host, name) | processes_named(host, name, KEEPER_VARIABLE)
    own = own_folders(host, name)
    groups = [own, *(folders_of_pid(host, pid) for pid in carried)]
    for way, file in {"": "cgroup.freeze", "freezer": "freezer.state"}.items():
        for folder in dict.fromkeys(folders[way] for folders in groups if way in folders):
            if is_there(host, f"{folder}/{file}"):
                Freezer(host, "cgroup v1" if way else "cgroup v2", folder).resume()
    if carried:
        _kill(host, "CONT", carried)


def _kill(host: Host, name: str, pids: Iterable[int]) -> None:
    host.run(["sh", "-c", f'kill -{name} "$@"', "kill", *map(str, sorted(pids))])


def _write(host: Host, path: str, text: str) -> None:
    try:
        host.write(path, text)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TrialError(f"{path} cannot be written: {error.strerror or error}.") from error
