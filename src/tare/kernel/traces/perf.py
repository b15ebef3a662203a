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
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tare.kernel.traces.formats import EventFormat, parse_event
from tare.kernel.traces.roles import Roles, Snapshot

# Counters that were read at every switch between tasks: from the kernel's perf records to what each task used.
#
# A ring file holds the records of one CPU as the kernel wrote them (perf_event_open(2), "Overlapped fields"). A sample
# carries the values of a whole group; the task that it names ran since the sample before it, and the growth is its own.

_HEADER = struct.Struct("=IHH")  # type, misc, size
_LOST_RECORD, _COMM, _EXIT, _FORK, _SAMPLE = 2, 3, 4, 7, 9
_ENDS = "exit", "fork"
_WORD = struct.Struct("=Q")
_IDS = struct.Struct("=IIIIQ")  # pid, parent's pid, tid, parent's tid, time
_TRAILER_BYTES = 32  # pid, tid, time, cpu, identifier: at the end of every record that is no sample
_RAW_OFFSET = 36  # of a tracepoint's own fields in its sample: behind identifier, task, time, cpu and their size
_NO_TASK = 0xFFFFFFFF  # the last switch of a task that has ended already has no number of its own
_CHUNK_BYTES = 32 << 20

Numbers = npt.NDArray[np.int64]


class Group(NamedTuple):
    """Events that were counted together: the samples of these ids have their values, in this order."""

    ids: tuple[int, ...]
    events: tuple[str, ...]


class Task(NamedTuple):
    """What the kernel told about a process in passing: it was forked, it became another program, it ended."""

    t_ns: int
    kind: str  # fork, exec, comm, exit, attach
    pid: int
    tid: int
    parent: int = 0  # a thread
    word: str = ""  # its new name, or the group that it joined


class WholeEvents(NamedTuple):
    """A tracepoint whose events lie whole in the rings: `cgroup_attach_task`, which says who joins which group."""

    ids: frozenset[int]
    format: EventFormat


class Slices(NamedTuple):
    """Stretches of time on one CPU, each with the task that ran and what its group counted meanwhile."""

    t_ns: Numbers  # their ends
    pid: Numbers
    tid: Numbers
    enabled_ns: Numbers
    running_ns: Numbers  # less than enabled where counters took turns
    counts: Mapping[str, Numbers]


class Ring:
    """The records of one CPU. It is walked in pieces, so that its length does not matter."""

    def __init__(self, path: Path, groups: Sequence[Group], reported: WholeEvents | None = None) -> None:
        self._path, self._groups, self._told = path, groups, reported
        self.lost = 0  # known once all slices were taken

    def tasks(self) -> Iterator[Task]:
        """Forks, new programs and ends."""
        for data, records in self._pieces():
            for kind, misc, at, size in records:
                if kind in (_FORK, _EXIT):
                    pid, _, tid, parent, t_ns = _IDS.unpack_from(data, at)
                    yield Task(t_ns, _ENDS[kind == _FORK], pid, tid, parent)
                elif kind == _COMM:
                    yield _comm(data, misc, at, size)
                elif self._told and kind == _SAMPLE and _WORD.unpack_from(data, at)[0] in self._told.ids:
                    yield _attach(data, at, self._told.format)

    def slices(self) -> Iterator[Slices]:
        """What ran, group by group, in order of time."""
        before: dict[int, npt.NDArray[np.uint64]] = {}
        for data, records in self._pieces():
            sizes: dict[int, list[int]] = {}
            exits: list[tuple[int, int, int]] = [(-1, 0, 0)]
            for kind, _, at, size in records:
                if kind == _SAMPLE:
                    sizes.setdefault(size, []).append(at)
                elif kind == _EXIT:
                    pid, _, tid, _, _ = _IDS.unpack_from(data, at)
                    exits.append((at, pid, tid))
                elif kind == _LOST_RECORD:
                    self.lost += struct.unpack_from("=Q", data, at + 8)[0]
            for size, offsets in sizes.items():
                yield from self._of_size(data, np.array(offsets), size, np.array(exits, np.int64), before)

    def _of_size(
        self,
        data: bytes,
        offsets: Numbers,
        size: int,
        exits: Numbers,
        before: dict[int, npt.NDArray[np.uint64]],
    ) -> Iterator[Slices]:
        """Samples of one length: of one group, or of several with equally many events."""
        words = (size - _HEADER.size) // 8
        raw = np.frombuffer(data, np.uint8)
        body = raw[offsets[:, None] + np.arange(words * 8)].view(np.uint64).reshape(len(offsets), words)
        for number, group in enumerate(self._groups):
            mine = np.isin(body[:, 0], np.array(group.ids, np.uint64))
            if mine.any():
                yield _slices(body[mine], offsets[mine], exits, group, before, number)

    def _pieces(self) -> Iterator[tuple[bytes, list[tuple[int, int, int, int]]]]:
        """Some whole records at a time: their bytes, and kind, misc, place of the body and size of each."""
        rest = b""
        with self._path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                data = rest + chunk
                records, end = _records(data)
                yield data, records
                rest = data[end:]


