"""Figures that a record does not hold by itself: medians of what the sampler saw, and counts of the kernel's events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tare.analysis.kernel.counters import PROBE, TABLE, WORKLOAD, scaled_counts
from tare.records.model import USABLE, Record
from tare.records.store import Store
from tare.records.tables import TableName

_MEDIAN = 0.5
COUNTED = (
    "page-faults", "minor-faults", "major-faults", "block_touch_buffer", "block_dirty_buffer", "block_rq_insert",
    "block_rq_issue", "block_rq_complete", "block_bio_queue", "block_bio_backmerge", "block_bio_frontmerge",
)  # fmt: skip


@dataclass(frozen=True)
class Median:
    """The median of a channel in one trial; of a counter, of how fast it rose in a second."""

    channels: tuple[str, ...]  # the first that the trial has
    scaled: Callable[[float, Record], float | None] = lambda value, _: value


def _of_all_cores(busy_s: float, record: Record) -> float | None:
    cores = (record.facts.get("device") or {}).get("cores")
    return busy_s / cores if isinstance(cores, int) and cores > 0 else None


def _in_use(available_bytes: float, record: Record) -> float | None:
    whole = (record.facts.get("device") or {}).get("memory_bytes")
    return whole - available_bytes if isinstance(whole, int | float) and whole > available_bytes else None


MEDIANS: Mapping[str, Median] = {
    "gpu_util_share": Median(("gpu.util",)),
    "cpu_busy_share": Median(("cpu.busy_s",), _of_all_cores),
    "memory_median_bytes": Median(("memory.available_bytes",), _in_use),
    "power_median_w": Median(("external.power_w", "power_rails.total_w", "gpu.power_w", "power_rapl.total_j")),
    "page_cache_share": Median(("page_cache.share",)),
}


def count_name(event: str) -> str:
    """`page-faults` as `count_page_faults`."""
    return f"count_{event.replace('-', '_')}"


def with_figures(store: Store, record: Record) -> Record:
    """The record, with these figures beside its own."""
    if record.state not in USABLE:
        return record
    return replace(record, metrics={**record.metrics, **_medians(store, record), **_counts(store, record)})


def _medians(store: Store, record: Record) -> dict[str, float]:
    held = {str(each["name"]): each for each in store.channels(record.trial, record.attempt)}
    found = {}
    for name, median in MEDIANS.items():
        channel = next((held[each] for each in median.channels if held.get(each, {}).get("quantiles")), None)
        if channel is None:
            continue
        quantiles = channel["quantiles"]
        value = median.scaled(float(quantiles[round(_MEDIAN * (len(quantiles) - 1))]), record)
        if value is not None:
            found[name] = value
    return found


def _counts(store: Store, record: Record) -> dict[str, float]:
    if TableName(PROBE, TABLE) not in store.traces(record.trial, record.attempt):
        return {}
    counted = scaled_counts(store.trace(record.trial, record.attempt, PROBE, TABLE))
    return {
        count_name(event): count for (role, event), count in counted.items() if role == WORKLOAD and event in COUNTED
    }
