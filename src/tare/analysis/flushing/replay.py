"""The inner loop: one write-back after the other, through one buffer.

A buffer is a queue of pages, oldest first, and for each page its place in the queue (-1: not in the buffer). `lru`
puts a page that is rewritten at the end again; the entry that it leaves behind is stale, for its place is no longer
the page's, and is passed over. `clock` leaves it where it is and marks it: that is the clock's hand, with the queue
for its circle. Nothing is linked, so that the processor need not wait for one page to find the next.

Indexed sequences only: arrays when compiled, lists when not. A share of a divided buffer is a stretch of the queue.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tare.analysis.flushing.compiled import compiled

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
