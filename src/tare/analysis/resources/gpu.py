"""What a workload's GPU waited for, in one word, and what to change: from the shares of the window that CUPTI saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tare.analysis.model import Estimate

GpuBinds: TypeAlias = Literal["gpu", "copy", "launch", "sync", "data"]

BUSY = "gpu_busy_share"
FIGURES = (BUSY, "gpu_idle_share", "gpu_memory_bytes", "gpu_power_w", "energy_gpus_step_j")  # of a line
SHARES = (BUSY, "gpu_idle_share", "gpu_launch_share", "gpu_sync_share", "gpu_data_share", "gpu_copying_share")
ENOUGH_IDLE = 0.1  # a GPU that is idle for less of the time is what the workload is bound by

NAMES: Mapping[GpuBinds, str] = {
    "gpu": "GPU-bound",
    "copy": "copy-bound",
    "launch": "launch-bound",
    "sync": "bound by synchronising calls",
    "data": "waits for data",
}
ADVICE: Mapping[str, str] = {  # by GpuBinds
    "gpu": "the GPU is the limit: lower precision (bf16), fused kernels or a faster GPU shorten the step.",
    "copy": "the GPU mostly copies: use pinned memory and non_blocking copies, or keep the data on the GPU.",
    "launch": "the GPU waits for Python to launch kernels: use torch.compile or CUDA graphs, a larger batch, or fused "
    "optimisers.",
    "sync": "the host waits for the GPU in each step and gives it work late: remove `.item()`, `.cpu()`, `print(loss)` "
    "and copies from pageable memory from the loop.",
    "data": "the GPU waits for mini-batches: add loader workers, or make the data faster (`tare analyse pipeline`).",
}


def binds(shares: Mapping[str, float]) -> GpuBinds | None:
    """By the largest of what the GPU waited for; None where its activity is not known."""
    if BUSY not in shares:
        return None
    waits: dict[GpuBinds, float] = {
        "launch": shares.get("gpu_launch_share", 0.0),
        "sync": shares.get("gpu_sync_share", 0.0),
        "data": shares.get("gpu_data_share", 0.0),
    }
    copying = shares.get("gpu_copying_share", 0.0)
    if sum(waits.values()) < ENOUGH_IDLE:
        return "copy" if copying > shares[BUSY] / 2 else "gpu"
    most = max(waits, key=lambda name: waits[name])
    return "copy" if copying > waits[most] else most


@dataclass(frozen=True, slots=True)
class GpuUse:
    """What is known of a level's GPUs: medians over its trials."""

    level: str
    figures: Mapping[str, Estimate]  # by metric; those of FIGURES that there are
    binds: GpuBinds | None
    syncs: float = 0.0  # a step
    pageable: float = 0.0  # copies from or to pageable memory, a step
    bound_share: float | None = None  # so far may the energy be off


def gpu_uses(medians: Mapping[str, Mapping[str, Estimate]]) -> list[GpuUse]:
    """One for each level that has figures of a GPU, from `Weighing.medians`."""
    found = []
    for level, figures in medians.items():
        own = {name: figures[name] for name in FIGURES if name in figures}
        if not own:
            continue
        shares = {name: figures[name].value for name in SHARES if name in figures}
        syncs, pageable, bound = (
            figures.get(name) for name in ("gpu_syncs", "gpu_pageable_copies", "energy_bound_share")
        )
        found.append(
            GpuUse(
                level,
                own,
                binds(shares),
                syncs=0.0 if syncs is None else syncs.value,
                pageable=0.0 if pageable is None else pageable.value,
                bound_share=None if bound is None else bound.value,
            )
        )
    return found
