"""Tables of modes from pipelines of which every constant is known; not the law that `tare` fits, but what it is for."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

CLOCKS = (345, 525, 705, 885, 1065, 1245, 1425, 1605, 1785, 1980)
CORES = (1, 2, 4, 8)
KINDS = {  # device, loader and launch stage, over the workload's size
    "compute": (1.0, 0.3, 0.2),
    "fetch": (0.4, 3.0, 0.2),
    "launch": (0.3, 0.4, 1.0),
    "mixed": (0.8, 1.6, 0.5),
}
Row = tuple[str, int, int, float, float]


def pipeline(kind: str, noise: float, seed: int, size: float = 20.0) -> list[Row]:
    """One workload in every mode: the slowest stage decides, cores help up to four, voltage rises with the clock."""
    rng = np.random.default_rng(seed)
    device, loader, launch = (size * stage for stage in KINDS[kind])
    rows = []
    for cores in CORES:
        for mhz in CLOCKS:
            clock = mhz / CLOCKS[-1]
            compute = device * (0.8 / clock + 0.2)
            time = 0.02 * size + max(compute, loader / min(cores, 4), launch)
            volts = max(0.7, 0.7 + 0.3 * (clock - 0.5) / 0.5)
            watts = 60 + 25 * volts**2 * clock + compute / time * (250 * volts**2 * clock + 30)
            late, more = rng.normal(0, noise), rng.normal(0, noise / 2)
            rows.append((kind, mhz, cores, time * np.exp(late), watts * time * np.exp(late + more)))
    return rows


def write(path: Path, rows: Sequence[Sequence[object]], header: str = "model,gpu_mhz,cores,ms,joules") -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header.split(","))
        writer.writerows(rows)
    return path


def every_kind(path: Path, noise: float = 0.03, seed: int = 1) -> Path:
    """A table of all kinds of workloads."""
    return write(path, [row for place, kind in enumerate(KINDS) for row in pipeline(kind, noise, seed + place)])
