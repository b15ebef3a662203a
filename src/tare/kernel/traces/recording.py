"""A trace as it lies on disk, whoever recorded it: pages by core, formats of its events, names and roles of tasks.

Decoded events as tables that people can read: words for codes, one name across kernels, and whose each row was.

What differs between kernels ends here: `writeback_dirty_page` (until 5.17) and `writeback_dirty_folio` are one table,
a bdi's name becomes a device number, `ino` is `inode`, a reason is its word in that kernel.

System calls become one table of their own: how many, how long, how many failed, by role and over time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tare.base.errors import TareError
from tare.kernel.traces.decode import Columns, Events, Source, coded, pieces, words_of
from tare.kernel.traces.formats import EventFormat, PageLayout, parse_event, parse_header_page
from tare.kernel.traces.roles import HOST, Roles, Snapshot
from tare.kernel.traces.writeback import PageWrites

_ID = re.compile(r"^ID:\s*(\d+)", re.MULTILINE)
META, HEADER, FORMATS = "trace.json", "header_page", "formats"

Ints: TypeAlias = npt.NDArray[np.int64]
RoleOf: TypeAlias = Callable[[Ints, Ints], npt.NDArray[Any]]  # tids and times -> roles


class Formats(Mapping[int, EventFormat]):
    """Events by their number; a format is parsed when it is first asked for: a kernel has two thousand."""

    def __init__(self, texts: Mapping[tuple[str, str], str]) -> None:
        self._texts: dict[int, tuple[str, str]] = {}
        for (system, _), text in texts.items():
            if number := _ID.search(text):
                self._texts[int(number[1])] = (system, text)
        self._parsed: dict[int, EventFormat] = {}

    def __getitem__(self, number: int) -> EventFormat:
        if number not in self._parsed:
            system, text = self._texts[number]
            self._parsed[number] = parse_event(text, system)
        return self._parsed[number]

    def __contains__(self, number: object) -> bool:
        return number in self._texts

    def __iter__(self) -> Iterator[int]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


@dataclass(frozen=True)
class Recording:
    """What is needed to decode a trace."""

    layout: PageLayout
    formats: Mapping[int, EventFormat]
    sources: tuple[Source, ...]
    clock: str = "mono"
    roles: Snapshot = field(default_factory=Snapshot)
    comms: Mapping[int, str] = field(default_factory=dict)  # names of tasks, as last known
    page_bytes: int = 4096  # of memory, not of the ring buffer
    lost: Mapping[int, int] = field(default_factory=dict)  # core -> events that the kernel says were overwritten
    notes: tuple[str, ...] = ()


def write_meta(folder: Path, content: Mapping[str, Any]) -> None:
    """Replace what is known of the recording as a whole, in one step."""
    fresh = folder / f"{META}.new"
    fresh.write_text(json.dumps(content))
    fresh.replace(folder / META)


def write_formats(folder: Path, header_page: str, texts: Mapping[tuple[str, str], str]) -> None:
    """Keep the kernel's descriptions beside the pages: another kernel's would not fit them."""
    (folder / HEADER).write_text(header_page)
    for (system, name), text in texts.items():
        path = folder / FORMATS / system / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names_of_tasks(lines: Iterable[str]) -> dict[int, str]:
    """As the kernel's `saved_cmdlines` has them: a number and a name in each line."""
    pairs = (line.split(maxsplit=1) for line in lines)
    return {int(pair[0]): pair[1] for pair in pairs if len(pair) == 2 and pair[0].isdigit()}


def open_folder(folder: Path) -> Recording:
    """The raw files that the `ftrace` probe left; one that was cut off has pages, and perhaps no last words."""
    try:
        header = (folder / HEADER).read_text()
        texts = {(path.parent.name, path.name): path.read_text() for path in sorted((folder / FORMATS).glob("*/*"))}
    except OSError as error:
        raise TareError(f"{folder} holds no recorded trace: {error}.") from error
    meta = json.loads((folder / META).read_text()) if (folder / META).exists() else {}
    sources = sorted(Source(int(path.stem.removeprefix("cpu")), path) for path in folder.glob("cpu*.raw"))
    return Recording(
        layout=parse_header_page(header, meta.get("subbuffer_bytes")),
        formats=Formats(texts),
        sources=tuple(sources),
        clock=meta.get("clock", "mono"),
        roles=Snapshot.from_json(meta.get("roles", {})),
        comms={int(pid): name for pid, name in meta.get("comms", {}).items()},
        page_bytes=meta.get("page_bytes", 4096),
        lost={int(cpu): count for cpu, count in meta.get("lost", {}).items()},
        notes=tuple(meta.get("notes", ())),
    )


ABOUT_TASKS = ("sched_process_fork", "cgroup_attach_task", "task_rename")
_ONE_NAME = {"writeback_dirty_page": "writeback_dirty_folio"}
_RENAMED = {"ino": "inode", "index": "page", "name": "bdi"}
_OF_DISKS = ("writeback_", "wbc_", "block_")
_NUMBERS = re.compile(r"(\d+):(\d+)")


