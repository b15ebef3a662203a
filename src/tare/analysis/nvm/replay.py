"""Every layer over one trace, in one pass: the trace is read once and never held.

The inner loop: one write-back after the other, through one buffer.

A buffer is a queue of pages, oldest first, and for each page its place in the queue (-1: not in the buffer). `lru`
puts a page that is rewritten at the end again; the entry that it leaves behind is stale, for its place is no longer
the page's, and is passed over. `clock` leaves it where it is and marks it: that is the clock's hand, with the queue
for its circle. Nothing is linked, so that the processor need not wait for one page to find the next.

Indexed sequences only: arrays when compiled, lists when not. A share of a divided buffer is a stretch of the queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from tare.analysis.nvm.model import PAGE_BYTES, POLICIES, Layer, Piece, Run, Trace, Writes, by_tenant
from tare.analysis.nvm.recency import Counted, Recency, run_of

if TYPE_CHECKING:
    import numpy.typing as npt

    Keys = npt.NDArray[np.uint64]


# Pages get numbers, 0 for the first that was seen: what follows is arrays, and memory grows with the pages alone.
#
# A hash table of our own, with open addressing. Eight neighbouring pages share a slot: files are written in order, so
# that most look-ups are in the slot of the one before. Importing this brings the compiler, where it is installed.

Loop = TypeVar("Loop", bound=Callable[..., Any])

_compile: Callable[..., Any] | None
try:
    import numba
except ImportError:  # not installed, or not for this numpy
    _compile = None
else:
    _compile = numba.njit

IS_COMPILED = _compile is not None
WITHOUT = "numba is not installed, so that plain LRU is some 5 times slower, and every other policy some 50 times"


def compiled(loop: Loop) -> Loop:
    """Machine code, kept beside the file for the next process; its Python text stays as `py_func`."""
    if _compile is None:
        return loop
    try:
        made: Loop = _compile(cache=True, nogil=True)(loop)
    except RuntimeError:  # nowhere to keep it: compiled once a process
        made = _compile(nogil=True)(loop)
    return made


FEWEST_SLOTS = 1 << 12
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ONE, _THREE, _SEVEN, _HALF = (np.uint64(number) for number in (1, 3, 7, 32))


class Numbers(Protocol):
    """Keys to numbers, over all pieces of a trace."""

    @property
    def known(self) -> int: ...

    def of(self, keys: Keys) -> Any: ...


def numbers() -> Numbers:
    """By machine code, or by a dict where there is none."""
    return TableOfPages() if IS_COMPILED else DictOfPages()


class DictOfPages:
    """What plain Python does quickest."""

    def __init__(self) -> None:
        self._number: dict[int, int] = {}

    @property
    def known(self) -> int:
        return len(self._number)

    def of(self, keys: Keys) -> list[int]:
        number = self._number
        return [number.setdefault(key, len(number)) for key in keys.tolist()]


class TableOfPages:
    """Slots for pages 8n to 8n + 7, at most 3 of 4 full: n + 1, where 0 is a free one, and 8 numbers from 1 on."""

    def __init__(self) -> None:
        self._slots, self._numbers = np.zeros(FEWEST_SLOTS, np.uint64), np.zeros((FEWEST_SLOTS, 8), np.int32)
        self._full = self.known = 0

    def of(self, keys: Keys) -> npt.NDArray[np.int32]:
        found = np.empty(len(keys), np.int32)
        done = 0
        while True:
            done, self._full, self.known = _number(
                keys, done, self._slots, self._numbers, self._full, self.known, found
            )
            if done == len(keys):
                return found
            slots, several = np.zeros(2 * len(self._slots), np.uint64), np.zeros((2 * len(self._slots), 8), np.int32)
            _move(self._slots, self._numbers, slots, several)
            self._slots, self._numbers = slots, several


@compiled
def _slot(several: Any, slots: Any) -> Any:
    """Where pages of this slot are, or will be."""
    mask = np.uint64(len(slots) - 1)
    mixed = several * _GOLDEN
    slot = (mixed ^ (mixed >> _HALF)) & mask
    while slots[slot] != 0 and slots[slot] != several:
        slot = (slot + _ONE) & mask
    return slot


@compiled
def _number(keys: Any, begin: int, slots: Any, numbers: Any, full: int, known: int, found: Any) -> tuple[int, int, int]:
    """Numbers for keys from `begin` on, until all have one or 3 of 4 slots are full; where it stopped."""
    slot = last = np.uint64(0)
    for place in range(begin, len(keys)):
        several, one = (keys[place] >> _THREE) + _ONE, keys[place] & _SEVEN
        if several != last:
            slot, last = _slot(several, slots), several
            if slots[slot] == 0:
                if full == len(slots) * 3 // 4:
                    return place, full, known
                slots[slot] = several
                full += 1
        if numbers[slot, one] == 0:
            known += 1
            numbers[slot, one] = known
        found[place] = numbers[slot, one] - 1
    return len(keys), full, known


@compiled
def _move(slots: Any, numbers: Any, larger: Any, their_numbers: Any) -> None:
    for old in range(len(slots)):
        if slots[old] != 0:
            slot = _slot(slots[old], larger)
            larger[slot] = slots[old]
            their_numbers[slot] = numbers[old]


ABSORBED, TAKEN, EVICTING, DIRECT = 0, 1, 2, 3
KINDS = 4
FREE_AT_NS, SERVED = 0, 1  # of the disk: when it was or will be free for more, which share it served last
DISK_FIELDS = 2


class Rules(NamedTuple):
    """What does not change while a trace is replayed; pages are those of one share."""

    capacity: int
    reserve: int  # pages that the idle disk keeps free
    room: int  # entries of one share's queue
    shares: int
    disk_ns: int
    lazy: bool
    by_heat: bool


class Buffer(NamedTuple):
    """Everything that changes."""

    queue: Any
    place: Any  # by page
    warmth: Any  # by page; `lazy`: rewritten since its last turn, `by_heat`: times written back
    head: Any  # by share, as the next three: where its queue begins,
    tail: Any  # where it ends,
    held: Any  # pages in the buffer,
    destaged: Any  # pages that left it for the disk
    disk: Any
    counts: Any  # by tenant and kind


@compiled
def replay(
    pages: Any, tenants: Any, times_ns: Any, queue: Any, place: Any, warmth: Any, head: Any, tail: Any, held: Any,
    destaged: Any, disk: Any, counts: Any, rules: Rules,
) -> None:  # fmt: skip
    """Write-backs in order. Long, for a call with arrays costs as much as all that is done for one write-back."""
    room, capacity, idle = rules.room, rules.capacity, rules.reserve > 0
    for at in range(len(pages)):
        page, tenant = pages[at], tenants[at]
        mine = tenant if rules.shares > 1 else 0
        if idle and disk[FREE_AT_NS] + rules.disk_ns <= times_ns[at]:
            _destage(times_ns[at], queue, place, warmth, head, tail, held, destaged, disk, rules)
        if rules.by_heat:
            warmth[page] += 1
        if place[page] >= 0:
            kind = ABSORBED
        elif held[mine] < capacity:
            kind = TAKEN
        elif capacity == 0:
            kind = DIRECT
        else:
            coldest = _coldest(mine, queue, place, warmth, head, tail, rules)
            if rules.by_heat and warmth[page] <= warmth[coldest]:
                warmth[coldest] -= 1  # else what was hot long ago would stay for ever
                kind = DIRECT
            else:
                kind = EVICTING
                place[coldest] = -1
                head[mine] += 1
                held[mine] -= 1
                destaged[mine] += 1
        counts[tenant * KINDS + kind] += 1
        if idle:  # a write-back that waits keeps the disk busy; one that does not ends its idleness
            disk[FREE_AT_NS] = max(disk[FREE_AT_NS], times_ns[at]) + (rules.disk_ns if kind >= EVICTING else 0)
        if kind == ABSORBED and rules.lazy:
            warmth[page] = 1
        elif kind != DIRECT:
            held[mine] += kind != ABSORBED
            if tail[mine] == room:
                _tidy(mine, queue, place, head, tail, room)
            queue[mine * room + tail[mine]] = page
            place[page] = tail[mine]
            tail[mine] += 1


@compiled
def _coldest(mine: int, queue: Any, place: Any, warmth: Any, head: Any, tail: Any, rules: Rules) -> int:
    """The page whose turn it is, brought to the head of the queue."""
    room = rules.room
    while True:
        page = queue[mine * room + head[mine]]
        is_live = place[page] == head[mine]
        if is_live and not (rules.lazy and warmth[page] > 0):
            return page  # type: ignore[no-any-return]
        head[mine] += 1
        if is_live:  # marked: it stays for another round
            warmth[page] = 0
            if tail[mine] == room:
                _tidy(mine, queue, place, head, tail, room)
            queue[mine * room + tail[mine]] = page
            place[page] = tail[mine]
            tail[mine] += 1


@compiled
def _tidy(mine: int, queue: Any, place: Any, head: Any, tail: Any, room: int) -> None:
    """Move what is live to the front: a queue has twice the room that its pages need, so that this pays for itself."""
    kept = 0
    for entry in range(head[mine], tail[mine]):
        page = queue[mine * room + entry]
        if place[page] == entry:
            queue[mine * room + kept] = page
            place[page] = kept
            kept += 1
    head[mine] = 0
    tail[mine] = kept


@compiled
def _destage(
    now_ns: int, queue: Any, place: Any, warmth: Any, head: Any, tail: Any, held: Any, destaged: Any, disk: Any,
    rules: Rules,
) -> None:  # fmt: skip
    """What the disk has done since it was last busy: places freed, share by share in turn."""
    while disk[FREE_AT_NS] + rules.disk_ns <= now_ns:
        mine = _short_of_room(held, disk, rules)
        if mine < 0:
            break
        place[_coldest(mine, queue, place, warmth, head, tail, rules)] = -1
        head[mine] += 1
        held[mine] -= 1
        destaged[mine] += 1
        disk[SERVED] = mine
        disk[FREE_AT_NS] += rules.disk_ns


@compiled
def _short_of_room(held: Any, disk: Any, rules: Rules) -> int:
    """The next share with fewer free places than it should have; -1 where there is none."""
    for step in range(1, rules.shares + 1):
        mine = (disk[SERVED] + step) % rules.shares
        if held[mine] > 0 and rules.capacity - held[mine] < rules.reserve:
            return mine  # type: ignore[no-any-return]
    return -1


SPARE = 1024  # entries beyond twice the live ones, so that a small queue is not tidied all the time
_UNLIMITED = 1 << 62


class Simulated:
    """One layer on its way over a trace."""

    def __init__(self, layer: Layer, trace: Trace, page_bytes: int, shares: int) -> None:
        self.layer, self._trace = layer, trace
        self.pages = layer.pages(page_bytes, shares)
        capacity = _UNLIMITED if self.pages is None else self.pages
        reserve = max(1, round(layer.destage.reserve * capacity)) if layer.destage.reserve and self.pages else 0
        self._rules = Rules(capacity, reserve, 0, shares, round(layer.disk_s * 1e9), layer.policy.lazy,
                            layer.policy.by_heat)  # fmt: skip
        pages = _numbers(0, 32)
        head, tail, held, destaged = (_numbers(shares, 64) for _ in range(4))
        disk, counts = _numbers(DISK_FIELDS, 64), _numbers(len(trace.tenants) * KINDS, 64)
        self._buffer = Buffer(pages, pages, pages, head, tail, held, destaged, disk, counts)
        self._begun = False

    def feed(self, pages: Any, tenants: Any, times_ns: Any, known: int) -> None:
        """The next write-backs; `known` pages have been seen with them."""
        if not len(pages):
            return
        if not self._begun:
            self._buffer.disk[FREE_AT_NS] = int(times_ns[0])
            self._begun = True
        self._grow(known)
        replay(pages, tenants, times_ns, *self._buffer, self._rules)

    def _grow(self, known: int) -> None:
        buffer, rules = self._buffer, self._rules
        if known > len(buffer.place):
            larger = 2 * known
            marked = rules.lazy or rules.by_heat
            warmth = _longer(buffer.warmth, larger, 0) if marked else buffer.warmth
            buffer = buffer._replace(place=_longer(buffer.place, larger, -1), warmth=warmth)
        needed = 2 * min(rules.capacity, known) + SPARE
        if needed > rules.room:
            room = 2 * needed
            queue = _numbers(room * rules.shares, 32)
            for share in range(rules.shares):
                old = buffer.queue[share * rules.room : (share + 1) * rules.room]
                queue[share * room : share * room + rules.room] = old
            buffer, rules = buffer._replace(queue=queue), rules._replace(room=room)
        self._buffer, self._rules = buffer, rules

    def run(self) -> Run:
        """What has been found so far."""
        counts = [int(count) for count in self._buffer.counts]
        writes = [Writes(*counts[at : at + KINDS]) for at in range(0, len(counts), KINDS)]
        destaged, left = (sum(map(int, each)) for each in (self._buffer.destaged, self._buffer.held))
        return run_of(self.layer, self._trace, writes, destaged, left, self.pages, self._rules.shares)


def _numbers(count: int, bits: int) -> Any:
    return np.zeros(count, np.int32 if bits == 32 else np.int64) if IS_COMPILED else [0] * count


def _longer(numbers: Any, count: int, fill: int) -> Any:
    if not IS_COMPILED:
        return [*numbers, *[fill] * (count - len(numbers))]
    made = np.full(count, fill, numbers.dtype)
    made[: len(numbers)] = numbers
    return made


PIECE_WRITES = 1 << 18  # small enough to stay in the cache from one layer to the next
COUNTED_WRITES = 1 << 20  # large enough that the table of known pages is seldom merged


@dataclass(frozen=True)
class Simulation:
    """What every layer did with one trace, and how long finding that out took."""

    trace: Trace
    page_bytes: int
    distinct_pages: int
    divided: bool  # each tenant has its share of the buffer
    runs: tuple[Run, ...]
    read_s: float  # of the processor, as the next: others on it do not count
    simulate_s: float


def simulate(trace: Trace, layers: Sequence[Layer], page_bytes: int | None = None, divided: bool = False) -> Simulation:
    """Replay the trace through each layer; `divided` gives each tenant an equal share instead of one common buffer."""
    page_bytes = page_bytes or trace.page_bytes or PAGE_BYTES
    shares = len(trace.tenants) if divided else 1
    are_lru = [not IS_COMPILED and _is_plain_lru(layer) for layer in layers]
    simulated = [
        (Counted if is_lru else Simulated)(layer, trace, page_bytes, shares)
        for layer, is_lru in zip(layers, are_lru, strict=True)
    ]
    replayed = [each for each in simulated if isinstance(each, Simulated)]
    counted = [each for each in simulated if isinstance(each, Counted)]
    recencies = [Recency(max([each.pages or 0 for each in counted], default=0)) for _ in range(shares)]
    number = numbers()
    begin_s, replay_s = time.process_time(), 0.0
    for piece in trace.pieces():
        replay_begin_s = time.process_time()
        told = by_tenant(piece, trace) if shares > 1 else piece
        for part in _parts(told, PIECE_WRITES) if replayed or not counted else ():
            pages = number.of(part.keys)
            # As the loop is quickest with them: arrays, or lists where it is not compiled.
            tenants, times_ns = part[1:] if IS_COMPILED else (part.tenants.tolist(), part.times_ns.tolist())
            for layer in replayed:
                layer.feed(pages, tenants, times_ns, number.known)
        for part in _parts(told, COUNTED_WRITES) if counted else ():
            for share, recency in enumerate(recencies):
                if shares > 1:
                    rows = part.tenants == share
                    mine = Piece(part.keys[rows], part.tenants[rows], part.times_ns[rows])
                else:
                    mine = part
                if len(mine.keys):
                    seen = recency.part(mine.keys)
                    for each in counted:
                        each.shares[share].feed(seen, recency.known, mine.tenants)
        replay_s += time.process_time() - replay_begin_s
    read_s = time.process_time() - begin_s - replay_s
    runs = tuple(each.run() for each in simulated)
    known = max(number.known, sum(recency.known for recency in recencies))
    return Simulation(trace, page_bytes, known, shares > 1, runs, read_s, replay_s)


def _is_plain_lru(layer: Layer) -> bool:
    """Or none at all: what is held depends on nothing but the order of the writes."""
    return not layer.policy.buffers or not (layer.policy.lazy or layer.policy.by_heat or layer.destage.reserve)


def _parts(piece: Piece, size: int) -> Iterator[Piece]:
    for begin in range(0, len(piece.keys), size):
        part = slice(begin, begin + size)
        yield Piece(piece.keys[part], piece.tenants[part], piece.times_ns[part])


def compile_ahead() -> None:
    """Compile now (or read what was compiled earlier), so that it is not counted as simulating."""
    pages = 16 * FEWEST_SLOTS  # so many that the table of pages has to grow
    piece = Piece(np.arange(pages, dtype=np.uint64), np.zeros(pages, np.uint8), np.zeros(pages, np.int64))
    simulate(Trace("", pages, ("",), pages, lambda: iter([piece])), [Layer(POLICIES["lru"], 4096)])


def writes_per_s(simulations: Sequence[Simulation]) -> float | None:
    """Page writes simulated in a second, over all layers; reading the trace is not in it."""
    spent_s = sum(each.simulate_s for each in simulations)
    writes = sum(each.trace.writes * len(each.runs) for each in simulations)
    return writes / spent_s if spent_s else None
