"""The names of the figures that claims read, each in one place; the first that the records have is used.

Times come from every trial with marks. Energy, system calls, hardware counters, write-backs and the flushing layer come
from probes and simulations that a trial must have asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

from tare.records.model import Record

Names = tuple[str, ...]

STEP: Names = ("step_s", "wall_s")
MEAN_STEP: Names = ("step_mean_s", "step_s")
STALL: Names = ("stall_mean_s", "stall_s")  # a stall in every fourth step has no median
COMPUTE: Names = ("compute_s", "inference_s", "step_s")
INFERENCE: Names = ("inference_s", "compute_s")
ENERGY: Names = ("energy_step_j", "energy_j")
TOTAL_ENERGY: Names = ("energy_j",)
CLOCK: Names = ("gpu_clock_hz", "cpu_clock_hz")  # median over the run, as the device had it
BASELOAD: Names = ("energy_baseload_j",)  # of the same trial: idle power of the platform, scaled by the run's time
MEMORY: Names = ("memory_used_bytes", "max_rss_bytes")
SYSTEM_CALLS: Names = ("system_calls",)
CYCLES: Names = ("cycles",)
WRITEBACK_INTERVAL: Names = ("writeback_interval_s",)  # mean time between two write-backs
WRITEBACK_DEVIATION: Names = ("writeback_interval_sd_s",)
WRITEBACK_PAGES: Names = ("writeback_pages",)
WRITEBACKS: Names = ("writeback_count",)
BACKGROUND: Names = ("writeback_background_count",)
TOP_FAULTS: Names = ("fault_top10_share",)  # of all page faults: those of the ten files that have most of them
HOT_EARLY: Names = ("writeback_hot_share_early",)  # of the write-backs: those of the hottest hundredth of the pages
HOT_LATE: Names = ("writeback_hot_share_late",)
FLUSH: Names = ("flush_latency_disk_only_s",)
FLUSH_WITH_NVM: Names = ("flush_latency_nvm_s",)

WORDS: Mapping[Names, str] = {
    STEP: "end-to-end time", MEAN_STEP: "end-to-end time", STALL: "fetch stall", COMPUTE: "compute",
    INFERENCE: "inference", CLOCK: "clock", ENERGY: "energy", TOTAL_ENERGY: "energy", BASELOAD: "baseload energy",
    MEMORY: "memory", SYSTEM_CALLS: "system calls", CYCLES: "CPU cycles",
    WRITEBACK_INTERVAL: "time between write-backs", WRITEBACK_DEVIATION: "spread of the time between write-backs",
    WRITEBACK_PAGES: "pages written back", WRITEBACKS: "write-backs", BACKGROUND: "background write-backs",
    TOP_FAULTS: "share of the ten files with most page faults", HOT_EARLY: "early share of the hottest pages",
    HOT_LATE: "late share of the hottest pages", FLUSH: "flush latency", FLUSH_WITH_NVM: "flush latency with NVM",
}  # fmt: skip
_PROBES: Mapping[Names, str] = {
    ENERGY: "a power probe", TOTAL_ENERGY: "a power probe", BASELOAD: "a baseload (`tare baseload`)",
    CLOCK: "the frequency probe", SYSTEM_CALLS: "the syscalls probe", CYCLES: "the perf probe",
    WRITEBACK_INTERVAL: "the ftrace probe", WRITEBACK_DEVIATION: "the ftrace probe",
    WRITEBACK_PAGES: "the ftrace probe", WRITEBACKS: "the ftrace probe", BACKGROUND: "the ftrace probe",
    TOP_FAULTS: "the perf probe", HOT_EARLY: "the ftrace probe", HOT_LATE: "the ftrace probe",
    FLUSH: "the ftrace probe, whose page writes are simulated (`tare simulate`)",
    FLUSH_WITH_NVM: "the ftrace probe, whose page writes are simulated (`tare simulate`)",
}  # fmt: skip


def absent(names: Names) -> str:
    """What to say where no trial has the figure: `no trial has energy (energy_step_j): it takes a power probe`."""
    takes = f": it takes {_PROBES[names]}" if names in _PROBES else ""
    return f"no trial has {WORDS.get(names, names[0])} ({names[0]}){takes}"


def page_faults(record: Record) -> float | None:
    """Minor and major ones together."""
    found = [record.metrics[name] for name in ("minor_faults", "major_faults") if name in record.metrics]
    return sum(found) if found else None
