"""The paper's Figure 6: latency of write-backs with the layer, against the disk alone, by capacity and policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tare.analysis.nvm.model import POLICIES, Layer, Run
from tare.analysis.nvm.replay import IS_COMPILED, Simulation, simulate
from tare.analysis.nvm.sources import HIGH, LOW, bands, capacity, store_traces
from tare.base.text import safe_text, share_text, time_text
from tare.records.store import Store
from tare.report.figure import Cell, Figure, part_colour, rows, shape_of
from tare.report.text.kernel import buffer_text

NAME = "flushing-layer"
SIZES = tuple(2**power for power in range(18, 31))  # 256 KiB to 1 GiB
MOST_COMPILED, MOST_COUNTED = 100_000_000, 30_000_000  # page writes, over all sizes: a few seconds
_PAPERS = "the paper's eight cases"
_BAND = {"low": 1 - HIGH, "high": 1 - LOW}


def layer_figure(store: Store) -> Figure | None:
    """That of a report: the first traced trial of each cell, through the layer by LRU; None where there is no trace."""
    traces = list({trace.name: trace for trace in reversed(list(store_traces(store))) if trace.writes}.values())[::-1]
    writes = sum(trace.writes for trace in traces)
    if not traces or writes * len(SIZES) > (MOST_COMPILED if IS_COMPILED else MOST_COUNTED):
        return None
    layers = [Layer(POLICIES["lru"], size) for size in SIZES]
    return flushing_figure([simulate(trace, layers) for trace in traces])


def flushing_figure(found: Sequence[Simulation]) -> Figure:
    """One panel a trace; the band is where the paper's eight cases lie."""
    runs = [run for each in found for run in each.runs if run.layer.policy.buffers and run.layer.nvm_bytes is not None]
    return Figure(
        NAME,
        "I/O latency with a non-volatile flushing layer, as a share of the disk alone",
        _reading(runs),
        _chart(runs),
        ("trace", "policy", "destage", "buffer", "latency", "of the disk alone"),
        tuple(_cells(run) for run in runs),
    )


def _chart(runs: Sequence[Run]) -> dict[str, Any]:
    kinds = list(dict.fromkeys(_kind(run) for run in runs))
    points = [
        {"trace": safe_text(run.trace), "kind": _kind(run), "size": (run.layer.nvm_bytes or 0) / 2**20,
         "share": _left(run), "shown": share_text(_left(run)), "buffer": buffer_text(run)}
        for run in runs if run.layer.nvm_bytes
    ]  # fmt: skip
    named = [*kinds, _PAPERS]
    colours = [*(part_colour(number) for number in range(len(kinds))), "@band-edge"]
    shapes = [*(shape_of(number + 1) for number in range(len(kinds))), "square"]
    coded = {"title": None, "type": "nominal"}
    colour = {**coded, "scale": {"domain": named, "range": colours}}
    layers = [
        {
            "transform": [
                {"aggregate": [{"op": "count", "as": "points"}], "groupby": ["trace"]},  # one band a panel
                *({"calculate": str(edge), "as": name} for name, edge in _BAND.items()),
            ],
            "mark": {"type": "rect", "opacity": 0.35, "clip": True},
            "encoding": {
                "color": {"datum": _PAPERS, **colour},
                "x": {"value": 0}, "x2": {"value": "width"},
                "y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"},
            },
        },
        {
            "mark": {"type": "line", "point": {"filled": True, "size": 45}},
            "encoding": {
                "x": {"field": "size", "type": "quantitative", "scale": {"type": "log"}, "title": "buffer, MiB",
                      "axis": {"values": [0.1, 1, 10, 100, 1000]}},
                "y": {"field": "share", "type": "quantitative", "title": "latency, of the disk alone",
                      "axis": {"format": ".0%"}},
                "color": {"field": "kind", **colour},
                "shape": {"field": "kind", **coded, "scale": {"domain": named, "range": shapes}},
                "tooltip": [{"field": name} for name in ("trace", "kind", "buffer", "shown")],
            },
        },
    ]  # fmt: skip
    if len(dict.fromkeys(run.trace for run in runs)) < 2:
        return {"data": rows(points), "height": 240, "layer": layers}
    panels = {"field": "trace", "type": "nominal", "title": None, "sort": None}
    return {"data": rows(points), "facet": panels, "columns": 2, "spec": {"height": 180, "width": 200, "layer": layers}}


def _kind(run: Run) -> str:
    return f"{run.layer.policy.name}, {run.layer.destage.name}"


def _left(run: Run) -> float:
    return 1 - run.latency.improvement


def _reading(runs: Sequence[Run]) -> str:
    if not runs:
        return "No run has a buffer of a limited size."
    least = min(runs, key=_left)
    reached = [band for band in bands(runs) if band.within]
    smallest = min((band.within[0] for band in reached), key=capacity, default=None)
    told = f"The least is {share_text(_left(least))}, with {buffer_text(least)} ({_kind(least)})"
    if smallest is None:
        return f"{told}; none that was tried lies within the paper's 77 to 90 % less."
    return f"{told}; the paper's 77 to 90 % less appear from {buffer_text(smallest)} on ({_kind(smallest)})."


def _cells(run: Run) -> tuple[Cell, ...]:
    words = (run.trace, run.layer.policy.name, run.layer.destage.name)
    figures = (buffer_text(run), time_text(run.latency.total_s), share_text(_left(run)))
    return (*(Cell(safe_text(word)) for word in words), *(Cell(text, numeric=True) for text in figures))
