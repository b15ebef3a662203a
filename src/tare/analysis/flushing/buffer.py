"""The memory of one simulated buffer: as large as the pages that were seen need it, whatever its capacity."""

from __future__ import annotations

from typing import Any

import numpy as np

from tare.analysis.flushing.compiled import IS_COMPILED
from tare.analysis.flushing.model import Layer, Run, Writes
from tare.analysis.flushing.replay import (
    DISK_FIELDS,
    FREE_AT_NS,
    KINDS,
    Buffer,
    Rules,
    replay,
)
from tare.analysis.flushing.traces import Trace

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
        return Run(
            self.layer,
            dict(zip(self._trace.tenants, writes, strict=True)),
            destaged=sum(int(each) for each in self._buffer.destaged),
            left=sum(int(each) for each in self._buffer.held),
            pages=self.pages if self.pages is None else self.pages * self._rules.shares,
            trace=self._trace.name,
            duration_s=self._trace.duration_s,
            settings=self._trace.settings,
        )


def _numbers(count: int, bits: int) -> Any:
    return np.zeros(count, np.int32 if bits == 32 else np.int64) if IS_COMPILED else [0] * count


def _longer(numbers: Any, count: int, fill: int) -> Any:
    if not IS_COMPILED:
        return [*numbers, *[fill] * (count - len(numbers))]
    made = np.full(count, fill, numbers.dtype)
    made[: len(numbers)] = numbers
    return made
