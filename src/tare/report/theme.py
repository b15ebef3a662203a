"""What charts look like: colours that colour-blind readers tell apart, on a light page, a dark one, and paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.report.figure import Spec

LEVELS = 7  # level-0 is the baseline's; after the last one the others come again
PARTS = 7
SHAPES = ("circle", "diamond", "square", "triangle-up", "triangle-down", "cross", "triangle-right")

PAPER: Mapping[str, str] = {
    "paper": "#ffffff", "ink": "#1b1c1e", "quiet": "#5d6066", "rule": "#dcdcd6", "shade": "#f3f3ee",
    "level-0": "#4a4d52", "level-1": "#0072b2", "level-2": "#d55e00", "level-3": "#00805c", "level-4": "#a5487f",
    "level-5": "#9a6b00", "level-6": "#3a7fa8",
    "part-0": "#e69f00", "part-1": "#0072b2", "part-2": "#9da1a6", "part-3": "#009e73", "part-4": "#cc79a7",
    "part-5": "#56b4e9", "part-6": "#8a6d4f",
    "band": "#e4eef4", "band-edge": "#8fb2c6", "floor": "#c9d3d8", "slower": "#b34700",
}  # fmt: skip

IN_PAGE: Mapping[str, str] = {name: f"var(--{name})" for name in PAPER}  # so dark, light and print need one drawing

_FONT = 'system-ui, -apple-system, "Segoe UI", "Liberation Sans", "DejaVu Sans", sans-serif'
_WIDE: Spec = {"width": "container", "autosize": {"contains": "padding"}}
_PAPER_FONT = "Liberation Sans, DejaVu Sans, Arial, sans-serif"


def level_colour(number: int) -> str:
    """The colour of the n-th level; only the first is the baseline's."""
    return f"@level-{0 if number == 0 else 1 + (number - 1) % (LEVELS - 1)}"


def part_colour(number: int) -> str:
    return f"@part-{number % PARTS}"


def shape_of(number: int) -> str:
    """The sign of the n-th level: its shape tells it apart where its colour does not."""
    return SHAPES[number % len(SHAPES)]


def for_page(chart: Spec) -> dict[str, Any]:
    """The chart as the page draws it: as wide as its place, in the page's own colours."""
    dressed: dict[str, Any] = _coloured({**_WIDE, **chart, "config": _config(_FONT)}, IN_PAGE)
    return dressed


def for_paper(chart: Spec, width: int) -> dict[str, Any]:
    """The chart as a file: a fixed width in points, on white."""
    fixed = {"width": width, **chart, "background": "@paper", "padding": 8}
    dressed: dict[str, Any] = _coloured({**fixed, "config": _config(_PAPER_FONT)}, PAPER)
    return dressed


def _config(font: str) -> dict[str, Any]:
    words = {"labelColor": "@quiet", "titleColor": "@quiet", "labelFontSize": 12, "titleFontSize": 12}
    return {
        "font": font,
        "background": "transparent",
        "view": {"stroke": None},
        "axis": {
            **words, "titleFontWeight": "normal", "gridColor": "@rule", "domainColor": "@quiet", "tickColor": "@quiet",
            "labelLimit": 160, "labelSeparation": 8,
        },
        "axisX": {"grid": False},
        "legend": {
            **words, "orient": "top", "direction": "horizontal", "columns": 3, "title": None, "labelLimit": 220,
            "symbolStrokeWidth": 1.5, "offset": 4,
        },
        "header": words,
        "text": {"color": "@ink", "fontSize": 13},
        "rule": {"color": "@ink"},
        "line": {"strokeWidth": 1.5},
        "point": {"filled": True, "size": 60},
        "range": {
            "category": [level_colour(number) for number in range(LEVELS)],
            "symbol": list(SHAPES),
        },
    }  # fmt: skip


def _coloured(piece: Any, colours: Mapping[str, str]) -> Any:
    """`@name` becomes a colour; a text of the user's that begins with @ does not, for no colour has its name."""
    if isinstance(piece, str):
        return colours.get(piece[1:], piece) if piece.startswith("@") else piece
    if isinstance(piece, Mapping):
        # What is drawn is data, and data is never a colour.
        return {key: value if key == "values" else _coloured(value, colours) for key, value in piece.items()}
    if isinstance(piece, list | tuple):
        return [_coloured(value, colours) for value in piece]
    return piece
