"""Write-backs by reason (the paper's Tables 9 and 10), and the times between them (its Figure 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tare.analysis.kernel import writeback_intervals, writebacks
from tare.analysis.kernel.model import Section, Traced, by_label
from tare.report.charts.bars import stacked
from tare.report.charts.kernel_tables import table_of, with_notes
from tare.report.charts.lanes import tooltip
from tare.report.charts.naming import MOST_LANES, legend, some_of
from tare.report.drawing import rows
from tare.report.figure import Figure
from tare.report.kernel import number_text
from tare.report.theme import level_colour
from tare.report.words import safe_text, share_text, time_text

COUNT = "write-backs"  # a plain number
POINTS = 300  # of a curve
MOST = 7  # curves
SHORTEST_S = 1e-4  # on a logarithmic axis what is shorter stands here


def reasons_figure(trials: Sequence[Traced], hrefs: Mapping[str, str]) -> Figure | None:
    """Write-backs of each cell, stacked by reason; None where none were traced."""
    section = writebacks.section(trials)
    if section is None:
        return None
    parts: dict[str, dict[str, float]] = {}
    for label, reason, count, *_ in section.rows:
        if reason != writebacks.ALL and isinstance(count, float):
            parts.setdefault(safe_text(label), {})[safe_text(reason)] = count
    if not parts:
        return None
    totals = {label: sum(known.values()) for label, known in parts.items()}
    told = [f"{label} {number_text(total)} ({_most(parts[label])})" for label, total in totals.items()]
    names = {reason: reason for known in parts.values() for reason in known}
    chart = stacked(dict(list(parts.items())[:MOST_LANES]), names, COUNT)
    headers, body = table_of(section, hrefs)
    reading = with_notes(f"Write-backs of a run, medians over trials: {some_of(told)}.", section)
    return Figure("write-backs", section.title, reading, chart, headers, body)


def _most(known: Mapping[str, float]) -> str:
    reason, count = max(known.items(), key=lambda item: item[1])
    total = sum(known.values())
    return f"{share_text(count / total)} {reason}" if total else "none"


def intervals_figure(trials: Sequence[Traced], hrefs: Mapping[str, str]) -> Figure | None:
    """The share of intervals that are no longer than so many seconds, cell by cell; None where there are none."""
    section = writeback_intervals.section(trials)
    if section is None:
        return None
    gaps = _gaps(trials)
    told = [f"{safe_text(label)} {time_text(float(np.median(values)))}" for label, values in gaps.items()]
    reading = f"Medians of the time between two write-backs of a device: {some_of(told)}.{_timer_told(section)}"
    headers, body = table_of(section, hrefs)
    chart = _chart(dict(list(gaps.items())[:MOST]), _periods(section))
    return Figure("write-back-intervals", section.title, with_notes(reading, section), chart, headers, body)


def _gaps(trials: Sequence[Traced]) -> dict[str, Any]:
    found = {}
    for label, group in by_label(trials).items():
        if len(gaps := writeback_intervals.gaps_of(group)):
            found[label] = np.sort(gaps)
    return found


def _periods(section: Section) -> list[float]:
    place = [column.key for column in section.columns].index("period_s")
    return sorted({float(period) for row in section.rows if isinstance(period := row[place], int | float)})


def _timer_told(section: Section) -> str:
    periods = _periods(section)
    return (
        f" The dashed line is how often the kernel looks: every {time_text(periods[0])}." if len(periods) == 1 else ""
    )


def _chart(gaps: Mapping[str, Any], periods: Sequence[float]) -> dict[str, Any]:
    points: list[dict[str, Any]] = []
    for label, values in gaps.items():
        shares = np.arange(1, len(values) + 1) / len(values)
        chosen = np.unique(np.linspace(0, len(values) - 1, min(POINTS, len(values))).astype(int))
        at = np.maximum(values, SHORTEST_S)
        points.append({"cell": safe_text(label), "s": float(at[0]), "share": 0.0})
        points += [{"cell": safe_text(label), "s": float(at[n]), "share": float(shares[n])} for n in chosen]
    names = [safe_text(label) for label in gaps]
    colours = {"domain": names, "range": [level_colour(number) for number in range(len(names))]}
    x = {"type": "quantitative", "title": "time between two write-backs, s", "scale": {"type": "log"}}
    return {
        "height": 240,
        "layer": [
            {
                "data": rows([{"s": period} for period in periods]),
                "mark": {"type": "rule", "strokeDash": [5, 4], "color": "@quiet"},
                "encoding": {"x": {"field": "s", **x}},
            },
            {
                "data": rows(points),
                "params": [{"name": "chosen", "select": {"type": "point", "fields": ["cell"]}, "bind": "legend"}],
                "mark": {"type": "line", "interpolate": "step-after"},
                "encoding": {
                    "x": {"field": "s", **x},
                    "y": {"field": "share", "type": "quantitative", "title": "share of the intervals",
                          "axis": {"format": ".0%"}, "scale": {"domain": [0, 1]}},
                    "color": {"field": "cell", "scale": colours, "legend": legend(names)},
                    "opacity": {"condition": {"param": "chosen", "value": 1}, "value": 0.1},
                    "tooltip": tooltip(cell="where", s="seconds", share="share no longer"),
                },
            },
        ],
    }  # fmt: skip
