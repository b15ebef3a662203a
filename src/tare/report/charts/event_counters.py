"""Counters of the process in its platform against the same process on bare metal (the paper's Table 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tare.analysis.kernel import counters
from tare.analysis.kernel.model import Section, Traced
from tare.report.charts.kernel_tables import table_of, with_notes
from tare.report.charts.lanes import LANE, figures_above, label_above, tooltip
from tare.report.charts.naming import MOST_LANES, legend, not_all_drawn, some_of
from tare.report.drawing import rows
from tare.report.figure import Figure
from tare.report.kernel import number_text
from tare.report.theme import part_colour
from tare.report.words import safe_text

NARROWEST = 1.05  # the axis shows at least this far both ways
# Columns of the section, and what they are in the chart.
ROLES = {"workload": "process", "daemon": "daemons", "host_process": "host process"}


def counters_figure(trials: Sequence[Traced], hrefs: Mapping[str, str]) -> Figure | None:
    """Ratios to bare metal where there is one, else how the counts lie over the roles; None where none were counted."""
    section = counters.section(trials)
    if section is None:
        return None
    keys = [column.key for column in section.columns]
    told = [dict(zip(keys, row, strict=True)) for row in section.rows]
    compared = [row for row in told if row["ratio"]]
    headers, body = table_of(section, hrefs)
    if compared:
        drawn, reading = _ratios(compared), _ratio_reading(compared)
    else:
        told = [row for row in told if any(row[role] for role in ROLES)]
        drawn, reading = _roles(told), "There is no bare metal beside it: shares of the process and of the daemons."
    if not drawn["layer"][-1]["data"]["values"]:
        return None
    more = not_all_drawn(len(compared or told))
    return Figure("counters", _title(section), with_notes(reading + more, section), drawn, headers, body)


def _title(section: Section) -> str:
    return section.title.partition(":")[0] + ", by role"


def _ratio_reading(compared: Sequence[Mapping[str, Any]]) -> str:
    sure = [row for row in compared if row["low"] is not None and (row["low"] > 1 or row["high"] < 1)]
    if not sure:
        return "Against the same process on bare metal no counter is surely higher or lower."
    sure = sorted(sure, key=lambda row: -abs(row["ratio"] - 1))
    named = [f"{safe_text(row['event'])} {row['ratio']:.3g} times ({safe_text(row['cell'])})" for row in sure]
    return f"Against the same process on bare metal surely moved: {some_of(named)}."


def _ratios(compared: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A lane for each event and cell: the ratio with its interval, on a logarithmic axis around one."""
    lanes = [
        {
            "lane": safe_text(f"{row['event']}, {row['cell']}"), "ratio": row["ratio"], "low": row["low"],
            "high": row["high"], "shown": f"{row['ratio']:.3g} times", "process": number_text(row["workload"]),
            "host": number_text(row["host_process"]),
        }
        for row in compared[:MOST_LANES]
    ]  # fmt: skip
    ends = [value for lane in lanes for value in (lane["ratio"], lane["low"], lane["high"]) if value]
    reach = [min([*ends, 1 / NARROWEST]) * 0.95, max([*ends, NARROWEST]) * 1.05]
    x = {"type": "quantitative", "title": "times bare metal's", "scale": {"type": "log", "domain": reach}}
    told = tooltip(lane="event", shown="ratio", process="process", host="on bare metal")
    return {
        "height": {"step": LANE},
        "encoding": {"y": {"field": "lane", "type": "nominal", "sort": None, "axis": None}},
        "layer": [
            {"mark": {"type": "rule"}, "data": rows([{"one": 1}]), "encoding": {"x": {"field": "one", **x}, "y": None}},
            {
                "data": rows([lane for lane in lanes if lane["low"] is not None]),
                "mark": {"type": "rule", "strokeWidth": 2.5, "color": "@level-1"},
                "encoding": {"x": {"field": "low", **x}, "x2": {"field": "high"}, "tooltip": told},
            },
            {"data": rows(lanes), **label_above("lane", beside=90)},
            {"data": rows(lanes), **figures_above("shown")},
            {
                "data": rows(lanes),
                "mark": {"type": "point", "size": 110, "color": "@level-1", "opacity": 1},
                "encoding": {"x": {"field": "ratio", **x}, "tooltip": told},
            },
        ],
    }  # fmt: skip


def _roles(told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A lane for each event and cell: the shares of the roles."""
    names = [name for key, name in ROLES.items() if any(row[key] for row in told)]
    pieces = [
        {"lane": safe_text(f"{row['event']}, {row['cell']}"), "role": name, "value": row[key],
         "shown": number_text(row[key])}
        for row in told[:MOST_LANES] for key, name in ROLES.items() if row[key]
    ]  # fmt: skip
    lanes = [{"lane": lane} for lane in dict.fromkeys(piece["lane"] for piece in pieces)]
    colours = {"domain": names, "range": [part_colour(number + 1) for number in range(len(names))]}
    across = {"field": "value", "type": "quantitative", "stack": "normalize", "title": None, "axis": {"format": ".0%"}}
    return {
        "height": {"step": LANE},
        "encoding": {"y": {"field": "lane", "type": "nominal", "sort": None, "axis": None}},
        "layer": [
            {"data": rows(lanes), **label_above("lane", beside=0)},
            {
                "data": rows(pieces),
                "mark": {"type": "bar", "height": 18},
                "encoding": {
                    "x": across, "color": {"field": "role", "scale": colours, "legend": legend(names)},
                    "tooltip": tooltip(lane="event", role="role", shown="count"),
                },
            },
        ],
    }  # fmt: skip
