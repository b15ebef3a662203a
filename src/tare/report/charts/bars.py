"""Stacked bars: what a step is made of, and what a trial is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tare.analysis.model import Weighing
from tare.report.charts.lanes import LANE, label_above, tooltip
from tare.report.drawing import rows
from tare.report.figure import Cell, Figure, in_words
from tare.report.theme import part_colour
from tare.report.words import metric_name, safe_text, scaled, share_text, time_text

STEP_PARTS = ("stall_s", "copy_s", "compute_s", "overhead_s")

_AXIS = {"tickCount": 6}

Held = TypeVar("Held")
Parts = Mapping[str, Mapping[str, float]]  # level -> part -> seconds


def step_figure(weighing: Weighing, level_hrefs: Mapping[str, str]) -> Figure | None:
    """Stall, copy, compute and overhead of a step, by level; None where they were not measured."""
    parts = {
        level: {part: estimates[part].value for part in STEP_PARTS if part in estimates}
        for level, estimates in _in_order(weighing.medians, level_hrefs).items()
    }
    parts = {level: known for level, known in parts.items() if len(known) > 1}
    names = {part: metric_name(part) for part in STEP_PARTS}
    return _figure("step-parts", "What a step is made of", _step_reading(parts), parts, names, level_hrefs)


def phases_figure(weighing: Weighing, level_hrefs: Mapping[str, str]) -> Figure | None:
    """Opening the platform, going in, the run itself, closing it; None where no phases were recorded."""
    parts = {level: known for level, known in _in_order(weighing.phases, level_hrefs).items() if known}
    names = {phase: safe_text(phase) for known in parts.values() for phase in known}
    return _figure("phases", "What a trial is made of", _phases_reading(parts), parts, names, level_hrefs)


def _in_order(by_level: Mapping[str, Held], levels: Mapping[str, str]) -> dict[str, Held]:
    return {level: by_level[level] for level in dict.fromkeys([*levels, *by_level]) if level in by_level}


def _figure(
    name: str, title: str, reading: str, parts: Parts, names: Mapping[str, str], level_hrefs: Mapping[str, str]
) -> Figure | None:
    if not parts:
        return None
    order = [part for part in names if any(part in known for known in parts.values())]
    headers = ("level", *(names[part] for part in order))
    chart = stacked(parts, {part: names[part] for part in order})
    return Figure(name, title, reading, chart, headers, _rows(parts, order, level_hrefs))


def stacked(parts: Parts, names: Mapping[str, str]) -> dict[str, Any]:
    """A lane for each level, its seconds by part one after the other; `names` in the order of the parts."""
    totals = {level: sum(value for value in known.values() if value > 0) for level, known in parts.items()}
    unit, factor = scaled("time_s", list(totals.values()))
    order = list(names)
    pieces = [
        {
            "level": safe_text(level), "part": names[part], "order": order.index(part), "value": value * factor,
            "shown": time_text(value), "share": share_text(value / totals[level]) if totals[level] else None,
        }
        for level, known in parts.items()
        for part, value in known.items()
        if value > 0
    ]  # fmt: skip
    lanes = [{"level": safe_text(level), "total": time_text(total)} for level, total in totals.items()]
    colours = [part_colour(number) for number in range(len(order))]
    return {
        "height": {"step": LANE},
        "encoding": {"y": {"field": "level", "type": "nominal", "sort": None, "axis": None}},
        "layer": [
            {
                "data": rows(pieces),
                "params": [{"name": "chosen", "select": {"type": "point", "fields": ["part"]}, "bind": "legend"}],
                "mark": {"type": "bar", "height": 18},
                "encoding": {
                    "x": {"field": "value", "type": "quantitative", "title": unit, "stack": True, "axis": _AXIS},
                    "color": {"field": "part", "scale": {"domain": list(names.values()), "range": colours}},
                    "order": {"field": "order"},
                    "opacity": {"condition": {"param": "chosen", "value": 1}, "value": 0.15},
                    "tooltip": tooltip(level="level", part="part", shown="time", share="share"),
                },
            },
            {"data": rows(lanes), **label_above("level")},
            {
                "data": rows(lanes),
                "mark": {"type": "text", "align": "right", "dy": -17, "color": "@quiet"},
                "encoding": {"x": {"value": "width"}, "text": {"field": "total"}},
            },
        ],
    }


def _rows(parts: Parts, order: Sequence[str], level_hrefs: Mapping[str, str]) -> tuple[tuple[Cell, ...], ...]:
    rows = []
    for level, known in parts.items():
        texts = {part: time_text(seconds) for part, seconds in known.items()}
        figures = (Cell(texts.get(part, "not measured"), level_hrefs.get(level, ""), numeric=True) for part in order)
        rows.append((Cell(level, level_hrefs.get(level, "")), *figures))
    return tuple(rows)


def _step_reading(parts: Parts) -> str:
    told = []
    for level, known in parts.items():
        total = sum(known.values())
        if total > 0:
            shares = [f"{metric_name(part)} {share_text(value / total)}" for part, value in known.items()]
            told.append(f"{safe_text(level)}: {in_words(shares)}")
    return f"Medians of the trials, as shares of the step. {'; '.join(told)}."


def _phases_reading(parts: Parts) -> str:
    told = []
    for level, known in parts.items():
        around = sum(seconds for phase, seconds in known.items() if phase in ("open", "close"))
        told.append(f"{safe_text(level)} {time_text(around)}")
    return f"To be made and removed the platform takes: {', '.join(told)}; the rest beside the run is tare's own."