class Chunk(NamedTuple):
    """Some rows of one table."""

    name: str
    columns: Columns


def tables(recording: Recording, without: Collection[str] = ()) -> Iterator[Chunk]:
    """Every event of a recording, and each page that was written (`page_writes`), in pieces of bounded size."""
    known = {pid for pid, _, _ in recording.roles.tasks}
    others = [(pid, name, HOST) for pid, name in recording.comms.items() if pid not in known]  # known by name alone
    roles = Roles(replace(recording.roles, tasks=(*recording.roles.tasks, *others)))
    writes = PageWrites(recording.page_bytes)
    for piece in pieces(recording.sources, recording.layout, recording.formats):
        roles.learn({events.format.name: events.columns for events in piece})
        found = {chunk.name: chunk for chunk in (labelled(events, roles) for events in piece)}
        yield from (chunk for name, chunk in found.items() if name not in without)
        written = writes.piece({name: chunk.columns for name, chunk in found.items()})
        yield from (Chunk("page_writes", columns) for columns in written)
        roles.forget_before(max(int(events.columns["t_ns"][-1]) for events in piece))


def labelled(events: Events, roles: Roles) -> Chunk:
    """The rows of one event, with the name and the role of the task that was running."""
    name = events.format.name
    columns = {key: column for key, column in events.columns.items() if not key.startswith("args_")}
    if name.startswith(_OF_DISKS):
        columns = of_disks(columns)
    if "reason" in columns:
        words = events.format.symbols.get("reason", {})
        different, which = np.unique(columns["reason"], return_inverse=True)
        columns["reason"] = np.array([words.get(code, str(code)) for code in different.tolist()], dtype=object)[which]
    for key, column in columns.items():
        if column.dtype.kind == "S":
            columns[key] = words_of(column)
    if "pid" in columns:
        columns["comm"] = roles.comms(columns["pid"], columns["t_ns"])
        columns["role"] = roles.of(columns["pid"], columns["t_ns"])
    return Chunk(_ONE_NAME.get(name, name), columns)


def of_disks(columns: Columns) -> Columns:
    """Columns of a write-back or block event under their common names, with the number of the device."""
    named = {_RENAMED.get(key, key): column for key, column in columns.items()}
    if "bdi" in named and "dev" not in named:
        words, codes = coded(named["bdi"])
        named["dev"] = np.array([bdi_number(word) for word in words], np.int64)[codes]
    return {
        key: column.astype(np.int64) if key in ("dev", "inode", "page") else column for key, column in named.items()
    }


def bdi_number(bdi: str) -> int:
    """`254:0` as the kernel's events number devices, the minor in 20 bits; 0, which no device has, for another name."""
    found = _NUMBERS.fullmatch(bdi)
    return int(found[1]) << 20 | int(found[2]) if found else 0


# System calls, counted from their entries and exits. A call is counted when it is entered, in the bin of that moment.
# Its time is known once it has returned: exit_group never does, and a call that still waits when the trace ends has
# none either.
#
# `syscall_numbers/<machine>.txt` was made from asm/unistd.h of linux-libc-dev 6.1 (arm64, amd64, armhf; `gcc -E -dM`);
# calls from 451 on came later and have one number everywhere. A file is called as `uname -m` says.

_SAME = {"arm64": "aarch64", "amd64": "x86_64", "armv8l": "armv7l", "armv6l": "armv7l"}
_LAST_ERROR = -4095  # what the kernel returns for an error is between this and -1
_ENTER, _EXIT = 0, 1
_KEPT_NS = 10_000_000_000  # a task's past is kept this long, for calls that take long to return


@cache
def call_names(machine: str) -> dict[int, str]:
    """Number to name on this architecture; empty for one that has no list here."""
    try:
        text = (files("tare.kernel.traces") / "syscall_numbers" / f"{_SAME.get(machine, machine)}.txt").read_text()
    except FileNotFoundError:
        return {}
    pairs = (line.split() for line in text.splitlines())
    return {int(number): name for number, name in pairs}


def call_name(machine: str, number: int) -> str:
    """A number that is not in the list is shown as a number."""
    return call_names(machine).get(number, f"#{number}")


def call_number(machine: str, called: str) -> int | None:
    """None where the list does not have it."""
    return next((number for number, name in call_names(machine).items() if name == called), None)


class Calls(NamedTuple):
    """Calls in no particular order; `seconds` is NaN and `failed` false where the end is not known."""

    t_ns: Ints
    tid: Ints
    number: Ints
    seconds: npt.NDArray[np.float64]
    failed: npt.NDArray[np.bool_]


