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


def networks(seed: int, count: int = 6, *, noise: float = 0.03) -> list[Row]:
    """Networks on one simulated device in 169 modes (13 clocks x 13 core counts), of which no law knows the form.

    Hundreds of kernels, each with its own roofline of compute and memory and a gap that no clock lowers; a host that
    launches them and feeds the loader's workers from the same cores; voltage with a knee; a power cap; noise with a
    heavy tail, and a few runs that were disturbed.
    """
    rng = np.random.default_rng(seed)
    workers, knee, cap = int(rng.choice([2, 4, 8])), rng.uniform(0.35, 0.75), rng.uniform(300, 500)
    base, idle, busy = rng.uniform(50, 110), rng.uniform(15, 70), rng.uniform(120, 350)
    rows: list[Row] = []
    for number in range(count):
        kernels = int(np.exp(rng.uniform(np.log(40), np.log(1200))))
        size = np.exp(rng.uniform(np.log(0.5), np.log(60.0)))  # ms on the device at the highest clock
        share, compute = rng.dirichlet(np.full(kernels, 0.15)), rng.beta(1.5, 1.0, kernels)
        launch = kernels * rng.uniform(0.003, 0.012)
        loader = size * np.exp(rng.uniform(np.log(0.05), np.log(6.0)))
        for cores in range(1, 14):
            for mhz in range(420, 1981, 130):
                clock = mhz / 1980
                while True:  # until the power cap lets it be
                    device = (size * share * np.maximum(compute / clock, 1.3 - compute)).sum() + 0.002 * kernels
                    feed = max(loader / min(workers, cores), (loader + launch) / cores)
                    slow, quick = max(device, launch, feed), sorted((max(device, launch), feed))[0]
                    time = slow + 0.15 * quick * (quick / slow) ** 3
                    volts = max(0.6, 1 - 0.4 * (1 - clock) / (1 - knee))
                    watts = base + idle * clock * volts**2 + device / time * (busy * clock * volts**2 + 30)
                    if watts <= cap or clock < 0.3:
                        break
                    clock *= 0.97
                late = noise * rng.standard_t(4) + (rng.random() < 0.03) * rng.exponential(0.15)
                more = noise / 2 * rng.standard_t(4) - 0.3 * late
                rows.append((f"net{number}", mhz, cores, time * np.exp(late), watts * time / 1e3 * np.exp(late + more)))
    return rows
