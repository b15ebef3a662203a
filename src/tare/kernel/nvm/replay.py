"""Every layer over one trace, in one pass: the trace is read once and never held."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tare.kernel.nvm.model import PAGE_BYTES, Layer, Piece, Run, Trace
from tare.kernel.nvm.recency import Counted, Recency

PIECE_WRITES = 1 << 20  # large enough that the table of known pages is seldom merged


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
    counted = [Counted(layer, trace, page_bytes, shares) for layer in layers]
    recencies = [Recency(max([each.pages or 0 for each in counted], default=0)) for _ in range(shares)]
    begin_s, replay_s = time.process_time(), 0.0
    for piece in trace.pieces():
        replay_begin_s = time.process_time()
        for part in _parts(piece):
            for share, recency in enumerate(recencies):
                rows = part.tenants == share if shares > 1 else slice(None)
                keys, tenants = part.keys[rows], part.tenants[rows]
                if len(keys):
                    seen = recency.part(keys)
                    for each in counted:
                        each.shares[share].feed(seen, recency.known, tenants)
        replay_s += time.process_time() - replay_begin_s
    read_s = time.process_time() - begin_s - replay_s
    runs = tuple(each.run() for each in counted)
    known = sum(recency.known for recency in recencies)
    return Simulation(trace, page_bytes, known, shares > 1, runs, read_s, replay_s)


def _parts(piece: Piece) -> Iterator[Piece]:
    for begin in range(0, len(piece.keys), PIECE_WRITES):
        part = slice(begin, begin + PIECE_WRITES)
        yield Piece(piece.keys[part], piece.tenants[part], piece.times_ns[part])


def writes_per_s(simulations: Sequence[Simulation]) -> float | None:
    """Page writes simulated in a second, over all layers; reading the trace is not in it."""
    spent_s = sum(each.simulate_s for each in simulations)
    writes = sum(each.trace.writes * len(each.runs) for each in simulations)
    return writes / spent_s if spent_s else None
