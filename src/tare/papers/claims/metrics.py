"""The names of the figures that claims read, each in one place; the first that the records have is used.

Times come from every trial with marks. Energy, system calls, hardware counters, write-backs and the flushing layer come
from probes and simulations that a trial must have asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from tare.ext.analysis import Record, collected, doubt_about_energy, parity, placed
from tare.ext.analysis import label_text as text

Names = tuple[str, ...]

STEP: Names = ("step_s", "wall_s")
MEAN_STEP: Names = ("step_mean_s", "step_s")
END_TO_END: Names = ("step_mean_s", "step_s", "wall_s")  # the median step does not see a quota that stops every tenth
STALL: Names = ("stall_mean_s", "stall_s")  # a stall in every fourth step has no median
EPOCH0: Names = ("epoch0_stall_mean_s", "epoch0_step_mean_s", "epoch0_stall_s", "epoch0_step_s")
EPOCH0_STEP: Names = ("epoch0_step_mean_s", "epoch0_step_s")
COMPUTE: Names = ("compute_s", "inference_s", "step_s")
INFERENCE: Names = ("compute_mean_s", "inference_s", "compute_s")  # of a request, compute is its inference
ENERGY: Names = ("energy_step_j", "energy_j")
EPOCH_ENERGY: Names = ("energy_epoch_farthest_share",)  # the epoch farthest from the mean, as a share of it
TOTAL_ENERGY: Names = ("energy_j",)
CLOCK: Names = ("gpu_clock_hz", "cpu_clock_hz")  # median over the run, as the device had it
BASELOAD: Names = ("energy_baseload_j",)  # of the same trial: idle power of the platform, scaled by the run's time
MEMORY: Names = ("memory_median_bytes",)  # of the whole device: what is not available, while the measured steps ran
GPU_USE: Names = ("gpu_util_share",)  # medians over the measured steps
CPU_USE: Names = ("cpu_busy_share",)
POWER: Names = ("power_mean_w",)
SYSTEM_CALLS: Names = ("system_calls",)
CYCLES: Names = ("cycles",)
PAGE_FAULTS: Names = ("count_page_faults",)
INSERTED: Names = ("count_block_rq_insert",)
DAEMON_FAULTS: Names = ("daemon_page_faults",)  # of the engine's daemons, while the workload ran
DAEMON_CYCLES: Names = ("daemon_cycles",)
WRITEBACK_INTERVAL: Names = ("writeback_interval_s",)  # mean time between two write-backs
WRITEBACK_DEVIATION: Names = ("writeback_interval_sd_s",)
WRITTEN_PAGES: Names = ("written_pages", "writeback_pages")  # all of them; where they were not traced, the flusher's
WRITEBACKS: Names = ("writeback_count",)
BACKGROUND: Names = ("writeback_background_count",)
TOP_FAULTS: Names = ("fault_top10_share",)  # of all page faults: those of the ten files that have most of them
HOT_EARLY: Names = ("writeback_hot_share_early",)  # of the write-backs: those of the hottest hundredth of the pages
HOT_LATE: Names = ("writeback_hot_share_late",)
FLUSH: Names = ("flush_latency_disk_only_s",)
FLUSH_WITH_NVM: Names = ("flush_latency_nvm_s",)

WORDS: Mapping[Names, str] = {
    STEP: "end-to-end time", MEAN_STEP: "end-to-end time", END_TO_END: "end-to-end time", STALL: "fetch stall",
    COMPUTE: "compute", INFERENCE: "inference", CLOCK: "clock", ENERGY: "energy", TOTAL_ENERGY: "energy",
    EPOCH_ENERGY: "energy of each epoch",
    BASELOAD: "baseload energy", MEMORY: "memory in use on the device", SYSTEM_CALLS: "system calls",
    CYCLES: "CPU cycles", GPU_USE: "use of the GPU", CPU_USE: "use of the CPU", POWER: "power",
    PAGE_FAULTS: "page faults", INSERTED: "block requests inserted", DAEMON_FAULTS: "page faults of the daemons",
    DAEMON_CYCLES: "CPU cycles of the daemons",
    WRITEBACK_INTERVAL: "time between write-backs", WRITEBACK_DEVIATION: "spread of the time between write-backs",
    WRITTEN_PAGES: "pages written", WRITEBACKS: "write-backs", BACKGROUND: "background write-backs",
    TOP_FAULTS: "share of the ten files with most page faults", HOT_EARLY: "early share of the hottest pages",
    HOT_LATE: "late share of the hottest pages", FLUSH: "flush latency", FLUSH_WITH_NVM: "flush latency with NVM",
}  # fmt: skip
# Probe -> what is made of it only where it ran on several platforms, for claims that compare them.
OF_PLATFORMS: Mapping[str, Names] = {
    "memory": MEMORY,
    "gpu": (*GPU_USE, *CPU_USE),  # the use of the CPU is asked for where a GPU's is
    "perf": (*PAGE_FAULTS, *INSERTED, *DAEMON_FAULTS, *DAEMON_CYCLES),
}
LATER_EPOCHS = 10  # after epoch 0: what varies little between three may vary a lot between ten
_GPU = "gpu"
_POWER = ("power_rails", "power_rapl", "external", _GPU)
_SIMULATED = "the ftrace probe, whose page writes are simulated (`tare trace simulate`)"
_NOT_COUNTED, _SAW_LITTLE = "this device does not count it", "saw too little of it"
_TOLD_NOTHING: Mapping[Names, str] = {TOP_FAULTS: "kept no places of page faults (`faults: true`)"}
# What a figure takes, in words, and the probes that give it.
_PROBES: Mapping[Names, tuple[str, tuple[str, ...]]] = {
    EPOCH_ENERGY: ("a power probe that is read five times in an epoch", _POWER),
    **dict.fromkeys((ENERGY, TOTAL_ENERGY, POWER), ("a power probe", _POWER)),
    **dict.fromkeys((FLUSH, FLUSH_WITH_NVM), (_SIMULATED, ())),
    **{
        names: (f"the {probe} probe", (probe,))
        for probe, several in {
            "cpu": (CPU_USE,),
            "frequency": (CLOCK,),
            "gpu": (GPU_USE,),
            "memory": (MEMORY,),
            "perf": (PAGE_FAULTS, INSERTED, DAEMON_FAULTS, DAEMON_CYCLES, CYCLES, TOP_FAULTS),
            "syscalls": (SYSTEM_CALLS,),
            "ftrace": (
                WRITEBACK_INTERVAL, WRITEBACK_DEVIATION, WRITTEN_PAGES, WRITEBACKS, BACKGROUND, HOT_EARLY, HOT_LATE,
            ),
        }.items()
        for names in several
    },
}  # fmt: skip


def absent(names: Names, records: Sequence[Record] = ()) -> str:
    """What to say where no trial has the figure: `no trial has energy (energy_step_j): it takes a power probe`.

    Where the probe was there, that it ran, and what is known of why it told nothing.
    """
    figure = f"{WORDS.get(names, names[0])} ({names[0]})"
    if any(name in record.compared for record in records for name in names):
        return f"not all trials that would be compared have {figure}"
    if any(name in record.metrics for record in records for name in names):
        return f"a tracer was running in every trial that has {figure}, so that it is not compared"
    if names == BASELOAD:
        return f"no baseload was measured ({names[0]}): it takes `tare device baseload`"
    if names in (ENERGY, TOTAL_ENERGY, POWER) and (doubt := doubt_about_energy(records)):
        return f"energy was read and is not claimed ({names[0]}): {doubt}"
    if names not in _PROBES:
        return f"no trial has {figure}"
    takes, probes = _PROBES[names]
    ran = [probe for probe in probes if any(_ran(probe, record, probes == _POWER) for record in records)]
    if ran:
        told = _TOLD_NOTHING.get(names) or (_SAW_LITTLE if ran[0] == "ftrace" else _NOT_COUNTED)
        return f"no trial has {figure}: {_not_made(names, records) or f'the {ran[0]} probe ran, and {told}'}"
    return f"no trial has {figure}: it takes {takes}"


def _not_made(names: Names, records: Sequence[Record]) -> str:
    """Why a figure was not worked out of what its probe has read; nothing where it was tried."""
    if names == EPOCH_ENERGY:
        long = [record for record in records if (record.settings.get("workload.epochs") or 0) > LATER_EPOCHS]
        if not long:
            return f"it takes trials of more than {LATER_EPOCHS} epochs"
        has_energy = any(TOTAL_ENERGY[0] in record.metrics for record in long)
        return "power was read less than five times in an epoch" if has_energy else doubt_about_energy(long) or ""
    probe = next((probe for probe, figures in OF_PLATFORMS.items() if names[0] in figures), None)
    if probe is None or (count := platforms_with(probe, records)) > 1:
        return ""
    return f"it is compared between platforms, and the {probe} probe ran on {'only one' if count else 'none'}"


def platforms_with(probe: str, records: Sequence[Record]) -> int:
    """On how many platforms a probe ran."""
    return len({record.settings.get("platform") for record in records if probe in probes_of(record)})


def _ran(probe: str, record: Record, for_power: bool) -> bool:
    """Whether it ran as a probe of this figure: a Jetson's GPU tells its clock, and its power is a rail's.

    So the GPU's counts for power only where anything told power or energy, or would have without a doubt about it.
    """
    if probe != _GPU or not for_power:
        return probe in probes_of(record)
    doubted = (record.facts.get("energy") or {}).get("source")
    told = any(name.startswith(("energy", "power")) or "_power_" in name for name in record.metrics)
    return probe in probes_of(record) and bool(doubted or told)


def probes_of(record: Record) -> list[str]:
    """The probes that were asked for; records have `cpu,memory,perf`."""
    return str(record.settings.get("probes") or "").split(",")


def page_faults(record: Record) -> float | None:
    """Minor and major ones together."""
    found = [record.metrics[name] for name in ("minor_faults", "major_faults") if name in record.metrics]
    return sum(found) if found else None


def background_share(record: Record) -> float | None:
    """Of the write-backs, those that the kernel began since too much was dirty; where they were traced, none is 0."""
    count = record.metrics.get(WRITEBACKS[0], 0.0)
    return record.metrics.get(BACKGROUND[0], 0.0) / count if count > 0 else None


# What a record's settings mean to the claims: who is a container, which model is light, which medium is slow.

Value: TypeAlias = str | float | bool
Cell: TypeAlias = frozenset[tuple[str, Value]]
Factor: TypeAlias = str | None  # the name of a setting; None where none is meant, and then no cell has a level of it

CONTAINERS = ("docker", "podman", "runc", "gvisor")
MACHINES = ("qemu",)
MICRO_MACHINES = ("microvm", "firecracker")
TRAINING = ("torch_train",)
NO_NETWORK = ("server", "null")  # workloads that train nothing and infer nothing; what is idle, one claim asks for
_NOT_FACTORS = ("probes", "platform.python")

# Multiply-adds of one item, in millions, as the papers' tables have them (S0 II, S3 2) or as the networks are defined.
MILLIONS: Mapping[str, float] = {
    "lenet5": 4.4, "mobilenet_v3_large": 225.4, "squeezenet": 349.0, "alexnet": 714.0, "resnet18": 1_820.0,
    "resnet50": 4_000.0, "mobilebert": 5_700.0, "vgg11": 7_630.0, "bert_large": 123_000.0,
    "nasnet": 573.0, "googlenet": 1_586.0, "resnet152": 11_559.0,
}  # fmt: skip
MEDIA = ("hdd", "sd", "emmc", "ssd", "nvme", "tmpfs", "memory")  # from the slowest
_MEDIUM = ("emulate", "storage", "medium", "disk", "media")


def cell_of(record: Record) -> Cell:
    """The settings that tell a trial's cell from others, without what is None; a stack has its outermost placement."""
    found: dict[str, Value] = {}
    for name, value in sorted(placed(record).settings.items()):
        if value is None or name in _NOT_FACTORS:
            continue
        last = name.rpartition(".")[2]
        if not name.startswith("platform."):
            found[name] = plain(value)
        elif last == "isolation" and isinstance(value, list | tuple):
            found["platform.seccomp"] = "seccomp" in value
            found["platform.isolation"] = text(sorted(str(layer) for layer in value if layer != "seccomp"))
        else:
            found[name] = plain(value)
    return frozenset(found.items())


