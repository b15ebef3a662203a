"""A store as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing: the JSON of Chrome's trace events.

Each trial is a process: its marks are slices, one track a name; the series of its probes are counters; what recorders
of the kernel kept are instants. Times are microseconds of the device's monotonic clock from the first trial on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from tare.analysis.labels import text
from tare.base.errors import StoreError
from tare.records.intervals import intervals
from tare.records.model import Record
from tare.records.store import Store

MOST_INSTANTS = 50_000  # of a table of kernel events in one trial; more is for `tare trace`
_NS_PER_US = 1e3


def as_perfetto(store: Store) -> str:
    """All trials of a store."""
    return json.dumps({"traceEvents": list(events(store)), "displayTimeUnit": "ms"}, separators=(",", ":")) + "\n"


def events(store: Store) -> Iterator[dict[str, Any]]:
    """Every event, trial by trial."""
    records = store.records()
    origin_ns = min((record.start_ns for record in records), default=0)
    for pid, record in enumerate(records, start=1):
        yield _named("process_name", pid, 0, f"{_label(record)}, block {record.block}, {record.state}")
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}
        yield from _slices(store, record, pid, origin_ns)
        yield from _counters(store, record, pid, origin_ns)
        yield from _instants(store, record, pid, origin_ns)


def _label(record: Record) -> str:
    return ", ".join(text(value) for name, value in record.settings.items() if name in ("platform", "workload"))


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _slices(store: Store, record: Record, pid: int, origin_ns: int) -> Iterator[dict[str, Any]]:
    try:
        found = intervals(store.marks(record.trial, record.attempt))
    except StoreError:  # sealed without marks
        return
    tracks = {name: tid for tid, name in enumerate(found.names, start=1)}
    for name, tid in tracks.items():
        yield _named("thread_name", pid, tid, name)
    columns = (found.name.tolist(), found.step.tolist(), found.begin_ns.tolist(), found.end_ns.tolist())
    for name, step, begin, end in zip(*columns, strict=True):
        yield {
            "ph": "X", "name": name, "pid": pid, "tid": tracks[name], "ts": (begin - origin_ns) / _NS_PER_US,
            "dur": (end - begin) / _NS_PER_US, "args": {"step": step} if step >= 0 else {},
        }  # fmt: skip


def _counters(store: Store, record: Record, pid: int, origin_ns: int) -> Iterator[dict[str, Any]]:
    for name, (t_ns, values) in store.readings(record.trial, record.attempt).items():
        for at, value in zip(np.asarray(t_ns).tolist(), np.asarray(values, float).tolist(), strict=True):
            if value == value:  # a missing reading is no zero
                yield {"ph": "C", "name": name, "pid": pid, "ts": (at - origin_ns) / _NS_PER_US, "args": {"": value}}


def _instants(store: Store, record: Record, pid: int, origin_ns: int) -> Iterator[dict[str, Any]]:
    for table in store.traces(record.trial, record.attempt):
        columns = store.trace(record.trial, record.attempt, table.probe, table.table)
        for at in np.asarray(columns.get("t_ns", ()))[:MOST_INSTANTS].tolist():
            yield {
                "ph": "i", "s": "p", "name": table.table, "pid": pid, "tid": 0, "ts": (at - origin_ns) / _NS_PER_US,
                "cat": table.probe,
            }  # fmt: skip
