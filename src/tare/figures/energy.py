"""A trial's energy: of every source, by every way that there is, over the measured steps; claimed only where it may be.

What may not be claimed (too few samples, gaps, two ways that disagree) is kept in the facts with the reason, and has
no figure: a figure is what `compare`, `choose front` and `papers claims` take for true.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from tare.base.rulings import Ruling, read_rulings
from tare.base.units import METER_J, METER_W
from tare.figures.evidence import THRESHOLDS, Evidence, Thresholds, overlap_ns, run_ns
from tare.figures.power_series import (
    PARTIAL,
    RUN,
    SHARED,
    Amount,
    Pace,
    Source,
    Span,
    Times,
    Values,
    asleep,
    counted,
    integral,
    pace_of,
    scope_of,
    sensor_step,
    sources,
    span_of,
    widest,
)
from tare.figures.steps import Steps, windows_of

Series: TypeAlias = Mapping[str, tuple[Times, Values]]
USED_SHARE = 0.01  # a GPU that was in use for less of the time is not one of the workload's
_UTIL = re.compile(r"(gpu\d*)\.util")


@dataclass(frozen=True)
class Measured:
    """One source over one window: by counter, by integral, or by both."""

    source: Source
    by_counter: Amount | None
    by_integral: Amount | None
    counter_window_s: float | None = None  # over how long the sensor averages
    integral_window_s: float | None = None
    slept_s: float = 0.0
    sensor: str | None = None  # M29: what speaks against the sensor itself
    dropped_s: float = 0.0  # E7: of the window, the time whose energy the counter lacks, since it was reset in it
    edges_by_power: bool = True  # False: as before version 2 of the thresholds

    @property
    def way(self) -> str:
        """The counter where it has no gap of its own, since it misses nothing between two samples."""
        if self.by_counter is None:
            return "integral"
        lacks = bool(self.by_counter.problems) or self.dropped_s > 0
        return "integral" if lacks and self.by_integral is not None else "counter"

    @property
    def amount(self) -> Amount | None:
        return self.by_counter if self.way == "counter" else self.by_integral

    @property
    def sensor_window_s(self) -> float | None:
        return self.counter_window_s if self.way == "counter" else self.integral_window_s

    @property
    def disagreement(self) -> float | None:
        """How far the counter is from the integral, as a share of it; None where one of them has gaps.

        A field that lags behind, since it averages over a second, says nothing about a window of a few seconds.
        """
        both = [one for one in (self.by_counter, self.by_integral) if one is not None and not one.problems]
        if len(both) < 2 or both[1].joules <= 0:
            return None
        if both[1].window_s < THRESHOLDS.energy_windows * (self.integral_window_s or 0.0):
            return None
        return both[0].joules / both[1].joules - 1

    def suspicions(self) -> list[Ruling]:
        """What speaks against the sensor (M28, M29): the trial is suspect, and its times are kept."""
        found = []
        if self.sensor is not None:
            found.append(Ruling("energy.sensor-step", "suspect", "", f"the power sensor: {self.sensor}"))
        if self.disagreement is not None and abs(self.disagreement) > self._may_disagree_share():
            sentence = f"the counter and the sum of power differ by {abs(self.disagreement):.1%}."
            found.append(Ruling("energy.disagreement", "suspect", "", sentence))
        return [ruling.about(self.source.name) for ruling in found]

    def _may_disagree_share(self) -> float:
        """M28; in a short time the edges alone may make more of a difference than sensors may have."""
        both = [one for one in (self.by_counter, self.by_integral) if one is not None]
        edges = sum(one.bound_j for one in both) / both[-1].joules if self.edges_by_power else 0.0
        return max(THRESHOLDS.energy_disagreement_share, edges)

    def doubts(self) -> list[Ruling]:
        """Why this energy may not be claimed; empty where it may."""
        found = self.amount
        if found is None:
            few = Ruling("energy.no-samples", "note", "", "fewer than two samples of power.")
            return [few.about(self.source.name)]
        doubts = [*found.problems, *self._too_short(found)]
        if self.way == "counter" and self.dropped_s > 0:
            sentence = f"partial: the counter fell back or jumped, and lacks the energy of {self.dropped_s:.1f} s."
            doubts.append(Ruling(PARTIAL, "note", "", sentence))
        if self.slept_s > THRESHOLDS.sleep_s:
            sentence = f"the machine slept {self.slept_s:.0f} s, and no energy is known for that time."
            doubts.append(Ruling("energy.slept", "note", "", sentence))
        return [*(doubt.about(self.source.name) for doubt in doubts), *self.suspicions()]

    def _too_short(self, found: Amount) -> list[Ruling]:
        """M14 and M34: an integral needs 60 samples of power; a counter has what its edges leave open."""
        doubts = []
        samples, window_s = THRESHOLDS.energy_samples, self.sensor_window_s or 0.0
        if self.way == "counter" and self.edges_by_power:
            if found.bound_share > THRESHOLDS.energy_bound_share:
                sentence = (
                    f"too short: in {found.window_s:.1f} s the edges leave {min(found.bound_share, 9.99):.0%} of the "
                    f"energy open, and {THRESHOLDS.energy_bound_share:.0%} is the limit."
                )
                doubts.append(Ruling("energy.too-short", "note", "", sentence))
            return doubts
        what = "a sensor that averages over"
        if self.way == "counter":  # as before version 2
            what, window_s = "a counter that is read every", max(window_s, found.period_s)
        elif found.samples < samples:
            sentence = f"too short: {found.samples} samples in {found.window_s:.1f} s, and it takes {samples}."
            doubts.append(Ruling("energy.few-samples", "note", "", sentence))
        if found.window_s < (least_s := THRESHOLDS.energy_windows * window_s):
            sentence = f"too short: {found.window_s:.1f} s, and {what} {window_s:.2g} s takes {least_s:.2g} s."
            doubts.append(Ruling("energy.too-short", "note", "", sentence))
        return doubts

    def as_json(self, abouts: Mapping[str, str]) -> dict[str, Any]:
        """What is known of it, for the record."""
        found = self.amount
        reported: dict[str, Any] = {
            "scope": self.source.scope,
            "channels": list(self.source.channels),
            "field": "; ".join(abouts[channel] for channel in self.source.channels if abouts.get(channel)),
            "by": self.way,
            "sensor_window_s": self.sensor_window_s,
            "counter_j": None if self.by_counter is None else self.by_counter.joules,
            "integral_j": None if self.by_integral is None else self.by_integral.joules,
            "disagreement_share": self.disagreement,
            "doubts": [doubt.as_json() for doubt in self.doubts()],
        }
        if found is not None:
            reported |= {
                "samples": found.samples,
                "period_s": found.period_s,
                "covered_share": found.covered_share,
                "longest_gap_s": found.longest_gap_s,
                "power_w": found.power_w,
                "bound_j": found.bound_j,
            }
        return {key: value for key, value in reported.items() if value not in (None, "")}


def measured_energy(
    series: Series,
    span: Span,
    abouts: Mapping[str, str],
    pace: Pace | None = None,
    *,
    slept_s: float = 0.0,
    edges_by_power: bool = True,
) -> dict[str, Measured]:
    """Every source of power in the series, over one span; `pace` is that of the work in it, where it is known."""
    return {source.name: _measured(source, series, span, abouts, pace, slept_s, edges_by_power)
            for source in sources(series)}  # fmt: skip


def _measured(
    source: Source,
    series: Series,
    span: Span,
    abouts: Mapping[str, str],
    pace: Pace | None,
    slept_s: float,
    edges_by_power: bool,
) -> Measured:
    of_counter, of_power = (source.sensor_window_s(channel, abouts) for channel in (source.joules, source.watts))
    power = series[source.watts] if source.watts and edges_by_power else None
    return Measured(
        source,
        counted(*series[source.joules], span.window, power, of_counter or 0.0) if source.joules else None,
        integral(*series[source.watts], span.window, of_power or 0.0) if source.watts else None,
        of_counter,
        of_power,
        slept_s,
        None if pace is None else sensor_step(*_power(series, source), span.window, pace.ends_ns, pace.step_s),
        _dropped_s(series.get(f"{source.of}.dropped_s"), span),
        edges_by_power,
    )


def _dropped_s(dropped: tuple[Times, Values] | None, span: Span) -> float:
    """How much of the span a probe says that its counters lack; a drop is seen at the reading that ends it."""
    if dropped is None or len(dropped[0]) < 2:
        return 0.0
    t_ns, seconds = dropped
    first = max(0, int(np.searchsorted(t_ns, span.begin_ns, side="right")) - 1)
    last = min(len(t_ns) - 1, int(np.searchsorted(t_ns, span.end_ns, side="left")))
    return float(seconds[last] - seconds[first])


def _power(series: Series, source: Source) -> tuple[Times, Values]:
    """The watts of a source, or what its counter grew by between two samples."""
    if source.watts is not None:
        return series[source.watts]
    t_ns, joules = series[str(source.joules)]
    times, places = np.unique(t_ns, return_index=True)
    return times[1:], np.diff(joules[places]) / (np.diff(times) / 1e9)


_WHOLE = (METER_W, "power_rails.total_w", "gpu.power_w")
_BINS = 12  # a stretch of constant power is looked at in so many pieces: did the load differ between them?
_LOAD_CORES, _LOAD_GPU = 0.5, 0.3  # by how much, to call it a change


def energy_trouble(evidence: Evidence, limits: Thresholds) -> Iterator[Ruling]:
    """M27-M29: what keeps the energy from being claimed, and which sources tell different stories."""
    energy = evidence.facts.get("energy", {})
    for suspicion in read_rulings(energy.get("suspicions", []), "suspect"):
        yield replace(suspicion, sentence=f"energy: {suspicion}")
    for doubt in read_rulings(energy.get("doubts", []), "note"):
        if doubt.weight != "suspect":  # what these rules themselves say of a sensor is a doubt too, and not said twice
            yield replace(doubt, sentence=f"no energy is claimed: {doubt}")
    yield from _parts_exceed_the_whole(evidence, limits)


def _parts_exceed_the_whole(evidence: Evidence, limits: Thresholds) -> Iterator[Ruling]:
    """M28, E18: what lies behind a sensor cannot draw more than the sensor says; less is what regulators take."""
    means = {
        name: float(np.mean(values)) for name, values in evidence.readings.items() if name.endswith("_w") and values
    }
    whole_w, parts_w = means.get("power_rails.total_w"), means.get("power_rails.others_w")
    if whole_w and parts_w and parts_w > whole_w * (1 + limits.energy_disagreement_share):
        sentence = f"energy: the rails draw {parts_w:.2f} W together, and what feeds them {whole_w:.2f} W."
        yield Ruling("energy.rails", "suspect", "power_rails", sentence)
    wall_w = means.get(METER_W)
    inside_w = max((means[name] for name in _WHOLE[1:] if name in means), default=None)
    if wall_w and inside_w and inside_w > wall_w * (1 + limits.energy_disagreement_share):
        sentence = f"energy: the meter says {wall_w:.1f} W, and a sensor behind it {inside_w:.1f} W."
        yield Ruling("energy.meter", "suspect", "external", sentence)


def power_trouble(evidence: Evidence, limits: Thresholds) -> Iterator[Ruling]:
    """E4, of each sensor that stands for the whole of something, and of each counter."""
    for channel in _WHOLE:
        if channel in evidence.series:
            t_ns, watts = evidence.series[channel]
            yield from _is_stuck(evidence, channel, t_ns, watts, limits)
    for channel, (t_ns, joules) in evidence.series.items():
        still = _longest_still(t_ns, joules) if channel.endswith("_j") and channel != METER_J else None
        if still and _seconds(still) >= limits.stuck_s:
            sentence = f"power sensor: {channel} stood still for {_seconds(still):.0f} s."
            yield Ruling("power.counter-still", "suspect", channel, sentence)


def _is_stuck(evidence: Evidence, channel: str, t_ns: Any, watts: Any, limits: Thresholds) -> Iterator[Ruling]:
    """E4: the same value for two minutes, while the load was not the same."""
    still = _longest_still(t_ns, watts)
    if still is None or _seconds(still) < limits.stuck_s or not _load_changed(evidence, still):
        return
    sentence = f"power sensor: {channel} was constant for {_seconds(still):.0f} s while the load changed."
    yield Ruling("power.constant", "suspect", channel, sentence)


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


def _load_changed(evidence: Evidence, span: tuple[int, int]) -> bool:
    """Whether the cores or the GPU had more to do in one part of the time than in another."""
    edges = np.linspace(span[0], span[1], _BINS + 1)
    if "cpu.busy_s" in evidence.series:
        t_ns, busy_s = evidence.series["cpu.busy_s"]
        cores = np.diff(np.interp(edges, t_ns, busy_s)) / (np.diff(edges) / 1e9)
        if cores.max() - cores.min() > _LOAD_CORES:
            return True
    if "gpu.util" in evidence.series:
        t_ns, share = evidence.series["gpu.util"]
        means = [float(share[inside].mean()) for a, b in pairwise(edges) if (inside := (t_ns >= a) & (t_ns < b)).any()]
        return bool(means) and max(means) - min(means) > _LOAD_GPU
    return False


CLOCKS = {  # figure -> the channels that it is made of
    "cpu_clock_hz": re.compile(r"frequency\.cpu\d+_hz|cpu\.core\d+\.freq_hz"),
    "gpu_clock_hz": re.compile(r"gpu\.clock_hz|frequency\.gpu_hz"),
}


@dataclass(frozen=True)
class Energy:
    """What a record gets: figures that may be claimed, and everything else that is known, as facts."""

    metrics: Mapping[str, float]
    facts: Mapping[str, Any]


def energy_of_trial(
    settings: Mapping[str, Any], evidence: Evidence, steps: Steps | None, version: int = THRESHOLDS.version
) -> Energy | None:
    """The energy of one trial from what was seen of it; None where no power was, or nothing ran.

    `version` is that of the thresholds it was first found with: before 2 nothing was known of bounds.
    """
    if windows_of(evidence.facts) is not None:
        return None  # the device's power was that of all sides
    if settings.get("workload.state") == "suspended":
        return Energy(*asleep(evidence))
    if evidence.neighbours:
        window = overlap_ns(evidence.marks, evidence.neighbours, evidence.result)
        span = None if window is None else Span(*window, what=SHARED)
    else:
        span = span_of(evidence.marks, steps, evidence.result)
    if span is None:
        return None
    tenants = 1 + len(evidence.neighbours)
    abouts = {channel["name"]: channel["about"] for channel in evidence.channels}
    powered = {
        channel["name"] for channel in evidence.channels if channel["unit"] in ("W", "J")
    } & evidence.series.keys()
    pace = None if steps is None else pace_of(evidence.marks, steps)
    reported = {name: each for name, each in evidence.series.items() if name in powered or name.endswith(".dropped_s")}
    bounded = version >= _BOUNDED
    found = measured_energy(reported, span, abouts, pace, slept_s=evidence.slept_s, edges_by_power=bounded)
    clocks = clock_metrics(evidence.series, span)
    gpus = used_gpus(evidence.series, span) if bounded else []
    others = clocks | (memory_metrics(evidence.series, span, gpus) if bounded else {})
    if not found:
        return Energy(others, {}) if others else None
    energy = _put_together(found, span, abouts, _work(settings, span, tenants), tenants, others, gpus)
    if bounded and not evidence.neighbours:
        energy = _with_the_whole_run(energy, reported, abouts, run_ns(evidence.result), evidence.slept_s)
    # What else speaks against the sensors of power: those that stand still, and parts that exceed their whole.
    rules = (energy_trouble, power_trouble)  # the first has nothing to say of this trial's energy yet
    belied = [ruling for rule in rules for ruling in rule(evidence, THRESHOLDS) if ruling.weight == "suspect"]
    return _without_what_sensors_belie(energy, belied)


_BOUNDED = 2  # since this version of the thresholds energy has a bound, and GPUs have figures of their own


def _with_the_whole_run(
    energy: Energy, series: Series, abouts: Mapping[str, str], window: tuple[int, int] | None, slept_s: float
) -> Energy:
    """The energy of everything that the workload did, with its start and its end, where the steady state has one."""
    if "energy_j" not in energy.metrics or window is None or window[0] >= window[1]:
        return energy
    found = measured_energy(series, Span(*window, what=RUN), abouts, slept_s=slept_s)
    chosen = [found[name] for name in energy.facts["source"].split("+") if name in found]
    if not chosen or any(each.amount is None or each.doubts() for each in chosen):
        return energy
    joules = sum(each.amount.joules for each in chosen if each.amount is not None)
    return Energy({**energy.metrics, "energy_run_j": joules}, energy.facts)


def _without_what_sensors_belie(energy: Energy, doubts: list[Ruling]) -> Energy:
    """A trial whose sensors are suspect is kept for its times, and has no energy."""
    if not doubts:
        return energy
    kept = {
        name: value
        for name, value in energy.metrics.items()
        if not name.endswith(("_j", "_w", "energy_window_s", "energy_bound_share"))
    }
    reported = [*energy.facts["doubts"], *(doubt.as_json() for doubt in doubts)]
    return Energy(kept, {**energy.facts, "claimed": False, "doubts": reported})


def _put_together(
    found: Mapping[str, Measured],
    span: Span,
    abouts: Mapping[str, str],
    work: Mapping[str, float],
    tenants: int,
    others: Mapping[str, float],
    gpus: Sequence[str],
) -> Energy:
    chosen = widest([each.source for each in found.values()])
    doubts = [doubt for source in chosen for doubt in found[source.name].doubts()]
    metrics = {**others, **_of_sources(found)}
    metrics |= gpu_power_metrics(metrics, span, gpus)
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
        "doubts": [doubt.as_json() for doubt in doubts],
        "suspicions": [
            ruling.as_json() for each in found.values() if not each.source.is_part for ruling in each.suspicions()
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
    bounds_j = [each.amount.bound_j for each in chosen if each.amount is not None and each.edges_by_power]
    return {
        "energy_j": energy_j,
        **({"energy_bound_share": sum(bounds_j) / energy_j} if bounds_j and energy_j > 0 else {}),
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
    batch, tunes = settings.get("workload.batch"), settings.get("workload") == "finetune"
    if isinstance(batch, int) and batch > 0:
        work["sample"] = float(span.steps * batch * (settings.get("workload.accumulate") or 1 if tunes else 1))
    if tunes and "sample" in work and isinstance(length := settings.get("workload.length"), int):
        work["token"] = work["sample"] * length
    if span.epochs:
        work["epoch"] = float(span.epochs)
    if settings.get("workload") == "generate":  # a step is a token of each prompt; the first ones are in no step
        output = settings["workload.output"]
        work["request"] = span.steps / (output - 1)
        work["token"] = work["request"] * output * (batch or 1)
    elif settings.get("workload.requests") is not None:
        work["request"] = float(span.steps)  # a step of inference is a request
    return work


def clock_metrics(series: Series, span: Span) -> dict[str, float]:
    """The median clocks in the span: of the cores the median core, of the GPU its own."""
    found = {}
    for metric, pattern in CLOCKS.items():
        medians = [
            float(np.median(values[inside]))
            for channel, (t_ns, values) in series.items()
            if pattern.fullmatch(channel) and (inside := (t_ns >= span.begin_ns) & (t_ns <= span.end_ns)).any()
        ]
        if medians:
            found[metric] = float(np.median(medians))
    return found


# What is known of the GPUs alone, by NVML


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
