"""What `perf script` prints, read as a stream: one sample at a time, so that the length of the text does not matter.

    python3 11/12 [001] 23871.418154762: page-faults/period=1/:  aaaadd480638 [unknown] (//anon)
            1ffd94 memcpy (/usr/lib/libc.so.6)
             5a7b4 [unknown] (/usr/bin/python3)

(`-F comm,pid,tid,cpu,time,event,addr,ip,sym,dso --ns --show-lost-events`)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

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
