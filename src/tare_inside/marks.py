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

A record whose t_ns is zero was never written: a mark writes it last, into one of the slots that were kept, with the id
in them, for the marks of its name and edge. So records are in no order, and a full buffer may have slots left. Times
are CLOCK_MONOTONIC, the same for every process and container of one kernel.
"""

import mmap
import os
import struct
import sys
from itertools import count as counter
from itertools import islice
from typing import Any, Dict, List, Tuple

from tare_inside import turns
from tare_inside.turns import now_ns

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
_IS_LITTLE = sys.byteorder == "little"
_MOST_KEPT = 256 if _CAN_WATCH_FORKS and _IS_LITTLE else 1  # slots at a time, for marks of one name and edge
_I64 = "l" if struct.calcsize("l") == 8 else "q"  # both are the same, and Python writes the first one faster


class _Names(dict):
    """Ids of the names in use; a new one gets the next line of the header's table (0 when the table is full)."""

    def __init__(self, memory):
        super().__init__()
        self._memory = memory
        self._numbers = counter(1)  # one call: neither another thread nor a signal's handler gets the same

    def __missing__(self, name):
        number = next(self._numbers)
        if number > _MOST_NAMES:
            return 0
        text = name.encode("utf-8")[: _NAME_BYTES - 1]
        at = _NAMES_AT + (number - 1) * _NAME_BYTES
        self._memory[at : at + len(text)] = text  # before the id is used: a killed run leaves no nameless mark
        return self.setdefault(name, number)


_GROUP = """
def make(self, memory, first, end, pack=pack):
    at, owner = first, self._owner
    def write(step, {times}):
        nonlocal at
        if _buffer is not self or not (_CAN_WATCH_FORKS or os.getpid() == owner):
            return
        if at + {size} > end:
            return self._lose({count})
        pack(memory, at, {values})
        at += {size}
    def withdraw():
        nonlocal at
        if _buffer is self and os.getpid() == owner:
            memory[first:at] = bytes(at - first)  # a record whose time is zero was never written
            at = first
    write.withdraw = withdraw
    return write
"""
_makers = {}  # of groups, by the ids and edges in them


def _maker(words):
    """Its function takes an argument for each time: to shuffle them in a list takes as long as to write them."""
    count = len(words)
    source = _GROUP.format(
        count=count,
        size=count * _RECORD.size,
        times=", ".join("t{}".format(place) for place in range(count)),
        values=", ".join("t{}, step, {}".format(place, word) for place, word in enumerate(words)),
    )
    form = "@" + (_I64 + "iI") * count if _IS_LITTLE else "<" + "qiI" * count
    made = {"pack": struct.Struct(form).pack_into}
    exec(source, globals(), made)
    return made["make"]


