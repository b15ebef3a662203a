"""What the verdict asks of power sensors: do they agree, do they move with the load, and with nothing else?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np

from tare.trial.evidence import Evidence
from tare.trial.thresholds import Thresholds

Found: TypeAlias = Iterator[tuple[Literal["invalid", "suspect", "note"], str]]

_WHOLE = ("external.power_w", "power_rails.total_w", "gpu.power_w")
_BINS = 12  # a stretch of constant power is looked at in so many pieces: did the load differ between them?
_LOAD_CORES, _LOAD_GPU = 0.5, 0.3  # by how much, to call it a change


def energy_trouble(seen: Evidence, limits: Thresholds) -> Found:
    """M27-M29: what keeps the energy from being claimed, and which sources tell different stories."""
    energy = seen.facts.get("energy", {})
    suspicions = energy.get("suspicions", [])
    yield from (("suspect", f"energy: {suspicion}") for suspicion in suspicions)
    # What these rules themselves say of a sensor is a doubt too, and is not said twice.
    told = [doubt for doubt in energy.get("doubts", []) if doubt not in suspicions]
    doubts = [doubt for doubt in told if not doubt.startswith(("energy: ", "power sensor: "))]
    yield from (("note", f"no energy is claimed: {doubt}") for doubt in doubts)
    yield from _parts_exceed_the_whole(seen, limits)


def _parts_exceed_the_whole(seen: Evidence, limits: Thresholds) -> Found:
    """M28, E18: what lies behind a sensor cannot draw more than the sensor says; less is what regulators take."""
    means = {name: float(np.mean(values)) for name, values in seen.readings.items() if name.endswith("_w") and values}
    whole_w, parts_w = means.get("power_rails.total_w"), means.get("power_rails.others_w")
    if whole_w and parts_w and parts_w > whole_w * (1 + limits.energy_disagreement_share):
        yield "suspect", f"energy: the rails draw {parts_w:.2f} W together, and what feeds them {whole_w:.2f} W."
    wall_w = means.get("external.power_w")
    inside_w = max((means[name] for name in _WHOLE[1:] if name in means), default=None)
    if wall_w and inside_w and inside_w > wall_w * (1 + limits.energy_disagreement_share):
        yield "suspect", f"energy: the meter says {wall_w:.1f} W, and a sensor behind it {inside_w:.1f} W."


def power_trouble(seen: Evidence, limits: Thresholds) -> Found:
    """E4, of each sensor that stands for the whole of something, and of each counter."""
    for channel in _WHOLE:
        if channel in seen.series:
            t_ns, watts = seen.series[channel]
            yield from _is_stuck(seen, channel, t_ns, watts, limits)
    for channel, (t_ns, joules) in seen.series.items():
        if channel.endswith("_j") and (still := _longest_still(t_ns, joules)) and _seconds(still) >= limits.stuck_s:
            yield "suspect", f"power sensor: {channel} stood still for {_seconds(still):.0f} s."


def _is_stuck(seen: Evidence, channel: str, t_ns: Any, watts: Any, limits: Thresholds) -> Found:
    """E4: the same value for two minutes, while the load was not the same."""
    still = _longest_still(t_ns, watts)
    if still is None or _seconds(still) < limits.stuck_s or not _load_changed(seen, still):
        return
    yield "suspect", f"power sensor: {channel} was constant for {_seconds(still):.0f} s while the load changed."


def _longest_still(t_ns: Any, values: Any) -> tuple[int, int] | None:
    """The longest stretch in which the value did not move."""
    if len(values) < 2:
        return None
    moved = np.flatnonzero(np.diff(np.asarray(values, dtype=np.float64)) != 0)
    edges = np.concatenate(([-1], moved, [len(values) - 1]))
    spans = [(int(t_ns[first + 1]), int(t_ns[last])) for first, last in pairwise(edges)]
    return max(spans, key=lambda span: span[1] - span[0])


def _seconds(span: tuple[int, int]) -> float:
    return (span[1] - span[0]) / 1e9


def _load_changed(seen: Evidence, span: tuple[int, int]) -> bool:
    """Whether the cores or the GPU had more to do in one part of the time than in another."""
    edges = np.linspace(span[0], span[1], _BINS + 1)
    if "cpu.busy_s" in seen.series:
        t_ns, busy_s = seen.series["cpu.busy_s"]
        cores = np.diff(np.interp(edges, t_ns, busy_s)) / (np.diff(edges) / 1e9)
        if cores.max() - cores.min() > _LOAD_CORES:
            return True
    if "gpu.util" in seen.series:
        t_ns, share = seen.series["gpu.util"]
        means = [float(share[inside].mean()) for a, b in pairwise(edges) if (inside := (t_ns >= a) & (t_ns < b)).any()]
        return bool(means) and max(means) - min(means) > _LOAD_GPU
    return False
