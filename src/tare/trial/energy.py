"""A trial's energy: of every source, by every way that there is, over the measured steps; claimed only where it may be.

What may not be claimed (too few samples, gaps, two ways that disagree) is kept in the facts with the reason, and has
no figure: a figure is what `compare`, `pareto` and `claims` take for true.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tare.trial.energy_measured import Measured, Series, measured_energy
from tare.trial.energy_sources import scope_of, widest
from tare.trial.energy_window import SHARED, Span, pace_of, span_of
from tare.trial.evidence import Evidence
from tare.trial.power_rules import energy_trouble, power_trouble
from tare.trial.summary import Steps
from tare.trial.tenant_metrics import overlap_ns
from tare.trial.thresholds import THRESHOLDS

_CPU_CLOCK = re.compile(r"frequency\.cpu\d+_hz|cpu\.core\d+\.freq_hz")
_GPU_CLOCK = re.compile(r"gpu\.clock_hz|frequency\.gpu_hz")


@dataclass(frozen=True)
class Energy:
    """What a record gets: figures that may be claimed, and everything else that is known, as facts."""

    metrics: Mapping[str, float]
    facts: Mapping[str, Any]


def energy_of_trial(settings: Mapping[str, Any], seen: Evidence, steps: Steps | None) -> Energy | None:
    """The energy of one trial from what was seen of it; None where no power was, or nothing ran."""
    if seen.neighbours:
        window = overlap_ns(seen.marks, seen.neighbours, seen.result)
        span = None if window is None else Span(*window, what=SHARED)
    else:
        span = span_of(seen.marks, steps, seen.result)
    if span is None:
        return None
    tenants = 1 + len(seen.neighbours)
    abouts = {channel["name"]: channel["about"] for channel in seen.channels}
    powered = {channel["name"] for channel in seen.channels if channel["unit"] in ("W", "J")} & seen.series.keys()
    pace = None if steps is None else pace_of(seen.marks, steps)
    told = {name: each for name, each in seen.series.items() if name in powered or name.endswith(".dropped_s")}
    found = measured_energy(told, span, abouts, pace, slept_s=seen.slept_s)
    clocks = clock_metrics(seen.series, span)
    if not found:
        return Energy(clocks, {}) if clocks else None
    energy = _put_together(found, span, abouts, _work(settings, span, tenants), tenants, clocks)
    return _without_what_sensors_belie(energy, _belied(seen))


def _belied(seen: Evidence) -> list[str]:
    """What else speaks against the sensors of power: those that stand still, and parts that exceed their whole."""
    rules = (energy_trouble, power_trouble)  # the first has nothing to say of this trial's energy yet
    return [sentence for rule in rules for weight, sentence in rule(seen, THRESHOLDS) if weight == "suspect"]


def _without_what_sensors_belie(energy: Energy, doubts: list[str]) -> Energy:
    """A trial whose sensors are suspect is kept for its times, and has no energy."""
    if not doubts:
        return energy
    kept = {name: value for name, value in energy.metrics.items() if not name.endswith(("_j", "_w", "energy_window_s"))}
    return Energy(kept, {**energy.facts, "claimed": False, "doubts": [*energy.facts["doubts"], *doubts]})


def _put_together(
    found: Mapping[str, Measured],
    span: Span,
    abouts: Mapping[str, str],
    work: Mapping[str, float],
    tenants: int,
    clocks: Mapping[str, float],
) -> Energy:
    chosen = widest([each.source for each in found.values()])
    doubts = [doubt for source in chosen for doubt in found[source.name].doubts()]
    metrics = {**clocks, **_of_sources(found)}
    if chosen and not doubts:
        metrics |= _figures([found[source.name] for source in chosen], span, work)
    facts: dict[str, Any] = {
        "source": "+".join(source.name for source in chosen),
        "scope": scope_of(chosen),
        "window": span.what,
        "window_s": span.seconds,
        "begin_ns": span.begin_ns,
        "end_ns": span.end_ns,
        "claimed": bool(chosen) and not doubts,
        "doubts": doubts,
        "suspicions": [
            sentence for each in found.values() if not each.source.is_part for sentence in each.suspicions()
        ],
        "sources": {name: each.as_json(abouts) for name, each in found.items()},
    }
    if tenants > 1:
        facts["shared_by"] = tenants  # the device's energy: what of it a tenant has used is not measured
    return Energy(metrics, facts)


def _of_sources(found: Mapping[str, Measured]) -> dict[str, float]:
    """The energy of each source, and of each part of one, that may be claimed."""
    metrics = {}
    for name, each in found.items():
        if each.amount is not None and not each.doubts():
            metrics[f"energy_{name}_j"] = each.amount.joules
        if each.disagreement is not None and not each.source.is_part:
            metrics[f"energy_{name}_disagreement_share"] = abs(each.disagreement)
    return metrics


def _figures(chosen: Sequence[Measured], span: Span, work: Mapping[str, float]) -> dict[str, float]:
    energy_j = sum(each.amount.joules for each in chosen if each.amount is not None)
    per_unit = {f"energy_{unit}_j": energy_j / count for unit, count in work.items() if count > 0}
    return {
        "energy_j": energy_j,
        "energy_window_s": span.seconds,
        "power_mean_w": energy_j / span.seconds,
        **per_unit,
    }


def _work(settings: Mapping[str, Any], span: Span, tenants: int) -> dict[str, float]:
    """How many steps, samples, epochs and requests lie in the span; nothing where the device was shared.

    Of a device's energy nobody can say what one tenant has used, so none gets a figure in its name.
    """
    if tenants > 1 or not span.steps:
        return {}
    work = {"step": float(span.steps)}
    batch = settings.get("workload.batch")
    if isinstance(batch, int) and batch > 0:
        work["sample"] = float(span.steps * batch)
    if span.epochs:
        work["epoch"] = float(span.epochs)
    if settings.get("workload.requests") is not None:
        work["request"] = float(span.steps)  # a step of inference is a request
    return work


def clock_metrics(series: Series, span: Span) -> dict[str, float]:
    """The median clocks in the span: of the cores the median core, of the GPU its own."""
    found = {}
    for metric, pattern in (("cpu_clock_hz", _CPU_CLOCK), ("gpu_clock_hz", _GPU_CLOCK)):
        medians = [
            float(np.median(values[inside]))
            for channel, (t_ns, values) in series.items()
            if pattern.fullmatch(channel) and (inside := (t_ns >= span.begin_ns) & (t_ns <= span.end_ns)).any()
        ]
        if medians:
            found[metric] = float(np.median(medians))
    return found
