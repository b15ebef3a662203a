"""What the verdict asks of the device's sensors: was it as warm, as quick and as undisturbed as it should be?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from tare.trial.power_rules import energy_trouble, power_trouble
from tare.trial.seen import Seen
from tare.trial.thresholds import Thresholds

Found: TypeAlias = Iterator[tuple[Literal["invalid", "suspect", "note"], str]]

TOO_HOT = "the device was too hot, and the trial was stopped."
_SENSORS = frozenset({"W", "J", "C", "Hz"})
_HELD = re.compile(
    r"(?:cpufreq\.cpu(?P<core>\d+)\.|jetson\.CPU\w*\.|jetson\.(?P<gpu>GPU)\.)(?:(?P<low>min_khz|MIN_FREQ)|max_khz|MAX_FREQ)"
)
_CLOCK = re.compile(r"frequency\.(?:cpu(?P<core>\d+)|gpu)_hz")
_GPU = "gpu"


def sensor_trouble(seen: Seen, limits: Thresholds) -> Found:
    """Each rule once; those about power are in a file of their own."""
    yield from _was_throttled(seen)
    yield from _kept_its_clocks(seen, limits)
    yield from _started_as_warm(seen.facts.get("warmth", {}), limits)
    yield from _was_covered(seen, limits)
    yield from energy_trouble(seen, limits)
    yield from power_trouble(seen, limits)


def overheated(facts: Mapping[str, Any]) -> tuple[str, ...] | None:
    """C17: why the trial was stopped for heat; the first sentence is the same each time, so that three stop a study."""
    zone = facts.get("warmth", {}).get("stopped_by")
    if zone is None:
        return None
    return TOO_HOT, f"{zone['name']} was at {zone['degrees_c']:.1f} °C; its limit is {zone['limit_c']:g} °C."


def _was_throttled(seen: Seen) -> Found:
    """M19: a device that slowed itself down has measured its cooling."""
    for channel, values in seen.readings.items():
        if not channel.startswith("thermal.") or not values:
            continue
        name = channel.removeprefix("thermal.")
        if name.endswith(("_throttled", "_events")) and values[-1] > values[0]:
            yield "invalid", f"the device was throttled: {name} rose by {values[-1] - values[0]:.0f} during the trial."
        elif name.startswith("cooling_") and max(values) > 0:
            share = np.count_nonzero(values) / len(values)
            yield "invalid", f"the device was throttled: {name} was at work for {share:.0%} of the time."
        elif name.endswith("_alarm") and max(values) > 0:
            yield "invalid", f"an alarm was on during the trial: {name}."


def _kept_its_clocks(seen: Seen, limits: Thresholds) -> Found:
    """M21, of cores and a board's GPU: never slower than the lower limit that a control holds, nor over the upper."""
    low_hz, high_hz = _held_hz(seen.facts.get("controls", {}))
    for channel, values in seen.readings.items():
        found = _CLOCK.fullmatch(channel)
        awake = [value for value in values if value > 0] if found else []  # a GPU that is switched off says 0
        if found is None or not awake:
            continue
        core = found["core"] or _GPU
        what, board = ("the GPU", _GPU) if core == _GPU else (f"core {core}", "")
        least, most = low_hz.get(core, low_hz.get(board, 0.0)), high_hz.get(core, high_hz.get(board, float("inf")))
        seen_hz = float(np.median(awake))
        if seen_hz < limits.clock_share * least:
            yield "invalid", f"{what} was to run at {least / 1e6:.0f} MHz and ran at {seen_hz / 1e6:.0f}."
        elif seen_hz > most / limits.clock_share:
            yield "invalid", f"{what} was limited to {most / 1e6:.0f} MHz and ran at {seen_hz / 1e6:.0f}."


def _held_hz(controls: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """The limits that the trial's controls hold, by core and of the GPU; under "" those of all cores of a board."""
    low: dict[str, float] = {}
    high: dict[str, float] = {}
    for state in controls.values():
        for key, text in state.items() if isinstance(state, dict) else ():
            found = _HELD.fullmatch(key)
            if found is None or not str(text).isdecimal():
                continue
            core = _GPU if found["gpu"] else found["core"] or ""
            hertz = float(text) * (1 if found["gpu"] else 1000)  # the files of cores are in kHz
            if found["low"]:
                low[core] = min(low.get(core, hertz), hertz) if not core else hertz
            else:
                high[core] = max(high.get(core, hertz), hertz)
    return low, high


def _started_as_warm(warmth: Mapping[str, Any], limits: Thresholds) -> Found:
    """M17: every zone within 3 °C of what it was when the study began."""
    began, now = warmth.get("reference_c", {}), warmth.get("start_c", {})
    apart = {zone: now[zone] - began[zone] for zone in began.keys() & now.keys()}
    hottest = max(apart, key=lambda zone: apart[zone], default=None)
    if hottest is not None and apart[hottest] > limits.gate_c:
        waited = f" after {warmth.get('waited_s', 0):.0f} s of waiting"
        yield "suspect", f"hot start: {hottest} was {apart[hottest]:.1f} °C warmer than at the study's start{waited}."
    coldest = min(apart, key=lambda zone: apart[zone], default=None)
    if coldest is not None and apart[coldest] < -limits.gate_c:
        yield "note", f"cold start: {coldest} was {-apart[coldest]:.1f} °C colder than at the study's start."


def _was_covered(seen: Seen, limits: Thresholds) -> Found:
    """M27, of each sensor by its own rhythm: one that was lost on the way, or had a pause, is partial."""
    grid, _ = seen.series.get("sampler.late_s", (None, None))
    if grid is None or len(grid) < 2:
        return
    doubts = seen.facts.get("energy", {}).get("doubts", [])
    told = {source for source, _, rest in (doubt.partition(": ") for doubt in doubts) if rest.startswith("partial")}
    units = {channel["name"]: channel["unit"] for channel in seen.channels}
    for channel, (t_ns, _) in seen.series.items():
        probe = channel.partition(".")[0]
        if units.get(channel) not in _SENSORS or probe in told or len(t_ns) < 2:
            continue
        times = np.unique(t_ns)
        edges = np.clip(np.concatenate(([grid[0]], times, [grid[-1]])), grid[0], grid[-1])
        typical = float(np.median(np.diff(times))) or 1.0
        gap, planned = float(np.diff(edges).max(initial=0)), (grid[-1] - grid[0]) / typical
        if planned >= 1 and len(times) / planned < limits.coverage_share:
            told.add(probe)
            yield "note", f"{channel} is partial: {len(times)} of {planned:.0f} samples were taken."
        elif gap > limits.gap_periods * typical:
            told.add(probe)
            yield "note", f"{channel} is partial: it has a gap of {gap / 1e9:.1f} s."
