"""How the headline goes with a setting that is a number: cores, workers, batch; pinned and vanilla apart.

Of a server under several rates also the latency, and the knee: the highest rate up to which goodput follows the rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tare.analysis.resources.bottlenecks import FEWEST, GOODPUT, RATE, at_rate, knee, knee_sentence
from tare.analysis.statistics import median_estimate
from tare.base.text import metric_name, quantity_text, scaled
from tare.records.model import Record, varied
from tare.records.trials import grouped
from tare.report.charts.evidence import ReportData
from tare.report.charts.layout import axis_title, tooltip
from tare.report.figure import PARTS, Cell, Figure, part_colour, rows
from tare.report.naming import last_part, legend, setting_name

MOST = 12  # curves in one chart
LATENCY = "step_s"
QUANTILES = {LATENCY: "median", "step_p99_s": "99th percentile", "step_p90_s": "90th percentile"}
MOST_TICKS = 8  # else round numbers, and of whole things whole ones: there are no 0.1 workers

Curves: TypeAlias = Mapping[str, Mapping[float, list[float]]]  # what else was set -> place -> values


def scale_up(evidence: ReportData) -> list[Figure]:
    """A curve for each setting that was varied over at least three numbers, with the others as they were."""
    metric = evidence.weighing.metric
    records = [record for held in evidence.usable().values() for record in held if metric in record.metrics]
    factors = varied([record.settings for record in records])
    numeric = [factor for factor in factors if _is_number(records, factor)]
    found = {factor: _curves(metric, factor, records, factors) for factor in numeric}
    return [
        _figure(metric_name(metric, evidence.weighing.unit), metric, factor, curves)
        for factor, curves in found.items()
        if curves
    ]


def latency_figure(evidence: ReportData) -> Figure | None:
    """Median and tail of the latency against the rate, where a server was driven at three rates or more."""
    records = [at_rate(each) for held in evidence.usable().values() for each in held if GOODPUT in each.metrics]
    if not records or not _is_number(records, RATE):
        return None
    factors = varied([record.settings for record in records])
    goodput = _curves(GOODPUT, RATE, records, factors)
    tail = next((name for name in ("step_p99_s", "step_p90_s") if all(name in each.metrics for each in records)), "")
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
    return len(set(values)) >= FEWEST


def _curves(metric: str, factor: str, records: Sequence[Record], factors: Sequence[str]) -> Curves:
    """The curves that have places enough: a number that changes only with something else has none."""
    others = _apart(records, factor, [each for each in factors if each != factor])
    series = grouped(
        records, lambda record: ", ".join(setting_name(each, record.settings.get(each)) for each in others)
    )
    curves = {}
    for name, its in series.items():
        places = grouped(its, lambda record: float(record.settings[factor]))
        if len(places) >= FEWEST:
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
    return Figure(f"curve-{_anchor(factor)}", title, reading, chart, headers, _rows(metric, curves))


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


def _anchor(factor: str) -> str:
    return "".join(sign if sign.isalnum() else "-" for sign in factor.lower() if sign.isascii())
