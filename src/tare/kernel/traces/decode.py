"""From raw ring-buffer pages to columns: one set of numpy arrays for each kind of event, a piece at a time.

Each piece covers a stretch of time on all cores, so that rows come in the order of time while memory stays bounded by
the size of a piece, however long the trace is.

Pages of the ring buffer, as `trace_pipe_raw` gives them: where each event lies, and when it was.

A page has a time stamp, a commit word (its length, and whether events were lost before it) and then records, each with
the time since the one before. All pages of a piece are walked in lockstep: step k looks at the k-th record of each
page at once, so that the work is done by numpy and not by a loop over events.
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

from tare.base.errors import TareError
from tare.kernel.traces.formats import EventFormat, Field, PageLayout

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

SLACK_BYTES = 1 << 16  # of zeros after the last page: a field may be read past the end of its record
_LENGTH = (1 << 27) - 1
_STORED = 1 << 30  # the number of lost events lies behind the last record
_LOST = 1 << 31
_PADDING, _EXTEND, _STAMP = 29, 30, 31
_TOP = np.int64(-1) << np.int64(59)  # an absolute stamp holds 59 bits; the rest is that of the page


class Walked(NamedTuple):
    """The events of some pages, page by page: where the data of each begin, in bytes, and when it was."""

    offset: Ints
    t_ns: Ints


class Lost(NamedTuple):
    """What the ring buffer overwrote before it was read: so many events at least, and how often it did not count."""

    events: int
    uncounted: int


def padded(pages: bytes | Bytes) -> Bytes:
    """The bytes of whole pages with room behind them, as `walk` and `decode` need it."""
    array = np.frombuffer(pages, np.uint8) if isinstance(pages, bytes) else pages
    out = np.zeros(len(array) + SLACK_BYTES, np.uint8)
    out[: len(array)] = array
    return out


def page_times(buffer: Bytes, layout: PageLayout) -> Ints:
    """The time stamp of each page."""
    return _column(buffer, layout, 0, 8).astype(np.int64)


def walk(buffer: Bytes, layout: PageLayout) -> Walked:
    """Every event in the pages of a `padded` buffer."""
    if layout.page_bytes % 4 or layout.data_offset % 4:
        raise TareError(f"a ring-buffer page of {layout.page_bytes} bytes is not one that any kernel writes.")
    count = _pages(buffer, layout)
    words = buffer.view("<u4")
    begin = (np.arange(count, dtype=np.int64) * layout.page_bytes + layout.data_offset) // 4
    room = layout.page_bytes - layout.data_offset
    held = np.minimum(_commits(buffer, layout) & _LENGTH, room).astype(np.int64)
    return _in_order(_lockstep(words, begin, begin + held // 4, page_times(buffer, layout)), count)


def lost(buffer: Bytes, layout: PageLayout) -> Lost:
    """Events that were overwritten before they could be read, from the commit words."""
    commits = _commits(buffer, layout)
    marked = np.flatnonzero(commits & _LOST)
    events = uncounted = 0
    for page in marked.tolist():
        word = int(commits[page])
        at = page * layout.page_bytes + layout.data_offset + (word & _LENGTH)
        if word & _STORED and at + layout.commit_bytes <= (page + 1) * layout.page_bytes:
            events += int.from_bytes(buffer[at : at + layout.commit_bytes].tobytes(), "little")
        else:
            uncounted += 1
    return Lost(events, uncounted)


class _Steps(NamedTuple):
    """What the walk found, one array a step: which page, where, when."""

    page: list[Ints]
    word: list[Ints]
    t_ns: list[Ints]


def _lockstep(words: npt.NDArray[np.uint32], at: Ints, end: Ints, t_ns: Ints) -> _Steps:
    """Walk all pages at once; arrays shrink as pages come to their end."""
    steps = _Steps([], [], [])
    page = np.arange(len(at), dtype=np.int64)
    while True:
        going = at < end
        if not going.all():
            page, at, end, t_ns = page[going], at[going], end[going], t_ns[going]
        if not len(at):
            return steps
        head = words[at]
        t_ns = t_ns + (head >> 5)
        data = at + 1
        following = data + (head & 31)
        special = (((head - 1) & 31) >= _PADDING - 1).nonzero()[0]  # 0, and what is above the longest short event
        if len(special):
            event = _rare(words, special, head, at, t_ns, data, following, end)
            steps.page.append(page[event])
            steps.word.append(data[event])
            steps.t_ns.append(t_ns[event])
        else:
            steps.page.append(page)
            steps.word.append(data)
            steps.t_ns.append(t_ns)
        at = following


def _rare(
    words: npt.NDArray[np.uint32],
    which: Ints,
    head: npt.NDArray[np.uint32],
    at: Ints,
    t_ns: Ints,
    data: Ints,
    following: Ints,
    end: Ints,
) -> npt.NDArray[np.bool_]:
    """Long events, padding and time records: corrects the arrays in place, and says which are events."""
    first = words[at[which] + 1].astype(np.int64)
    kind, delta = head[which] & 31, (head[which] >> 5).astype(np.int64)
    event = np.ones(len(at), bool)
    event[which] = (kind == 0) & (at[which] + 2 < end[which])

    chosen = kind == 0
    these = which[chosen]
    data[these] = at[these] + 2
    following[these] = at[these] + 1 + np.maximum((first[chosen] + 3) // 4, 1)

    chosen = kind == _PADDING
    these = which[chosen]
    following[these] = np.where(delta[chosen] == 0, end[these], at[these] + 1 + np.maximum(first[chosen] // 4, 1))
    t_ns[these] -= delta[chosen] == 1  # one that had no time of its own gets 1, so that it is not the end of the page

    chosen = kind == _EXTEND
    these = which[chosen]
    t_ns[these] += first[chosen] << 27
    following[these] = at[these] + 2

    chosen = kind == _STAMP
    these = which[chosen]
    t_ns[these] = ((t_ns[these] - delta[chosen]) & _TOP) | (first[chosen] << 27) | delta[chosen]
    following[these] = at[these] + 2
    return event


def _in_order(steps: _Steps, pages: int) -> Walked:
    """Put what was found step by step into the order of the pages, without a sort: each knows its place."""
    counts = np.zeros(pages, np.int64)
    for page in steps.page:
        counts[page] += 1
    place = np.cumsum(counts) - counts
    offset, t_ns = np.empty(int(counts.sum()), np.int64), np.empty(int(counts.sum()), np.int64)
    for page, word, time in zip(*steps, strict=True):
        to = place[page]
        offset[to], t_ns[to] = word, time
        place[page] = to + 1
    offset *= 4
    return Walked(offset, t_ns)


def _commits(buffer: Bytes, layout: PageLayout) -> npt.NDArray[np.uint32]:
    """The low half of each commit word: length and flags are in it, whatever the width of a long is."""
    return _column(buffer, layout, layout.commit_offset, 4).astype(np.uint32)


def _column(buffer: Bytes, layout: PageLayout, offset: int, size: int) -> npt.NDArray[np.unsignedinteger]:
    count = _pages(buffer, layout)
    pages = buffer[: count * layout.page_bytes].reshape(count, layout.page_bytes)
    return np.ascontiguousarray(pages[:, offset : offset + size]).view(f"<u{size}").reshape(count)


def _pages(buffer: Bytes, layout: PageLayout) -> int:
    return (len(buffer) - SLACK_BYTES) // layout.page_bytes


Texts: TypeAlias = npt.NDArray[Any]  # bytes of a fixed width, or objects where some are long

_WIDE_BYTES = 256  # longer ones are kept one by one, so that one long text does not widen every row
_LOW = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SEVEN, _ONE = np.uint64(7), np.uint64(1)


def cut(fixed: npt.NDArray[np.bytes_]) -> npt.NDArray[np.bytes_]:
    """Without what is behind the first zero byte: kernels copy a name's whole field, whatever was in it before."""
    wide = max(8, -(-fixed.dtype.itemsize // 8) * 8)
    words = np.array(fixed, dtype=f"S{wide}").view(np.uint64).reshape(len(fixed), wide // 8)
    whole = np.ones(len(fixed), bool)
    for column in words.T:
        zero = (column - _LOW) & ~column & _HIGH  # the lowest bit set is in the first byte that is zero
        lowest = zero & (~zero + _ONE)
        column &= np.where(whole, (lowest >> _SEVEN) - _ONE, np.uint64(0))
        whole &= zero == 0
    return words.reshape(-1).view(f"S{wide}")


def gathered(buffer: npt.NDArray[np.uint8], offset: npt.NDArray[np.int64], length: npt.NDArray[np.int64]) -> Texts:
    """The texts at these places of a buffer, which has room behind its last one."""
    longest = int(length.max(initial=0))
    if longest <= _WIDE_BYTES:
        return _at(buffer, offset, length, longest)
    out = np.empty(len(offset), object)
    short = length <= _WIDE_BYTES
    out[short] = _at(buffer, offset[short], length[short], _WIDE_BYTES)
    for row in np.flatnonzero(~short).tolist():
        begin = int(offset[row])
        out[row] = buffer[begin : begin + int(length[row])].tobytes().split(b"\0", 1)[0]
    return out


def _at(
    buffer: npt.NDArray[np.uint8], offset: npt.NDArray[np.int64], length: npt.NDArray[np.int64], longest: int
) -> npt.NDArray[np.bytes_]:
    wide = max(8, -(-longest // 8) * 8)
    anywhere = np.ndarray((max(0, len(buffer) - wide + 1),), f"V{wide}", buffer, 0, (1,))
    found = np.ascontiguousarray(anywhere[offset]).view(np.uint8).reshape(len(offset), wide)
    found[np.arange(wide) >= length[:, None]] = 0
    return cut(found.reshape(-1).view(f"S{wide}"))


def coded(texts: Texts) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The different texts, decoded, and for each row which one it has."""
    if texts.dtype == object or not len(texts):
        found, codes = np.unique(texts.astype(bytes), return_inverse=True)
        return [_decoded(text) for text in found.tolist()], codes
    if texts.dtype.itemsize % 8:
        texts = cut(texts)
    words = np.ascontiguousarray(texts).view(np.uint64).reshape(len(texts), -1)
    mixed = np.zeros(len(texts), np.uint64)
    for column in words.T:
        mixed = (mixed ^ column) * _MIX
    _, first, codes = np.unique(mixed, return_index=True, return_inverse=True)
    if (texts[first][codes] != texts).any():  # two texts with one sum: told apart the slow way
        found, codes = np.unique(texts, return_inverse=True)
        return [_decoded(text) for text in found.tolist()], codes
    return [_decoded(text) for text in texts[first].tolist()], codes


def words_of(texts: Texts) -> npt.NDArray[np.object_]:
    """The texts as str, each different one made once."""
    different, codes = coded(texts)
    return np.array(different, dtype=object)[codes] if different else np.empty(0, object)


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")


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
