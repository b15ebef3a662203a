"""How CPU, GPU, memory and power were spread while the trials ran, level by level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tare.report.channels import POWER_OR_ENERGY
from tare.report.charts.lanes import tooltip
from tare.report.charts.naming import legend, level_names, some_of
from tare.report.drawing import rows
from tare.report.evidence import Evidence
from tare.report.figure import Cell, Figure
from tare.report.theme import level_colour
from tare.report.words import quantity_text, scaled

GRID = 60  # points of an outline
ENOUGH = 500  # values for an outline
HALF = 0.42  # of the room that a level has
MOST = 12  # outlines beside each other
FITS = 42  # signs of all names together, below their outlines on a telephone
# Name of the figure, its title, the metric whose unit it has, and the channels that may carry it, the best first.
KINDS = (
    ("spread-cpu", "Cores that the workload kept busy", "cores", ("cgroup.cpu_s",)),
    ("spread-device-cpu", "Cores busy on the device", "cores", ("cpu.busy_s",)),
    ("spread-gpu", "GPU in use", "util_share", ("gpu.util",)),
    ("spread-memory", "Memory of the workload", "memory_bytes", ("cgroup.memory_bytes",)),
    ("spread-power", "Power", "power_w", POWER_OR_ENERGY),
)  # fmt: skip

Floats = npt.NDArray[np.float64]


def violins(evidence: Evidence) -> list[Figure]:
    """One figure for each kind that at least one level has."""
    if evidence.store is None:
        return []
    known = {level: [evidence.channels(record) for record in records] for level, records in evidence.usable().items()}
    made = [_figure(evidence, known, *kind) for kind in KINDS]
    return [figure for figure in made if figure is not None]


def _figure(
    evidence: Evidence,
    known: Mapping[str, Sequence[Mapping[str, Mapping[str, Any]]]],
    name: str,
    title: str,
    metric: str,
    channels: Sequence[str],
) -> Figure | None:
    channel = next(
        (each for each in channels if any(each in trial for trials in known.values() for trial in trials)), ""
    )
    spreads = {level: _pooled(trials, channel) for level, trials in known.items()}
    spreads = {level: values for level, values in spreads.items() if values.size}
    if not spreads or max(values.max() for values in spreads.values()) <= 0:
        return None
    medians = {level: float(np.median(values)) for level, values in spreads.items()}
    names = level_names(spreads, evidence.weighing.by)
    told = [f"{names[level]} {quantity_text(metric, value)}" for level, value in medians.items()]
    reading = f"Medians over time: {some_of(told)}; each outline is {channel}, all trials of the level together."
    headers = ("level", "5 %", "25 %", "median", "75 %", "95 %", "highest")
    body = tuple(_row(level, evidence.level_hrefs, metric, values) for level, values in spreads.items())
    drawn = {level: spreads[level] for level in list(spreads)[:MOST]}
    more = f" The first {MOST} of {len(spreads)} are drawn." if len(spreads) > MOST else ""
    chart = _chart(metric, drawn, names, list(evidence.level_hrefs))
    return Figure(name, title, f"{reading}{more}", chart, headers, body)


def _pooled(trials: Sequence[Mapping[str, Mapping[str, Any]]], channel: str) -> Floats:
    """The quantiles of each trial, put together: every trial weighs the same, however long it ran."""
    held = [trial[channel]["quantiles"] for trial in trials if "quantiles" in trial.get(channel, {})]
    return np.array([value for quantiles in held for value in quantiles], dtype=np.float64)


def _row(level: str, hrefs: Mapping[str, str], metric: str, values: Floats) -> tuple[Cell, ...]:
    places = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95, 1.0])
    figures = (Cell(quantity_text(metric, float(value)), hrefs.get(level, ""), numeric=True) for value in places)
    return (Cell(level, hrefs.get(level, "")), *figures)


def _chart(
    metric: str, spreads: Mapping[str, Floats], called: Mapping[str, str], levels: Sequence[str]
) -> dict[str, Any]:
    unit, factor = scaled(metric, [float(values.max()) for values in spreads.values()])
    names = [called[level] for level in spreads]
    below = max(map(len, names)) * len(names) <= FITS  # else a legend says which is which
    outlines, boxes = [], []
    for place, values in enumerate(spreads.values()):
        outlines += _outline(place, names[place], values * factor)
        low, q1, middle, q3, high = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95])
        boxes.append(
            {
                "level": names[place], "place": place, "low": low * factor, "q1": q1 * factor,
                "middle": middle * factor, "q3": q3 * factor, "high": high * factor,
                "shown": quantity_text(metric, float(middle)),
            }
        )  # fmt: skip
    colours = {"domain": names, "range": [level_colour(levels.index(level)) for level in spreads]}
    axis = {
        "values": list(range(len(names))), "title": None, "ticks": False, "domain": False, "grid": False,
        "labelExpr": "names[datum.value]", "labelLimit": 160, "labels": below,
    }  # fmt: skip
    x = {"type": "quantitative", "axis": axis, "scale": {"domain": [-0.5, len(names) - 0.5]}}
    up = {"type": "quantitative", "title": unit}
    return {
        "height": 240,
        "params": [{"name": "names", "value": names}],  # as data: no label is part of an expression
        "layer": [
            {
                "data": rows(outlines),
                "mark": {"type": "area", "orient": "horizontal", "opacity": 0.45},
                "encoding": {
                    "x": {"field": "left", **x}, "x2": {"field": "right"}, "y": {"field": "value", **up},
                    "color": {"field": "level", "scale": colours, "legend": None if below else legend(names)},
                },
            },
            _rule(boxes, x, up, ("low", "high"), 1),
            _rule(boxes, x, up, ("q1", "q3"), 5),
            {
                "data": rows(boxes),
                "mark": {"type": "point", "color": "@paper", "size": 40, "stroke": "@ink", "opacity": 1},
                "encoding": {
                    "x": {"field": "place", **x}, "y": {"field": "middle", **up},
                    "tooltip": tooltip(level="level", shown="median"),
                },
            },
        ],
    }  # fmt: skip


def _rule(boxes: Sequence[Mapping[str, Any]], x: Any, up: Any, ends: tuple[str, str], width: int) -> dict[str, Any]:
    return {
        "data": rows(boxes),
        "mark": {"type": "rule", "strokeWidth": width, "color": "@ink"},
        "encoding": {"x": {"field": "place", **x}, "y": {"field": ends[0], **up}, "y2": {"field": ends[1]}},
    }


def _outline(place: int, level: str, values: Floats) -> list[Mapping[str, Any]]:
    """Left and right edge of the violin over its values; where all values are one, a short line."""
    from scipy.stats import gaussian_kde

    low, high = float(values.min()), float(values.max())
    if high - low <= 1e-9 * max(abs(high), 1e-30):
        return [{"level": level, "value": low, "left": place - HALF, "right": place + HALF}]
    grid = np.linspace(low, high, GRID)
    some = np.quantile(values, np.linspace(0, 1, ENOUGH)) if values.size > ENOUGH else values
    density = gaussian_kde(some)(grid)
    half = HALF * density / density.max()
    return [
        {"level": level, "value": float(value), "left": place - float(width), "right": place + float(width)}
        for value, width in zip(grid, half, strict=True)
    ]
