"""How the headline goes with a setting that is a number: cores, workers, batch; pinned and vanilla apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tare.analysis.statistics import median_estimate
from tare.base.text import metric_name, quantity_text, scaled
from tare.records.model import Record, varied
from tare.records.trials import grouped
from tare.report.charts.evidence import ReportData
from tare.report.charts.layout import axis_title, tooltip
from tare.report.figure import PARTS, Cell, Figure, part_colour, rows
from tare.report.naming import last_part, legend, setting_name

FEWEST = 3  # levels of a number make a curve; two are a comparison
MOST = 12  # curves in one chart
MOST_TICKS = 8  # else round numbers, and of whole things whole ones: there are no 0.1 workers

Curves: TypeAlias = Mapping[str, Mapping[float, list[float]]]  # what else was set -> place -> values


def scale_up(evidence: ReportData) -> list[Figure]:
    """A curve for each setting that was varied over at least three numbers, with the others as they were."""
    metric = evidence.weighing.metric
    records = [record for held in evidence.usable().values() for record in held if metric in record.metrics]
    factors = varied([record.settings for record in records])
    numeric = [factor for factor in factors if _is_number(records, factor)]
    found = {factor: _curves(metric, factor, records, factors) for factor in numeric}
    return [_figure(metric, factor, curves) for factor, curves in found.items() if curves]


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


def _figure(metric: str, factor: str, curves: Curves) -> Figure:
    shown = f"{metric_name(metric)} against {last_part(factor)}"
    first, places = next(iter(curves.items()))
    low, high = min(places), max(places)
    change = median_estimate(places[high]).value / median_estimate(places[low]).value
    more = f" The first {MOST} of {len(curves)} curves are drawn." if len(curves) > MOST else ""
    reading = (
        f"From {low:g} to {high:g} {last_part(factor)} the median of {first} becomes {change:.2f} times what it was; "
        f"bars are intervals, where n allows one.{more}"
    )
    drawn = dict(list(curves.items())[:MOST])
    return Figure(f"curve-{_anchor(factor)}", shown[:1].upper() + shown[1:], reading, _chart(metric, factor, drawn),
                  (last_part(factor), *curves), _rows(metric, curves))  # fmt: skip


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


def _chart(metric: str, factor: str, curves: Curves) -> dict[str, Any]:
    unit, points = _points(metric, curves)
    places = list(range(len(curves)))
    measured = sorted({point["place"] for point in points})
    ticks = {"values": measured} if len(measured) <= MOST_TICKS else {"tickCount": MOST_TICKS}
    whole = all(place == int(place) for place in measured)
    axis = {**ticks, "format": "d" if whole else "~g", **({"tickMinStep": 1} if whole else {})}
    name = axis_title(last_part(factor).replace("_", " "))
    x = {"field": "place", "type": "quantitative", "title": name, "axis": axis,
         "scale": {"zero": False, "padding": 12}}  # fmt: skip
    up = {"type": "quantitative", "title": axis_title(metric_name(metric), unit)}
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
