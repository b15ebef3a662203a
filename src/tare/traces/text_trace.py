"""Traces as text, as `cat trace`, `trace_pipe` and `trace-cmd report` print them: for traces that someone else made.

Each line has a task, its number, a core, perhaps some flags, a time, an event and its words. Words like `key=value`
become columns; what the block and write-back events print otherwise is known here. A text has fewer figures than the
raw pages that it was made from, and times of microseconds only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tare.errors import TareError
from tare.traces.decode import Columns, column_name
from tare.traces.page_writes import PageWrites
from tare.traces.roles import DAEMON, HOST, is_daemon
from tare.traces.tables import Chunk, of_disks

LINES_AT_ONCE = 100_000
_LINE = re.compile(
    r"^\s*(?P<comm>.+?)-(?P<pid>\d+)\s+(?:\(\s*[\d-]+\)\s+)?\[(?P<cpu>\d+)\]\s+(?:(?P<flags>[^\s\d]\S{2,7}|\.{3,8})\s+)?"
    r"(?P<s>\d+)\.(?P<fraction>\d+):\s+(?:(?P<system>\w+):)?(?P<event>\w+):\s*(?P<text>.*)$"
)
_LOST = re.compile(r"^\s*CPU:\s*(\d+) \[(?:LOST )?(\d+)? ?EVENTS(?: DROPPED)?\]")  # the kernel's words, and trace-cmd's
_PAIR = re.compile(r"(\w+)=(\S+)")
_BDI = re.compile(r"^bdi (\S+?):? ")
_BLOCK = re.compile(
    r"^(?P<major>\d+),(?P<minor>\d+) (?P<rwbs>[A-Z]+) (?:(?P<bytes>\d+) )?(?:\([^)]*\) )?"
    r"(?P<sector>\d+) \+ (?P<nr_sector>\d+)"
)
_BUFFER = re.compile(r"^(?P<major>\d+),(?P<minor>\d+) sector=(?P<sector>\d+) size=(?P<size>\d+)")
_SWITCH = re.compile(  # as trace-cmd prints it
    r"^(?P<prev_comm>.+):(?P<prev_pid>\d+) \[(?P<prev_prio>-?\d+)\] (?P<prev_state>\S+) ==> "
    r"(?P<next_comm>.+):(?P<next_pid>\d+) \[(?P<next_prio>-?\d+)\]"
)
_CALL = re.compile(r"^NR (?P<id>-?\d+)(?: = (?P<ret>-?\d+))?")
_WHOLE = re.compile(r"-?(?:0x[0-9a-fA-F]+|\d+)")


def text_tables(path: Path, page_bytes: int = 4096, lines_at_once: int = LINES_AT_ONCE) -> Iterator[Chunk]:
    """The tables of a text trace, in pieces; lines that are no events are left out."""
    writes = PageWrites(page_bytes)
    lost: dict[int, int] = {}
    kinds: dict[str, dict[str, str]] = {}
    with path.open(errors="backslashreplace") as file:
        for rows in _pieces(file, lines_at_once, lost):
            found = {
                name: Chunk(name, _alike(_columns(name, row), kinds.setdefault(name, {}))) for name, row in rows.items()
            }
            yield from found.values()
            written = writes.piece({name: chunk.columns for name, chunk in found.items()})
            if written is not None:
                yield Chunk("page_writes", written)
    if not kinds:
        raise TareError(f"{path}: no line of it is an event as `cat trace` or `trace-cmd report` print one.")
    if lost:
        yield Chunk("lost", {"cpu": np.array(list(lost), np.int32), "events": np.array(list(lost.values()), np.int64)})


def is_text_trace(path: Path, lines: int = 1000) -> bool:
    """Whether one of the first lines is an event."""
    with path.open(errors="backslashreplace") as file:
        return any(_LINE.match(line) for line, _ in zip(file, range(lines), strict=False))


def _pieces(file: Iterable[str], size: int, lost: dict[int, int]) -> Iterator[dict[str, list[re.Match[str]]]]:
    rows: dict[str, list[re.Match[str]]] = {}
    held = 0
    for line in file:
        found = _LINE.match(line)
        if found is None:
            if gone := _LOST.search(line):
                lost[int(gone[1])] = lost.get(int(gone[1]), 0) + int(gone[2] or 1)  # not counted is one at least
            continue
        name = found["event"].replace("writeback_dirty_page", "writeback_dirty_folio")
        rows.setdefault(name, []).append(found)
        held += 1
        if held >= size:
            yield rows
            rows, held = {}, 0
    if rows:
        yield rows


def _columns(name: str, rows: list[re.Match[str]]) -> Columns:
    comms = [row["comm"].strip() for row in rows]
    columns: Columns = {
        "t_ns": np.array([int(row["s"]) * 10**9 + int(row["fraction"].ljust(9, "0")[:9]) for row in rows], np.int64),
        "cpu": np.array([int(row["cpu"]) for row in rows], np.int32),
        "pid": np.array([int(row["pid"]) for row in rows], np.int32),
        "comm": np.array(comms, dtype=object),
        "role": np.array([DAEMON if is_daemon(comm) else HOST for comm in comms], dtype=object),
    }
    fields = [_fields(row["text"]) for row in rows]
    for key in dict.fromkeys(key for row in fields for key in row):
        if (column := _column([row.get(key) for row in fields])) is not None:
            columns[column_name(key)] = column
    columns["text"] = np.array([row["text"].rstrip() for row in rows], dtype=object)
    return _of_disks(name, columns)


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


def _fields(text: str) -> Mapping[str, str]:
    """What an event's words say, by name."""
    for pattern in (_BLOCK, _BUFFER, _CALL, _SWITCH):
        if found := pattern.match(text):
            return {key: value for key, value in found.groupdict().items() if value is not None}
    fields = dict(_PAIR.findall(text))
    if bdi := _BDI.match(text):
        fields["bdi"] = bdi[1]
    return fields


def _column(values: list[str | None]) -> npt.NDArray[Any] | None:
    """Numbers where all are, else words; None where some row has no value: then the whole text is what there is."""
    words = [value for value in values if value is not None]
    if len(words) < len(values):
        return None
    if all(_WHOLE.fullmatch(word) for word in words):
        numbers = [int(word, 0) if word.startswith(("0x", "-0x")) else int(word) for word in words]
        if all(-(1 << 63) <= number < 1 << 63 for number in numbers):
            return np.array(numbers, np.int64)
    return np.array(words, dtype=object)
