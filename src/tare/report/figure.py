"""A figure as a value: a Vega-Lite chart, what to read in it, and its numbers as a table.

The chart names its colours by what they mean (`@ink`, `@level-0`); `theme` puts in those of the page, of the dark
page, or of paper. One chart serves the interactive page and the files of `tare report --figure`.

The door to the chart library: Vega-Lite, as vl-convert carries it (docs/decisions/0013-charts.md).

Without it (the extra `report`) a report has its tables alone, and says so.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tare.base.errors import ObstacleError
from tare.base.installed import pip_install
from tare.report.layout import ABOVE

Spec = Mapping[str, Any]  # Vega-Lite


@dataclass(frozen=True, slots=True)
class Cell:
    """A piece of a table; `href` leads to the trials behind it."""

    text: str
    href: str = ""
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the report."""

    name: str
    title: str
    reading: str  # one sentence: what to see here
    chart: Spec
    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


LEVELS = 12  # level-0 is the baseline's; those after the last one share a neutral colour, and no level's
PARTS = 10
SHAPES = ("circle", "diamond", "square", "triangle-up", "triangle-down", "cross", "triangle-right")

PAPER: Mapping[str, str] = {
    "paper": "#ffffff", "ink": "#1b1c1e", "quiet": "#5d6066", "rule": "#dcdcd6", "shade": "#f3f3ee",
    "level-0": "#4a4d52", "level-1": "#0072b2", "level-2": "#d55e00", "level-3": "#00805c", "level-4": "#a5487f",
    "level-5": "#9a6b00", "level-6": "#6f57b5", "level-7": "#b8293b", "level-8": "#4f7d12", "level-9": "#00838f",
    "level-10": "#8c564b", "level-11": "#3b4cc0", "level-12": "#7a7d82",
    "part-0": "#b97f00", "part-1": "#5a7fc4", "part-2": "#84888e", "part-3": "#549666", "part-4": "#c46a9a",
    "part-5": "#3593b3", "part-6": "#a08064", "part-7": "#7d5ba6", "part-8": "#c2553f", "part-9": "#8a9a2e",
    "band": "#e4eef4", "band-edge": "#6b93aa", "floor": "#7d8f98", "slower": "#b34700",
}  # fmt: skip

IN_PAGE: Mapping[str, str] = {name: f"var(--{name})" for name in PAPER}  # so dark, light and print need one drawing

_FONT = 'system-ui, -apple-system, "Segoe UI", "Liberation Sans", "DejaVu Sans", sans-serif'
_WIDE: Spec = {"width": "container", "autosize": {"contains": "padding"}}
_PAPER_FONT = "Liberation Sans, DejaVu Sans, Arial, sans-serif"


def level_number(place: int) -> int:
    """The number of the n-th level's colour; what comes after the last one has none of its own."""
    return min(place, LEVELS)


