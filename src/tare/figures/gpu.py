"""What a trial's GPUs did: busy and idle from CUPTI's activity in the declared window, memory and power from NVML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tare.figures.power_series import Span, Times, Values
from tare.figures.steps import FACT as SLICES

FACT = "gpu_activity"  # what tare_inside/activity.py left beside the marks
USED_SHARE = 0.01  # a GPU that was in use for less of the time is not one of the workload's

_SHARES = {"busy_share": "gpu_busy_share", "between_share": "gpu_between_share", "idle_share": "gpu_idle_share"}
_COUNTS = {"kernels": "gpu_kernels", "pageable_copies": "gpu_pageable_copies"}
Series: TypeAlias = Mapping[str, tuple[Times, Values]]

_UTIL = re.compile(r"(gpu\d*)\.util")


def activity_metrics(facts: Mapping[str, Any], step_s: float | None = None) -> dict[str, float]:
    """The shares of a step, and how many kernels, waiting calls and pageable copies it has.

    In slices the window holds stops, in which others have the GPU: nothing is said of it.
    """
    found = None if SLICES in facts else facts.get(FACT)
    if not isinstance(found, Mapping) or "busy_share" not in found:
        return {}
    metrics = {metric: float(found[name]) for name, metric in _SHARES.items() if name in found}
    metrics |= {f"gpu_{why}_share": float(share) for why, share in found.get("idle_for", {}).items()}
    if found.get("window_s", 0) > 0:
        metrics["gpu_copying_share"] = float(found.get("copy_s", 0.0)) * found["steps"] / found["window_s"]
    if step_s is not None and "step_s" in found:  # an older tare kept none, and told the shares of its window
        metrics = _without_the_profiler(metrics, found, step_s)
    metrics |= {metric: float(found[name]) for name, metric in _COUNTS.items() if name in found}
    metrics["gpu_syncs"] = float(sum(found.get("synchronising", {}).values()))
    return metrics


_WAITED_FOR_THE_HOST = ("gpu_launch_share", "gpu_sync_share")
_MOST_PER_CALL_S = 15e-6  # that the profiler adds; 11 were seen of LeNet-5, 2 to 6 of BERT-large


def _without_the_profiler(shares: Mapping[str, float], found: Mapping[str, Any], step_s: float) -> dict[str, float]:
    """The shares of a step outside the window, where they are shorter: the profiler slows the host's calls only.

    A kernel takes as long as before. What the GPU waited for the host is shorter by the difference: at most all of it,
    and no more than the profiler can have added. The rest is of other causes: the loader's start, the next request.
    """
    window_step_s, per_step = float(found["step_s"]), (found.get("copies", {}), found.get("synchronising", {}))
    calls = float(found.get("launches", 0.0)) + sum(sum(each.values()) for each in per_step)
    waited = sum(shares.get(name, 0.0) for name in _WAITED_FOR_THE_HOST)
    taken = min(max(1 - step_s / window_step_s, 0.0), waited, calls * _MOST_PER_CALL_S / window_step_s)
    if not 0 < taken < 1:
        return dict(shares)
    kept = dict.fromkeys(_WAITED_FOR_THE_HOST, 1 - taken / waited)
    kept["gpu_idle_share"] = 1 - taken / shares["gpu_idle_share"]
    return {name: share * kept.get(name, 1.0) / (1 - taken) for name, share in shares.items()}


def used_gpus(series: Series, span: Span) -> list[str]:
    """The GPUs in use during the span, by NVML's enumeration: `gpu`, `gpu1`; one alone is always one of them."""
    labels = sorted(match[1] for channel in series if (match := _UTIL.fullmatch(channel)))
    if len(labels) < 2:
        return labels
    means = {label: _inside(series, f"{label}.util", span) for label in labels}
    return [label for label in labels if len(means[label]) and float(means[label].mean()) >= USED_SHARE]


def memory_metrics(series: Series, span: Span, gpus: Sequence[str]) -> dict[str, float]:
    """The most memory that was in use during the span, of all of these GPUs."""
    memory = [_inside(series, f"{label}.memory_used_bytes", span) for label in gpus]
    return {"gpu_memory_bytes": float(sum(v.max() for v in memory))} if memory and all(len(v) for v in memory) else {}


def gpu_power_metrics(energy: Mapping[str, float], span: Span, gpus: Sequence[str]) -> dict[str, float]:
    """Mean power and joules a step of these GPUs, from what may be claimed of each."""
    joules = [energy.get(f"energy_{label}_j") for label in gpus]
    known = [each for each in joules if each is not None]
    if not known or len(known) < len(gpus) or span.seconds <= 0:
        return {}
    return {"gpu_power_w": sum(known) / span.seconds} | (
        {"energy_gpus_step_j": sum(known) / span.steps} if span.steps else {}
    )


def _inside(series: Series, channel: str, span: Span) -> Values:
    """The readings in the span; where it is shorter than their period, the nearest on both sides of it."""
    if channel not in series:
        return np.empty(0)
    t_ns, values = series[channel]
    inside = (t_ns >= span.begin_ns) & (t_ns <= span.end_ns)
    if not inside.any() and len(t_ns):
        first = max(0, int(np.searchsorted(t_ns, span.begin_ns)) - 1)
        return np.asarray(values[first : first + 2], dtype=np.float64)
    return np.asarray(values, dtype=np.float64)[inside]
