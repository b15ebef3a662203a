"""The tables of the `perf` probe, from what it kept: rings of counters, and samples with call stacks.

What `perf script` prints, read as a stream: one sample at a time, so that the length of the text does not matter.

    python3 11/12 [001] 23871.418154762: page-faults/period=1/:  aaaadd480638 [unknown] (//anon)
            1ffd94 memcpy (/usr/lib/libc.so.6)
             5a7b4 [unknown] (/usr/bin/python3)

(`-F comm,pid,tid,cpu,time,event,addr,ip,sym,dso --ns --show-lost-events`)
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tare.traces.faults import cause_of
from tare.traces.formats import parse_event
from tare.traces.roles import Roles, Snapshot
from tare.traces.switches import Group, Ring, Slices, Task, WholeEvents, binned

_HEAD = re.compile(r"^\s*(.*?)\s+(-?\d+)/(-?\d+)\s+\[(\d+)\]\s+(\d+)\.(\d+):\s+(\S.*?):\s+([0-9a-f]+)\b\s*(.*)$")
_LOST = re.compile(r"PERF_RECORD_LOST(?:_SAMPLES)?\b.*?\blost\s+(\d+)")
_NAMED = re.compile(r"\bname=([^,/]+)")
_UNKNOWN = "[unknown]"
_DELETED = " (deleted))"


class Frame(NamedTuple):
    """One step of a call stack; a function without a name is its place in the file."""

    function: str
    file: str


class Sample(NamedTuple):
    """One event, with the stack that led to it: the innermost function first."""

    t_ns: int
    cpu: int
    pid: int
    tid: int
    comm: str
    event: str
    address: int
    mapping: str  # what lies at the address: a file, `[heap]`, `[stack]`, `//anon`; empty where it is not known
    stack: tuple[Frame, ...]


class Lost(NamedTuple):
    """So many events the kernel could not hand over."""

    events: int


def samples(lines: Iterable[str]) -> Iterator[Sample | Lost]:
    """Every sample in the text, and every note of lost ones."""
    head: re.Match[str] | None = None
    frames: list[Frame] = []
    for line in lines:
        if line[:1] in "\t " and head is not None and (frame := _frame(line)) is not None:
            frames.append(frame)
            continue
        if head is not None:
            yield _sample(head, frames)
            head, frames = None, []
        if (found := _HEAD.match(line)) is not None:
            head = found
        elif (lost := _LOST.search(line)) is not None:
            yield Lost(int(lost[1]))
    if head is not None:
        yield _sample(head, frames)


def _frame(line: str) -> Frame | None:
    address, _, rest = line.strip().partition(" ")
    name, file = _name_and_file(rest)
    return Frame(f"0x{address}" if name == _UNKNOWN else name, file) if name and file else None


def _name_and_file(text: str) -> tuple[str, str]:
    """`f(int) (/lib/x.so)` as its two parts; a file that is gone is `(/lib/x.so (deleted))`."""
    name, _, file = text.replace(_DELETED, ")").rpartition(" (")
    return (name, file[:-1]) if file.endswith(")") else ("", "")


def _sample(head: re.Match[str], frames: list[Frame]) -> Sample:
    comm, pid, tid, cpu, seconds, fraction, event, address, mapped = head.groups()
    _, mapping = _name_and_file(f" {mapped}")
    return Sample(
        t_ns=int(seconds) * 1_000_000_000 + int(fraction.ljust(9, "0")[:9]),
        cpu=int(cpu),
        pid=int(pid),
        tid=int(tid),
        comm=comm,
        event=event_name(event),
        address=int(address, 16),
        mapping="" if mapping == _UNKNOWN else mapping,
        stack=tuple(_without_echo(frames)),
    )


def event_name(text: str) -> str:
    """`page-faults/period=1,max-stack=8/` as `page-faults`."""
    named = _NAMED.search(text)
    return named[1] if named else text.partition("/")[0]


def _without_echo(frames: list[Frame]) -> list[Frame]:
    """A tracepoint's stack begins with the function itself, twice."""
    return frames[1:] if len(frames) > 1 and frames[0] == frames[1] else frames


