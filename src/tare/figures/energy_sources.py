"""Which channels tell of power, what each of them covers, and which of several covers most.

A probe needs no entry here: `meter.power_w` and `meter.energy_j` (or `meter.total_w`, `meter.total_j`) make a source
called `meter`, and `meter.fan_w` is a part of it. What is listed is how wide the known ones are, and how slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tare.figures.evidence import run_ns
from tare.figures.power_series import Times, Values
from tare.figures.steps import Steps
from tare.parts.protocols import Mark
from tare.records.intervals import intervals, mark_columns

_WHOLE = frozenset({"power", "energy", "total", "power_average"})
_CHANNEL = re.compile(r"(?P<source>[a-z0-9_]+)\.(?P<what>[A-Za-z0-9_.-]+)_(?P<unit>[wj])")
_NO_POWER = re.compile(r"limit|cap\b|_cap_|counter")  # what a device may draw is in watts too; counter: asleep.py
_GPU = re.compile(r"gpu\d*")
_AVERAGED = re.compile(r"averaged over (?P<number>\d+(?:\.\d+)?) (?P<unit>ms|s)\b")

SCOPES: Mapping[str, str] = {
    "external": "the whole device, at the wall",
    "power_rails": "the module",
    "power_rapl": "the CPU packages",
}
# The time over which a sensor averages where its channel does not say so (validity.md M34-M36).
SENSOR_WINDOW_S: Mapping[str, float] = {"external": 1.0, "power_rails": 0.1, "power_rapl": 0.001, "gpu": 0.1}
_AVERAGE_FIELD_S = 1.0  # NVML's average power field


@dataclass(frozen=True)
class Source:
    """One measurement of power: by a series of watts, by a counter of joules, or by both."""

    name: str  # `gpu`; a part of one is `power_rails_vdd_cpu`
    of: str  # the probe's own name for the device that it watches: `gpu`, `power_rails`
    watts: str | None = None  # channels
    joules: str | None = None
    is_part: bool = False

    @property
    def scope(self) -> str:
        if _GPU.fullmatch(self.of):
            number = self.of.removeprefix("gpu")
            return f"GPU {number}" if number else "the GPU"
        return SCOPES.get(self.of, f"what {self.of} watches")

    @property
    def channels(self) -> tuple[str, ...]:
        return tuple(channel for channel in (self.watts, self.joules) if channel is not None)

    def sensor_window_s(self, channel: str | None, abouts: Mapping[str, str]) -> float | None:
        """Over how long the sensor averages: as its channel says (`averaged over 0.1 s`), else as is known of it."""
        if channel is None:
            return None
        if reported := _AVERAGED.search(abouts.get(channel, "")):
            return float(reported["number"]) * (0.001 if reported["unit"] == "ms" else 1.0)
        if channel.endswith("average_w"):
            return _AVERAGE_FIELD_S
        return SENSOR_WINDOW_S.get("gpu" if _GPU.fullmatch(self.of) else self.of)


def sources(channels: Iterable[str]) -> list[Source]:
    """Every source that these channels tell of, in the order of their names; their units are watts or joules."""
    found: dict[str, dict[str, str]] = {}
    for channel in sorted(channels):
        match = _CHANNEL.fullmatch(channel)
        if match is None or _NO_POWER.search(match["what"]):
            continue
        whole = match["what"] in _WHOLE
        name = match["source"] if whole else f"{match['source']}_{_plain(match['what'])}"
        kept = found.setdefault(name, {"of": match["source"], "part": "" if whole else "part"})
        # An instant field goes before an average one: `power_w` is sorted after `power_average_w`.
        kept["watts" if match["unit"] == "w" else "joules"] = channel
    return [
        Source(name, kept["of"], kept.get("watts"), kept.get("joules"), bool(kept["part"]))
        for name, kept in found.items()
    ]


def widest(found: Sequence[Source]) -> tuple[Source, ...]:
    """The sources that together cover most: the wall, else the module, else CPU packages and GPUs, else the first."""
    whole = [source for source in found if not source.is_part]
    gpus = [source for source in whole if _GPU.fullmatch(source.of)]
    for names in (("external",), ("power_rails",)):
        if chosen := tuple(source for source in whole if source.of in names):
            return chosen
    packages = [source for source in whole if source.of == "power_rapl"]
    if packages or gpus:
        return (*packages, *gpus)
    return tuple(whole[:1])


def scope_of(chosen: Sequence[Source]) -> str:
    return " and ".join(source.scope for source in chosen)


def _plain(name: str) -> str:
    """`VDD_CPU-0` as `vdd_cpu_0`: figures have plain names."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


STEPS, RUN, SHARED = "the measured steps", "the whole run", "the time in which all tenants worked"


@dataclass(frozen=True)
class Span:
    """From when to when, on the device's monotonic clock, and what lies in it."""

    begin_ns: int
    end_ns: int
    what: str
    steps: int | None = None
    epochs: int | None = None

    @property
    def window(self) -> tuple[int, int]:
        return self.begin_ns, self.end_ns

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9


def span_of(marks: Sequence[Mark], steps: Steps | None, result: Mapping[str, Any]) -> Span | None:
    """The measured steps, so that time and energy are of the same work; a workload that marks none is taken whole."""
    if steps is not None:
        return _of_steps(marks, steps)
    window = run_ns(result)
    return Span(*window, what=RUN) if window is not None and window[0] < window[1] else None


@dataclass(frozen=True)
class Pace:
    """When each measured step ended, and how long it took."""

    ends_ns: Times
    step_s: Values


def pace_of(marks: Sequence[Mark], steps: Steps) -> Pace:
    """The pace of the measured steps, in the order of their numbers."""
    found = intervals(mark_columns(marks), "step")
    ends = dict(zip(found.step.tolist(), found.end_ns.tolist(), strict=True))
    numbers, seconds = steps.numbers[steps.warm_up :], steps.seconds["step"][steps.warm_up :]
    timed = ~np.isnan(seconds)
    return Pace(np.array([ends[number] for number in numbers[timed].tolist()], dtype=np.int64), seconds[timed])


def _of_steps(marks: Sequence[Mark], steps: Steps) -> Span | None:
    found = intervals(mark_columns(marks), "step", "epoch")
    numbers = steps.numbers[steps.warm_up :]
    every = found.named("step")
    measured = every.where(np.isin(every.step, numbers))
    if not len(measured) or measured.begin_ns.min() >= measured.end_ns.max():
        return None
    begin_ns, end_ns = int(measured.begin_ns.min()), int(measured.end_ns.max())
    passes_ns = found.named("epoch").end_ns
    # Steps after the last end of an epoch are of one that was cut off: then there is no energy of a whole one.
    is_whole = len(passes_ns) > 1 and measured.begin_ns.max() < passes_ns.max()
    whole = int((passes_ns > begin_ns).sum()) if is_whole else 0
    return Span(begin_ns, end_ns, STEPS, steps=len(numbers), epochs=whole or None)
