"""How the headline goes with a setting that is a number: cores, workers, batch; pinned and vanilla apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tare.analysis.stats import median_estimate
from tare.records.model import Record
from tare.records.settings import varied
from tare.report.charts.lanes import tooltip
from tare.report.drawing import rows
from tare.report.evidence import Evidence
from tare.report.figure import Cell, Figure
from tare.report.listing import plain_text
from tare.report.theme import level_colour
from tare.report.words import metric_name, quantity_text, safe_text, scaled

FEWEST = 3  # levels of a number make a curve; two are a comparison


def scale_up(evidence: Evidence) -> list[Figure]:
    """A curve for each setting that was varied over at least three numbers."""
    metric = evidence.weighing.metric
    records = [record for held in evidence.usable().values() for record in held if metric in record.metrics]
    factors = varied([record.settings for record in records])
    numeric = [factor for factor in factors if _is_number(records, factor)]
    return [_figure(metric, factor, records, [each for each in factors if each != factor]) for factor in numeric]


def _is_number(records: Sequence[Record], factor: str) -> bool:
    values = {record.settings.get(factor) for record in records}
    numbers = {value for value in values if isinstance(value, int | float) and not isinstance(value, bool)}
    return len(numbers) >= FEWEST and numbers == values


def _figure(metric: str, factor: str, records: Sequence[Record], others: Sequence[str]) -> Figure:
    held: dict[str, dict[float, list[float]]] = {}
    for record in records:
        series = ", ".join(f"{_short(each)} {plain_text(record.settings.get(each))}" for each in others) or "all trials"
        at = float(record.settings[factor])
        held.setdefault(safe_text(series), {}).setdefault(at, []).append(record.metrics[metric])
    shown = f"{metric_name(metric)} against {_short(factor)}"
    first, *_ = held
    ends = held[first]
    low, high = min(ends), max(ends)
    change = median_estimate(ends[high]).value / median_estimate(ends[low]).value
    reading = (
        f"From {low:g} to {high:g} {_short(factor)} the median of {first} becomes {change:.2f} times what it was; "
        "bars are intervals, where n allows one."
    )
    headers = (_short(factor), *held)
    return Figure(f"curve-{_anchor(factor)}", shown[:1].upper() + shown[1:], reading, _chart(metric, factor, held),
                  headers, _rows(metric, held))  # fmt: skip


def _rows(metric: str, held: Mapping[str, Mapping[float, list[float]]]) -> tuple[tuple[Cell, ...], ...]:
    places = sorted({place for series in held.values() for place in series})
    return tuple(
        (
            Cell(f"{place:g}", numeric=True),
            *(
                Cell(quantity_text(metric, median_estimate(series[place]).value), "#trials", numeric=True)
                if place in series
                else Cell("missing", numeric=True)
                for series in held.values()
            ),
        )
        for place in places
    )


def _chart(metric: str, factor: str, held: Mapping[str, Mapping[float, list[float]]]) -> dict[str, Any]:
    unit, factor_of_unit = scaled(metric, [value for series in held.values() for v in series.values() for value in v])
    points = []
    for series, places in held.items():
        for place, values in sorted(places.items()):
            found = median_estimate(values)
            points.append(
                {
                    "series": series, "place": place, "value": found.value * factor_of_unit, "n": found.n,
                    "low": None if found.low is None else found.low * factor_of_unit,
                    "high": None if found.high is None else found.high * factor_of_unit,
                    "shown": quantity_text(metric, found.value),
                }
            )  # fmt: skip
    colours = {"domain": list(held), "range": [level_colour(number) for number in range(len(held))]}
    x = {"field": "place", "type": "quantitative", "title": _short(factor), "scale": {"zero": False}}
    up = {"type": "quantitative", "title": unit}
    colour = {"field": "series", "scale": colours, "legend": {"columns": 1}}
    return {
        "height": 240,
        "data": rows(points),
        "layer": [
            {
                "params": [{"name": "chosen", "select": {"type": "point", "fields": ["series"]}, "bind": "legend"}],
                "mark": {"type": "line", "point": True},
                "encoding": {
                    "x": x, "y": {"field": "value", **up}, "color": colour,
                    "opacity": {"condition": {"param": "chosen", "value": 1}, "value": 0.1},
                    "tooltip": tooltip(series="series", place=_short(factor), shown="median", n="trials"),
                },
            },
            {
                "transform": [{"filter": "isValid(datum.low)"}],
                "mark": {"type": "rule", "strokeWidth": 1.5},
                "encoding": {"x": x, "y": {"field": "low", **up}, "y2": {"field": "high"}, "color": colour},
            },
        ],
    }  # fmt: skip


def _short(factor: str) -> str:
    return safe_text(factor.rpartition(".")[2])


def _anchor(factor: str) -> str:
    return "".join(sign if sign.isalnum() else "-" for sign in factor.lower() if sign.isascii())
