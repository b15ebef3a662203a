"""Processes of a place stopped and resumed: by the freezer of their control group, or by signals where there is none.

A group that is frozen stays so when the runner dies. `resume_all` finds it by the processes in it, for whoever cleans
up: with version 1 a frozen process cannot even be killed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from tare.base.errors import TrialError
from tare.base.host import Host, Scope
from tare.base.units import cores as cores_of
from tare.drivers.cgroups import orphans, tree

STOPPED_WITHIN_S = 10.0
_LOOK_EVERY_NS = 1_000_000
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
            self._signal("STOP", until=lambda pid: _state(self.host, pid) in "TtZX")
            return
        _write(self.host, self._file(), "1" if self.way == "cgroup v2" else "FROZEN")
        deadline_ns = self.host.clock.now_ns() + round(STOPPED_WITHIN_S * 1e9)
        while not self._is_stopped():
            if self.host.clock.now_ns() >= deadline_ns:
                raise TrialError(f"the processes in {self.target} did not stop within {STOPPED_WITHIN_S:g} s.")
            self.host.clock.sleep_until(self.host.clock.now_ns() + _LOOK_EVERY_NS)

    def resume(self) -> None:
        """A group that is gone has nothing to resume."""
        if self.way == "SIGSTOP":
            self._signal("CONT")
            return
        with contextlib.suppress(FileNotFoundError):
            _write(self.host, self._file(), "0" if self.way == "cgroup v2" else "THAWED")

    def cpu_s(self) -> float | None:
        """The CPU time of all processes that were ever in the group; None where the kernel does not count it."""
        if self.way == "SIGSTOP":
            return None
        beside = self.target.replace("/freezer/", "/cpuacct/", 1)
        for folder, file in ((self.target, "cpu.stat"), (beside, "cpuacct.usage")):
            with contextlib.suppress(OSError):
                text = self.host.read(f"{folder}/{file}")
                if file == "cpuacct.usage":
                    return int(text) / 1e9
                return int(dict(line.split() for line in text.splitlines())["usage_usec"]) / 1e6
        return None

    def cores(self) -> frozenset[int]:
        """The cores that the busiest of its processes may use; none where that is not known."""
        if self.way == "SIGSTOP":
            return frozenset()
        busiest = max(tree.pids(self.host, {"": self.target}), key=lambda pid: _ticks(self.host, pid), default=None)
        with contextlib.suppress(OSError):
            for line in self.host.read(f"/proc/{busiest}/status").splitlines():
                if line.startswith("Cpus_allowed_list:"):
                    return frozenset(cores_of(line.partition(":")[2]))
        return frozenset()

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
        while new := orphans.processes_of(self.host, self.target) - done:
            _kill(self.host, name, new)
            while not all(until(pid) for pid in new):
                if self.host.clock.now_ns() >= deadline_ns:
                    raise TrialError(f"the processes of {self.target} did not stop within {STOPPED_WITHIN_S:g} s.")
                self.host.clock.sleep_until(self.host.clock.now_ns() + _LOOK_EVERY_NS)
            done |= new


def freezer_of(host: Host, name: str, scope: Scope) -> Freezer:
    """What stops the processes of the place that is called `name`."""
    folders = scope.cgroups
    if "" in folders and _is_there(host, f"{folders['']}/cgroup.freeze"):
        return Freezer(host, "cgroup v2", folders[""])
    if "freezer" in folders:
        return Freezer(host, "cgroup v1", folders["freezer"])
    return Freezer(host, "SIGSTOP", name)


def resume_all(host: Host, name: str) -> None:
    """Resume whatever a dead run left stopped under this site name, so that it can be ended."""
    carried = orphans.processes_of(host, name) | orphans.processes_of(host, name, orphans.KEEPER)
    own = tree.own_folders(host, name)
    groups = [own, *(tree.folders_of_pid(host, pid) for pid in carried)]
    for way, file in {"": "cgroup.freeze", "freezer": "freezer.state"}.items():
        for folder in dict.fromkeys(folders[way] for folders in groups if way in folders):
            if _is_there(host, f"{folder}/{file}"):
                Freezer(host, "cgroup v1" if way else "cgroup v2", folder).resume()
    if carried:
        _kill(host, "CONT", carried)


def _kill(host: Host, name: str, pids: Iterable[int]) -> None:
    host.run(["sh", "-c", f'kill -{name} "$@"', "kill", *map(str, sorted(pids))])


def _ticks(host: Host, pid: int) -> int:
    try:
        words = host.read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return int(words[11]) + int(words[12])
    except (OSError, ValueError, IndexError):
        return 0


def _state(host: Host, pid: int) -> str:
    try:
        return host.read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def _is_there(host: Host, path: str) -> bool:
    try:
        host.read(path)
    except OSError:
        return False
    return True


def _write(host: Host, path: str, text: str) -> None:
    try:
        host.write(path, text)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TrialError(f"{path} cannot be written: {error.strerror or error}.") from error
