"""Whose an event was: the workload's, a neighbour's, an engine daemon's, our own, or the rest of the host's.

A `Snapshot` is taken when the trace begins: every task, its name, and whether it is in the control group of a tenant.
From then on the trace itself says who was made by whom (`sched_process_fork`), who was put into which group
(`cgroup_attach_task`) and who took another name (`task_rename`). The rule, in this order:

1. a task that is called like an engine's daemon is `daemon`, also inside a tenant's group: runc's first steps are its;
2. one in a tenant's group, or made by such a one, has that tenant's role: `workload`, `tenant1`, ...;
3. one that descends from us is `tare`;
4. everything else is `host`, the kernel's own threads (the flusher) among it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tare.kernel.traces.decode import words_of

Ints = npt.NDArray[np.int64]


class Timeline:
    """For each key (a process, a file) a value that changes now and then; small whole numbers, -1 for none."""

    def __init__(self) -> None:
        self._added: list[tuple[Ints, Ints, Ints]] = []  # keys, times, values; the first may be sorted
        self._is_sorted = True

    def add(self, keys: Sequence[int] | Ints, times: Sequence[int] | Ints, values: Sequence[int] | Ints) -> None:
        """From each time on, this key has this value; of several at one time the one that was added last."""
        if len(keys):
            self._added.append((np.asarray(keys, np.int64), np.asarray(times, np.int64), np.asarray(values, np.int64)))
            self._is_sorted = False

    def at(self, keys: npt.NDArray[np.integer], times: Ints) -> Ints:
        """The value of each key at each time; -1 where nothing is known of it yet."""
        if not self._added or not len(keys):
            return np.full(len(keys), -1, np.int64)
        known, moments, values = self._sorted()
        keys = keys.astype(np.int64, copy=False)
        first, end = np.searchsorted(known, keys), np.searchsorted(known, keys, side="right")
        low, high = first, end
        for _ in range(int((end - first).max()).bit_length()):  # by halves, all at once: the first that is later
            middle = np.minimum((low + high) >> 1, len(moments) - 1)
            is_later = (moments[middle] > times) | (low >= high)
            low, high = np.where(is_later, low, middle + 1), np.where(is_later & (low < high), middle, high)
        return np.where(low > first, values[low - 1], -1)

    def forget_before(self, t_ns: int) -> None:
        """Keep of what is past only the last value of each key, so that memory does not grow with the trace."""
        if self._added:
            keys, times, values = self._sorted()
            keep = np.append((keys[1:] != keys[:-1]) | (times[1:] > t_ns), True)
            self._added = [(keys[keep], times[keep], values[keep])]

    def _sorted(self) -> tuple[Ints, Ints, Ints]:
        """By key, then by time, then as they were added."""
        if not self._is_sorted:
            keys, times, values = (np.concatenate(parts) for parts in zip(*self._added, strict=True))
            order = np.argsort(times, kind="stable")
            small = keys.astype(np.uint16) if keys.min() >= 0 and keys.max() < 1 << 16 else keys  # sorted much faster
            order = order[np.argsort(small[order], kind="stable")]
            self._added, self._is_sorted = [(keys[order], times[order], values[order])], True
        return self._added[0]


WORKLOAD, DAEMON, TARE, HOST = "workload", "daemon", "tare", "host"
_DAEMONS = (
    "dockerd", "docker-init", "docker-proxy", "containerd", "runc", "crun", "conmon", "podman", "qemu", "virtiofsd",
    "vhost-", "firecracker", "jailer", "buildkitd", "netavark", "slirp4netns", "pasta", "fuse-overlayfs", "apptainer",
    "appinit", "squashfuse", "ctr", "systemd-nspawn", "(sd-", "lxc-",
)  # fmt: skip


def tenant_role(index: int) -> str:
    """The measured workload is the first tenant; its neighbours have numbers."""
    return WORKLOAD if index == 0 else f"tenant{index}"


def is_daemon(comm: str) -> bool:
    """Whether a task is called like a part of a container engine or a machine monitor."""
    return comm.startswith(_DAEMONS)


@dataclass(frozen=True)
class Snapshot:
    """Who was there when the trace began, and which groups are whose. Plain data: it lies beside the raw pages."""

    tasks: Sequence[tuple[int, str, str]] = ()  # thread, its name, its role (`host` where nothing else is known)
    groups: Sequence[tuple[str, str]] = ()  # path in its hierarchy, the role of what is in it
    makers: Sequence[tuple[int, str]] = ()  # who has no group: what this process starts has this role
    sightings: Sequence[tuple[int, int, str]] = ()  # time, thread, role: seen in a tenant's group later on

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Snapshot:
        return cls(**{name: tuple(map(tuple, plain.get(name, ()))) for name in cls.__dataclass_fields__})


class Roles:
    """The roles and names of all tasks over time, learnt from a snapshot and then piece by piece from the trace."""

    def __init__(self, start: Snapshot) -> None:
        self._groups = sorted(start.groups, key=lambda group: -len(group[0]))  # the innermost first
        self._makers = dict(start.makers)
        self._made: set[int] = set()  # by a maker, and not yet another program
        self._seen: dict[int, list[tuple[int, str]]] = {}
        for t_ns, pid, role in sorted(start.sightings):
            self._seen.setdefault(pid, []).append((t_ns, role))
        self._base: dict[int, str] = {}
        self._comm: dict[int, str] = {}
        self._words: list[str] = [HOST, DAEMON, TARE, WORKLOAD]
        self._codes = {word: code for code, word in enumerate(self._words)}
        self._names: list[str] = []
        self._name_codes: dict[str, int] = {}
        self._role_line, self._name_line = Timeline(), Timeline()
        self._begin(start.tasks)

    def learn(self, events: Mapping[str, Mapping[str, npt.NDArray[Any]]]) -> None:
        """What a piece of the trace says of tasks; columns as they are decoded, by the name of the event."""
        changes: list[tuple[int, int, int, str, str]] = []  # time, order of kinds, task, other task or path, name
        for t_ns, parent, child, name in _rows(
            events.get("sched_process_fork"), "parent_pid", "child_pid", "child_comm"
        ):
            changes.append((t_ns, 0, child, str(parent), name))
        for t_ns, pid, path in _rows(events.get("cgroup_attach_task"), "event_pid", "dst_path"):
            changes.append((t_ns, 1, pid, path, ""))
        for t_ns, pid, name in _rows(_renames(events.get("task_rename")), "event_pid", "newcomm"):
            changes.append((t_ns, 2, pid, "", name))
        self._note(
            [self._as_now(t_ns, pid) for t_ns, kind, pid, other, name in sorted(changes)
             if self._apply(t_ns, kind, pid, other, name)]
        )  # fmt: skip

    def of(self, pid: npt.NDArray[np.integer], t_ns: Ints) -> npt.NDArray[np.object_]:
        """The role of each of these tasks at each time."""
        codes = self._role_line.at(pid, t_ns)
        return np.array([*self._words, HOST], dtype=object)[codes]  # -1: nobody has seen it begin

    def comms(self, pid: npt.NDArray[np.integer], t_ns: Ints) -> npt.NDArray[np.object_]:
        """The name of each of these tasks at each time; empty where it is not known."""
        codes = self._name_line.at(pid, t_ns)
        return np.array([*self._names, ""], dtype=object)[codes]

    def forget_before(self, t_ns: int) -> None:
        """Nobody will ask about times before this one any more."""
        self._role_line.forget_before(t_ns)
        self._name_line.forget_before(t_ns)

    def _begin(self, tasks: Iterable[tuple[int, str, str]]) -> None:
        for pid, name, role in tasks:
            self._base[pid], self._comm[pid] = role, name
        for pid, seen in self._seen.items():  # of these nothing else may be known
            self._base.setdefault(pid, seen[0][1])
        self._note([self._as_now(0, pid) for pid in self._base])

    def _apply(self, t_ns: int, kind: int, pid: int, other: str, name: str) -> bool:
        """Change what is known of a task; whether anything was."""
        return (self._forked, self._attached, self._renamed)[kind](t_ns, pid, other, name)

    def _forked(self, t_ns: int, pid: int, parent: str, name: str) -> bool:
        later = next((role for seen_ns, role in self._seen.get(pid, ()) if seen_ns >= t_ns), None)
        self._base[pid] = later or self._base.get(int(parent), HOST)
        self._comm[pid] = name
        if int(parent) in self._makers:
            self._made.add(pid)
            self._makers[pid] = self._makers[int(parent)]
        return True

    def _attached(self, _t_ns: int, pid: int, path: str, _name: str) -> bool:
        role = next((role for group, role in self._groups if path == group or path.startswith(f"{group}/")), None)
        if role is not None:
            self._base[pid] = role
        return role is not None

    def _renamed(self, _t_ns: int, pid: int, _other: str, name: str) -> bool:
        self._comm[pid] = name
        if pid in self._made:  # it is another program now, and not a thread of the one that made it
            self._made.discard(pid)
            self._base[pid] = self._makers.pop(pid)
        return True

    def _as_now(self, t_ns: int, pid: int) -> tuple[int, int, int, int]:
        """How a task is from this time on: several changes in one piece are each noted as they are made."""
        return t_ns, pid, self._role_code(pid), self._name_code(pid)

    def _note(self, entries: Sequence[tuple[int, int, int, int]]) -> None:
        if entries:
            times, pids, roles, names = map(list, zip(*entries, strict=True))
            self._role_line.add(pids, times, roles)
            self._name_line.add(pids, times, names)

    def _role_code(self, pid: int) -> int:
        role = DAEMON if is_daemon(self._comm.get(pid, "")) else self._base.get(pid, HOST)
        if role not in self._codes:
            self._codes[role] = len(self._words)
            self._words.append(role)
        return self._codes[role]

    def _name_code(self, pid: int) -> int:
        name = self._comm.get(pid, "")
        if name not in self._name_codes:
            self._name_codes[name] = len(self._names)
            self._names.append(name)
        return self._name_codes[name]


def _renames(columns: Mapping[str, npt.NDArray[Any]] | None) -> Mapping[str, npt.NDArray[Any]] | None:
    """Some kernels leave out who took another name: then it was the task itself, as it is at every exec."""
    if columns is None or "event_pid" in columns:
        return columns
    return {**columns, "event_pid": columns["pid"]}


def _rows(columns: Mapping[str, npt.NDArray[Any]] | None, *names: str) -> Iterable[tuple[Any, ...]]:
    """The rows of some columns as plain values; nothing where the kernel has no such event."""
    if columns is None or any(name not in columns for name in names):
        return ()
    plain = [words_of(columns[name]) if columns[name].dtype.kind in "SO" else columns[name] for name in names]
    return zip(columns["t_ns"].tolist(), *(column.tolist() for column in plain), strict=True)
