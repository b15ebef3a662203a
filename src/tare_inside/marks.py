"""The workload says what it does: `begin("fetch", step)`, `end("fetch", step)`, `point("ready")`.

Marks go to a buffer that was made, and whose pages were touched, when it was opened: a mark costs no system call,
no page fault and no I/O. The first mark opens the file that TARE_MARKS names (tare sets it), if nobody has opened one
by then. Without that variable, where another process marks already, and in forked children, marks are dropped.

The file is a header of 4096 bytes, then one record of 16 bytes a mark:

    0     8 bytes    magic
    8     u32        how many marks have room
    12    u32        pid of the owner
    16    u64        marks lost since the buffer was full
    64    126 x 32   names, UTF-8, padded with zeros; the first has id 1
    4096  records    t_ns i64, step i32, name id u16, edge u8 (0 begin, 1 end, 2 point), one byte of nothing

A record whose t_ns is zero was never written. Times are CLOCK_MONOTONIC, the same for every process and container
of one kernel.
"""

import mmap
import os
import struct
import sys
import time
from _thread import allocate_lock
from itertools import count as counter
from itertools import islice
from typing import Any, Dict, List, Tuple

MAGIC = b"TAREMK1\0"
CAPACITY = 1 << 17
CAPACITY_WITH_TORCH = 1 << 20  # attach.py keeps room for the steps of a script in the same buffer
EDGES = ("begin", "end", "point")

HEADER_BYTES = 4096
_LOST_AT = 16
_NAMES_AT = 64
_NAME_BYTES = 32
_MOST_NAMES = (HEADER_BYTES - _NAMES_AT) // _NAME_BYTES
_RECORD = struct.Struct("<qiHBx")
_COUNT = struct.Struct("<Q")
_CAN_WATCH_FORKS = hasattr(os, "register_at_fork")  # not in Python 3.6


def _clock():
    if hasattr(time, "monotonic_ns"):
        return time.monotonic_ns
    gettime, monotonic = time.clock_gettime, time.CLOCK_MONOTONIC
    return lambda: int(gettime(monotonic) * 1e9)  # Python 3.6: right to 2 ns after 100 days of uptime


now_ns = _clock()


class _Names(dict):
    """Ids of the names in use; a new one gets the next line of the header's table (0 when the table is full)."""

    def __init__(self, memory):
        super().__init__()
        self._memory = memory
        self._lock = allocate_lock()

    def __missing__(self, name):
        with self._lock:
            taken = len(self)
            if name in self or taken == _MOST_NAMES:
                return self.get(name, 0)
            text = name.encode("utf-8")[: _NAME_BYTES - 1]
            at = _NAMES_AT + taken * _NAME_BYTES
            self._memory[at : at + len(text)] = text  # before the id is used: a killed run leaves no nameless mark
            self[name] = taken + 1
            return taken + 1


