"""Charts of sections as Vega-Lite: one builder for each form, which draws the table of the chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tare.analysis.sections import Chart, Form, Shown, sentence_text
from tare.base.text import metric_name, quantity_text, safe_text, scaled, share_text
from tare.report.figure import Figure, part_colour, rows
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


def chart_figure(name: str, title: str, chart: Chart, hrefs: Mapping[str, str], by: str = "") -> Figure:
    """A chart as a figure of the page. `by`: the setting whose bare values are named with it."""
    reading = f"{sentence_text(chart.reading)}{not_all_drawn(len(chart.table.rows))}"
    return Figure(name, title, reading, chart_spec(chart, by), *linked_rows(chart.table, hrefs))


def chart_spec(chart: Chart, by: str = "") -> Spec:
    """A chart as Vega-Lite."""
    return FORMS[chart.form](chart, by)


def stack(chart: Chart, by: str) -> Spec:
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


FORMS: Mapping[Form, Callable[[Chart, str], Spec]] = {"stack": stack}