def _records(data: bytes) -> tuple[list[tuple[int, int, int, int]], int]:
    found, at, unpack, last = [], 0, _HEADER.unpack_from, len(data)
    while at + 8 <= last:
        kind, misc, size = unpack(data, at)
        if size < 8:
            raise ValueError(f"a record of {size} bytes cannot be: the file is damaged")
        if at + size > last:
            break
        found.append((kind, misc, at + 8, size))
        at += size
    return found, at


def _comm(data: bytes, misc: int, at: int, size: int) -> Task:
    pid, tid = struct.unpack_from("=II", data, at)
    text = data[at + 8 : at - 8 + size - _TRAILER_BYTES].split(b"\0", 1)[0]
    t_ns = struct.unpack_from("=Q", data, at - 8 + size - _TRAILER_BYTES + 8)[0]
    return Task(t_ns, "exec" if misc & 0x2000 else "comm", pid, tid, word=text.decode("utf-8", "replace"))


def _attach(data: bytes, at: int, event: EventFormat) -> Task:
    """One `cgroup_attach_task`: who was moved, and to which path of its hierarchy."""
    places = {field.name: field for field in event.own}
    t_ns = _WORD.unpack_from(data, at + 16)[0]
    own = at + _RAW_OFFSET
    tid = struct.unpack_from("=i", data, own + places["pid"].offset)[0]
    where = struct.unpack_from("=I", data, own + places["dst_path"].offset)[0]
    begin, length = own + (where & 0xFFFF), where >> 16
    path = data[begin : begin + length].split(b"\0", 1)[0].decode("utf-8", "replace")
    return Task(t_ns, "attach", tid, tid, word=path)


def _slices(
    body: npt.NDArray[np.uint64],
    offsets: Numbers,
    exits: Numbers,
    group: Group,
    before: dict[int, npt.NDArray[np.uint64]],
    number: int,
) -> Slices:
    counted = body[:, 5:]  # enabled, running, then one value an event
    first = before.get(number, np.zeros(counted.shape[1], np.uint64))
    grown = np.diff(counted, axis=0, prepend=first[None, :]).astype(np.int64)
    before[number] = counted[-1].copy()
    task = body[:, 1]
    pid, tid = (task & 0xFFFFFFFF).astype(np.int64), (task >> np.uint64(32)).astype(np.int64)
    ended = tid == _NO_TASK
    if ended.any():
        last = exits[np.searchsorted(exits[:, 0], offsets[ended]) - 1]
        pid[ended], tid[ended] = last[:, 1], last[:, 2]
    counts = {name: grown[:, 2 + place] for place, name in enumerate(group.events) if name}
    return Slices(body[:, 2].astype(np.int64), pid, tid, grown[:, 0], grown[:, 1], counts)


def binned(slices: Slices, roles: npt.NDArray[Any], bin_ns: int) -> dict[str, Any]:
    """Sums by stretch of time, role and event, as columns of the `counters` table."""
    names, which = np.unique(roles.astype(str), return_inverse=True)
    begins = slices.t_ns // bin_ns
    keys, place = np.unique(np.stack([begins, which.astype(np.int64)]), axis=1, return_inverse=True)
    place = place.ravel()
    rows, events = keys.shape[1], list(slices.counts)
    totals = {
        name: np.bincount(place, weights=values, minlength=rows)
        for name, values in {
            **slices.counts,
            "enabled": slices.enabled_ns,
            "running": slices.running_ns,
        }.items()
    }
    return {
        "t_ns": np.tile(keys[0] * bin_ns, len(events)),
        "role": np.tile(names[keys[1]].astype(object), len(events)),
        "event": np.repeat(np.array(events, dtype=object), rows),
        "count": np.concatenate([totals[name] for name in events]).round().astype(np.int64),
        "time_enabled": np.tile(totals["enabled"] / 1e9, len(events)),
        "time_running": np.tile(totals["running"] / 1e9, len(events)),
    }


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
        if line[:1] in "\t " and head is not None:
            address, _, rest = line.strip().partition(" ")
            name, file = _name_and_file(rest)
            if name and file:
                frames.append(Frame(f"0x{address}" if name == _UNKNOWN else name, file))
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


def _name_and_file(text: str) -> tuple[str, str]:
    """`f(int) (/lib/x.so)` as its two parts; a file that is gone is `(/lib/x.so (deleted))`."""
    name, _, file = text.replace(_DELETED, ")").rpartition(" (")
    return (name, file[:-1]) if file.endswith(")") else ("", "")


