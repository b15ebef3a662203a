"""Stacked bars: what a step is made of, and what a trial is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tare.analysis.model import Weighing
from tare.base.declare import Group, Role
from tare.base.text import in_units, metric_name, quantity_text, safe_text, scaled, share_text, time_text
from tare.report.evidence import ReportData
from tare.report.figure import Cell, Figure, part_colour, rows
from tare.report.layout import (
    LANE,
    MOST_LANES,
    axis_title,
    figures_above,
    in_words,
    label_above,
    legend,
    level_names,
    not_all_drawn,
    some_of,
    tooltip,
)

STEP_PARTS, STEP_MEANS, STEP_MEAN = Group.STEP_PARTS.metrics, Group.MEAN_PARTS.metrics, Role.STEP_MEAN.metric

# Name, title, and the parts in their order.
KINDS = (
    ("training-parts", "Forward, backward and optimiser step", Group.TRAINING_PARTS.metrics),
    ("request-parts", "Pre-process, inference and post-process", Group.REQUEST_PARTS.metrics),
)
_AXIS = {"tickCount": 6}
_TIME = "time_s"

Held = TypeVar("Held")
Parts = Mapping[str, Mapping[str, float]]  # level -> part -> its amount


def step_figure(evidence: ReportData) -> Figure | None:
    """What a step is made of, by level: parts that add up to the mean step; None where they were not measured."""
    weighing, hrefs = evidence.weighing, evidence.level_hrefs
    parts: Parts = _mean_parts(evidence)
    if parts:
        names = {part: metric_name(part.replace("_mean_s", "_s")) for part in STEP_MEANS}
        reading = (
            in_units("The mean step of the trial in the middle of its level; its parts add up to it. ", weighing.unit)
            + f"{shares_told(weighing, parts, names)}."
        )
        return bars_figure("step-parts", f"What a {weighing.unit} is made of", reading, weighing, parts, names, hrefs)
    parts = metric_parts(weighing, hrefs, STEP_PARTS)
    names = {part: metric_name(part) for part in STEP_PARTS}
    reading = (
        f"Medians of the trials, as shares of their sum; medians do not add up to the {weighing.unit}. "
        f"{shares_told(weighing, parts, names)}."
    )
    return bars_figure("step-parts", f"What a {weighing.unit} is made of", reading, weighing, parts, names, hrefs)


def _mean_parts(evidence: ReportData) -> dict[str, dict[str, float]]:
    """Level -> part -> its mean in the middle trial, or in both that are in the middle: as its median is made."""
    found = {}
    for level, records in evidence.usable.items():
        held = sorted((each.metrics for each in records if STEP_MEAN in each.metrics), key=lambda each: each[STEP_MEAN])
        middle = held[(len(held) - 1) // 2 : len(held) // 2 + 1]
        known = [part for part in STEP_MEANS if middle and all(part in each for each in middle)]
        if len(known) > 1:
            found[level] = {part: sum(each[part] for each in middle) / len(middle) for part in known}
    return found


def phases_figure(weighing: Weighing, level_hrefs: Mapping[str, str]) -> Figure | None:
    """Opening the platform, going in, the run itself, closing it; None where no phases were recorded."""
    parts = {level: known for level, known in _in_order(weighing.phases, level_hrefs).items() if known}
    names = {phase: safe_text(phase) for known in parts.values() for phase in known}
    called, told = level_names(parts, weighing.by), []
    for level, known in parts.items():
        around = sum(seconds for phase, seconds in known.items() if phase in ("open", "close"))
        told.append(f"{called[level]} {time_text(around)}")
    reading = f"To be made and removed the platform takes: {some_of(told)}; the rest outside the run is tare's own."
    return bars_figure("phases", "What a trial is made of", reading, weighing, parts, names, level_hrefs)


def metric_parts(weighing: Weighing, level_hrefs: Mapping[str, str], metrics: Sequence[str]) -> Parts:
    """Level -> metric -> its median, for the levels that have at least two of them."""
    parts = {
        level: {part: estimates[part].value for part in metrics if part in estimates}
        for level, estimates in _in_order(weighing.medians, level_hrefs).items()
    }
    return {level: known for level, known in parts.items() if len(known) > 1}


def _in_order(by_level: Mapping[str, Held], levels: Mapping[str, str]) -> dict[str, Held]:
    return {level: by_level[level] for level in dict.fromkeys([*levels, *by_level]) if level in by_level}


def bars_figure(
    name: str,
    title: str,
    reading: str,
    weighing: Weighing,
    parts: Parts,
    names: Mapping[str, str],
    level_hrefs: Mapping[str, str],
    metric: str = _TIME,
) -> Figure | None:
    """A lane for each level; None where no level has parts. `metric` says what unit they have."""
    if not parts:
        return None
    order = [part for part in names if any(part in known for known in parts.values())]
    called = level_names(parts, weighing.by)
    drawn = {called[level]: known for level, known in list(parts.items())[:MOST_LANES]}
    chart = stacked(drawn, {part: names[part] for part in order}, metric)
    body = []
    for level, known in parts.items():
        href = level_hrefs.get(level, "")
        texts = {part: quantity_text(metric, amount) for part, amount in known.items()}
        amounts = (Cell(texts.get(part, "not measured"), href, numeric=True) for part in order)
        body.append((Cell(level, href), *amounts))
    headers = ("level", *(names[part] for part in order))
    return Figure(name, title, f"{reading}{not_all_drawn(len(parts))}", chart, headers, tuple(body))


def stacked(parts: Parts, names: Mapping[str, str], metric: str = _TIME) -> dict[str, Any]:
    """A lane for each level, its amounts by part one after the other; `names` in the order of the parts."""
    totals = {level: sum(value for value in known.values() if value > 0) for level, known in parts.items()}
    unit, factor = scaled(metric, list(totals.values()))
    order = list(names)
    pieces = [
        {
            "level": safe_text(level), "part": names[part], "order": order.index(part), "value": value * factor,
            "shown": quantity_text(metric, value), "share": share_text(value / totals[level]),
        }
        for level, known in parts.items()
        for part, value in known.items()
        if value > 0
    ]  # fmt: skip
    lanes = [{"level": safe_text(level), "total": quantity_text(metric, total)} for level, total in totals.items()]
    colours = [part_colour(number) for number in range(len(order))]
    spoken = list(names.values())
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
                    "color": {"field": "part", "scale": {"domain": spoken, "range": colours},
                              "legend": legend(spoken)},
                    "order": {"field": "order"},
                    "opacity": {"condition": {"param": "chosen", "value": 1}, "value": 0.15},
                    "tooltip": tooltip(level="level", part="part", shown="amount", share="share"),
                },
            },
            {"data": rows(lanes), **label_above("level", beside=80)},
            {"data": rows(lanes), **figures_above("total")},
        ],
    }  # fmt: skip


def shares_told(weighing: Weighing, parts: Parts, names: Mapping[str, str]) -> str:
    """`bare: fetch stall 12 % and compute 88 %; docker: ...`, of as many levels as a sentence holds."""
    called, told = level_names(parts, weighing.by), []
    for level, known in parts.items():
        total = sum(known.values())
        if total > 0:
            shares = [f"{names[part]} {share_text(value / total)}" for part, value in known.items()]
            told.append(f"{called[level]}: {in_words(shares)}")
    return some_of(told)


def compute_figures(weighing: Weighing, level_hrefs: Mapping[str, str]) -> list[Figure]:
    """One for each kind whose parts were marked (`phases: true`, or an application)."""
    found = []
    for name, title, metrics in KINDS:
        parts = metric_parts(weighing, level_hrefs, metrics)
        names = {metric: metric_name(metric) for metric in metrics}
        reading = f"Medians of the trials, as shares of the three. {shares_told(weighing, parts, names)}."
        found.append(bars_figure(name, title, reading, weighing, parts, names, level_hrefs))
    return [figure for figure in found if figure is not None]