def level_colour(number: int) -> str:
    """The colour of the n-th level; only the first is the baseline's."""
    return f"@level-{level_number(number)}"


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
    """The chart as a file: a fixed width in points, with all around it, on white; no label is cut."""
    pixels = round(width * PIXELS_PER_POINT)
    if "facet" in chart:  # two panels, and the axis before them
        sized: dict[str, Any] = {"spec": {**chart["spec"], "width": max(100, (pixels - 130) // 2)}}
    else:
        sized = {"width": pixels, "autosize": {"type": "fit-x", "contains": "padding"}}
    fixed = {**chart, **sized, "background": "@paper", "padding": 8}
    narrow = width <= NARROW_POINTS
    dressed: dict[str, Any] = _coloured({**fixed, "config": _config(_PAPER_FONT, 10 if narrow else 12)}, PAPER)
    uncut: dict[str, Any] = _uncut(dressed, columns=max(1, pixels // 200))
    return _apart(uncut, pixels - 16, 11 if narrow else 13)


_BOLD_EM, _EM = 0.6, 0.53  # mean width of a letter, in parts of the size of the type
_LINE = 14  # pixels


def _apart(chart: dict[str, Any], room: int, size: int) -> dict[str, Any]:
    """Lanes whose labels are too long for the figures next to them have both, one above the other."""
    step = chart["height"]["step"] if isinstance(chart.get("height"), Mapping) else 0
    above = {
        layer["mark"]["align"]: layer
        for layer in chart.get("layer", ())
        if isinstance(layer["mark"], Mapping) and layer["mark"].get("dy") == ABOVE
    }
    if not step or len(above) < 2:
        return chart
    letters = {side: _letters(layer, chart) for side, layer in above.items()}
    pairs = zip(letters["left"], letters["right"], strict=False)
    if max((size * (left * _BOLD_EM + right * _EM) for left, right in pairs), default=0) <= room:
        return chart
    label = above["left"]
    higher = {**label, "mark": {**label["mark"], "dy": ABOVE - _LINE}}
    layers = [higher if layer is label else layer for layer in chart["layer"]]
    return {**chart, "layer": layers, "height": {"step": step + _LINE + 6}}


def _letters(layer: Mapping[str, Any], chart: Mapping[str, Any]) -> list[int]:
    """How long each text of a layer is."""
    values = (layer.get("data") or chart["data"])["values"]
    return [len(str(lane.get(layer["encoding"]["text"]["field"], ""))) for lane in values]


def _uncut(piece: Any, columns: int) -> Any:
    """Without limits on labels, and with legends in as many columns as there is room for."""
    if isinstance(piece, Mapping):
        kept = {key: _uncut(value, columns) if key != "values" else value for key, value in piece.items()}
        if kept.get("type") == "text":
            kept.pop("limit", None)
        if "labelLimit" in kept:
            kept["labelLimit"] = 0
        if isinstance(kept.get("legend"), dict) and "columns" in kept["legend"]:
            kept["legend"] = {**kept["legend"], "columns": min(columns, kept["legend"]["columns"])}
        return kept
    return [_uncut(value, columns) for value in piece] if isinstance(piece, list | tuple) else piece


def _config(font: str, size: int = 12) -> dict[str, Any]:
    """`size`: of the type, in pixels."""
    words = {"labelColor": "@quiet", "titleColor": "@quiet", "labelFontSize": size, "titleFontSize": size}
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
        "text": {"color": "@ink", "fontSize": size + 1},
        "rule": {"color": "@ink"},
        "line": {"strokeWidth": 1.5},
        "point": {"filled": True, "size": 5 * size},
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


_NEEDED = "charts need the library vl-convert"
ABSENT = f"{_NEEDED}, which tare's extra `report` brings."  # in a page that others read: no path of this machine
WIDTH_POINTS = 460  # a column and a half of a paper
NARROW_POINTS = 290  # up to here a figure is one for a single column: type of 7.5 points instead of 9
COLUMNS_MM = {1: 84.0, 2: 174.0}  # widths of one column and of both, as ACM, IEEE and Elsevier set them, within 4 mm
PIXELS_PER_POINT = 96 / 72
DOTS_PER_INCH = 300  # of a PNG


def available() -> bool:
    """Whether charts can be drawn here."""
    return importlib.util.find_spec("vl_convert") is not None


@cache
def start_engine() -> None:
    """Let the library's JavaScript engine start, in a thread of its own that does not hold Python's lock.

    It takes a third of a second, for which the first chart would wait: call it before the work that comes first. The
    page that is made of an empty chart here needs no engine, and is thrown away.
    """
    if available():
        with suppress(Exception):  # whatever is wrong, the first chart says it
            _library().vega_to_html({}, bundle=False)


@cache
def script(*ours_named: str) -> str:
    """The library with our few lines, as one script that asks for nothing.

    It is the same for every report, and making it takes seconds, most of the time of a report: it is kept in the
    user's cache.
    """
    ours = "\n".join(
        resources.files("tare.report").joinpath("templates", name).read_text("utf-8") for name in ours_named
    )
    library = _library()
    digest = hashlib.sha256(f"{library.__version__}\n{ours}".encode()).hexdigest()
    name = f"charts-{digest}.js"
    if (found := kept(name)) is not None:
        return found.decode("utf-8")
    made: str = library.javascript_bundle(ours)
    keep(name, made.encode("utf-8"))
    return made


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tare" / "charts"


def kept(name: str) -> bytes | None:
    """What an earlier report kept under this name in the user's cache; None where nothing is, or another's."""
    with suppress(OSError, RuntimeError), (_cache_folder() / name).open("rb") as file:  # RuntimeError: no home
        if os.fstat(file.fileno()).st_uid == os.geteuid():
            return file.read()
    return None


def keep(name: str, content: bytes) -> None:
    """Write it whole or not at all: other reports may be made at the same time. Without a cache nothing is kept."""
    with suppress(OSError, RuntimeError):
        path = _cache_folder() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("wb", dir=path.parent, delete=False) as file:
            half_made = Path(file.name)
            try:
                file.write(content)
                file.flush()
                half_made.replace(path)
            except OSError:  # a full disk, say
                half_made.unlink()


def compiled(figure: Figure) -> dict[str, Any]:
    """The chart as Vega: one that is wrong is found when the report is made, not when it is read."""
    made: dict[str, Any] = _library().vegalite_to_vega(for_page(without_empty(figure.chart)))
    return made


STATIC_WIDTH = 720  # pixels of a chart that no script has drawn; the page makes it as narrow as its place
_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_DRAWN = frozenset({"svg", "g", "path", "text", "tspan", "line", "rect", "defs", "clipPath", "a", "title"})
_KEPT = frozenset({
    "d", "fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "fill-opacity", "stroke-miterlimit",
    "opacity", "transform", "x", "y", "x1", "x2", "y1", "y2", "dx", "dy", "width", "height", "viewBox", "text-anchor",
    "font-size", "font-weight", "font-style", "clip-path", "id", "display",
})  # fmt: skip


def static_svg(name: str, chart: Spec) -> str:
    """A compiled chart as it is without a script: shapes, text and links within the page alone, in its colours."""
    fixed = {"name": "width", "value": STATIC_WIDTH}  # elsewhere the width of its place
    signals = [fixed if each["name"] == "width" and "init" in each else each for each in chart.get("signals", ())]
    root = ElementTree.fromstring(_library().vega_to_svg({**chart, "signals": signals}))
    _keep_only(root, f"{name}-")
    root.attrib |= {"class": "static", "aria-hidden": "true"}
    return ElementTree.tostring(root, encoding="unicode")


def _keep_only(element: ElementTree.Element, prefix: str) -> None:
    """Drop what is not drawn, what could do anything, and what would meet the same name of another chart."""
    href = element.get(f"{_XLINK}href", "")
    kept = {name: value for name, value in element.attrib.items() if name in _KEPT}
    if "id" in kept:
        kept["id"] = prefix + kept["id"]
    if clip := kept.get("clip-path", ""):
        kept["clip-path"] = clip.replace("url(#", f"url(#{prefix}")
    element.attrib.clear()
    element.attrib |= kept
    element.tag = element.tag.removeprefix(_SVG)
    if element.tag == "a":  # the library makes an address of what is a place on the page
        place = re.search(r"#(trial|level)-\d+$", href)
        element.tag = "a" if place else "g"
        element.attrib |= {"href": place[0], "tabindex": "-1"} if place else {}
    for child in list(element):
        if child.tag.removeprefix(_SVG) in _DRAWN:
            _keep_only(child, prefix)
        else:
            element.remove(child)


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


def as_file(figure: Figure, kind: str, width_points: float = WIDTH_POINTS) -> bytes:
    """The figure as svg, pdf or png, exactly as wide as that; its type is of 9 points (in one column of 7.5)."""
    library = _library()
    drawn = str(library.vegalite_to_svg(for_paper(without_empty(figure.chart), round(width_points))))
    root = ElementTree.fromstring(drawn)
    wide, tall = (float(root.get(name, "1").removesuffix("px")) for name in ("width", "height"))
    height_points = width_points * tall / wide
    if kind == "svg":
        return _resized(drawn, f"{width_points:.2f}pt", f"{height_points:.2f}pt").encode()
    if kind == "pdf":  # the library writes a point for each pixel
        made: bytes = library.svg_to_pdf(_resized(drawn, f"{width_points:.2f}", f"{height_points:.2f}"))
        return made
    sized = _resized(drawn, f"{width_points:.2f}", f"{height_points:.2f}")
    image: bytes = library.svg_to_png(sized, scale=1, ppi=DOTS_PER_INCH)
    return image


def _resized(drawn: str, wide: str, tall: str) -> str:
    """The same drawing in another size: its `viewBox` stays."""
    head, sign, rest = drawn.partition(">")
    head = re.sub(r' width="[^"]*"', f' width="{wide}"', head, count=1)
    return re.sub(r' height="[^"]*"', f' height="{tall}"', head, count=1) + sign + rest


def _library() -> Any:
    try:
        import vl_convert
    except ImportError:
        raise ObstacleError(f"{_NEEDED}: `{pip_install('report')}` brings it.") from None
    return vl_convert


def rows(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Data of a chart; what is missing is absent."""
    return {"values": [{key: value for key, value in row.items() if value is not None} for row in values]}
