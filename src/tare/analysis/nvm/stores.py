"""The traced trials of a store as traces; and their flush latencies, worked out when they are asked for.

A sealed record is not written to: what is simulated depends on assumptions that the next person may not share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tare.analysis.cells import cells
from tare.analysis.nvm.model import PAGE_BYTES, POLICIES, Layer, Run, Writes
from tare.analysis.nvm.recency import Counted, Recency
from tare.analysis.nvm.trace import Trace, trace_of
from tare.records.intervals import coded
from tare.records.model import Record
from tare.records.parquet import TableName
from tare.records.store import Store
from tare.records.trials import is_usable, usable_trials

PAGE_WRITES = TableName("ftrace", "page_writes")
OURSELVES = "tare"  # the role of runner and sampler: what they write is not the workload's
CLAIMED_SHARE = 0.1  # of the pages that a trial wrote back: the layer that the claim is decided with, by LRU
NO_TRACE = (
    "no usable trial of this store has page writes: they take the ftrace probe with its write-back events "
    "(`probes: [ftrace]` in the study)"
)


def has_page_writes(store: Store, record: Record) -> bool:
    """Whether it ended well and has page writes."""
    return is_usable(record) and PAGE_WRITES in store.traces(record.trial, record.attempt)


def store_traces(store: Store) -> Iterator[Trace]:
    """One trace a trial, under the settings that tell it from others."""
    records = usable_trials(store.records(), partial(has_page_writes, store))
    if not records:
        return
    label = cells(records, "platform") if all("platform" in record.settings for record in records) else None
    for record in records:
        yield _trace(store, record, label.label(record) if label else record.trial)


def _trace(store: Store, record: Record, name: str) -> Trace:
    columns = store.trace(record.trial, record.attempt, *PAGE_WRITES)
    roles, role = coded(columns, "role")
    kept = np.flatnonzero(np.isin(role, [at for at, each in enumerate(roles) if each == OURSELVES], invert=True))
    rows = kept[np.argsort(columns["t_ns"][kept], kind="stable")]
    # A page is one of the device here (`tare.traces.page_writes`): which file it was written for need not be known.
    placed = {name: columns[name][rows] for name in ("t_ns", "dev", "page")}
    who = roles, role[rows]
    return trace_of(name, placed, who, settings={"trial": record.trial, **record.settings})


def with_flush_latencies(store: Store, records: Sequence[Record]) -> list[Record]:
    """The records, those with page writes with what a flushing layer would make of their latency a write-back."""
    return [_with_latencies(store, record) if has_page_writes(store, record) else record for record in records]


def _with_latencies(store: Store, record: Record) -> Record:
    """Counted, not replayed: to import and load a compiler would take longer than what a trial writes."""
    trace = _trace(store, record, record.trial)
    if not trace.writes:
        return record
    [piece] = trace.pieces()
    recency = Recency(most=0)  # there is no part after this one
    part = recency.part(piece.keys)
    size_bytes = max(1, round(CLAIMED_SHARE * recency.known)) * PAGE_BYTES
    layer = Counted(Layer(POLICIES["lru"], size_bytes), trace, PAGE_BYTES, shares=1)
    layer.shares[0].feed(part, recency.known, piece.tenants)
    latency = layer.run().latency
    found = {
        "flush_latency_disk_only_s": latency.disk_only_s / trace.writes,
        "flush_latency_nvm_s": latency.total_s / trace.writes,
    }
    return replace(record, metrics={**found, **record.metrics})


LOW, HIGH = 0.77, 0.90  # of the disk-only latency; the mean of its eight cases is 82 %


@dataclass(frozen=True)
class Band:
    """Where a policy's improvements cross the paper's, from the smallest buffer to the largest."""

    policy: str
    destage: str
    below: Run | None  # the largest buffer that does not reach them
    within: tuple[Run, ...]
    above: Run | None  # the smallest one that is beyond them


def bands(runs: Sequence[Run]) -> list[Band]:
    """One for each policy and way to destage."""
    found = []
    for policy, destage in dict.fromkeys((run.layer.policy.name, run.layer.destage.name) for run in runs):
        ours = [run for run in runs if (run.layer.policy.name, run.layer.destage.name) == (policy, destage)]
        ours = sorted((run for run in ours if run.layer.policy.buffers), key=capacity)
        if ours:
            below = [run for run in ours if run.latency.improvement < LOW]
            within = [run for run in ours if LOW <= run.latency.improvement <= HIGH]
            above = [run for run in ours if run.latency.improvement > HIGH]
            found.append(
                Band(policy, destage, below[-1] if below else None, tuple(within), above[0] if above else None)
            )
    return found


def capacity(run: Run) -> float:
    """Bytes of the buffer; one without a limit is larger than any."""
    return float("inf") if run.layer.nvm_bytes is None else run.layer.nvm_bytes


def pooled(runs: Sequence[Run], trace: str) -> Run:
    """The same layer over several traces, as one: their write-backs together."""
    tenants: dict[str, Writes] = {}
    for run in runs:
        for name, writes in run.tenants.items():
            tenants[name] = tenants.get(name, Writes()) + writes
    return Run(
        runs[0].layer,
        tenants,
        destaged=sum(run.destaged for run in runs),
        left=sum(run.left for run in runs),
        pages=runs[0].pages,
        trace=trace,
        duration_s=sum(run.duration_s for run in runs),
    )
