"""The traced trials of a store as traces; and their flush latencies, worked out when they are asked for.

A sealed record is not written to: what is simulated depends on assumptions that the next person may not share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tare.analysis.cells import cells
from tare.analysis.flushing.model import PAGE_BYTES, POLICIES, Layer
from tare.records.model import USABLE, Record
from tare.records.store import Store
from tare.records.tables import TableName

if TYPE_CHECKING:
    from tare.analysis.flushing.traces import Trace

PAGE_WRITES = TableName("ftrace", "page_writes")
OURSELVES = "tare"  # the role of runner and sampler: what they write is not the workload's
CLAIMED_SHARE = 0.1  # of the pages that a trial wrote back: the layer that the claim is decided with, by LRU
NO_TRACE = (
    "no usable trial of this store has page writes: they take the ftrace probe with its write-back events "
    "(`probes: [ftrace]` in the study)"
)


def traced(store: Store, records: Sequence[Record]) -> list[Record]:
    """Those of the records that ended well and have page writes."""
    usable = [record for record in records if record.state in USABLE]
    return [record for record in usable if PAGE_WRITES in store.traces(record.trial, record.attempt)]


def store_traces(store: Store) -> Iterator[Trace]:
    """One trace a trial, under the settings that tell it from others."""
    records = traced(store, store.records())
    if not records:
        return
    label = cells(records, "platform") if all("platform" in record.settings for record in records) else None
    for record in records:
        yield _trace(store, record, label.label(record) if label else record.trial)


def _trace(store: Store, record: Record, name: str) -> Trace:
    from tare.analysis.flushing.traces import trace_of  # brings the compiler: not for a store without traces

    columns = store.trace(record.trial, record.attempt, *PAGE_WRITES)
    kept = np.flatnonzero(np.asarray(columns["role"]).astype(str) != OURSELVES)
    rows = kept[np.argsort(columns["t_ns"][kept], kind="stable")]
    # A page is one of the device here (`tare.traces.page_writes`): which file it was written for need not be known.
    placed = {name: columns[name][rows] for name in ("t_ns", "dev", "page", "role")}
    placed["inode"] = np.zeros(len(rows), np.int64)
    return trace_of(name, placed, settings={"trial": record.trial, **record.settings})


def with_flush_latencies(store: Store, records: Sequence[Record]) -> list[Record]:
    """The records, those with page writes with what a flushing layer would make of their latency a write-back."""
    ours = {(record.trial, record.attempt) for record in traced(store, records)}
    return [_with_latencies(store, record) if (record.trial, record.attempt) in ours else record for record in records]


def _with_latencies(store: Store, record: Record) -> Record:
    from tare.analysis.flushing.sweep import simulate

    trace = _trace(store, record, record.trial)
    if not trace.writes:
        return record
    pages = simulate(trace, ()).distinct_pages
    size_bytes = max(1, round(CLAIMED_SHARE * pages)) * PAGE_BYTES
    latency = simulate(trace, [Layer(POLICIES["lru"], size_bytes)], PAGE_BYTES).runs[0].latency
    found = {
        "flush_latency_disk_only_s": latency.disk_only_s / trace.writes,
        "flush_latency_nvm_s": latency.total_s / trace.writes,
    }
    return replace(record, metrics={**found, **record.metrics})
