"""How CPU, GPU, memory and power were spread while the trials ran, level by level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tare.analysis.sections import anchor
from tare.base.declare import Role
from tare.base.text import effect_text, in_units, metric_name, quantity_text, safe_text, scaled, share_text
from tare.base.units import Channel
from tare.records.intervals import intervals
from tare.records.model import DEVICE, EPOCH_COUNT, TYPE, Record, device_of, grouped, started_s
from tare.report.evidence import ReportData
from tare.report.figure import Cell, Figure, level_colour, rows
from tare.report.layout import (
    axis_title,
    drawn_channels,
    legend,
    level_names,
    metric_of,
    per_second,
    some_of,
    thinned,
    tooltip,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Line = tuple[npt.NDArray[Any], npt.NDArray[Any]]  # t_ns, value


GRID = 60  # points of an outline
ENOUGH = 500  # values for an outline
HOUR_S = 3600.0
_WHERE = (DEVICE, TYPE)
HALF = 0.42  # of the room that a level has
MOST = 12  # outlines beside each other
FITS = 42  # signs of all names together, below their outlines on a telephone

EPOCHS, FEWEST_EPOCHS = "spread-epochs", 5  # name of the figure; epochs after the first for an outline
MOST_READ = 400  # trials whose marks are read for it; of more, such as lie evenly in time
STRETCHES = 8  # of the time of a single device
_EPOCH_S = Role.EPOCH.metric

FEW = 20  # values of each outline: then each has its dot
POINTS = 500  # of a line; more cannot be told apart on a screen
MOST_LEVELS = 7
SHOWS_NOTHING = 20  # times the median: a peak so high leaves nothing else to be seen
MARKS = (
    ("over-time-step", "Time per step over the run", Role.STEP_MEDIAN.metric, "step"),
    ("over-time-stall", "Fetch stall over the run", Role.STALL.metric, "fetch"),
)


def violins(evidence: ReportData) -> list[Figure]:
    """One figure for each group of channels that at least one level has."""
    if evidence.store is None:
        return []
    known = {level: [evidence.channels(record) for record in records] for level, records in evidence.usable.items()}
    drawn = drawn_channels(trial.values() for trials in known.values() for trial in trials)
    made = [_figure(evidence, known, channel) for channel in drawn]
    return [figure for figure in made if figure is not None]


def _figure(
    evidence: ReportData,
    known: Mapping[str, Sequence[Mapping[str, Mapping[str, Any]]]],
    channel: Channel,
) -> Figure | None:
    name, metric = safe_text(channel.name), metric_of(channel)
    spreads = {}
    for level, trials in known.items():  # the quantiles of each: every trial weighs the same, however long it ran
        held = [trial[channel.name]["quantiles"] for trial in trials if "quantiles" in trial.get(channel.name, {})]
        if any(held):
            spreads[level] = np.array([value for quantiles in held for value in quantiles], dtype=np.float64)
    if not spreads or max(values.max() for values in spreads.values()) <= 0:
        return None
    medians = {level: float(np.median(values)) for level, values in spreads.items()}
    names = level_names(spreads, evidence.weighing.by)
    told = [f"{names[level]} {quantity_text(metric, value)}" for level, value in medians.items()]
    reading = f"Medians over time: {some_of(told)}; each outline is {name}, all trials of the level together."
    headers = ("level", "5 %", "25 %", "median", "75 %", "95 %", "highest")
    body = tuple(_row(level, evidence.level_hrefs, metric, values) for level, values in spreads.items())
    drawn = {level: spreads[level] for level in list(spreads)[:MOST]}
    more = f" The first {MOST} of {len(spreads)} are drawn." if len(spreads) > MOST else ""
    chart = _chart(metric, drawn, names, evidence.numbers, words=channel.words or channel.group)
    return Figure(anchor("spread", channel.group), safe_text(channel.group), f"{reading}{more}", chart, headers, body)


def _row(level: str, hrefs: Mapping[str, str], metric: str, values: Floats) -> tuple[Cell, ...]:
    places = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95, 1.0])
    figures = (Cell(quantity_text(metric, float(value)), hrefs.get(level, ""), numeric=True) for value in places)
    return (Cell(level, hrefs.get(level, "")), *figures)


def _chart(
    metric: str,
    spreads: Mapping[str, Floats],
    called: Mapping[str, str],
    numbers: Mapping[str, int],
    *,
    zero: bool = True,
    words: str = "",
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
    colours = {"domain": names, "range": [level_colour(numbers[level]) for level in spreads]}
    axis = {
        "values": list(range(len(names))), "title": None, "ticks": False, "domain": False, "grid": False,
        "labelExpr": "names[datum.value]", "labelLimit": 160, "labels": below,
    }  # fmt: skip
    x = {"type": "quantitative", "axis": axis, "scale": {"domain": [-0.5, len(names) - 0.5]}}
    title = unit or axis_title(safe_text(words)) or metric_name(metric)
    up = {"type": "quantitative", "title": title, **({} if zero else {"scale": {"zero": False}})}
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
            *([_dots(spreads, names, factor, x, up)] if max(map(len, spreads.values())) <= FEW else []),
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


class Epoch(NamedTuple):
    """One epoch after the first of its trial."""

    device: str
    begun_s: float  # since 1970
    seconds: float


def epochs_figure(evidence: ReportData) -> Figure | None:
    """How epochs are spread, device by device (S3, Fig. 5); of a single device, over its time. One way of the job."""
    level, found = _epochs_of_a_way(evidence)
    by_device = {
        device: [each.seconds for each in mine] for device, mine in grouped(found, attrgetter("device")).items()
    }
    told = by_device if len(by_device) > 1 else _over_stretches(found)
    spreads = {safe_text(name): np.array(mine) for name, mine in told.items() if len(mine) >= FEWEST_EPOCHS}
    if len(spreads) < 2:
        return None
    where = "device by device" if len(by_device) > 1 else "over the time of the device"
    medians = {name: float(np.median(values)) for name, values in spreads.items()}
    middle = float(np.median(list(medians.values())))
    farthest = max(medians, key=lambda name: abs(medians[name] - middle))
    widest = max(spreads, key=lambda name: _range(spreads[name]))
    several = f" with {safe_text(level)}" if level else ""
    more = f" The first {MOST} of {len(spreads)} are drawn." if len(spreads) > MOST else ""
    reading = (
        f"Epochs after the first{several}, {sum(map(len, spreads.values())):,} in all: the median of {farthest} lies "
        f"{effect_text(medians[farthest] / middle - 1)} from the middle of all, and {widest} varies most, "
        f"{share_text(_range(spreads[widest]))} from its 5 % to its 95 %.{more}"
    )
    headers = (
        "device" if len(by_device) > 1 else "since the begin",
        "5 %",
        "25 %",
        "median",
        "75 %",
        "95 %",
        "highest",
    )
    body = tuple(_row(name, {}, _EPOCH_S, values) for name, values in spreads.items())
    drawn = {name: spreads[name] for name in list(spreads)[:MOST]}
    numbers = {name: place + 1 for place, name in enumerate(drawn)}
    chart = _chart(_EPOCH_S, drawn, {name: name for name in drawn}, numbers, zero=False)
    return Figure(EPOCHS, f"Time of an epoch, {where}", reading, chart, headers, body)


def _dots(
    spreads: Mapping[str, Floats], names: Sequence[str], factor: float, x: Mapping[str, Any], up: Mapping[str, Any]
) -> dict[str, Any]:
    """Each value, where they are so few that an outline alone would promise more."""
    points = [
        {"level": names[place], "place": place, "value": float(value) * factor}
        for place, values in enumerate(spreads.values())
        for value in values
    ]
    encoding = {"x": {"field": "place", **x}, "y": {"field": "value", **up}}
    return {"data": rows(points), "mark": {"type": "circle", "size": 22, "color": "@ink"}, "encoding": encoding}


def _range(values: Floats) -> float:
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
    return float((high - low) / middle)


def _epochs_of_a_way(evidence: ReportData) -> tuple[str, list[Epoch]]:
    """Those of the first configuration that has any, on every device; its name where there are several."""
    store = evidence.store
    named = [(level, record) for level, records in evidence.usable.items() for record in records]
    ways = grouped(named, lambda one: tuple(sorted((k, str(v)) for k, v in one[1].settings.items() if k not in _WHERE)))
    for mine in ways.values() if store is not None else ():
        having = [each for _, each in mine if _EPOCH_S in each.metrics or (each.settings.get(EPOCH_COUNT) or 0) > 2]
        having.sort(key=lambda each: each.started_utc)
        chosen = having[:: -(-len(having) // MOST_READ)] if having else []
        found = [epoch for record in chosen for epoch in _epochs_of(store, record)]
        if found:
            found.sort(key=lambda each: each.device)
            return mine[0][0] if len(ways) > 1 else "", found
    return "", []


def _epochs_of(store: Any, record: Record) -> list[Epoch]:
    found = intervals(store.marks(record.trial, record.attempt), "epoch")
    order = np.argsort(found.begin_ns)[1:]  # epoch 0 is kept apart
    begun_s = started_s(record) or 0.0
    ends = zip(found.begin_ns[order].tolist(), found.seconds[order].tolist(), strict=True)
    first_ns = int(found.begin_ns.min()) if len(found) else 0
    return [Epoch(device_of(record) or "", begun_s + (t_ns - first_ns) / 1e9, seconds) for t_ns, seconds in ends]


def _over_stretches(found: Sequence[Epoch]) -> dict[str, list[float]]:
    """`0 to 2.5 h` -> the epochs that began in it: equal parts of the time of one device."""
    begun = [each.begun_s for each in found]
    if not begun or max(begun) <= min(begun):
        return {}
    stretches = min(STRETCHES, len(found) // FEWEST_EPOCHS)
    length_s = (max(begun) - min(begun)) / max(1, stretches) * (1 + 1e-9)
    places = grouped(found, lambda each: int((each.begun_s - min(begun)) / length_s))
    unit, factor = scaled(_EPOCH_S, [max(begun) - min(begun)]) if length_s < HOUR_S else ("h", 1 / HOUR_S)
    return {
        f"{place * length_s * factor:.3g} to {(place + 1) * length_s * factor:.3g} {unit}": [e.seconds for e in mine]
        for place, mine in sorted(places.items())
    }


def relative_density(values: Floats, at: Floats) -> Floats:
    """A Gaussian kernel density with Scott's bandwidth, as a share of its highest value in `at`.

    What scipy.stats.gaussian_kde gives; to import scipy.stats takes longer than all charts of a report.
    """
    distances = (at[:, np.newaxis] - values) / (values.std(ddof=1) * values.size**-0.2)
    density = np.exp(-(distances**2) / 2).sum(axis=1)
    return np.asarray(density / density.max())


def _outline(place: int, level: str, values: Floats) -> list[Mapping[str, Any]]:
    """Left and right edge of the violin over its values; where all values are one, a short line."""
    low, high = float(values.min()), float(values.max())
    if high - low <= 1e-9 * max(abs(high), 1e-30):
        return [{"level": level, "value": low, "left": place - HALF, "right": place + HALF}]
    grid = np.linspace(low, high, GRID)
    some = np.quantile(values, np.linspace(0, 1, ENOUGH)) if values.size > ENOUGH else values
    half = HALF * relative_density(some, grid)
    return [
        {"level": level, "value": float(value), "left": place - float(width), "right": place + float(width)}
        for value, width in zip(grid, half, strict=True)
    ]


def over_time(evidence: ReportData) -> list[Figure]:
    """The figures that the typical trials have data for."""
    store = evidence.store
    if store is None:
        return []
    chosen = dict(list(evidence.typical().items())[:MOST_LEVELS])
    marks = {level: store.marks(record.trial, record.attempt) for level, record in chosen.items()}
    readings = {level: store.readings(record.trial, record.attempt) for level, record in chosen.items()}
    begins: dict[str, int] = {}
    epochs: list[tuple[str, float]] = []  # level and second of each epoch's begin
    for level, record in chosen.items():
        t_ns, is_epoch = marks[level]["t_ns"], (marks[level]["name"] == "epoch") & (marks[level]["edge"] == "begin")
        begins[level] = int(t_ns.min()) if len(t_ns) else record.start_ns
        epochs += [(level, (at - begins[level]) / 1e9) for at in t_ns[is_epoch].tolist()]
    made = []
    for name, title, metric, mark in MARKS:
        steps = {level: intervals(held, mark).of_steps() for level, held in marks.items()}
        spans = {level: (ours.end_ns, ours.seconds) for level, ours in steps.items() if len(ours)}
        title = in_units(title, evidence.weighing.unit)
        made.append(_over_time_figure(evidence, name, title, metric, spans, begins, epochs))
    known = [store.channels(record.trial, record.attempt, quantiles=False) for record in chosen.values()]
    for channel in drawn_channels(known):
        lines = _lines(readings, channel)
        name, title = anchor("over-time", channel.group), f"{safe_text(channel.group)}, over time"
        metric, words = metric_of(channel), safe_text(channel.words or channel.group)
        made.append(_over_time_figure(evidence, name, title, metric, lines, begins, epochs, words))
    return [figure for figure in made if figure is not None]


def _lines(readings: Mapping[str, Mapping[str, Line]], channel: Channel) -> dict[str, Line]:
    held = {level: series[channel.name] for level, series in readings.items() if channel.name in series}
    drawn = {level: per_second(*line) if channel.kind == "counter" else line for level, line in held.items()}
    return {level: line for level, line in drawn.items() if len(line[0])}


def _over_time_figure(
    evidence: ReportData,
    name: str,
    title: str,
    metric: str,
    lines: Mapping[str, Line],
    begins: Mapping[str, int],
    epochs: Sequence[tuple[str, float]],
    words: str = "",
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
    body = []
    for level, (_, values) in lines.items():
        href = evidence.level_hrefs.get(level, "")
        figures = (float(np.min(values)), float(np.median(values)), float(np.max(values)))
        texts = (*(quantity_text(metric, figure) for figure in figures), f"{len(values):,}")
        body.append((Cell(level, href), *(Cell(text, href, numeric=True) for text in texts)))
    chart = _over_time_chart(metric, lines, begins, epochs, names, evidence.numbers, words)
    return Figure(name, title, reading, chart, headers, tuple(body))


def _over_time_chart(
    metric: str,
    lines: Mapping[str, Line],
    begins: Mapping[str, int],
    epochs: Sequence[tuple[str, float]],
    called: Mapping[str, str],
    numbers: Mapping[str, int],
    words: str,
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
    every = np.concatenate([values for _, values in lines.values()])
    # Logarithmic where a few values would press all others to the floor, as a first step does.
    tall = every.min() > 0 and every.max() > SHOWS_NOTHING * np.median(every)
    scale, named = {"type": "log" if tall else "linear"}, unit or axis_title(words) or metric_name(metric)
    up = {"field": "value", "type": "quantitative", "title": named, "scale": scale}
    names = [called[level] for level in lines]
    colours = {"domain": names, "range": [level_colour(numbers[level]) for level in lines]}
    colour = {"field": "level", "scale": colours, "legend": legend(names)}
    x = {"field": "s", "type": "quantitative", "title": "time, s", "axis": {"tickCount": 6}, "scale": {"nice": False}}
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
                    "tooltip": tooltip(level="level", s="second", value=named),
                },
            },
        ],
    }  # fmt: skip
