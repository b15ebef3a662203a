"""Traces as text, as `cat trace`, `trace_pipe` and `trace-cmd report` print them: for traces that someone else made.

Each line has a task, its number, a core, perhaps some flags, a time, an event and its words. Words like `key=value`
become columns; what the block and write-back events print otherwise is known here. A text has fewer figures than the
raw pages that it was made from, and times of microseconds only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import add
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tare.errors import TareError
from tare.traces.decode import Columns, column_name
from tare.traces.page_writes import PageWrites
from tare.traces.roles import DAEMON, HOST, is_daemon
from tare.traces.tables import Chunk, bdi_number, of_disks
from tare.traces.text_fields import columns_of

LINES_AT_ONCE = 100_000
_BLANK = r"[^\S\n]"
_LINE = re.compile(
    rf"^{_BLANK}*(.[^-\n]*(?:-[^-\n]*)*?)-(\d+){_BLANK}+(?:\({_BLANK}*[\d-]+\){_BLANK}+)?\[(\d+)\]{_BLANK}+"
    rf"(?:(?:[^\s\d]\S{{2,7}}|\.{{3,8}}){_BLANK}+)?(\d+)\.(\d+):{_BLANK}+(?:\w+:)?(\w+):{_BLANK}*(.*)$",
    re.MULTILINE,
)
_LOST = re.compile(  # the kernel's words, and trace-cmd's
    rf"^{_BLANK}*CPU:{_BLANK}*(\d+) \[(?:LOST )?(\d+)? ?EVENTS(?: DROPPED)?\]", re.MULTILINE
)


class Rows(NamedTuple):
    """Events of one kind, column by column, as they stand in the text."""

    comm: Sequence[str]
    pid: Sequence[str]
    cpu: Sequence[str]
    seconds: Sequence[str]
    fraction: Sequence[str]
    event: Sequence[str]
    text: Sequence[str]


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


def _pieces(file: Iterable[str], size: int, lost: dict[int, int]) -> Iterator[dict[str, Rows]]:
    lines = iter(file)
    while block := "".join(islice(lines, size)):
        if "EVENTS" in block:
            for cpu, count in _LOST.findall(block):
                lost[int(cpu)] = lost.get(int(cpu), 0) + int(count or 1)  # not counted is one at least
        rows: dict[str, list[tuple[str, ...]]] = {}
        for found in _LINE.findall(block):
            rows.setdefault(found[5].replace("writeback_dirty_page", "writeback_dirty_folio"), []).append(found)
        if rows:
            yield {name: Rows(*zip(*several, strict=True)) for name, several in rows.items()}


def _columns(name: str, rows: Rows) -> Columns:
    comms = {comm: comm.strip() for comm in set(rows.comm)}
    roles = {comm: DAEMON if is_daemon(called) else HOST for comm, called in comms.items()}
    columns: Columns = {
        "t_ns": _times_ns(rows.seconds, rows.fraction),
        "cpu": np.array(list(map(int, rows.cpu)), np.int32),
        "pid": np.array(list(map(int, rows.pid)), np.int32),
        "comm": np.array([comms[comm] for comm in rows.comm], dtype=object),
        "role": np.array([roles[comm] for comm in rows.comm], dtype=object),
    }
    columns |= {column_name(key): column for key, column in columns_of(rows.text).items()}
    columns["text"] = np.array([text.rstrip() for text in rows.text], dtype=object)
    return _of_disks(name, columns)


def _times_ns(seconds: Sequence[str], fractions: Sequence[str]) -> npt.NDArray[np.int64]:
    digits = len(fractions[0])
    if digits <= 9 and {digits} == set(map(len, fractions)):
        return np.array(list(map(int, map(add, seconds, fractions))), np.int64) * np.int64(10 ** (9 - digits))
    nines = [(fraction + "000000000")[:9] for fraction in fractions]
    return np.array(list(map(int, map(add, seconds, nines))), np.int64)


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
    elif "bdi" in columns and "dev" not in columns:
        numbers = {bdi: bdi_number(bdi) for bdi in set(columns["bdi"].tolist())}
        columns["dev"] = np.array([numbers[bdi] for bdi in columns["bdi"].tolist()], np.int64)
    return of_disks(columns)
