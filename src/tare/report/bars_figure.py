"""Stacked bars: what a step is made of, and what a trial is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from markupsafe import Markup

from tare.analysis.model import Weighing
from tare.report.columns import cut
from tare.report.figure import NARROW, WIDE, Cell, Drawing, Figure, Key, drawn, in_words
from tare.report.svg import Scale, box, key, text
from tare.report.words import metric_name, safe_text, share_text, time_text

STEP_PARTS = ("stall_s", "copy_s", "compute_s", "overhead_s")
ROW = 46.0
BAR = 18.0
EDGE = 4.0
FILLS = 6  # fill-0 .. fill-5 in the style sheet

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
    longest = max(sum(value for value in known.values() if value > 0) for known in parts.values())
    wide, narrow = drawn(
        name, title, reading, _drawing(WIDE, parts, order, longest), _drawing(NARROW, parts, order, longest)
    )
    legend = tuple(Key(key(box(1, 2, 14, 12, _fill(order, part))), names[part]) for part in order)
    headers = ("level", *(names[part] for part in order))
    return Figure(name, title, reading, wide, narrow, legend, headers, _rows(parts, order, level_hrefs))


def _drawing(width: float, parts: Parts, order: Sequence[str], longest: float) -> Drawing:
    across = Scale(0.0, longest or 1.0, EDGE, width - EDGE)
    content: list[Markup] = []
    for place, (level, known) in enumerate(parts.items()):
        top = ROW * place
        total = sum(value for value in known.values() if value > 0)
        content.append(text(EDGE, top + 16, cut(safe_text(level), round(width / 10)), class_="strong"))
        content.append(text(width - EDGE, top + 16, time_text(total), anchor="end", class_="figure"))
        at = 0.0
        for part in order:
            if (value := known.get(part, 0.0)) > 0:
                content.append(box(across(at), top + 23, across(at + value) - across(at), BAR, _fill(order, part)))
                at += value
    return Drawing(tuple(content), ROW * len(parts) + 4)


def _fill(order: Sequence[str], part: str) -> str:
    return f"fill-{order.index(part) % FILLS}"


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