class _Buffer:
    """An open file of marks. What it offers are closures: in the timed loop a local name beats an attribute."""

    def __init__(self, path, capacity):
        size = HEADER_BYTES + capacity * _RECORD.size
        self._memory = memory = _new_memory(path, size)
        self._owner = os.getpid()
        memory[:16] = MAGIC + struct.pack("<II", capacity, self._owner)
        self._end = size
        self._names = _Names(memory)
        self._slots = counter(HEADER_BYTES, _RECORD.size)  # atomic under the GIL: no two threads share a slot
        self._losses = counter(1)
        self.write = self._writer()

    def _writer(self):
        next_slot, end, memory, ids = self._slots.__next__, self._end, self._memory, self._names
        pack, now, lose = _RECORD.pack_into, now_ns, self._lose

        def write(name, edge, step):
            at = next_slot()
            if at < end:
                pack(memory, at, now(), step, ids[name], edge)
            else:
                lose(1)

        return write if _CAN_WATCH_FORKS else self._only_in_owner(write)

    def _only_in_owner(self, write):
        """`write`, silent in forked children, for a Python that cannot say that it forked."""
        getpid, owner = os.getpid, self._owner

        def checked(name, edge, step):
            if getpid() == owner:
                write(name, edge, step)

        return checked

    def group(self, names, room):
        values = [value for name in names for edge in (0, 1) for value in (0, 0, self._names[name], edge)]
        count = 2 * len(names)
        size = count * _RECORD.size
        at = next(islice(self._slots, room * count - 1, None)) - room * size + _RECORD.size
        end = min(at + room * size, self._end)
        pack, memory, lose = struct.Struct("<" + "qiHBx" * count).pack_into, self._memory, self._lose
        owner, first = self._owner, at

        def write(step, *times_ns):
            nonlocal at
            if _buffer is not self or not (_CAN_WATCH_FORKS or os.getpid() == owner):
                return
            if at + size > end:
                lose(count)
                return
            values[0::4] = times_ns
            values[1::4] = (step,) * count
            pack(memory, at, *values)
            at += size

        def withdraw():
            nonlocal at
            if _buffer is self and os.getpid() == owner:
                memory[first:at] = bytes(at - first)  # a record whose time is zero was never written
                at = first

        write.withdraw = withdraw
        return write

    def interval(self, name, step, begin_ns, end_ns):
        begin_at, end_at = islice(self._slots, 2)
        if end_at >= self._end:
            self._lose(2)
        elif _CAN_WATCH_FORKS or os.getpid() == self._owner:
            name_id = self._names[name]
            _RECORD.pack_into(self._memory, begin_at, begin_ns, step, name_id, 0)
            _RECORD.pack_into(self._memory, end_at, end_ns, step, name_id, 1)

    def room(self):
        return max(0, (self._end - next(self._slots)) // _RECORD.size)

    def _lose(self, count):
        for _ in range(count):
            _COUNT.pack_into(self._memory, _LOST_AT, next(self._losses))


def _new_memory(path, size):
    """A new file of `size` bytes in memory, every page of it touched; an existing file is never overwritten."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.posix_fallocate(descriptor, 0, size)  # a full disk fails here, not as SIGBUS in the timed loop
        memory = mmap.mmap(descriptor, size)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)
    for at in range(0, size, mmap.PAGESIZE):
        memory[at] = 0
    return memory


def _drop(name, edge, step):
    """Where marks go while no buffer is open."""


def _open_and_write(name, edge, step):
    """Where the first mark goes: it opens the buffer, if this process is to have one."""
    global _write
    _write = _drop
    path = os.environ.get("TARE_MARKS")
    if path and os.environ.get("RANK", "0") == "0":
        try:
            open_marks(path, CAPACITY_WITH_TORCH if "torch" in sys.modules else CAPACITY)
        except FileExistsError:
            pass  # another process marks
        except Exception as problem:  # never a fault of the program that only wants to say something
            sys.stderr.write("tare: marks are dropped: {!r}\n".format(problem))
    _write(name, edge, step)


_buffer = None
_write = _open_and_write


def open_marks(path, capacity=CAPACITY):
    """Take marks from now on, into a new file with room for `capacity`; FileExistsError if someone marks there."""
    global _buffer, _write
    _buffer = _Buffer(path, capacity)
    _write = _buffer.write


def room():
    """How many marks have room still; None while no buffer is open."""
    return None if _buffer is None else _buffer.room()


def close_marks():
    """Take no more marks. What was marked is in the file already."""
    global _buffer, _write
    _buffer, _write = None, _drop


def opened():
    """The buffer that marks go to, for `resume`."""
    return _buffer


def resume(buffer):
    """Take marks into a buffer again that was open before another."""
    global _buffer, _write
    _buffer, _write = buffer, _drop if buffer is None else buffer.write


if _CAN_WATCH_FORKS:
    os.register_at_fork(after_in_child=close_marks)  # the buffer is shared memory, and its slots are the parent's


def begin(name, step=-1):
    """An interval called `name` begins now."""
    _write(name, 0, step)


def end(name, step=-1):
    """The interval called `name` ends now."""
    _write(name, 1, step)


def point(name, step=-1):
    """Something called `name` happens now."""
    _write(name, 2, step)


class during(object):  # noqa: N801  (it reads like a function: `with marks.during("load", step):`)
    """The interval called `name` lasts as long as the block does."""

    __slots__ = ("_name", "_step")

    def __init__(self, name, step=-1):
        self._name, self._step = name, step

    def __enter__(self):
        _write(self._name, 0, self._step)

    def __exit__(self, *problem):
        _write(self._name, 1, self._step)


def interval(name, step, begin_ns, end_ns):
    """An interval called `name` was from `begin_ns` to `end_ns`, both from `now_ns`."""
    if _buffer is not None:
        _buffer.interval(name, step, begin_ns, end_ns)


def _drop_group(step, *times_ns):
    """Where groups go while no buffer is open."""


_drop_group.withdraw = lambda: None


def group(names, room):
    """A function `write(step, begin_ns, end_ns, begin_ns, end_ns, ...)` that marks one interval of each name at once.

    It costs less than half of single marks, and the loop calls it after a step: none of the cost lies in the step.
    Room for `room` calls is kept from now on. A group is for one thread.
    """
    return _drop_group if _buffer is None else _buffer.group(names, room)


def load(path: str) -> Tuple[List[Tuple[int, str, Any, int]], int]:
    """([(t_ns, name, edge, step), ...] in order of time, how many were lost). No file, or half of one, is no error."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return [], 0
    return parse(data)


def parse(data: bytes) -> Tuple[List[Tuple[int, str, Any, int]], int]:
    """The same from the bytes of the file."""
    if len(data) < HEADER_BYTES or not data.startswith(MAGIC):
        return [], 0
    names = names_in(data)
    (lost,) = _COUNT.unpack_from(data, _LOST_AT)
    marks = []  # type: List[Tuple[int, str, Any, int]]
    whole = (len(data) - HEADER_BYTES) // _RECORD.size * _RECORD.size
    written = -(-len(data[HEADER_BYTES:].rstrip(b"\0")) // _RECORD.size) * _RECORD.size  # after it only empty room
    for t_ns, step, name, edge in _RECORD.iter_unpack(data[HEADER_BYTES : HEADER_BYTES + min(whole, written)]):
        if t_ns == 0:
            continue  # never written: the rest of the buffer, or of the room that a group kept
        if edge < len(EDGES) and names.get(name):
            marks.append((t_ns, names[name], EDGES[edge], step))
        else:
            lost += 1
    marks.sort(key=_time)
    return marks, lost


def _time(mark):
    return mark[0]


def names_in(data: bytes) -> Dict[int, str]:
    """Id -> name, from the first HEADER_BYTES of a file of marks."""
    lines = (data[at : at + _NAME_BYTES] for at in range(_NAMES_AT, HEADER_BYTES, _NAME_BYTES))
    return {number: line.rstrip(b"\0").decode("utf-8", "replace") for number, line in enumerate(lines, 1)}
