"""Which channels tell of power, what each of them covers, and which of several covers most.

A probe needs no entry here: `meter.power_w` and `meter.energy_j` (or `meter.total_w`, `meter.total_j`) make a source
called `meter`, and `meter.fan_w` is a part of it. What is listed is how wide the known ones are, and how slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_WHOLE = frozenset({"power", "energy", "total", "power_average"})
_CHANNEL = re.compile(r"(?P<source>[a-z0-9_]+)\.(?P<what>[A-Za-z0-9_.-]+)_(?P<unit>[wj])")
_NO_POWER = re.compile(r"limit|cap\b|_cap_")  # what a device may draw is in watts too
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
        if said := _AVERAGED.search(abouts.get(channel, "")):
            return float(said["number"]) * (0.001 if said["unit"] == "ms" else 1.0)
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