def _sample(head: re.Match[str], frames: list[Frame]) -> Sample:
    comm, pid, tid, cpu, seconds, fraction, event, address, mapped = head.groups()
    _, mapping = _name_and_file(f" {mapped}")
    if len(frames) > 1 and frames[0] == frames[1]:  # a tracepoint's stack begins with the function itself, twice
        frames = frames[1:]
    return Sample(
        t_ns=int(seconds) * 1_000_000_000 + int(fraction.ljust(9, "0")[:9]),
        cpu=int(cpu),
        pid=int(pid),
        tid=int(tid),
        comm=comm,
        event=event_name(event),
        address=int(address, 16),
        mapping="" if mapping == _UNKNOWN else mapping,
        stack=tuple(frames),
    )


def event_name(text: str) -> str:
    """`page-faults/period=1,max-stack=8/` as `page-faults`."""
    named = _NAMED.search(text)
    return named[1] if named else text.partition("/")[0]


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


# Why a page had to be brought in: page faults told apart by what lies at the address and by who touched it.
#
# In this order, for one fault can be called by several names:
#
#     shared library   the address is in a mapping of a shared library: its code, or data that is relocated
#     page cache       the address is in a mapping of another file: the program itself, data that is mapped
#     stack            the first touch of a piece of the main thread's stack
#     copy             the instruction is in memcpy or its kin, or in the kernel's copy to or from the program
#     allocator        the instruction is in malloc, mmap, brk or a collector's own memory, or was called from there
#     heap             any other first touch of memory without a file: what was allocated is used
#     other            nothing of this is known


SHARED_LIBRARY, PAGE_CACHE, STACK, COPY = "shared library", "page cache", "stack", "copy"
ALLOCATOR, HEAP, OTHER = "allocator", "heap", "other"
CAUSES = (SHARED_LIBRARY, ALLOCATOR, COPY, PAGE_CACHE, HEAP, STACK, OTHER)

_LIBRARY = re.compile(r"(\.so(\.[\w.+-]+)?|/ld-[\w.-]+)$")
_COPY = re.compile(
    r"^_*(arch_|asm_|generic_|raw_)*(mem(cpy|move|pcpy)|copy_(to|from|in)_|copy_user|rep_movs|str(n)?cpy|bcopy)"
    r"|copy_(to|from)_user|copy_page_(to|from)_iter|copy_folio|runtime\.memmove$"
)
_ALLOCATOR = re.compile(
    r"(^|[_:.])(malloc|calloc|realloc|free|memalign|aligned_alloc)(\b|_|$|@)"
    r"|^_*(libc_)?(s?brk|mmap|mremap|munmap|madvise)(64)?($|@)"
    r"|^_?_?(int_malloc|int_free|libc_malloc|sysmalloc|systrim|malloc_consolidate|arena_)"
    r"|^(je_|mi_|tc_)|tcmalloc|jemalloc|^operator new|_Zn[aw]|PyObject_(Malloc|Calloc|Realloc)|pymalloc|PyMem_"
    r"|[Aa]lloc(ate|ator)?\b|alloc_cpu|runtime\.(mallocgc|\(\*m(heap|cache|central)\)|persistentalloc|sysMap)"
    r"|\(\*spanSet\)|memclrNoHeapPointers|runtime\.getempty|^getempty$"
)
_ANONYMOUS = ("[heap]", "//anon", "[anon", "/dev/zero")
_NEAR = 4  # so many functions above the instruction are looked at for an allocator


def is_library(mapping: str) -> bool:
    return _LIBRARY.search(mapping) is not None


@lru_cache(maxsize=65536)
def cause_of(mapping: str, functions: tuple[str, ...]) -> str:
    """One fault: what lies at the address, and the functions that led there, innermost first."""
    if is_library(mapping):
        return SHARED_LIBRARY
    if mapping.startswith("[stack"):
        return STACK
    if mapping.startswith("/") and not mapping.startswith(_ANONYMOUS):
        return PAGE_CACHE
    if functions and _COPY.search(functions[0]):
        return COPY
    if any(_ALLOCATOR.search(function) for function in functions[:_NEAR]):
        return ALLOCATOR
    return HEAP if mapping.startswith(_ANONYMOUS) else OTHER


def top_share(labels: npt.NDArray[np.object_] | Sequence[str], most: int = 10) -> float | None:
    """The share of the `most` commonest labels among all; None where there is none."""
    if not len(labels):
        return None
    counts = Counter(map(str, np.asarray(labels).tolist()))  # to sort texts would take ten times as long
    return sum(count for _, count in counts.most_common(most)) / counts.total()


Named: TypeAlias = tuple[str, dict[str, Any]]

BIN_NS = 100_000_000
FAULTS = "page-faults"
IDLE = "idle"  # a core on which nothing ran
_ROWS_AT_ONCE = 50_000


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