def plain(value: Any) -> Value:
    return value if isinstance(value, str | int | float | bool) else text(value)


def level(cell: Cell, name: Factor) -> Value | None:
    return _by_name(cell).get(name)


_by_name: Callable[[Cell], dict[Factor, Value]] = lru_cache(maxsize=4096)(dict)


def on(*platforms: str) -> Callable[[Cell], bool]:
    """Whether a cell is on one of these platforms, with no other in it."""
    return lambda cell: level(cell, "platform") in platforms


is_bare, is_container = on("bare"), on(*CONTAINERS)
is_machine, is_micro_machine = on(*MACHINES), on(*MICRO_MACHINES)


def is_container_in_machine(cell: Cell) -> bool:
    outer, _, inner = str(level(cell, "platform")).partition("+")
    return outer in (*MACHINES, *MICRO_MACHINES) and inner in CONTAINERS


def is_virtual(cell: Cell) -> bool:
    return not is_bare(cell)


def trains(record: Record) -> bool:
    return record.settings.get("workload") in TRAINING


def infers(record: Record) -> bool:
    return record.settings.get("workload") in parity.INFERENCE


def has_network(record: Record) -> bool:
    """Whether it can be evidence: the papers' claims are about training and inference."""
    return record.settings.get("workload") not in NO_NETWORK


def medium_rank(medium: Value) -> float | None:
    """Its place from the slowest; None for a medium that is known by its path alone."""
    return float(MEDIA.index(str(medium))) if str(medium) in MEDIA else None


def weight(model: Value) -> float | None:
    """How much computing a model takes; None for one that is not in the table."""
    return MILLIONS.get(str(model))


def factor_named(cells: Mapping[Cell, object], *names: str) -> Factor:
    """The setting that ends in one of these names (`control.power_mode.cpu_mhz` for `cpu_mhz`), and varies most."""
    settings = {item for cell in cells for item in cell if item[0] in names or item[0].rpartition(".")[2] in names}
    seen = collected(settings)
    return max(seen, key=lambda key: (len(seen[key]), key), default=None)


def is_medium(name: str) -> bool:
    """Whether a setting says which storage medium is used."""
    return name in _MEDIUM or name.rpartition(".")[2] in _MEDIUM


def medium_factor(cells: Mapping[Cell, object]) -> Factor:
    return factor_named(cells, *_MEDIUM)
