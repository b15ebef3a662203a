"""LRU without a loop over the writes.

A page is in an LRU buffer of C pages while fewer than C others were written since its own last write. So one place in
the past, the *oldest*, tells what is held: pages written at or after it. It only ever moves on, and where it is can be
counted at any time from the writes that are the last of their page. It is counted every few thousand writes; a rewrite
whose last write lies before the oldest of its stretch's beginning is no hit, one after that of its end is one, and for
the few between the two the pages written since are counted exactly.

Places are those of one part of the trace: first the last writes of the pages that were written most recently before
it, then its own writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tare.kernel.nvm.model import Layer, Run, Writes

if TYPE_CHECKING:
    from tare.kernel.nvm.model import Trace

Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]

_NEVER = np.iinfo(np.int32).max
_FEWEST, _SHARE = 1 << 12, 4  # writes between two counts, and how large a part of what is counted


_EARLIER = np.tri(64, k=-1, dtype=bool)


class Part(NamedTuple):
    """Consecutive writes: the place of each page's last write (-1: too long ago, or none), and of each one's next."""

    before: int  # places of earlier writes
    last: Places
    following: Places  # by place
    known: npt.NDArray[np.bool_]


class Recency:
    """When each page was written last, over the parts of a trace; `most` pages are told apart by it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._keys, self._times = np.empty(0, np.uint64), np.empty(0, np.int64)
        self._recent = np.empty(0, np.int64)
        self._written = 0

    @property
    def known(self) -> int:
        return len(self._keys)

    def part(self, keys: npt.NDArray[np.uint64]) -> Part:
        """The next writes."""
        order = _order(keys)
        sorted_keys = keys[order]
        begins = np.flatnonzero(np.append(True, sorted_keys[1:] != sorted_keys[:-1]))
        first, final = order[begins], order[np.append(begins[1:], len(keys)) - 1]
        before, written = len(self._recent), self._written
        last = np.empty(len(keys), np.int32)
        last[order[1:]] = order[:-1] + before
        at = np.searchsorted(self._keys, different := sorted_keys[begins])
        old = np.zeros(len(at), bool)
        if self.known:
            old = self._keys[np.minimum(at, self.known - 1)] == different
        times = self._times[at[old]]
        place = np.full(len(at), -1, np.int32)
        place[old] = self._places(times)
        last[first] = place
        known = np.ones(len(keys), bool)
        known[first[~old]] = False
        following = np.full(before + len(keys), _NEVER, np.int32)
        rewrites = np.flatnonzero(last >= 0)
        following[last[rewrites]] = rewrites + before
        self._times[at[old]] = written + final[old]
        self._add(at[~old], different[~old], written + final[~old])
        stays = np.flatnonzero(following == _NEVER)
        stays = stays[max(0, len(stays) - self._most) :]
        early = np.searchsorted(stays, before)
        self._recent = np.concatenate((self._recent[stays[:early]], stays[early:] - before + written))
        self._written += len(keys)
        return Part(before, last, following, known)

    def _add(self, at: Ints, keys: npt.NDArray[np.uint64], times: Ints) -> None:
        place = at + np.arange(len(at))
        is_old = np.ones(self.known + len(at), bool)
        is_old[place] = False
        known, self._keys = self._keys, np.empty(len(is_old), np.uint64)
        before, self._times = self._times, np.empty(len(is_old), np.int64)
        self._keys[place], self._keys[is_old] = keys, known
        self._times[place], self._times[is_old] = times, before

    def _places(self, times: Ints) -> Ints:
        if not len(self._recent):
            return np.full(len(times), -1)
        place = np.searchsorted(self._recent, times)
        return np.where(times >= self._recent[0], place, -1)


def _order(keys: npt.NDArray[np.uint64]) -> Ints:
    """Equal keys together, in the order in which they came."""
    bits = len(keys).bit_length()
    if int(keys.max()) >> (64 - bits):
        return np.argsort(keys, kind="stable")
    placed = keys << np.uint64(bits) | np.arange(len(keys), dtype=np.uint64)  # sorted twice as fast as by `argsort`
    placed.sort()
    return (placed & np.uint64((1 << bits) - 1)).view(np.int64)


