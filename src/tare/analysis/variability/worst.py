"""The value, and the device, that lie farthest from what is usual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tare.analysis.variability.samples import Sample


@dataclass(frozen=True, slots=True)
class Worst:
    """The farthest from its cell's median."""

    what: str  # "epoch" or "device"
    where: str
    deviation: float  # signed share


def worst(samples: Sequence[Sample]) -> list[Worst]:
    """The farthest sample, and the farthest device by its median, each from its cell's median."""
    cells: dict[str, list[Sample]] = {}
    for sample in samples:
        cells.setdefault(sample.cell, []).append(sample)
    found: list[Worst] = []
    for cell, members in cells.items():
        centre = float(np.median([sample.value for sample in members]))
        far = max(members, key=lambda sample: abs(sample.value / centre - 1))
        found.append(Worst("value", _where(far), far.value / centre - 1))
        devices: dict[str, list[float]] = {}
        for sample in members:
            if sample.device is not None:
                devices.setdefault(sample.device, []).append(sample.value)
        if len(devices) > 1:
            medians = {device: float(np.median(values)) / centre - 1 for device, values in devices.items()}
            device = max(medians, key=lambda name: abs(medians[name]))
            found.append(Worst("device", ", ".join(part for part in (device, cell) if part), medians[device]))
    kinds = dict.fromkeys(each.what for each in found)
    return [max((each for each in found if each.what == kind), key=lambda each: abs(each.deviation)) for kind in kinds]


def _where(sample: Sample) -> str:
    epoch = f"epoch {sample.epoch:g}" if sample.epoch is not None else None
    trial = f"trial {sample.trial}" if sample.trial is not None else None
    return ", ".join(part for part in (sample.cell, sample.device, sample.day, trial, epoch) if part) or "a row"
