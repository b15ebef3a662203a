"""Settings that were varied over numbers: how the headline goes with cores, workers or batch, pinned and vanilla apart;
and time against power over modes, one chart for each resource (cores, CPU, GPU and memory clock).

Of a server under several rates also the latency, and the knee: the highest rate up to which goodput follows the rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple, TypeAlias

from tare.analysis.numeric.medians import median_estimate
from tare.analysis.observations import ENERGY, POWER
from tare.analysis.resources.bottlenecks import FEWEST_RATES, GOODPUT, RATE, at_rate, knee, knee_sentence
from tare.analysis.sections import anchor
from tare.analysis.selection import MEDIAN_STEP, RUN, SHORT_TAIL, TAIL
from tare.base.text import effect_text, metric_name, quantity_text, scaled
from tare.records.model import Record, grouped, varied
from tare.report.evidence import ReportData
from tare.report.figure import PARTS, Cell, Figure, part_colour, rows
from tare.report.layout import axis_title, last_part, legend, setting_name, some_of, tooltip

MOST = 12  # curves in one chart
FEWEST = 3  # numbers of any other setting than a server's rate: two are a comparison
LATENCY = MEDIAN_STEP
QUANTILES = {LATENCY: "median", TAIL: "99th percentile", SHORT_TAIL: "90th percentile"}
MOST_TICKS = 8  # else round numbers, and of whole things whole ones: there are no 0.1 workers

Curves: TypeAlias = Mapping[str, Mapping[float, list[float]]]  # what else was set -> place -> values


def scale_up(evidence: ReportData) -> list[Figure]:
    """A curve for each setting that was varied over at least three numbers, with the others as they were."""
    metric = evidence.weighing.metric
    records = [record for held in evidence.usable.values() for record in held if metric in record.metrics]
    factors = varied([record.settings for record in records])
    numeric = [factor for factor in factors if _is_number(records, factor)]
    found = {factor: _curves(metric, factor, records, factors) for factor in numeric}
    return [
        _figure(metric_name(metric, evidence.weighing.unit), metric, factor, curves)
        for factor, curves in found.items()
        if curves
    ]


def latency_figure(evidence: ReportData) -> Figure | None:
    """Median and tail of the latency against the rate, where a server was driven at several rates."""
    records = [at_rate(each) for held in evidence.usable.values() for each in held if GOODPUT in each.metrics]
    if not records or not _is_number(records, RATE):
        return None
    factors = varied([record.settings for record in records])
    goodput = _curves(GOODPUT, RATE, records, factors)
    tail = next((name for name in (TAIL, SHORT_TAIL) if all(name in each.metrics for each in records)), "")
    curves = {
        f"{series}, {QUANTILES[metric]}": places
        for metric in (LATENCY, tail)
        if metric
        for series, places in _curves(metric, RATE, records, factors).items()
    }
    if not curves:
        return None
    knees = {series: knee(places) for series, places in goodput.items()}
    words = [knee_sentence(series, places) for series, places in goodput.items()]
    chart = _chart(LATENCY, RATE, dict(list(curves.items())[:MOST]), "latency", logs=True)
    at = [{"place": at, "series": series} for series, at in knees.items() if at is not None]
    x = chart["layer"][0]["encoding"]["x"]
    told = tooltip(series="series", place="knee, requests/s")
    chart["layer"].append({"data": rows(at), "mark": {"type": "rule", "strokeDash": [2, 3], "color": "@ink"},
                           "encoding": {"x": x, "tooltip": told}})  # fmt: skip
    reading = f"{' '.join(words[:MOST])} Bars are intervals, where n allows one; dotted lines are the knees."
    return Figure("curve-latency", "Latency against the rate", reading, chart, ("rate", *curves),
                  _rows(LATENCY, curves))  # fmt: skip


def _is_number(records: Sequence[Record], factor: str) -> bool:
    """Whether every trial has a number here, and there are enough different ones; a setting may also be a list."""
    values = [record.settings.get(factor) for record in records]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return False
    return len(set(values)) >= _fewest(factor)


def _fewest(factor: str) -> int:
    return FEWEST_RATES if factor == RATE else FEWEST


def _curves(metric: str, factor: str, records: Sequence[Record], factors: Sequence[str]) -> Curves:
    """The curves that have places enough: a number that changes only with something else has none."""
    others = _apart(records, factor, [each for each in factors if each != factor])
    series = grouped(
        records, lambda record: ", ".join(setting_name(each, record.settings.get(each)) for each in others)
    )
    curves = {}
    for name, its in series.items():
        places = grouped(its, lambda record: float(record.settings[factor]))
        if len(places) >= _fewest(factor):
            curves[name or "all trials"] = {at: [each.metrics[metric] for each in here] for at, here in places.items()}
    return curves


def _apart(records: Sequence[Record], factor: str, others: Sequence[str]) -> list[str]:
    """Those of the other factors that tell curves apart: what only follows from the factor, or from these, does not."""
    kept: list[str] = []
    for other in others:
        if not (_follows(records, other, [factor]) or _follows(records, other, kept)):
            kept.append(other)
    return kept


def _follows(records: Sequence[Record], one: str, others: Sequence[str]) -> bool:
    """Whether a setting has one value for each combination of others."""
    seen: dict[tuple[str, ...], str] = {}
    return all(
        seen.setdefault(tuple(str(record.settings.get(each)) for each in others), value) == value
        for record in records
        for value in [str(record.settings.get(one))]
    )


def _figure(called: str, metric: str, factor: str, curves: Curves) -> Figure:
    shown = f"{called} against {last_part(factor)}"
    first, places = next(iter(curves.items()))
    low, high = min(places), max(places)
    change = median_estimate(places[high]).value / median_estimate(places[low]).value
    more = f" The first {MOST} of {len(curves)} curves are drawn." if len(curves) > MOST else ""
    reading = (
        f"From {low:g} to {high:g} {last_part(factor)} the median of {first} becomes {change:.2f} times what it was; "
        f"bars are intervals, where n allows one.{more}"
    )
    drawn = dict(list(curves.items())[:MOST])
    chart, headers = _chart(metric, factor, drawn, called), (last_part(factor), *curves)
    title = shown[:1].upper() + shown[1:]
    return Figure(anchor("curve", factor), title, reading, chart, headers, _rows(metric, curves))


def _rows(metric: str, curves: Curves) -> tuple[tuple[Cell, ...], ...]:
    places = sorted({place for series in curves.values() for place in series})
    return tuple(
        (
            Cell(f"{place:g}", numeric=True),
            *(
                Cell(quantity_text(metric, median_estimate(series[place]).value), "#trials", numeric=True)
                if place in series
                else Cell("missing", numeric=True)
                for series in curves.values()
            ),
        )
        for place in places
    )


def _chart(metric: str, factor: str, curves: Curves, called: str, *, logs: bool = False) -> dict[str, Any]:
    unit, points = _points(metric, curves)
    places = list(range(len(curves)))
    measured = sorted({point["place"] for point in points})
    ticks = {"values": measured} if len(measured) <= MOST_TICKS else {"tickCount": MOST_TICKS}
    whole = all(place == int(place) for place in measured)
    axis = {**ticks, "format": "d" if whole else "~g", **({"tickMinStep": 1} if whole else {})}
    name = axis_title(last_part(factor).replace("_", " "))
    x = {"field": "place", "type": "quantitative", "title": name, "axis": axis,
         "scale": {"zero": False, "padding": 12}}  # fmt: skip
    up: dict[str, Any] = {"type": "quantitative", "title": axis_title(called, unit)}
    up |= {"scale": {"type": "log"}} if logs else {}
    key = legend(curves)
    colours = {"domain": list(curves), "range": [part_colour(number) for number in places]}
    dashes = {"domain": list(curves), "range": [[1, 0] if number < PARTS else [5, 3] for number in places]}
    colour = {"field": "series", "scale": colours, "legend": key}
    return {
        "height": 240,
        "layer": [
            {
                "data": rows(points),
                "params": [{"name": "chosen", "select": {"type": "point", "fields": ["series"]}, "bind": "legend"}],
                "mark": {"type": "line", "point": True},
                "encoding": {
                    "x": x, "y": {"field": "value", **up}, "color": colour,
                    "strokeDash": {"field": "series", "scale": dashes, "legend": key},
                    "opacity": {"condition": {"param": "chosen", "value": 1}, "value": 0.1},
                    "tooltip": tooltip(series="series", place=last_part(factor), shown="median", n="trials"),
                },
            },
            {
                "data": rows([point for point in points if point["low"] is not None]),
                "mark": {"type": "rule", "strokeWidth": 1.5},
                "encoding": {"x": x, "y": {"field": "low", **up}, "y2": {"field": "high"}, "color": colour},
            },
        ],
    }  # fmt: skip


def _points(metric: str, curves: Curves) -> tuple[str, list[dict[str, Any]]]:
    unit, factor = scaled(metric, [value for series in curves.values() for held in series.values() for value in held])
    points = []
    for series, places in curves.items():
        for place, values in sorted(places.items()):
            found = median_estimate(values)
            points.append(
                {
                    "series": series, "place": place, "value": found.value * factor, "n": found.n,
                    "low": None if found.low is None else found.low * factor,
                    "high": None if found.high is None else found.high * factor,
                    "shown": quantity_text(metric, found.value),
                }
            )  # fmt: skip
    return unit, points


# Time against power over modes: as S3's figures 11 and 13 to 16, a point is a mode, its colour the level of the
# resource, and a line joins modes that differ in nothing else, so that one sees what the resource alone does to both.

TIMES = (MEDIAN_STEP, RUN)  # the first that the trials have
COLOURS = ("@level-0", "@level-1", "@level-3", "@level-5", "@level-2", "@level-7", "@level-4", "@level-6")
# The last parts of settings that are a resource of the device, and what people call them.
RESOURCES = {
    "cores": "cores", "quota": "CPU quota", "cpu_mhz": "CPU clock", "gpu_mhz": "GPU clock", "mem_mhz": "memory clock",
    "power_limit_w": "power limit",
}  # fmt: skip


class Mode(NamedTuple):
    """One combination of settings, and what it takes."""

    level: float  # of the resource
    rest: str  # the other settings that vary
    time_s: float
    power_w: float
    n: int


def time_power_figures(evidence: ReportData) -> list[Figure]:
    """A chart for each resource that has two levels or more in trials with time and power; none without power."""
    records = [record for held in evidence.usable.values() for record in held if POWER in record.compared]
    time = next((name for name in TIMES if records and all(name in record.compared for record in records)), None)
    if time is None:
        return []
    factors = varied([record.settings for record in records])
    found = {factor: _modes(records, factor, factors, time) for factor in factors if _is_resource(records, factor)}
    called = metric_name(time, evidence.weighing.unit)
    return [_mode_figure(factor, modes, time, called) for factor, modes in found.items() if _chains(modes)]


def _is_resource(records: Sequence[Record], factor: str) -> bool:
    values = [record.settings.get(factor) for record in records]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return last_part(factor) in RESOURCES and numbers


def _modes(records: Sequence[Record], factor: str, factors: Sequence[str], time: str) -> list[Mode]:
    differing = [each for each in factors if len({str(record.settings.get(each)) for record in records}) > 1]
    others = [each for each in differing if each != factor]

    def place(record: Record) -> tuple[float, str]:
        rest = ", ".join(setting_name(each, record.settings.get(each)) for each in others)
        return float(record.settings[factor]), rest

    return [
        Mode(level, rest, median(r.compared[time] for r in held), median(r.compared[POWER] for r in held), len(held))
        for (level, rest), held in sorted(grouped(records, place).items())
    ]


def _chains(modes: Sequence[Mode]) -> dict[str, list[Mode]]:
    """Modes that differ in the resource alone, by all else that they have; two levels make a line."""
    return {rest: held for rest, held in grouped(modes, lambda mode: mode.rest).items() if len(held) > 1}


def _mode_figure(factor: str, modes: Sequence[Mode], time: str, time_name: str) -> Figure:
    called = RESOURCES[last_part(factor)]
    told = [_told(factor, rest, held) for rest, held in _chains(modes).items()]
    reading = f"{some_of(told)}; a line joins modes that differ in {called} alone."
    headers = (called, "other settings", time_name, metric_name(POWER), "energy, power times time", "trials")
    title = f"{time_name} against power, by {called}"
    name = anchor("time-power", last_part(factor))
    body = []
    for mode in modes:
        figures = (
            quantity_text(time, mode.time_s), quantity_text(POWER, mode.power_w),
            quantity_text(ENERGY, mode.time_s * mode.power_w), f"{mode.n:,}",
        )  # fmt: skip
        numbers = (Cell(text, "#trials", numeric=True) for text in figures)
        body.append((Cell(setting_name(factor, mode.level), "#trials"), Cell(mode.rest or "none"), *numbers))
    return Figure(
        name, title[:1].upper() + title[1:], reading, _mode_chart(factor, modes, time, time_name), headers, tuple(body)
    )


def _told(factor: str, rest: str, held: Sequence[Mode]) -> str:
    """`from 2 cores to 8 cores time changes by -3.1 % and power by +2.0 %`."""
    low, high = held[0], held[-1]
    where = f" ({rest})" if rest else ""
    ends = f"From {setting_name(factor, low.level)} to {setting_name(factor, high.level)}{where}"
    changes = (effect_text(high.time_s / low.time_s - 1), effect_text(high.power_w / low.power_w - 1))
    return f"{ends} time changes by {changes[0]} and power by {changes[1]}"


def _mode_chart(factor: str, modes: Sequence[Mode], time: str, time_name: str) -> dict[str, Any]:
    time_unit, time_factor = scaled(time, [mode.time_s for mode in modes])
    points: list[Mapping[str, Any]] = [
        {
            "level": setting_name(factor, mode.level), "rank": mode.level, "rest": mode.rest,
            "time": mode.time_s * time_factor, "power": mode.power_w, "n": mode.n,
            "shown": f"{quantity_text(time, mode.time_s)}, {quantity_text(POWER, mode.power_w)}",
        }
        for mode in modes
    ]  # fmt: skip
    levels = [setting_name(factor, level) for level in sorted({mode.level for mode in modes})]
    few = len(levels) <= len(COLOURS)
    colour: dict[str, Any] = (
        {"field": "level", "scale": {"domain": levels, "range": list(COLOURS[: len(levels)])},
         "legend": {"columns": 4, "labelLimit": 320, "title": RESOURCES[last_part(factor)]}}
        if few
        else {"field": "rank", "type": "quantitative", "scale": {"range": [COLOURS[0], COLOURS[4]]},
              "title": RESOURCES[last_part(factor)]}
    )  # fmt: skip
    x = {
        "field": "time",
        "type": "quantitative",
        "title": f"{time_name}, {time_unit}",
        "scale": {"zero": False},
    }
    y = {"field": "power", "type": "quantitative", "title": "mean power, W", "scale": {"zero": False}}
    chains = _chains(modes)
    return {
        "height": 300,
        "layer": [
            {
                "data": rows([point for point in points if point["rest"] in chains]),
                "mark": {"type": "line", "color": "@quiet", "strokeWidth": 1},
                "encoding": {"x": x, "y": y, "detail": {"field": "rest"}, "order": {"field": "rank"}},
            },
            {
                "data": rows(points),
                "params": [{"name": "zoom", "select": "interval", "bind": "scales"}],
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                "encoding": {
                    "x": x, "y": y, "color": colour,
                    "tooltip": tooltip(level="resource", rest="other settings", shown="takes", n="trials"),
                },
            },
        ],
    }  # fmt: skip