def hits(part: Part, capacity: int) -> npt.NDArray[np.bool_]:
    """Which writes find their page in a buffer of so many."""
    found = np.empty(len(part.last), bool)
    count = len(part.last)
    oldest, held = _oldest(part, part.before, 0, capacity)
    begin = 0
    while begin < count:
        end = min(count, begin + max(_FEWEST, (part.before + begin - oldest) // _SHARE))
        later, held_later = _oldest(part, part.before + end, oldest, capacity)
        last = part.last[begin:end]
        found[begin:end] = last >= later
        unsure = np.flatnonzero((last >= oldest) & (last < later))
        if len(unsure):
            places = last[unsure]
            others = len(held) - np.searchsorted(held, places, side="right")
            others += np.cumsum(last < oldest)[unsure] + _smaller_before(places)
            others -= np.maximum(places - (part.before + begin) + 1, 0)  # of this stretch, but before the last write
            found[begin:end][unsure] = others < capacity
        begin, oldest, held = end, later, held_later
    return found


def _oldest(part: Part, now: int, oldest: int, capacity: int) -> tuple[int, Ints]:
    """The oldest place that is held at a time, and all that are: the last writes of their pages, so many at most."""
    held = np.flatnonzero(part.following[oldest:now] >= now)
    held = held[max(0, len(held) - capacity) :] + oldest
    is_full = len(held) == capacity
    return int(held[0]) if is_full else oldest, held


def _smaller_before(values: npt.NDArray[Any]) -> Ints:
    """For each value how many before it are smaller: by halves, each counted in the sorted one before it."""
    if (values[1:] > values[:-1]).all():
        return np.arange(len(values))
    size = len(_EARLIER)
    tiles = np.pad(values, (0, -len(values) % size)).reshape(-1, size)
    found: Ints = ((tiles[:, None, :] < tiles[:, :, None]) & _EARLIER).sum(2).ravel()[: len(values)]
    while size < len(values):
        for begin in range(0, len(values) - size, 2 * size):
            middle = begin + size
            left, right = np.sort(values[begin:middle]), values[middle : middle + size]
            found[middle : middle + size] += np.searchsorted(left, right)
        size *= 2
    return found


class Quick:
    """What an LRU buffer of so many pages did with the writes so far; None is one without a limit."""

    def __init__(self, capacity: int | None, tenants: int) -> None:
        self._capacity = capacity
        self._missed = 0
        self._counts = np.zeros((tenants, 4), np.int64)

    def feed(self, part: Part, known: int, tenants: npt.NDArray[np.uint8]) -> None:
        """The next writes, with which so many pages have been seen."""
        capacity, kinds = self._capacity, self._counts
        if capacity == 0:
            kinds[:, 3] += self._by_tenant(tenants)
            return
        found = part.known if capacity is None or known <= capacity else hits(part, capacity)
        missed = np.flatnonzero(~found)
        taken = len(missed) if capacity is None else max(0, capacity - self._missed)
        into_free, into_others = self._by_tenant(tenants[missed[:taken]]), self._by_tenant(tenants[missed[taken:]])
        kinds[:, 0] += self._by_tenant(tenants) - into_free - into_others
        kinds[:, 1] += into_free
        kinds[:, 2] += into_others
        self._missed += len(missed)

    def _by_tenant(self, tenants: npt.NDArray[np.uint8]) -> Ints:
        count = len(self._counts)
        return np.bincount(tenants, minlength=count) if count > 1 else np.array([len(tenants)])

    @property
    def destaged(self) -> int:
        return 0 if self._capacity is None else max(0, self._missed - self._capacity)

    @property
    def held(self) -> int:
        return self._missed - self.destaged

    def writes(self) -> list[Writes]:
        return [Writes(*row) for row in self._counts.tolist()]


class Counted:
    """One LRU layer whose hits are counted by whole arrays (`recency`)."""

    def __init__(self, layer: Layer, trace: Trace, page_bytes: int, shares: int) -> None:
        self.layer, self._trace = layer, trace
        self.pages = layer.pages(page_bytes, shares)
        self.shares = [Quick(self.pages, len(trace.tenants)) for _ in range(shares)]

    def run(self) -> Run:
        """What has been found so far."""
        writes = [sum(each, Writes()) for each in zip(*(share.writes() for share in self.shares), strict=True)]
        return Run(
            self.layer,
            dict(zip(self._trace.tenants, writes, strict=True)),
            destaged=sum(each.destaged for each in self.shares),
            left=sum(each.held for each in self.shares),
            pages=self.pages if self.pages is None else self.pages * len(self.shares),
            trace=self._trace.name,
            duration_s=self._trace.duration_s,
            settings=self._trace.settings,
        )
