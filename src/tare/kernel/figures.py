"""Late figures of traced trials: counts of the kernel's events, reasons of write-backs, places with most page faults,
and what a flushing layer would make of the latency of a write-back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from tare.ext.analysis import Found, Make, TrialData, coded
from tare.kernel.counters import (
    CALLGRAPH_TABLE,
    DAEMON,
    FAULT_KEYS,
    FAULT_TABLE,
    MOST_PLACES,
    PROBE,
    TABLE,
    WORKLOAD,
    Place,
    places,
    scaled_counts,
)
from tare.kernel.nvm.sources import FlushLatencies, flush_latencies

COUNTED = (
    "page-faults", "minor-faults", "major-faults", "block_touch_buffer", "block_dirty_buffer", "block_rq_insert",
    "block_rq_issue", "block_rq_complete", "block_bio_queue", "block_bio_backmerge", "block_bio_frontmerge",
)  # fmt: skip
_INSERT, _FLUSHER = "block_rq_insert", "wb_workfn"
CPU_COUNTED = ("cycles", "instructions", "cache-misses")
WRITE_BACKS = "writeback_count"
REASONS = ("background", "periodic", "sync")  # of a write-back, as the kernel gives them
_OF_THE_CONTAINER = ("workload", "tenant", "daemon")  # roles: what would not run without it
FAULT_COLUMNS = ("role", *FAULT_KEYS)  # what the figures of page faults tell apart


def counts(beside: TrialData) -> Mapping[tuple[str, str], float]:
    table = beside.table(PROBE, TABLE)
    return {} if table is None else scaled_counts(table)


def fault_places(beside: TrialData) -> Sequence[Place]:
    """Where the faults of the container and its daemons came from, the most frequent place first."""
    table = beside.table(PROBE, FAULT_TABLE)
    if table is None:
        return ()
    roles, role = coded(table, "role")
    inside = np.isin(role, [at for at, each in enumerate(roles) if str(each).startswith(_OF_THE_CONTAINER)])
    words, which = zip(*(coded(table, name) for name in FAULT_KEYS), strict=True)
    sizes = [max(1, len(each)) for each in words]
    keys = np.ravel_multi_index([each[inside] for each in which], sizes)
    different, counts = np.unique(keys, return_counts=True)
    chosen = zip(*(each.tolist() for each in np.unravel_index(different, sizes)), strict=True)
    comm, file, function, cause = words
    named = ((comm[a], file[b], function[c], cause[d]) for a, b, c, d in chosen)
    return places(dict(zip(named, counts.tolist(), strict=True)))


def count_name(event: str) -> str:
    """`page-faults` as `count_page_faults`."""
    return f"count_{event.replace('-', '_')}"


def daemon_name(event: str) -> str:
    """`page-faults` as `daemon_page_faults`."""
    return f"daemon_{event.replace('-', '_')}"


def _count(event: str, beside: TrialData, role: str = WORKLOAD) -> Found | None:
    """As often as it was counted; the kinds of cores of a hybrid CPU together, unless one of them is named."""
    found = [count for (who, name), count in beside.shared(counts).items() if who == role and _is_event(name, event)]
    return Found(sum(found)) if found else None


def _is_event(name: str, event: str) -> bool:
    return name == event or ("/" not in event and name.endswith(f"/{event}"))


def _flusher_share(beside: TrialData) -> Found | None:
    """Of the block requests whose call graphs were kept: those that the kernel's flusher inserted."""
    table = beside.table(PROBE, CALLGRAPH_TABLE)
    if table is None:
        return None
    rows = zip(*(table[name].tolist() for name in ("event", "stack", "count")), strict=True)
    inserted = [(stack.split(";"), int(count)) for event, stack, count in rows if event.endswith(_INSERT)]
    total = sum(count for _, count in inserted)
    of_flusher = sum(count for stack, count in inserted if _FLUSHER in stack)
    return Found(of_flusher / total, f"below {_FLUSHER}, of {total} samples") if total else None


def _place_share(rank: int, beside: TrialData) -> Found | None:
    """Of the faults of the container and its daemons, those of the place with most of them, with second most, ..."""
    found = beside.shared(fault_places)
    if len(found) <= rank:
        return None
    place = found[rank]
    return Found(place.share, f"{place.comm} {place.file.rpartition('/')[2]} {place.function} ({place.cause})")


def _of_reason(name: str, beside: TrialData) -> Found | None:
    """Write-backs of one reason. Where they were traced and none had it that is none: records lack the count then.

    It is made here and not in the record: a store that was sealed without it must stay as it was derived.
    """
    found = beside.record.metrics
    return Found(found.get(name, 0.0)) if WRITE_BACKS in found else None


def _top_places(beside: TrialData) -> Found | None:
    """Faults of the container and its daemons: those of the ten places with most (`tare show STORE kernel`)."""
    found = beside.shared(fault_places)
    return Found(sum(place.share for place in found[:MOST_PLACES])) if found else None


def _flush_latency(field: str, beside: TrialData) -> Found | None:
    """A latency a page; simulated when it is asked for, since it rests on assumptions that not everybody shares."""
    found = beside.shared(_latencies)
    return None if found is None else Found(getattr(found, field))


def _latencies(beside: TrialData) -> FlushLatencies | None:
    return flush_latencies(beside.store, beside.record)


FIGURES: Mapping[str, Make] = {
    **{count_name(event): partial(_count, event) for event in COUNTED},
    **{daemon_name(event): partial(_count, event, role=DAEMON) for event in (*COUNTED, *CPU_COUNTED)},
    **{name: partial(_of_reason, name) for name in (f"writeback_{reason}_count" for reason in REASONS)},
    "fault_top10_place_share": _top_places,
    "flusher_insert_share": _flusher_share,
    **{f"fault_place{rank + 1}_share": partial(_place_share, rank) for rank in range(MOST_PLACES)},
    **{
        f"{kind}_{event.replace('-', '_')}": partial(_count, f"cpu_{kind}/{event}")
        for kind in ("core", "atom")
        for event in (*CPU_COUNTED, "loads", "stores")
    },
    "flush_latency_disk_only_s": partial(_flush_latency, "disk_only_s"),
    "flush_latency_nvm_s": partial(_flush_latency, "nvm_s"),
}