def roles_of(start: Snapshot, tasks: Iterable[Task]) -> Roles:
    """Who is who over the whole recording."""
    roles = Roles(start)
    roles.learn(_columns(start, sorted(tasks)))
    return roles


def _columns(start: Snapshot, tasks: Iterable[Task]) -> dict[str, Mapping[str, npt.NDArray[Any]]]:
    """perf does not name a new task: until it says otherwise it is called like the one that made it."""
    names = {thread: name for thread, name, _ in start.tasks}
    forks: list[tuple[int, int, int, bytes]] = []
    renames: list[tuple[int, int, bytes]] = []
    moves: list[tuple[int, int, bytes]] = []
    for task in tasks:
        if task.kind == "fork":
            names[task.tid] = names.get(task.parent, "")
            forks.append((task.t_ns, task.parent, task.tid, names[task.tid].encode()))
        elif task.kind == "attach":
            moves.append((task.t_ns, task.tid, task.word.encode()))
        elif task.kind in ("comm", "exec"):
            names[task.tid] = task.word
            renames.append((task.t_ns, task.tid, task.word.encode()))
    return {
        "sched_process_fork": _named(forks, ("t_ns", "parent_pid", "child_pid", "child_comm")),
        "task_rename": _named(renames, ("t_ns", "event_pid", "newcomm")),
        "cgroup_attach_task": _named(moves, ("t_ns", "event_pid", "dst_path")),
    }


