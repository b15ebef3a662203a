"""From raw ring-buffer pages to columns: one set of numpy arrays for each kind of event, a piece at a time.

Each piece covers a stretch of time on all cores, so that rows come in the order of time while memory stays bounded by
the size of a piece, however long the trace is.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tare.traces.formats import EventFormat, Field, PageLayout
from tare.traces.pages import SLACK_BYTES, Bytes, Ints, Lost, lost, walk
from tare.traces.texts import cut, gathered

Columns: TypeAlias = dict[str, npt.NDArray[Any]]

PAGES_AT_ONCE = 2048
_WINDOW_PAGES = 4096
RESERVED = ("t_ns", "cpu", "pid", "comm", "role")  # of every row; an event's own field of that name is `event_<name>`


class Source(NamedTuple):
    """The pages of one core: a file, or a stretch of one."""

    cpu: int
    path: Path
    offset: int = 0
    size: int | None = None


class Events(NamedTuple):
    """Events of one kind: `t_ns`, `cpu`, `pid`, and a column for each field of its own; texts are bytes."""

    format: EventFormat
    columns: Columns


def column_name(name: str) -> str:
    """What a field's column is called."""
    return f"event_{name}" if name in RESERVED else name


def decode(buffer: Bytes, layout: PageLayout, formats: Mapping[int, EventFormat], cpu: int) -> Iterator[Events]:
    """The events of a `padded` buffer of one core, kind by kind, each in the order of time; unknown kinds left out."""
    walked = walk(buffer, layout)
    if not len(walked.offset):
        return
    kinds = buffer.view("<u2")[walked.offset // 2]  # `common_type` is the first thing in each record
    for number in np.flatnonzero(np.bincount(kinds)).tolist():
        if number in formats:
            rows = np.flatnonzero(kinds == number)
            columns = _columns(buffer, formats[number], walked.offset[rows], walked.t_ns[rows], cpu)
            yield Events(formats[number], columns)


def pieces(
    sources: Sequence[Source],
    layout: PageLayout,
    formats: Mapping[int, EventFormat],
    pages_at_once: int = PAGES_AT_ONCE,
) -> Iterator[list[Events]]:
    """All cores' events, a stretch of time after another; each kind sorted by time within and across the pieces."""
    with ExitStack() as stack:
        opened = [stack.enter_context(_Pages(source, layout)) for source in sources]
        times = [pages.times() for pages in opened]
        waiting: list[Events] = []
        begins = [0] * len(sources)
        for until in _cuts(times, pages_at_once):
            found = waiting
            for index, source in enumerate(sources):
                end = len(times[index]) if until is None else int(np.searchsorted(times[index], until))
                if end > begins[index]:
                    found = [*found, *decode(opened[index].take(begins[index], end), layout, formats, source.cpu)]
                    begins[index] = end
            now, waiting = _split(_joined(found), until)
            if now:
                yield now


def lost_events(source: Source, layout: PageLayout, pages_at_once: int = PAGES_AT_ONCE) -> Lost:
    """What this core's buffer overwrote before it was read, as its pages say."""
    total = Lost(0, 0)
    with _Pages(source, layout) as pages:
        for begin in range(0, pages.count, pages_at_once):
            found = lost(pages.take(begin, min(begin + pages_at_once, pages.count)), layout)
            total = Lost(total.events + found.events, total.uncounted + found.uncounted)
    return total


class _Pages(AbstractContextManager["_Pages"]):
    """The whole pages of a source; what is not looked at is not in memory."""

    def __init__(self, source: Source, layout: PageLayout) -> None:
        self._file = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
        size = os.fstat(self._file).st_size - source.offset if source.size is None else source.size
        self._bytes, self._offset = layout.page_bytes, source.offset
        self.count = max(0, size) // layout.page_bytes

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def times(self) -> Ints:
        """When each page begins; a clock that stepped back does not take a page out of its order."""
        stamps = [self._stamps(begin) for begin in range(0, self.count, _WINDOW_PAGES)]
        return np.maximum.accumulate(np.concatenate(stamps)) if stamps else np.empty(0, np.int64)

    def _stamps(self, begin: int) -> Ints:
        """The first eight bytes of some pages, through a window onto the file: no page is copied for them."""
        pages = min(_WINDOW_PAGES, self.count - begin)
        at = self._offset + begin * self._bytes
        before = at % mmap.ALLOCATIONGRANULARITY
        with mmap.mmap(self._file, before + pages * self._bytes, access=mmap.ACCESS_READ, offset=at - before) as window:
            seen = np.ndarray((pages,), "<i8", window, before, (self._bytes,))
            found: Ints = seen.astype(np.int64)
            del seen  # a window that is looked through cannot be closed
        return found

    def take(self, begin: int, end: int) -> Bytes:
        """Some pages, with the room behind them that decoding needs."""
        size = (end - begin) * self._bytes
        out = np.empty(size + SLACK_BYTES, np.uint8)
        read = os.preadv(self._file, [out[:size].data], self._offset + begin * self._bytes)
        out[read:] = 0
        return out


def _columns(buffer: Bytes, event: EventFormat, offset: Ints, t_ns: Ints, cpu: int) -> Columns:
    """The records at these offsets, taken in one go and split into their fields."""
    kind = event.dtype
    anywhere = np.ndarray((len(buffer) - kind.itemsize + 1,), f"V{kind.itemsize}", buffer, 0, (1,))
    records = np.ascontiguousarray(anywhere[offset]).view(kind)
    columns: Columns = {"t_ns": t_ns, "cpu": np.full(len(offset), cpu, np.int32)}
    if "common_pid" in (kind.names or ()):
        columns["pid"] = records["common_pid"]
    for field in event.own:
        columns |= _field_columns(buffer, field, records[field.name], offset)
    return columns


def _field_columns(buffer: Bytes, field: Field, values: npt.NDArray[Any], offset: Ints) -> Columns:
    name = column_name(field.name)
    if field.placed != "inline":
        begin = offset + (values & 0xFFFF) + (field.offset + 4 if field.placed == "rel_loc" else 0)
        length = (values >> 16).astype(np.int64)
        return {name: gathered(buffer, begin, length) if field.is_text else _arrays(buffer, field, begin, length)}
    if field.is_text:
        return {name: cut(values)}
    if field.count > 1:
        return {f"{name}_{index}": values[:, index] for index in range(field.count)}
    return {name: values}


def _arrays(buffer: Bytes, field: Field, begin: Ints, length: Ints) -> npt.NDArray[np.object_]:
    """Arrays of numbers whose length differs from row to row: rare, so one by one."""
    wide = 8 if "long" in field.type or "64" in field.type else 4 if "int" in field.type or "32" in field.type else 1
    kind = np.dtype(f"<{'i' if field.signed else 'u'}{wide}")
    out = np.empty(len(begin), object)
    for row, (at, size) in enumerate(zip(begin.tolist(), length.tolist(), strict=True)):
        out[row] = tuple(np.frombuffer(buffer[at : at + size - size % wide].tobytes(), kind).tolist())
    return out


def _cuts(times: Sequence[Ints], pages_at_once: int) -> Iterator[int | None]:
    """Times between which about so many pages begin; None: to the end."""
    everything = np.sort(np.concatenate(times)) if times else np.empty(0, np.int64)
    yield from np.unique(everything[pages_at_once::pages_at_once]).tolist()
    yield None


def _joined(found: Sequence[Events]) -> list[Events]:
    """One set of columns for each kind, sorted by time."""
    kinds: dict[int, list[Events]] = {}
    for events in found:
        kinds.setdefault(events.format.id, []).append(events)
    joined = []
    for same in kinds.values():
        columns = {name: np.concatenate([one.columns[name] for one in same]) for name in same[0].columns}
        if (columns["t_ns"][1:] < columns["t_ns"][:-1]).any():
            order = np.argsort(columns["t_ns"], kind="stable")
            columns = {name: column[order] for name, column in columns.items()}
        joined.append(Events(same[0].format, columns))
    return joined


def _split(found: Sequence[Events], until: int | None) -> tuple[list[Events], list[Events]]:
    """What happened before `until`, and what did not: a page may reach past the time at which the next begins."""
    if until is None:
        return list(found), []
    now: list[Events] = []
    later: list[Events] = []
    for events in found:
        at = int(np.searchsorted(events.columns["t_ns"], until))
        for into, rows in ((now, slice(None, at)), (later, slice(at, None))):
            columns = {name: column[rows] for name, column in events.columns.items()}
            if len(columns["t_ns"]):
                into.append(Events(events.format, columns))
    return now, later
