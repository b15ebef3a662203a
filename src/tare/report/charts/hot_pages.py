"""The paper's Figure 4: which page was written when, so that hot ones show as lines."""

from __future__ import annotations

from collections.abc import Sequence

from tare.analysis.kernel.hot_pages import scatters
from tare.analysis.kernel.model import Traced, traced_trials
from tare.errors import TareError
from tare.records.store import Store
from tare.report.drawing import rows
from tare.report.figure import Cell, Figure
from tare.report.theme import part_colour
from tare.report.words import safe_text

NAME = "page-writes"


def page_writes_figure(store: Store) -> Figure:
    """That of a store's traced trials, or a sentence about what it takes."""
    figure = hot_pages_figure(traced_trials(store))
    if figure is None:
        raise TareError(f"{store.path}: no trial has page writes to draw; they take `probes: [ftrace]`.")
    return figure


def hot_pages_figure(trials: Sequence[Traced]) -> Figure | None:
    """One panel a cell, of its first traced trial; None where no pages were traced."""
    found = [each for each in scatters(trials) if each.of]
    if not found:
        return None
    points = [
        {"cell": safe_text(each.label), "s": second, "page": page, "reason": safe_text(reason)}
        for each in found
        for second, page, reason in zip(
            each.seconds.tolist(), each.pages.tolist(), each.reasons.tolist(), strict=True
        )
    ]  # fmt: skip
    reasons = sorted({str(point["reason"]) for point in points})
    scale = {"domain": reasons, "range": [part_colour(number) for number in range(len(reasons))]}
    drawn = {
        "mark": {"type": "point", "filled": True, "size": 6, "opacity": 0.6},
        "encoding": {
            "x": {"field": "s", "type": "quantitative", "title": "time, s"},
            "y": {"field": "page", "type": "quantitative", "title": "page, in the order of the disk"},
            "color": {"field": "reason", "type": "nominal", "title": None, "scale": scale},
        },
    }
    panels = {"field": "cell", "type": "nominal", "title": None, "sort": None}
    chart = {"data": rows(points), "facet": panels, "columns": 2, "spec": {"width": 210, "height": 200, **drawn}}
    told = "; ".join(f"{safe_text(each.label)}: {each.of:,} page writes" for each in found)
    reading = f"A page that is written again and again shows as a line. {told}."
    table = tuple(
        (Cell(safe_text(each.label)), Cell(f"{each.of:,}", numeric=True), Cell(f"{len(each.pages):,}", numeric=True))
        for each in found
    )
    return Figure(NAME, "Pages written, over time", reading, chart, ("where", "page writes", "points drawn"), table)
