"""What happened while a trial ran: one typical trial of each level, over its seconds, with a line at each epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tare.report.channels import CLOCK, POWER
from tare.report.charts.lanes import tooltip
from tare.report.charts.naming import legend, level_names, some_of
from tare.report.drawing import rows
from tare.report.evidence import Evidence
from tare.report.figure import Cell, Figure
from tare.report.theme import level_colour
from tare.report.thinning import thinned
from tare.report.words import quantity_text, scaled

if TYPE_CHECKING:
    import numpy.typing as npt

    Line = tuple[npt.NDArray[Any], npt.NDArray[Any]]  # t_ns, value

POINTS = 500  # of a line; more cannot be told apart on a screen
MOST_LEVELS = 7
SHOWS_NOTHING = 20  # times the median: a peak so high leaves nothing else to be seen
# Name, title, the metric whose unit it has, whether the channel counts up, and the channels, the best first.
KINDS = (
    ("over-time-cpu", "Cores busy with the workload, over time", "cores", True, ("cgroup.cpu_s",)),
    ("over-time-device-cpu", "Cores busy on the device, over time", "cores", True, ("cpu.busy_s",)),
    ("over-time-gpu", "GPU in use, over time", "util_share", False, ("gpu.util",)),
    ("over-time-power", "Power over time", "power_w", False, POWER),
    ("over-time-clock", "Clock over time", "clock_hz", False, CLOCK),
    ("over-time-reads", "The workload's reads from the disk a second", "reads", True, ("cgroup.reads",)),
    ("over-time-cache", "Data set in the page cache", "cached_share", False, ("page_cache.share",)),
)  # fmt: skip
MARKS = (
    ("over-time-step", "Step time over the run", "step_s", "step"),
    ("over-time-stall", "Fetch stall over the run", "stall_s", "fetch"),
)


def over_time(evidence: Evidence) -> list[Figure]:
    """The figures that the typical trials have data for."""
    if evidence.store is None:
        return []
    chosen = dict(list(evidence.typical().items())[:MOST_LEVELS])
    begins = {level: _begin_ns(evidence, record) for level, record in chosen.items()}
    epochs = _epochs(evidence, chosen, begins)
    made = [
        _figure(evidence, name, title, metric, _spans(evidence, chosen, mark), begins, epochs)
        for name, title, metric, mark in MARKS
    ]
    readings = {level: evidence.store.readings(record.trial, record.attempt) for level, record in chosen.items()}
    for name, title, metric, counts, channels in KINDS:
        lines = _lines(readings, channels, counts)
        made.append(_figure(evidence, name, title, metric, lines, begins, epochs))
    return [figure for figure in made if figure is not None]


def _begin_ns(evidence: Evidence, record: Any) -> int:
    assert evidence.store is not None
    times = evidence.store.marks(record.trial, record.attempt)["t_ns"]
    return int(times.min()) if len(times) else record.start_ns


def _spans(evidence: Evidence, chosen: Mapping[str, Any], mark: str) -> dict[str, Line]:
    """Level -> (end, seconds) of each interval with this name."""
    assert evidence.store is not None
    found = {}
    for level, record in chosen.items():
        marks = evidence.store.marks(record.trial, record.attempt)
        here = marks["name"] == mark
        begins = {int(s): int(t) for s, t in _edges(marks, here, "begin")}
        pairs = [(t, (t - begins[s]) / 1e9) for s, t in _edges(marks, here, "end") if s in begins and s >= 0]
        if pairs:
            ends, seconds = zip(*pairs, strict=True)
            found[level] = (np.array(ends), np.array(seconds))
    return found


def _edges(marks: Mapping[str, Any], here: Any, edge: str) -> list[tuple[int, int]]:
    chosen = here & (marks["edge"] == edge)
    return list(zip(marks["step"][chosen].tolist(), marks["t_ns"][chosen].tolist(), strict=True))


def _epochs(evidence: Evidence, chosen: Mapping[str, Any], begins: Mapping[str, int]) -> list[tuple[str, float]]:
    """Level and second of each epoch's begin."""
    assert evidence.store is not None
    found: list[tuple[str, float]] = []
    for level, record in chosen.items():
        marks = evidence.store.marks(record.trial, record.attempt)
        ends = [t for _, t in _edges(marks, marks["name"] == "epoch", "begin")]
        found += [(level, (t - begins[level]) / 1e9) for t in ends]
    return found


