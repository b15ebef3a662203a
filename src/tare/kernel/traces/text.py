"""Traces as text, as `cat trace`, `trace_pipe` and `trace-cmd report` print them: for traces that someone else made.

Each line has a task, its number, a core, perhaps some flags, a time, an event and its words. Words like `key=value`
become columns; what the block and write-back events print otherwise is known here. A text has fewer figures than the
raw pages that it was made from, and times of microseconds only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from tare.base.errors import StudyError, damage_named
from tare.kernel.traces.decode import Columns, column_name
from tare.kernel.traces.recording import Chunk, of_disks
from tare.kernel.traces.roles import DAEMON, HOST, is_daemon
from tare.kernel.traces.writeback import USED, PageWrites

CHARACTERS_AT_ONCE = 1 << 20
_LONGEST_LINE = 1 << 23
_LINE = re.compile(
    r"(?P<comm>.+?)-(?P<pid>\d+)\s+(?:\(\s*[\d-]+\)\s+)?\[(?P<cpu>\d+)\]\s+(?:[^\s\d]\S{2,7}\s+)?"
    r"(?P<seconds>\d+)\.(?P<fraction>\d+):\s+(?:\w+:)?(?P<name>\w+):\s*(?P<text>.*)"
)
# The kernel's words, and trace-cmd's.
_LOST = re.compile(r"\s*CPU:\s*(\d+) \[(?:LOST )?(\d+)? ?EVENTS(?: DROPPED)?\]")
_PAIR = re.compile(r"\b(\w+)=(\S+)")
_BDI = re.compile(r"bdi (\S+?):? ")
_FORMS = tuple(map(re.compile, (
    r"(?P<major>\d+),(?P<minor>\d+) (?P<rwbs>[A-Z]+) (?:(?P<bytes>\d+) )?(?:\([^)]*\) )?"
    r"(?P<sector>\d+) \+ (?P<nr_sector>\d+)",
    r"(?P<major>\d+),(?P<minor>\d+) sector=(?P<sector>\d+) size=(?P<size>\d+)",
    r"NR (?P<id>-?\d+)(?: = (?P<ret>-?\d+))?",
    # Two tasks, as trace-cmd prints them.
    r"(?P<prev_comm>.+):(?P<prev_pid>\d+) \[(?P<prev_prio>-?\d+)\] (?P<prev_state>\S+) ==> "
    r"(?P<next_comm>.+):(?P<next_pid>\d+) \[(?P<next_prio>-?\d+)\]",
)))  # fmt: skip
_WHOLE = re.compile(r"-?(?:0x[0-9a-fA-F]+|\d+)")
_LONG_LINE = 1 << 16


class _Event(NamedTuple):
    t_ns: int
    cpu: int
    pid: int
    comm: str
    text: str


def text_tables(
    path: Path, page_bytes: int = 4096, at_once: int = CHARACTERS_AT_ONCE, whole: bool = True
) -> Iterator[Chunk]:
    """The tables of a text trace, in pieces of about so many characters; lines that are no events are left out.

    With `whole`, each event has its words as columns and as text; else only those have columns that page writes need.
    """
    writes = PageWrites(page_bytes)
    lost: Counter[int] = Counter()
    kinds: dict[str, dict[str, str]] = {}
    at, lines = 0, list[str]()
    with (
        _opened(path) as file,
        damage_named(path, where=lambda: f"in the {len(lines)} lines from line {at + 1} on"),
    ):
        for piece in _pieces(file, at_once):
            at, lines = at + len(lines), piece
            read = {name: _columns(name, events, whole) for name, events in _events(lines, lost).items()}
            found = {name: _alike(columns, kinds.setdefault(name, {})) for name, columns in read.items()}
            yield from (Chunk(name, columns) for name, columns in found.items())
            yield from (Chunk("page_writes", columns) for columns in writes.piece(found))
    if not kinds:
        raise StudyError(f"{path}: no line of it is an event as `cat trace` or `trace-cmd report` print one.")
    if lost:
        with damage_named(path, where=lambda: "in its numbers of lost events"):
            cpus, events = np.array(list(lost), np.int32), np.array(list(lost.values()), np.int64)
        yield Chunk("lost", {"cpu": cpus, "events": events})


def is_text_trace(path: Path, lines: int = 1000) -> bool:
    """Whether one of the first lines is an event."""
    with _opened(path) as file:
        return any(_LINE.match(file.readline(_LONG_LINE)) for _ in range(lines))


def _opened(path: Path) -> TextIO:
    return path.open(encoding="utf-8", errors="backslashreplace")


def _pieces(file: TextIO, size: int) -> Iterator[list[str]]:
    """Whole lines of about so many characters, so that a large file is never held."""
    lines, held = list[str](), 0
    while line := file.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise ValueError(f"a line of more than {_LONGEST_LINE:,} characters")
        lines.append(line)
        held += len(line)
        if held >= size:
            yield lines
            lines, held = [], 0
    if lines:
        yield lines


def _events(lines: Sequence[str], lost: Counter[int]) -> dict[str, list[_Event]]:
    """The events of some lines by name; `lost` grows by those that were lost, core by core."""
    found: dict[str, list[_Event]] = {}
    for line in lines:
        if told := _LOST.match(line):
            cpu, count = told.groups()
            lost[int(cpu)] += int(count or 1)  # not counted is one at least
        if head := _LINE.match(line):
            comm, pid, cpu, seconds, fraction, name, text = head.groups()
            if not name.isascii():
                raise ValueError(f"an event of the name {name!r}, as no kernel has one")
            t_ns = int(seconds + (fraction + "000000000")[:9])
            name = name.replace("writeback_dirty_page", "writeback_dirty_folio")
            found.setdefault(name, []).append(_Event(t_ns, int(cpu), int(pid), comm.strip(), text))
    return found


def _columns(name: str, events: Sequence[_Event], whole: bool) -> Columns:
    """Heads of events of one kind as columns; with their words where they are asked for."""
    t_ns, cpu, pid, comms, texts = zip(*events, strict=True)
    roles = [DAEMON if is_daemon(comm) else HOST for comm in comms]
    columns: Columns = {
        "t_ns": np.array(t_ns, np.int64), "cpu": np.array(cpu, np.int32), "pid": np.array(pid, np.int32),
        "comm": np.array(comms, object), "role": np.array(roles, object),
    }  # fmt: skip
    if whole or name in USED:
        fields = [_fields(text) for text in texts]
        # Where some event has no value there is no column: then the whole text is what there is.
        shared = [key for key in fields[0] if all(key in each for each in fields)]
        columns |= {column_name(key): _column([each[key] for each in fields]) for key in shared}
    if whole:
        columns["text"] = np.array([text.rstrip() for text in texts], object)
    return _of_disks(name, columns)


def _fields(text: str) -> Mapping[str, str]:
    """What the words of one event say, by name."""
    for form in _FORMS:
        if found := form.match(text):
            return {key: value for key, value in found.groupdict().items() if value is not None}
    fields = dict(_PAIR.findall(text))
    if bdi := _BDI.match(text):
        fields["bdi"] = bdi[1]
    return fields


def _column(words: Sequence[str]) -> npt.NDArray[Any]:
    """Numbers where all are such that 63 bits hold, else words."""
    try:
        return np.array(_numbers(words), np.int64)
    except (ValueError, OverflowError):
        return np.array(words, object)


def _numbers(words: Sequence[str]) -> list[int]:
    if all(map(_WHOLE.fullmatch, words)):
        return [int(word, 0) if word.startswith(("0x", "-0x")) else int(word) for word in words]
    raise ValueError("not all of these words are numbers")


def _alike(columns: Columns, kinds: dict[str, str]) -> Columns:
    """With the columns of the event's first piece: one that is new, or has words for numbers, is left out."""
    if not kinds:
        kinds |= {name: column.dtype.kind for name, column in columns.items()}
    return {name: column for name, column in columns.items() if kinds.get(name) == column.dtype.kind}


def _of_disks(name: str, columns: Columns) -> Columns:
    if not name.startswith(("writeback_", "wbc_", "block_")):
        return columns
    if {"major", "minor"} <= columns.keys():
        columns["dev"] = columns.pop("major") << 20 | columns.pop("minor")
    return of_disks(columns)
