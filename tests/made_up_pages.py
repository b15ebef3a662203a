"""Pages of a ring buffer as a kernel writes them, made by hand: for records that are too rare to be recorded."""

from __future__ import annotations

import struct

from tare.kernel.traces.formats import PageLayout

_PADDING, _EXTEND, _STAMP = 29, 30, 31
_LONGEST_SHORT = 28 * 4


def _head(kind: int, delta: int) -> bytes:
    return struct.pack("<I", kind | delta << 5)


def event(delta_ns: int, data: bytes) -> bytes:
    """One event, with a record of its time before it where that does not fit."""
    before = b""
    if delta_ns >= 1 << 27:
        before = extend(delta_ns)
        delta_ns = 0
    padded = data + b"\0" * (-len(data) % 4)
    if 0 < len(padded) <= _LONGEST_SHORT:
        return before + _head(len(padded) // 4, delta_ns) + padded
    return before + _head(0, delta_ns) + struct.pack("<I", len(padded) + 4) + padded


def extend(delta_ns: int) -> bytes:
    return _head(_EXTEND, delta_ns & (1 << 27) - 1) + struct.pack("<I", delta_ns >> 27)


def stamp(t_ns: int) -> bytes:
    """An absolute time: 59 bits of it."""
    return _head(_STAMP, t_ns & (1 << 27) - 1) + struct.pack("<I", t_ns >> 27 & (1 << 32) - 1)


def discarded(delta_ns: int, size: int) -> bytes:
    """An event that was taken back: its place is padding."""
    return _head(_PADDING, delta_ns or 1) + struct.pack("<I", size) + b"\xaa" * (size - 4)


def end_of_page() -> bytes:
    return _head(_PADDING, 0)


def page(
    t_ns: int, records: bytes, layout: PageLayout | None = None, *, lost: int | None = None, counted: bool = True
) -> bytes:
    """A page that begins at this time; `lost`: so many events were overwritten before it."""
    layout = layout or PageLayout()
    commit = len(records)
    behind = b""
    if lost is not None:
        commit |= 1 << 31
        if counted:
            commit |= 1 << 30
            behind = lost.to_bytes(layout.commit_bytes, "little")
    head = struct.pack("<Q", t_ns) + commit.to_bytes(layout.commit_bytes, "little")
    made = head.ljust(layout.data_offset, b"\0") + records + behind
    assert len(made) <= layout.page_bytes, "it does not fit into a page"
    return made.ljust(layout.page_bytes, b"\0")


def common(number: int, pid: int) -> bytes:
    """What every event begins with."""
    return struct.pack("<HBBi", number, 0, 0, pid)