class Pairing:
    """Puts exits to their entries, a piece of the trace after another; who has not returned waits."""

    def __init__(self) -> None:
        self._waiting = _Edges.none()

    def add(self, enter: Mapping[str, Any] | None, leave: Mapping[str, Any] | None) -> Calls:
        """Calls that are complete with this piece."""
        edges = _Edges.joined([self._waiting, _Edges.of(enter, _ENTER, "id"), _Edges.of(leave, _EXIT, "ret")])
        edges = edges.take(np.lexsort((edges.kind, edges.t_ns, edges.tid)))
        enters = edges.kind == _ENTER
        following = np.append(edges.tid[1:] == edges.tid[:-1], False)  # the same task has one more edge after it
        returned = enters & following & np.append(edges.kind[1:] == _EXIT, False)
        self._waiting = edges.take(np.flatnonzero(enters & ~following))
        # An entry behind which another entry comes has lost its exit; it is counted anyway.
        alone = enters & following & ~returned
        return _calls(edges, np.flatnonzero(returned), np.flatnonzero(alone))

    def rest(self) -> Calls:
        """Those that never returned."""
        waiting, self._waiting = self._waiting, _Edges.none()
        return _calls(waiting, np.empty(0, np.int64), np.arange(len(waiting.t_ns)))


class _Edges(NamedTuple):
    t_ns: Ints
    tid: Ints
    kind: Ints
    value: Ints  # the call's number, or what it returned

    @classmethod
    def none(cls) -> _Edges:
        return cls(*(np.empty(0, np.int64) for _ in range(4)))

    @classmethod
    def of(cls, columns: Mapping[str, Any] | None, kind: int, value: str) -> _Edges:
        if columns is None:
            return cls.none()
        t_ns, tid, values = (np.asarray(columns[key]).astype(np.int64) for key in ("t_ns", "pid", value))
        return cls(t_ns, tid, np.full(len(t_ns), kind, np.int64), values)

    @classmethod
    def joined(cls, parts: list[_Edges]) -> _Edges:
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def take(self, rows: Ints) -> _Edges:
        return _Edges(*(column[rows] for column in self))


def _calls(edges: _Edges, returned: Ints, alone: Ints) -> Calls:
    rows = np.concatenate([returned, alone])
    seconds = np.full(len(rows), np.nan)
    failed = np.zeros(len(rows), bool)
    done = len(returned)
    seconds[:done] = (edges.t_ns[returned + 1] - edges.t_ns[returned]) / 1e9
    results = edges.value[returned + 1] if done else np.empty(0, np.int64)
    failed[:done] = (results < 0) & (results >= _LAST_ERROR)
    return Calls(edges.t_ns[rows], edges.tid[rows], edges.value[rows], seconds, failed)


class Tally:
    """Calls summed up by bin, role and number; its size depends on how many of these there are, not on the calls."""

    def __init__(self, bin_ns: int) -> None:
        self._bin_ns = bin_ns
        self._sums: dict[tuple[int, str, int], list[float]] = {}  # -> count, total_s, max_s, errors

    def add(self, calls: Calls, role_of: RoleOf) -> None:
        if not len(calls.t_ns):
            return
        roles, which = np.unique(role_of(calls.tid, calls.t_ns).astype(str), return_inverse=True)
        keys = np.stack([calls.t_ns // self._bin_ns, which.astype(np.int64), calls.number])
        found, place = np.unique(keys, axis=1, return_inverse=True)
        place, rows = place.ravel(), found.shape[1]
        seconds = np.nan_to_num(calls.seconds)
        longest = np.zeros(rows)
        np.maximum.at(longest, place, seconds)
        counts = np.bincount(place, minlength=rows)
        totals = np.bincount(place, weights=seconds, minlength=rows)
        errors = np.bincount(place, weights=calls.failed, minlength=rows)
        for row, (begin, role, number) in enumerate(found.T.tolist()):
            sums = self._sums.setdefault((begin, str(roles[role]), number), [0, 0.0, 0.0, 0])
            sums[0] += int(counts[row])
            sums[1] += float(totals[row])
            sums[2] = max(sums[2], float(longest[row]))
            sums[3] += int(errors[row])

    def columns(self, machine: str) -> dict[str, Any]:
        """The `syscalls` table."""
        ordered = sorted(self._sums.items())
        return {
            "t_ns": np.array([key[0] * self._bin_ns for key, _ in ordered], np.int64),
            "role": [key[1] for key, _ in ordered],
            "name": [call_name(machine, key[2]) for key, _ in ordered],
            "count": np.array([sums[0] for _, sums in ordered], np.int64),
            "total_s": np.array([sums[1] for _, sums in ordered], np.float64),
            "max_s": np.array([sums[2] for _, sums in ordered], np.float64),
            "errors": np.array([sums[3] for _, sums in ordered], np.int64),
        }


def syscall_columns(recording: Recording, machine: str, bin_ns: int) -> dict[str, Any]:
    """Calls by bin, role and name; memory is bounded by a piece of the trace and by the size of the table."""
    roles, pairing, tally = Roles(recording.roles), Pairing(), Tally(bin_ns)
    for piece in pieces(recording.sources, recording.layout, recording.formats):
        events = {one.format.name: one.columns for one in piece}
        roles.learn(events)
        tally.add(pairing.add(events.get("sys_enter"), events.get("sys_exit")), roles.of)
        last_ns = max((int(columns["t_ns"][-1]) for columns in events.values()), default=0)
        roles.forget_before(last_ns - _KEPT_NS)
    tally.add(pairing.rest(), roles.of)
    return tally.columns(machine)
