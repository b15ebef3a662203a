"""Pages of the ring buffer, as `trace_pipe_raw` gives them: where each event lies, and when it was.

A page has a time stamp, a commit word (its length, and whether events were lost before it) and then records, each with
the time since the one before. All pages of a piece are walked in lockstep: step k looks at the k-th record of each
page at once, so that the work is done by numpy and not by a loop over events.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tare.errors import TareError
from tare.traces.formats import PageLayout

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
