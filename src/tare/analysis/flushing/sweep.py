"""Every layer over one trace, in one pass: the trace is read once and never held."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tare.analysis.flushing.buffer import Simulated
from tare.analysis.flushing.compiled import IS_COMPILED
from tare.analysis.flushing.model import PAGE_BYTES, POLICIES, Layer, Run
from tare.analysis.flushing.numbering import FEWEST_SLOTS, numbers
from tare.analysis.flushing.traces import Piece, Trace, by_tenant

PIECE_WRITES = 1 << 18  # small enough to stay in the cache from one layer to the next


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
    simulated = [Simulated(layer, trace, page_bytes, shares) for layer in layers]
    number = numbers()
    begin_s, replay_s = time.process_time(), 0.0
    for piece in trace.pieces():
        replay_begin_s = time.process_time()
        for part in _parts(by_tenant(piece, trace) if shares > 1 else piece):
            pages = number.of(part.keys)
            tenants, times_ns = _columns(part)
            for each in simulated:
                each.feed(pages, tenants, times_ns, number.known)
        replay_s += time.process_time() - replay_begin_s
    read_s = time.process_time() - begin_s - replay_s
    runs = tuple(each.run() for each in simulated)
    return Simulation(trace, page_bytes, number.known, shares > 1, runs, read_s, replay_s)


def _parts(piece: Piece) -> Iterator[Piece]:
    for begin in range(0, len(piece.keys), PIECE_WRITES):
        part = slice(begin, begin + PIECE_WRITES)
        yield Piece(piece.keys[part], piece.tenants[part], piece.times_ns[part])


def _columns(piece: Piece) -> tuple[Any, Any]:
    """As the loop is quickest with them: arrays, or lists where it is not compiled."""
    if IS_COMPILED:
        return piece.tenants, piece.times_ns
    return piece.tenants.tolist(), piece.times_ns.tolist()


def compile_ahead() -> None:
    """Compile now (or read what was compiled earlier), so that it is not counted as simulating."""
    pages = 4 * FEWEST_SLOTS  # so many that the table of pages has to grow
    piece = Piece(np.arange(pages, dtype=np.uint64), np.zeros(pages, np.uint8), np.zeros(pages, np.int64))
    simulate(Trace("", pages, ("",), pages, lambda: iter([piece])), [Layer(POLICIES["lru"], 4096)])


def writes_per_s(simulations: Sequence[Simulation]) -> float | None:
    """Page writes simulated in a second, over all layers; reading the trace is not in it."""
    spent_s = sum(each.simulate_s for each in simulations)
    writes = sum(each.trace.writes * len(each.runs) for each in simulations)
    return writes / spent_s if spent_s else None