def _named(rows: list[Any], names: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    *numbers, words = list(zip(*rows, strict=True)) or [()] * len(names)
    return {
        **{name: np.array(column, np.int64) for name, column in zip(names, numbers, strict=False)},
        names[-1]: np.array(words, dtype=object),
    }


Named: TypeAlias = tuple[str, dict[str, Any]]

BIN_NS = 100_000_000
FAULTS = "page-faults"
IDLE = "idle"  # a core on which nothing ran
_ROWS_AT_ONCE = 50_000
_NEAR = 4  # functions of a stack that say why a page was touched


class Kept:
    """The counters' part of a recording, opened."""

    def __init__(self, folder: Path, meta_file: str) -> None:
        meta = json.loads((folder / meta_file).read_text())
        groups = [Group(tuple(one["ids"]), tuple(one["events"])) for one in meta["groups"]]
        reported = meta.get("told") or {}
        event = (
            WholeEvents(frozenset(reported["ids"]), parse_event(reported["format"])) if reported.get("format") else None
        )
        self.rings = [Ring(path, groups, event) for path in sorted(folder.glob("cpu*.ring"))]
        start = Snapshot.from_json(meta["roles"])
        tasks = [task for ring in self.rings for task in ring.tasks()]
        self.roles: Roles = roles_of(start, tasks)
        self._moments = [(0, thread) for thread, _, _ in start.tasks] + [(task.t_ns, task.tid) for task in tasks]
        self._moments += [(t_ns, thread) for t_ns, thread, _ in start.sightings]

    def threads(self, without: Iterable[str]) -> list[int]:
        """Every thread that ever had another role than these."""
        moments = np.array(sorted(set(self._moments)), np.int64).reshape(-1, 2)
        roles = self.roles.of(moments[:, 1], moments[:, 0])
        return sorted(set(moments[~np.isin(roles.astype(str), list(without)), 1].tolist()))

    def role_of(self, slices: Slices) -> np.ndarray[Any, Any]:
        roles = self.roles.of(slices.tid, slices.t_ns)
        roles[slices.tid == 0] = IDLE
        return roles


def counters(kept: Kept) -> dict[str, Any]:
    """Sums over all CPUs by bin, role and event: the `counters` table."""
    sums: dict[tuple[int, str, str], list[float]] = {}
    for ring in kept.rings:
        for slices in ring.slices():
            table = binned(slices, kept.role_of(slices), BIN_NS)
            columns = (table[name].tolist() for name in table)
            for t_ns, role, event, *values in zip(*columns, strict=True):
                known = sums.setdefault((t_ns, role, event), [0, 0.0, 0.0])
                for place, value in enumerate(values):
                    known[place] += value
    ordered = sorted(sums.items())
    return {
        "t_ns": np.array([key[0] for key, _ in ordered], np.int64),
        "role": [key[1] for key, _ in ordered],
        "event": [key[2] for key, _ in ordered],
        "count": np.array([values[0] for _, values in ordered], np.int64),
        "time_enabled": np.array([values[1] for _, values in ordered], np.float64),
        "time_running": np.array([values[2] for _, values in ordered], np.float64),
    }


def sample_tables(samples: Iterable[Sample | Lost], roles: Roles | None) -> Iterator[Named]:
    """`faults` in pieces, then `callgraphs`, then how many samples were lost."""
    faults: list[Sample] = []
    graphs: Counter[tuple[int, str, str, str]] = Counter()
    times: dict[tuple[int, str, str, str], int] = {}
    lost = 0
    for sample in samples:
        if isinstance(sample, Lost):
            lost += sample.events
        elif sample.event == FAULTS:
            faults.append(sample)
            if len(faults) >= _ROWS_AT_ONCE:
                yield "faults", _faults(faults, roles)
                faults = []
        else:
            stack = ";".join(frame.function for frame in reversed(sample.stack))
            key = (sample.tid, sample.comm, sample.event, stack)
            graphs[key] += 1
            times[key] = sample.t_ns
    if faults:
        yield "faults", _faults(faults, roles)
    if graphs:
        yield "callgraphs", _graphs(graphs, times, roles)
    if lost:
        yield "lost", {"what": ["samples"], "events": np.array([lost], np.int64)}


def _faults(samples: list[Sample], roles: Roles | None) -> dict[str, Any]:
    tids = np.array([sample.tid for sample in samples], np.int64)
    t_ns = np.array([sample.t_ns for sample in samples], np.int64)
    first = [sample.stack[0] if sample.stack else None for sample in samples]
    return {
        "t_ns": t_ns,
        "cpu": np.array([sample.cpu for sample in samples], np.int32),
        "pid": np.array([sample.pid for sample in samples], np.int64),
        "comm": [sample.comm for sample in samples],
        "role": _roles(roles, tids, t_ns),
        "file": ["" if frame is None else frame.file for frame in first],
        "function": ["" if frame is None else frame.function for frame in first],
        "cause": [
            cause_of(sample.mapping, tuple(frame.function for frame in sample.stack[:_NEAR])) for sample in samples
        ],
        "address": np.array([sample.address for sample in samples], np.uint64),
        "mapping": [sample.mapping for sample in samples],
    }


def _graphs(graphs: Counter[Any], times: dict[Any, int], roles: Roles | None) -> dict[str, Any]:
    """Stacks of one event and task, summed up; outermost function first, joined by `;`."""
    keys = list(graphs)
    found = _roles(
        roles, np.array([key[0] for key in keys], np.int64), np.array([times[key] for key in keys], np.int64)
    )
    sums: Counter[tuple[str, str, str, str]] = Counter()
    for (_, comm, event, stack), role, count in zip(keys, found, graphs.values(), strict=True):
        sums[event, role, comm, stack] += count
    ranked = sums.most_common()
    columns = [[key[place] for key, _ in ranked] for place in range(4)]
    return {
        **dict(zip(("event", "role", "comm", "stack"), columns, strict=True)),
        "count": np.array([count for _, count in ranked], np.int64),
    }


def _roles(roles: Roles | None, tids: np.ndarray[Any, Any], t_ns: np.ndarray[Any, Any]) -> list[str]:
    """The role of each; `host` for all where nobody noted who is who."""
    return ["host"] * len(tids) if roles is None else [str(role) for role in roles.of(tids, t_ns).tolist()]