class _Buffer:
    """An open file of marks."""

    def __init__(self, path, capacity):
        self._memory = memory = _new_memory(path, HEADER_BYTES + capacity * _RECORD.size)
        self._capacity, self._owner = capacity, os.getpid()
        memory[:16] = MAGIC + struct.pack("<II", capacity, self._owner)
        self._names = _Names(memory)
        self._slots, self._taken = counter(), 0
        self._losses = counter(1)
        self._kept = {}  # (name, edge): how many slots it was given last
        self.turns = None  # that end with the end of a step, where the program marks its steps itself
        self.kept = {}, {}, {}  # per edge: name -> an iterator of the slots that are kept for it, with its id in them
        records = memoryview(memory)[HEADER_BYTES:]
        self.times, self.steps = records.cast(_I64)[::2], records.cast("i")[2::4]

    def _take(self, count):
        """So many slots, or what is left of them: where the first begins and the last ends.

        They are taken in one call: no two threads share a slot, and a signal's handler may mark too.
        """
        last = next(islice(self._slots, count - 1, None)) if count else self._taken - 1
        first, end = min(last + 1 - count, self._capacity), min(last + 1, self._capacity)
        self._taken = end
        return HEADER_BYTES + first * _RECORD.size, HEADER_BYTES + end * _RECORD.size

    def mark(self, name, edge, step):
        """Mark, and keep slots for the next marks of this kind: with each time twice as many, and few of the last."""
        if not (_CAN_WATCH_FORKS or os.getpid() == self._owner):
            return
        now, number = now_ns(), self._names[name]
        kinds = len(self._kept) + 1  # each of which may leave as many unused as were kept for it
        ends_turns = self.turns is not None and name == "step" and edge < 2
        most = 1 if ends_turns else _MOST_KEPT  # each such mark comes by here
        count = min(most, 2 * self._kept.get((name, edge), 0) or 1, self.room() // (64 * kinds) or 1)
        at, end = self._take(count)
        if at == end:
            return self._lose(1)
        self._kept[name, edge] = count
        self._memory[at:end] = _RECORD.pack(0, 0, number, edge) * ((end - at) // _RECORD.size)
        _RECORD.pack_into(self._memory, at, now, step, number, edge)
        if ends_turns:
            self.turns.by_marks = True
            if edge == 1:
                self.turns.ended()
        elif _MOST_KEPT > 1:
            first, last = (at - HEADER_BYTES) // _RECORD.size, (end - HEADER_BYTES) // _RECORD.size
            self.kept[edge][name] = iter(range(first + 1, last))

    def group(self, names, room):
        words = tuple(self._names[name] | edge << 16 for name in names for edge in (0, 1))
        make = _makers[words] = _makers.get(words) or _maker(words)
        return make(self, self._memory, *self._take(room * len(words)))

    def interval(self, name, step, begin_ns, end_ns):
        if not (_CAN_WATCH_FORKS or os.getpid() == self._owner):
            return
        at, end = self._take(2)
        if end - at < 2 * _RECORD.size:
            return self._lose(2)
        name_id = self._names[name]
        _RECORD.pack_into(self._memory, at, begin_ns, step, name_id, 0)
        _RECORD.pack_into(self._memory, at + _RECORD.size, end_ns, step, name_id, 1)

    def room(self):
        return self._capacity - self._taken

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


_buffer = None
_may_open = True  # the first mark opens a buffer, if this process is to have one
_begins, _ends, _points, _times, _steps = {}, {}, {}, None, None  # of the open buffer


def _mark(name, edge, step):
    """A mark that has no slot: the first of its name, or when those kept for it are used up; or no buffer is open."""
    global _may_open
    if _may_open:
        _may_open = False
        path = os.environ.get("TARE_MARKS")
        if path and os.environ.get("RANK", "0") == "0":
            try:
                open_marks(path, CAPACITY_WITH_TORCH if "torch" in sys.modules else CAPACITY)
                _buffer.turns = turns.joined(os.path.dirname(path))
            except FileExistsError:
                pass  # another process marks
            except Exception as problem:  # never a fault of the program that only wants to say something
                sys.stderr.write("tare: marks are dropped: {!r}\n".format(problem))
    buffer = _buffer
    if buffer is not None:
        buffer.mark(name, edge, step)


def open_marks(path, capacity=CAPACITY):
    """Take marks from now on, into a new file with room for `capacity`; FileExistsError if someone marks there."""
    resume(_Buffer(path, capacity))


def room():
    """How many marks have room still; None while no buffer is open."""
    return None if _buffer is None else _buffer.room()


def close_marks():
    """Take no more marks. What was marked is in the file already."""
    resume(None)


def opened():
    """The buffer that marks go to, for `resume`."""
    return _buffer


def resume(buffer):
    """Take marks into a buffer again that was open before another. No other thread may mark while this is done."""
    global _buffer, _may_open, _begins, _ends, _points, _times, _steps
    _buffer, _may_open = buffer, False
    _begins, _ends, _points = {}, {}, {}  # first: a signal's handler takes no slot of the one for the other
    if buffer is not None:  # else a thread that has a slot may still need them
        _times, _steps = buffer.times, buffer.steps
        _begins, _ends, _points = buffer.kept


if _CAN_WATCH_FORKS:
    os.register_at_fork(after_in_child=close_marks)  # the buffer is shared memory, and its slots are the parent's


def begin(name, step=-1):
    """An interval called `name` begins now."""
    try:
        at = next(_begins[name])
    except (KeyError, StopIteration):
        return _mark(name, 0, step)
    _steps[at] = step
    _times[at] = now_ns()


def end(name, step=-1):
    """The interval called `name` ends now."""
    try:
        at = next(_ends[name])
    except (KeyError, StopIteration):
        return _mark(name, 1, step)
    _steps[at] = step
    _times[at] = now_ns()


def point(name, step=-1):
    """Something called `name` happens now."""
    try:
        at = next(_points[name])
    except (KeyError, StopIteration):
        return _mark(name, 2, step)
    _steps[at] = step
    _times[at] = now_ns()


class during(object):  # noqa: N801  (it reads like a function: `with marks.during("load", step):`)
    """The interval called `name` lasts as long as the block does."""

    __slots__ = ("_name", "_step")

    def __init__(self, name, step=-1):
        self._name, self._step = name, step

    def __enter__(self):
        begin(self._name, self._step)

    def __exit__(self, *problem):
        end(self._name, self._step)


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
    marks.sort(key=lambda mark: mark[0])
    return marks, lost


def names_in(data: bytes) -> Dict[int, str]:
    """Id -> name, from the first HEADER_BYTES of a file of marks."""
    lines = (data[at : at + _NAME_BYTES] for at in range(_NAMES_AT, HEADER_BYTES, _NAME_BYTES))
    return {number: line.rstrip(b"\0").decode("utf-8", "replace") for number, line in enumerate(lines, 1)}
