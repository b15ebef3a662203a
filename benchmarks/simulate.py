"""Page writes a second of CPU time: `tare trace simulate` and other exact ways to do LRU, interleaved, on one trace.

    python -m benchmarks.simulate [ROUNDS] [--json]

The others: an OrderedDict as anyone would write it, and stack distances by whole-array numpy (which give every size at
once, in n log n). Each must find the same hits. Then a trace without any locality, a sweep of sizes, and a Parquet file
from the first byte to the last figure.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from benchmarks.rounds import Rounds
from tare.analysis.numeric.medians import median_estimate
from tare.kernel.nvm.model import POLICIES, Layer, Trace, trace_of
from tare.kernel.nvm.replay import simulate
from tare.kernel.nvm.sources import trace_file

ROUNDS = 7
WRITES, PAGES = 4_000_000, 1 << 20
PEER_WRITES = 400_000
SIZE_PAGES = 15_625  # 64 MB
SWEEP = [2**power for power in range(18, 31)]


def measure(rounds: int = ROUNDS) -> dict[str, Any]:
    """Millions of page writes a second, each a median over rounds with its 95 % interval."""
    local, scattered = _trace(_local(WRITES)), _trace(np.random.default_rng(2).integers(0, PAGES, WRITES))
    peers = _local(PEER_WRITES)
    _agree(peers)
    with tempfile.TemporaryDirectory() as folder:
        path = _parquet(Path(folder), _local(WRITES))
        ways = _ways(local, scattered, peers, path)
        taken, kept = {name: [] for name in ways}, Rounds(ways)
        for _ in range(rounds):
            for name, (writes, way) in ways.items():
                begin_s = time.process_time()
                way()
                kept.add(name, (time.process_time() - begin_s) / writes * 1e6)  # a million writes
                taken[name].append(1 / kept[name][-1])
    kept.keep("simulate")
    found = {name: _estimate(rates) for name, rates in taken.items()}
    ratios = [ours / theirs for ours, theirs in zip(taken["lru"], taken["OrderedDict"], strict=True)]
    return {"million_writes_per_s": found, "lru_over_ordered_dict": _estimate(ratios)}


def _ways(local: Trace, scattered: Trace, peers: Any, path: Path) -> dict[str, tuple[int, Callable[[], Any]]]:
    layer = Layer(POLICIES["lru"], SIZE_PAGES * 4096)
    layers = [Layer(POLICIES["lru"], each) for each in SWEEP]
    return {
        "OrderedDict": (PEER_WRITES, lambda: ordered_dict_hits(peers.tolist(), SIZE_PAGES)),
        "numpy stack distances": (PEER_WRITES, lambda: stack_distances(peers)),
        "lru": (WRITES, lambda: simulate(local, [layer])),
        "lru, scattered": (WRITES, lambda: simulate(scattered, [layer])),
        f"sweep of {len(layers)}": (WRITES * len(layers), lambda: simulate(local, layers)),
        "lru, from Parquet": (WRITES, lambda: _from_parquet(path, [layer])),
    }


def _local(writes: int) -> Any:
    """Stretches of 16 pages, a few of them hot, as files are written."""
    rng = np.random.default_rng(1)
    starts = rng.zipf(1.2, writes // 16 + 1) % (PAGES // 16) * 16
    return (starts[:, None] + np.arange(16)).ravel()[:writes]


def _columns(pages: Any) -> dict[str, Any]:
    count = len(pages)
    inodes = 100 + (pages >> 12)
    return {"t_ns": np.arange(count) * 100_000, "dev": np.full(count, 8 << 20), "inode": inodes, "page": pages}


def _trace(pages: Any) -> Trace:
    return trace_of("made up", _columns(pages))


def _parquet(folder: Path, pages: Any) -> Path:
    path = folder / "trace.parquet"
    with duckdb.connect() as db:
        db.register("trace", _columns(pages))
        db.execute(f"COPY (SELECT t_ns / 1e9 AS t_s, dev, inode, page FROM trace) TO '{path}' (FORMAT PARQUET)")
    return path


def _from_parquet(path: Path, layers: list[Layer]) -> None:
    with trace_file(path) as trace:
        simulate(trace, layers)


def ordered_dict_hits(pages: list[int], capacity: int) -> int:
    """LRU as anyone would write it."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for page in pages:
        if page in held:
            hits += 1
            held.move_to_end(page)
            continue
        if len(held) == capacity:
            held.popitem(last=False)
        held[page] = None
    return hits


def stack_distances(pages: Any) -> Any:
    """Different pages written since the last write of this one, by whole arrays; -1 for the first write of a page.

    The distance of a write is how many earlier writes have a predecessor no later than its own: ranks among those
    before, counted bit by bit while the writes are sorted by the bits seen so far.
    """
    count = len(pages)
    order = np.argsort(pages, kind="stable")
    again = pages[order[1:]] == pages[order[:-1]]
    previous = np.full(count, -1)
    previous[order[1:][again]] = order[:-1][again]
    ranks = np.argsort(np.argsort(previous, kind="stable"), kind="stable")
    smaller, at, value = np.zeros(count, np.int64), np.arange(count), ranks
    for bit in range(max(1, int(count).bit_length()) - 1, -1, -1):
        high, ones = value >> (bit + 1), (value >> bit) & 1
        zeros_before = np.cumsum(1 - ones) - (1 - ones)
        begins = np.flatnonzero(np.diff(high, prepend=-1))
        group = np.repeat(begins, np.diff(np.append(begins, count)))
        smaller[at[ones == 1]] += (zeros_before - zeros_before[group])[ones == 1]
        sort = np.argsort(value >> bit, kind="stable")
        at, value = at[sort], value[sort]
    return np.where(previous >= 0, smaller - previous - 1, -1)


def _agree(pages: Any) -> None:
    theirs = ordered_dict_hits(pages.tolist(), SIZE_PAGES)
    distances = stack_distances(pages)
    ours = simulate(_trace(pages), [Layer(POLICIES["lru"], SIZE_PAGES * 4096)]).runs[0].writes.absorbed
    assert ours == theirs == int(((distances >= 0) & (distances < SIZE_PAGES)).sum())


def _estimate(values: list[float]) -> dict[str, float | None]:
    found = median_estimate(values)
    return {"value": found.value, "low": found.low, "high": found.high, "n": found.n}


def text(result: dict[str, Any]) -> str:
    def shown(figure: dict[str, Any]) -> str:
        interval = "" if figure["low"] is None else f" [{figure['low']:.3g}, {figure['high']:.3g}]"
        return f"{figure['value']:.3g}{interval}"

    lines = [f"  {name:24} {shown(figure)} million page writes a second of CPU time"
             for name, figure in result["million_writes_per_s"].items()]  # fmt: skip
    return "\n".join([*lines, f"  lru, against an OrderedDict: {shown(result['lru_over_ordered_dict'])} x"])


def main() -> None:
    rounds = next((int(word) for word in sys.argv[1:] if word.isdigit()), ROUNDS)
    result = measure(rounds)
    print(json.dumps(result, indent=1) if "--json" in sys.argv else text(result))


if __name__ == "__main__":
    main()
