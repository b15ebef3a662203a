"""Charts of sections as Vega-Lite: one builder for each form, which draws the table of the chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tare.analysis.sections import Chart, Form, Shown, sentence_text
from tare.base.text import metric_name, quantity_text, safe_text, scaled, share_text
from tare.report.figure import Figure, level_colour, part_colour, rows, shape_of
from tare.report.layout import (
    LANE,
    MOST_LANES,
    axis_title,
    figures_above,
    label_above,
    legend,
    level_names,
    not_all_drawn,
    tooltip,
)
from tare.report.sections import linked_rows

Spec = dict[str, Any]
_AXIS = {"tickCount": 6}
WIDE = 5  # times the smallest: then an axis is logarithmic
MOST_TICKS = 8


def chart_figure(
    name: str,
    title: str,
    chart: Chart,
    hrefs: Mapping[str, str],
    by: str = "",
    numbers: Mapping[str, int] | None = None,
) -> Figure:
    """A chart as a figure of the page.

    `by`: the setting whose bare values are named with it; `numbers`: of the colours that levels have on this page.
    """
    reading = f"{sentence_text(chart.reading)}{not_all_drawn(len(chart.table.rows)) if chart.form == 'stack' else ''}"
    return Figure(name, title, reading, chart_spec(chart, by, numbers), *linked_rows(chart.table, hrefs))


def chart_spec(chart: Chart, by: str = "", numbers: Mapping[str, int] | None = None) -> Spec:
    """A chart as Vega-Lite."""
    return FORMS[chart.form](chart, by, numbers or {})


def stack(chart: Chart, by: str, _: Mapping[str, int]) -> Spec:
    """A lane for each row, its parts one after the other."""
    labels = [str(cell) for cell in chart.table.column(chart.x)][:MOST_LANES]
    columns = {title: chart.table.column(title) for title in chart.y}
    metric = next(cell.metric for cells in columns.values() for cell in cells if isinstance(cell, Shown))
    parts = {
        label: {
            title: cell.numbers[0]
            for title, cells in columns.items()
            if isinstance(cell := cells[place], Shown) and cell.numbers[0] > 0
        }
        for place, label in enumerate(labels)
    }
    called = level_names(labels, by)
    totals = {label: sum(known.values()) for label, known in parts.items()}
    unit, factor = scaled(metric, list(totals.values()))
    titles = list(map(safe_text, chart.y))
    pieces = [
        {
            "level": called[label], "part": safe_text(title), "order": chart.y.index(title), "value": value * factor,
            "shown": quantity_text(metric, value), "share": share_text(value / totals[label]),
        }
        for label, known in parts.items()
        for title, value in known.items()
    ]  # fmt: skip
    lanes = [{"level": called[label], "total": quantity_text(metric, total)} for label, total in totals.items()]
    colours = [part_colour(number) for number in range(len(titles))]
    return {
        "height": {"step": LANE},
        "encoding": {"y": {"field": "level", "type": "nominal", "sort": None, "axis": None}},
        "layer": [
            {
                "data": rows(pieces),
                "params": [{"name": "chosen", "select": {"type": "point", "fields": ["part"]}, "bind": "legend"}],
                "mark": {"type": "bar", "height": 18},
                "encoding": {
                    "x": {"field": "value", "type": "quantitative", "stack": True, "axis": _AXIS,
                          "title": unit or axis_title(metric_name(metric))},
                    "color": {"field": "part", "scale": {"domain": titles, "range": colours},
                              "legend": legend(titles)},
                    "order": {"field": "order"},
                    "opacity": {"condition": {"param": "chosen", "value": 1}, "value": 0.15},
                    "tooltip": tooltip(level="level", part="part", shown="amount", share="share"),
                },
            },
            {"data": rows(lanes), **label_above("level", beside=80)},
            {"data": rows(lanes), **figures_above("total")},
        ],
    }  # fmt: skip


def points(chart: Chart, _: str, numbers: Mapping[str, int]) -> Spec:
    """A point for each row, with the interval of its figure; a series has a colour, and of lines its rows are joined.

    What the pointer brings up is the row of the table.
    """
    drawn, joined = chart.table, chart.form == "lines"
    headers, texts = drawn.grid()[:2]
    series = [safe_text(cell or "") for cell in drawn.column(chart.series)]
    across, up = ([cell for cell in drawn.column(title) if isinstance(cell, Shown)] for title in (chart.x, chart.y[0]))
    x_unit, x_factor = scaled(across[0].metric, [cell.numbers[0] for cell in across])
    y_unit, y_factor = scaled(up[0].metric, [cell.numbers[0] for cell in up])
    at_x, at_y = [x.numbers[0] * x_factor for x in across], [y.numbers[0] * y_factor for y in up]
    data: list[Spec] = [
        {"series": name, "x": x, "y": y, **{f"text{place}": text for place, text in enumerate(row)}}
        for name, x, y, row in zip(series, at_x, at_y, texts, strict=True)
    ]
    ends = [
        {"series": name, "x": x, "low": y.numbers[1] * y_factor, "high": y.numbers[2] * y_factor}
        for name, x, y in zip(series, at_x, up, strict=True)
        if len(y.numbers) > 1
    ]
    lines = [
        {"line": place, "order": order, "x": x * x_factor, "y": y * y_factor}
        for place, line in enumerate(chart.marks)
        for order, (x, y) in enumerate(line.points)
    ]
    names = list(dict.fromkeys(series))
    colours = [
        level_colour(numbers[name]) if name in numbers else part_colour(place) for place, name in enumerate(names)
    ]
    key = legend(names) if len(names) > 1 else None
    colour = {"field": "series", "scale": {"domain": names, "range": colours}, "legend": key}
    shapes = [shape_of(place) for place in range(len(names))]
    x_axis = _axis(chart.x, x_unit, at_x, logs=not joined)
    y_axis = _axis(chart.y[0], y_unit, at_y, logs=True)
    encoding = {"x": {"field": "x", **x_axis}, "y": {"field": "y", **y_axis}}
    tips = [{"field": f"text{place}", "title": axis_title(title)} for place, title in enumerate(headers)]
    shown = {"opacity": {"condition": {"param": "chosen", "value": 1}, "value": 0.1}} if key else {}
    chosen = {"name": "chosen", "select": {"type": "point", "fields": ["series"]}, "bind": "legend"}
    return {
        "height": 280,
        "layer": [
            {
                "data": rows(lines),
                "mark": {"type": "line", "color": "@quiet", "strokeWidth": 1, "strokeDash": [4, 3]},
                "encoding": {**encoding, "detail": {"field": "line"}, "order": {"field": "order"}},
            },
            {
                "data": rows(ends),
                "mark": {"type": "rule", "opacity": 0.6},
                "encoding": {**encoding, "y": {"field": "low", **y_axis}, "y2": {"field": "high"}, "color": colour},
            },
            {
                "data": rows(data if joined else []),
                "mark": {"type": "line"},
                "encoding": {**encoding, "color": colour, **shown},
            },
            {
                "data": rows(data),
                "params": [chosen] if key else [],
                "mark": {"type": "point", "filled": True, "size": 60},
                "encoding": {
                    **encoding, "color": colour, "tooltip": tips, **shown,
                    "shape": {**colour, "scale": {"domain": names, "range": shapes}},
                },
            },
        ],
    }  # fmt: skip


def _axis(title: str, unit: str, values: Sequence[float], *, logs: bool) -> Spec:
    """Logarithmic where the largest is many times the smallest; few whole numbers have a tick each."""
    wide = logs and min(values) > 0 and max(values) > WIDE * min(values)
    scale = {"type": "log", "nice": False, "padding": 14} if wide else {"zero": False, "padding": 12}
    known = sorted(set(values))
    form = "d" if all(float(value).is_integer() for value in known) else "~r"
    ticks = {"axis": {"values": known, "format": form}} if len(known) <= MOST_TICKS and not logs else {}
    return {"type": "quantitative", "title": axis_title(title, unit), "scale": scale, **ticks}


FORMS: Mapping[Form, Callable[[Chart, str, Mapping[str, int]], Spec]] = {
    "stack": stack, "scatter": points, "lines": points,
}  # fmt: skip