def _lines(readings: Mapping[str, Mapping[str, Line]], channels: Sequence[str], counts: bool) -> dict[str, Line]:
    name = next((each for each in channels if any(each in held for held in readings.values())), "")
    found = {}
    for level, held in readings.items():
        if name in held:
            times, values = held[name]
            if counts:
                spans = np.diff(times) / 1e9
                times, values = times[1:][spans > 0], np.diff(values)[spans > 0] / spans[spans > 0]
            if len(times):
                found[level] = (times, values)
    return found


def _figure(
    evidence: Evidence,
    name: str,
    title: str,
    metric: str,
    lines: Mapping[str, Line],
    begins: Mapping[str, int],
    epochs: Sequence[tuple[str, float]],
) -> Figure | None:
    if not lines or all(float(np.max(np.abs(values))) == 0 for _, values in lines.values()):
        return None
    names = level_names(evidence.level_hrefs, evidence.weighing.by)
    told = [
        f"{names[level]} between {quantity_text(metric, float(np.min(values)))} and "
        f"{quantity_text(metric, float(np.max(values)))}"
        for level, (_, values) in lines.items()
    ]
    reading = f"One typical trial of each level: {some_of(told)}; a dotted line begins an epoch."
    headers = ("level", "lowest", "median", "highest", "points")
    body = tuple(_row(level, evidence.level_hrefs, metric, values) for level, (_, values) in lines.items())
    chart = _chart(metric, lines, begins, epochs, names)
    return Figure(name, title, reading, chart, headers, body)


def _scale_of(lines: Mapping[str, Line]) -> str:
    """Logarithmic where a few values would press all others to the floor, as a first step does."""
    values = np.concatenate([values for _, values in lines.values()])
    tall = values.min() > 0 and values.max() > SHOWS_NOTHING * np.median(values)
    return "log" if tall else "linear"


def _row(level: str, hrefs: Mapping[str, str], metric: str, values: Any) -> tuple[Cell, ...]:
    figures = (float(np.min(values)), float(np.median(values)), float(np.max(values)))
    texts = (*(quantity_text(metric, figure) for figure in figures), f"{len(values):,}")
    return (Cell(level, hrefs.get(level, "")), *(Cell(text, hrefs.get(level, ""), numeric=True) for text in texts))


def _chart(
    metric: str,
    lines: Mapping[str, Line],
    begins: Mapping[str, int],
    epochs: Sequence[tuple[str, float]],
    called: Mapping[str, str],
) -> dict[str, Any]:
    unit, factor = scaled(metric, [float(np.max(np.abs(values))) for _, values in lines.values()])
    points: list[Mapping[str, Any]] = []
    for level, (times, values) in lines.items():
        at, kept = thinned((times - begins[level]) / 1e9, values * factor, POINTS)
        points += [
            {"level": called[level], "s": round(float(t), 4), "value": float(f"{value:.5g}")}
            for t, value in zip(at, kept, strict=True)
            if np.isfinite(value) and t >= 0
        ]
    up = {"field": "value", "type": "quantitative", "title": unit, "scale": {"type": _scale_of(lines)}}
    names, levels = [called[level] for level in lines], list(called)
    colours = {"domain": names, "range": [level_colour(levels.index(level)) for level in lines]}
    colour = {"field": "level", "scale": colours, "legend": legend(names)}
    x = {"field": "s", "type": "quantitative", "title": "s", "axis": {"tickCount": 6}, "scale": {"nice": False}}
    chosen = {"condition": {"param": "chosen", "value": 1}, "value": 0.1}
    return {
        "height": 200,
        "layer": [
            {
                "data": rows([{"level": called[level], "s": s} for level, s in epochs if level in lines]),
                "mark": {"type": "rule", "strokeDash": [2, 3], "strokeWidth": 1},
                "encoding": {"x": x, "color": colour, "opacity": {"value": 0.5}},
            },
            {
                "data": rows(points),
                "params": [
                    {"name": "chosen", "select": {"type": "point", "fields": ["level"]}, "bind": "legend"},
                    {"name": "zoom", "select": "interval", "bind": "scales"},
                ],
                "mark": {"type": "line", "strokeWidth": 1.2},
                "encoding": {
                    "x": x, "y": up,
                    "color": colour, "opacity": chosen,
                    "tooltip": tooltip(level="level", s="second", value=unit),
                },
            },
        ],
    }  # fmt: skip
