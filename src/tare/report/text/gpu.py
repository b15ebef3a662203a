"""The GPU lines of a verdict: busy, memory, power, energy a step of each level, what binds it, what to change."""

from __future__ import annotations

from tare.analysis.model import Estimate, Weighing
from tare.analysis.resources.gpu import ADVICE, BUSY, NAMES, GpuUse, gpu_uses
from tare.base.text import count_text, in_units, quantity_texts, safe_text, share_text
from tare.report.columns import Chunk, display_width, flow, wrap

_SHOWN = {  # metric -> what stands around its median
    BUSY: "busy {}",
    "gpu_idle_share": "idle {}",
    "gpu_memory_bytes": "{}",
    "gpu_power_w": "{}",
    "energy_gpus_step_j": "{} per step",
}
_SEVERAL = 1.5  # counts a step: below that it is one


def gpu_lines(weighing: Weighing, width: int) -> list[str]:
    """A line a level; nothing where no GPU was watched."""
    uses = gpu_uses(weighing.medians)
    if not uses:
        return []
    widest = max(display_width(safe_text(use.level)) for use in uses)
    lines = [""]
    for use in uses:
        name = safe_text(use.level)
        first = f"GPU, {name}:{' ' * (widest - display_width(name))} "
        lines += flow(_chunks(use, weighing.unit), width, first=first, indent="  ")
    for sentence in gpu_advice(uses):
        lines += [f"  {line}" for line in wrap(in_units(sentence, weighing.unit), width - 2, indent="  ")]
    return lines


def _chunks(use: GpuUse, unit: str) -> list[Chunk]:
    told = [
        Chunk(in_units(_figure(metric, use.figures[metric]), unit), "  ") for metric in _SHOWN if metric in use.figures
    ]
    if use.bound_share is not None and "energy_gpus_step_j" in use.figures:
        told.append(Chunk(f"(within {share_text(use.bound_share)})"))
    if use.binds is not None:
        told.append(Chunk(NAMES[use.binds], "   "))
    return told


def _figure(metric: str, estimate: Estimate) -> str:
    """`busy 62.5 % [61.9, 63.0]`."""
    if estimate.low is None or estimate.high is None:
        return _SHOWN[metric].format(quantity_texts(metric, [estimate.value])[0])
    value, low, high = quantity_texts(metric, [estimate.value, estimate.low, estimate.high])
    return _SHOWN[metric].format(f"{value} [{low.split(' ')[0]}, {high.split(' ')[0]}]")


def gpu_advice(uses: list[GpuUse]) -> list[str]:
    """What to change, each sentence once; with the calls and copies that a step has."""
    told = []
    for use in uses:
        if use.binds is None:
            continue
        told.append(f"{NAMES[use.binds]}: {ADVICE[use.binds]}")
        if use.syncs >= 1 and use.binds != "gpu":
            calls = count_text(round(use.syncs), "call") if use.syncs < _SEVERAL else f"{use.syncs:.0f} calls"
            told.append(f"each step has {calls} that wait for the GPU.")
        if use.pageable >= 1 and use.binds != "gpu":
            told.append("each step copies from or to pageable memory: `pin_memory=True` of the DataLoader avoids it.")
    return list(dict.fromkeys(told))
