"""Counters that were read at every switch between tasks: from the kernel's perf records to what each task used.

A ring file holds the records of one CPU as the kernel wrote them (perf_event_open(2), "Overlapped fields"). A sample
carries the values of a whole group; the task that it names ran since the sample before it, and the growth is its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tare.traces.formats import EventFormat

_HEADER = struct.Struct("=IHH")  # type, misc, size
_LOST, _COMM, _EXIT, _FORK, _SAMPLE = 2, 3, 4, 7, 9
_ENDS = "exit", "fork"
_WORD = struct.Struct("=Q")
_IDS = struct.Struct("=IIIIQ")  # pid, parent's pid, tid, parent's tid, time
_TRAILER_BYTES = 32  # pid, tid, time, cpu, identifier: at the end of every record that is no sample
_RAW_OFFSET = 36  # of a tracepoint's own fields in its sample: behind identifier, task, time, cpu and their size
_UNKNOWN = 0xFFFFFFFF  # the last switch of a task that has ended already has no number of its own
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
                elif kind == _LOST:
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
    ended = tid == _UNKNOWN
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
