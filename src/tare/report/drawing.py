"""The door to the chart library: Vega-Lite, as vl-convert carries it (docs/decisions/0013-charts.md).

Without it (the extra `report`) a report has its tables alone, and says so.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from tare.errors import ObstacleError
from tare.extras import pip_install
from tare.report.figure import Figure
from tare.report.theme import for_page, for_paper

_NEEDED = "charts need the library vl-convert"
ABSENT = f"{_NEEDED}, which tare's extra `report` brings."  # in a page that others read: no path of this machine
WIDTH_POINTS = 460  # a column and a half of a paper
_SCALE = 3  # of a PNG: 216 dots an inch


def available() -> bool:
    """Whether charts can be drawn here."""
    return importlib.util.find_spec("vl_convert") is not None


@cache
def script(ours_named: str = "figures.js") -> str:
    """The library with our few lines, as one script that asks for nothing."""
    ours = resources.files("tare.report").joinpath("templates", ours_named).read_text("utf-8")
    made: str = _library().javascript_bundle(ours)
    return made


def charts_json(figures: Sequence[Figure]) -> str:
    """All charts of a page, as text that no label can break out of.

    They are compiled here, to Vega: a chart that is wrong is found when the report is made, not when it is read.
    """
    library = _library()
    return safe_json(
        {figure.name: library.vegalite_to_vega(for_page(without_empty(figure.chart))) for figure in figures}
    )


def without_empty(chart: Mapping[str, Any]) -> dict[str, Any]:
    """The chart without layers that have nothing to draw: a scale over nothing has no end."""
    layers = chart.get("layer")
    if layers is None:
        return dict(chart)
    return {**chart, "layer": [layer for layer in layers if layer.get("data", {}).get("values", True)]}


def safe_json(value: Any) -> str:
    """JSON that may stand in a script element: nothing in it ends the element or begins another."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def as_file(figure: Figure, kind: str, width_points: int = WIDTH_POINTS) -> bytes:
    """The figure as svg, pdf or png."""
    library, chart = _library(), for_paper(without_empty(figure.chart), width_points)
    if kind == "svg":
        return str(library.vegalite_to_svg(chart)).encode()
    drawn: bytes = library.vegalite_to_pdf(chart) if kind == "pdf" else library.vegalite_to_png(chart, scale=_SCALE)
    return drawn


def _library() -> Any:
    try:
        import vl_convert
    except ImportError:
        raise ObstacleError(f"{_NEEDED}: `{pip_install('report')}` brings it.") from None
    return vl_convert


def rows(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Data of a chart; what is missing is absent."""
    return {"values": [{key: value for key, value in row.items() if value is not None} for row in values]}
