"""Figures of power modes from a store: `python tests/mode_figures.py STORE [IDLE_STORE]` prints them as tables.

Energy is the GPU's own counter over the window of the measured steps, between its readings as a straight line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tare.records.model import Record
from tare.records.store import Store

NAMES = {"lenet5": "LeNet-5", "mobilenet_v3_large": "MobileNetV3", "resnet18": "ResNet-18", "vgg11": "VGG-11"}


class Mode(NamedTuple):
    """One trial: a network (None: nothing ran) in one power mode."""

    network: str | None
    clock_mhz: int
    cores: int | None
    step_s: float | None
    watts: float
    step_j: float | None
    window_s: float
    seen_mhz: float  # the median of the clock that the probe read
    recorded_j: float  # what the record itself says by the counter


def modes(root: Path) -> list[Mode]:
    """Every trial of the store that can be used."""
    with Store.open(root) as store:
        return [_mode(store, record) for record in store.records() if record.state in ("ok", "suspect")]


def _mode(store: Store, record: Record) -> Mode:
    energy = record.facts["energy"]
    begin_ns, end_ns = energy["begin_ns"], energy["end_ns"]
    series = store.readings(record.trial, record.attempt)
    t_ns, joules = series["gpu.energy_j"]
    used_j = float(np.diff(np.interp([begin_ns, end_ns], t_ns, joules))[0])
    window_s = (end_ns - begin_ns) / 1e9
    steps = record.metrics.get("steps", 0.0) - record.metrics.get("warm_up_steps", 0.0)
    return Mode(
        network=record.settings.get("workload.model"),
        clock_mhz=round(record.settings["control.power_mode.gpu_mhz"]),
        cores=record.settings.get("platform.cores"),
        step_s=record.metrics.get("step_s"),
        watts=used_j / window_s,
        step_j=used_j / steps if steps else None,
        window_s=window_s,
        seen_mhz=float(np.median(series["gpu.clock_hz"][1])) / 1e6,
        recorded_j=energy["sources"]["gpu"]["counter_j"],
    )


def table(found: list[Mode]) -> Iterator[str]:
    """Milliseconds, watts and joules of a step; rows are clocks, columns numbers of cores."""
    cores = sorted({mode.cores for mode in found if mode.cores})
    yield "| network | MHz | " + " | ".join(f"{count} cores: ms, W, J" for count in cores) + " |"
    yield "|---|---|" + "---|" * len(cores)
    by_cell = {(mode.network, mode.clock_mhz, mode.cores): mode for mode in found}
    for network in sorted({mode.network for mode in found if mode.network}):
        for clock in sorted({mode.clock_mhz for mode in found}):
            cells = " | ".join(_cell(by_cell.get((network, clock, count))) for count in cores)
            yield f"| {NAMES[network]} | {clock} | {cells} |"


def _cell(mode: Mode | None) -> str:
    if mode is None or mode.step_s is None or mode.step_j is None:
        return "not run"
    digits = 2 if mode.step_j < 1 else 1
    return f"{mode.step_s * 1e3:.1f}, {mode.watts:.0f}, {mode.step_j:.{digits}f}"


def idle_table(found: list[Mode]) -> Iterator[str]:
    """What the idle GPU draws at each clock."""
    yield "| MHz | W |"
    yield "|---|---|"
    yield from (f"| {mode.clock_mhz} | {mode.watts:.1f} |" for mode in sorted(found, key=lambda mode: mode.clock_mhz))


if __name__ == "__main__":
    for number, root in enumerate(sys.argv[1:]):
        print("\n".join((idle_table if number else table)(modes(Path(root)))), end="\n\n")  # noqa: T201
