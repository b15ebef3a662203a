"""Every trial as a sign over the blocks in run order; the trials of one block are joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tare.analysis.model import Weighing
from tare.base.text import count_text, quantity_text, quantity_texts, safe_text, scaled
from tare.records.model import AA_REPEAT, grouped
from tare.report.evidence import ReportRow
from tare.report.figure import Cell, Figure, level_colour, rows, shape_of
from tare.report.layout import axis_title, legend, level_names, some_of, tooltip

HEIGHT = 280
ABSENT_Y = 14  # pixels below the plot: trials without a figure
_ACROSS = {"type": "quantitative", "axis": None}  # in every layer: Vega-Lite cannot merge an axis with none
ROOM = 12  # pixels between the plot's edge and the outermost sign, which would be cut there
GAP = 0.6  # between two blocks, in trials


def trials_figure(
    weighing: Weighing, shown: Sequence[ReportRow], levels: Sequence[str], colours: Mapping[str, int]
) -> Figure | None:
    """None where no trial has a figure yet."""
    with_value = [each for each in shown if each.value is not None]
    if not with_value:
        return None
    title = f"Every trial: {weighing.called} by block, in run order"
    reading = _reading(weighing, with_value, shown)
    columns = [
        (level, twin) for level in levels for twin in (0, 1) if any((e.level, e.twin) == (level, twin) for e in shown)
    ]
    headers = ("block", *(f"{level} ({AA_REPEAT})" if twin else level for level, twin in columns))
    chart = _chart(weighing, shown, levels, colours)
    return Figure("trials-by-block", title, reading, chart, headers, _rows(weighing.metric, shown, columns))


def _chart(
    weighing: Weighing, shown: Sequence[ReportRow], levels: Sequence[str], numbered: Mapping[str, int]
) -> dict[str, Any]:
    places, blocks = _places(shown)
    unit, factor = scaled(weighing.metric, [each.value for each in shown if each.value is not None])
    called = level_names(levels, weighing.by)
    drawn = [_sign(each, called[each.level], places[each.anchor], weighing.metric, factor) for each in shown]
    used = [level for level in levels if any(each.level == level for each in shown)]
    numbers = [numbered.get(level, place) for place, level in enumerate(used)]
    names = [called[level] for level in used]
    colours = {"domain": names, "range": list(map(level_colour, numbers))}
    x = {"field": "place", **_ACROSS, "scale": {"domain": [0, blocks[-1]["end"]]}}
    scale = {"zero": False, "padding": ROOM}
    up = {"type": "quantitative", "title": axis_title(weighing.called, unit), "scale": scale}
    key = legend(names)
    return {
        "height": HEIGHT,
        "data": rows(drawn),
        "layer": [
            {
                "data": rows([block for block in blocks if not block["odd"]]),
                "mark": {"type": "rect", "color": "@shade"},
                "encoding": {"x": {"field": "begin", **_ACROSS}, "x2": {"field": "end"}},
            },
            _joins(shown, {each.level: each.against for each in weighing.comparisons}, places, factor, up),
            {
                "params": [  # a click on the legend shows one level alone
                    {"name": "chosen", "select": {"type": "point", "fields": ["level"]}, "bind": "legend"},
                    {"name": "zoom", "select": "interval", "bind": "scales"},
                ],
                "transform": [{"filter": "isValid(datum.value)"}],
                "mark": {"type": "point", "filled": False, "strokeWidth": 1.5, "cursor": "pointer"},
                "encoding": {
                    "x": x,
                    "y": {"field": "value", **up},
                    "stroke": {"field": "level", "scale": colours, "legend": key},
                    "shape": {
                        "field": "level", "scale": {"domain": names, "range": list(map(shape_of, numbers))},
                        "legend": key,
                    },
                    "fill": {
                        "condition": {"test": "datum.twin", "value": "@paper"},
                        "field": "level", "scale": colours, "legend": key,
                    },
                    "opacity": {"condition": {"param": "chosen", "value": 1}, "value": 0.12},
                    "href": {"field": "href"},
                    "tooltip": tooltip(label="trial", block="block", shown="value", state="state", why="why"),
                },
            },
            _ringed(drawn, x, up),
            _absent(x),
            *_block_names(blocks),
        ],
        **_below(shown),
    }  # fmt: skip


def _sign(each: ReportRow, name: str, place: float, metric: str, factor: float) -> dict[str, Any]:
    why = " ".join([*map(str, each.reasons), each.outlier]).strip()
    return {
        "place": place, "value": None if each.value is None else each.value * factor, "level": name,
        "label": safe_text(each.label), "block": safe_text(each.block), "twin": bool(each.twin) or None,
        "shown": None if each.value is None else quantity_text(metric, each.value), "state": safe_text(each.state),
        "why": safe_text(why)[:300] or None, "href": f"#{each.anchor}", "ring": bool(each.outlier) or None,
        "doubt": each.state == "suspect" or None,
    }  # fmt: skip


def _places(shown: Sequence[ReportRow]) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Where each trial stands, and where each block begins and ends: as wide as the trials that it holds."""
    places: dict[str, float] = {}
    x, blocks = 0.0, []
    for number, (block, trials) in enumerate(grouped(shown, lambda each: each.block).items()):
        end = x + len(trials) + GAP
        blocks.append(
            {"begin": x, "end": end, "middle": (x + end) / 2, "name": safe_text(block)[:12], "odd": number % 2}
        )
        places |= {each.anchor: x + place + 0.5 + GAP / 2 for place, each in enumerate(trials)}
        x = end
    return places, blocks


def _block_names(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    every = max(1, -(-len(blocks) // 8))
    named = [block for number, block in enumerate(blocks) if number % every == 0 and block["name"]]
    mark = {"type": "text", "color": "@quiet", "baseline": "top", "dy": 24, "clip": False}
    return [
        {
            "data": rows(named), "mark": mark,
            "encoding": {"x": {"field": "middle", **_ACROSS}, "y": {"value": HEIGHT}, "text": {"field": "name"}},
        },
        {
            "data": rows(named[:1]), "mark": {**mark, "align": "right", "dx": -6, "text": "block"},
            "encoding": {"x": {"value": 0}, "y": {"value": HEIGHT}},
        },
    ]  # fmt: skip


def _below(shown: Sequence[ReportRow]) -> dict[str, Any]:
    """The legend of the signs that no level has, below the names of the blocks."""
    told = [
        *([f"hollow: {AA_REPEAT}"] if any(each.twin and each.value is not None for each in shown) else []),
        *(["\N{MULTIPLICATION SIGN}: excluded"] if any(each.value is None for each in shown) else []),
        *(["ring: suspect or outlier"] if any(map(_is_ringed, shown)) else []),
    ]
    look = {"orient": "bottom", "anchor": "start", "fontWeight": "normal", "color": "@quiet", "offset": 6}
    return {"title": {"text": "; ".join(told), "fontSize": 11, **look}} if told else {}


def _joins(
    shown: Sequence[ReportRow],
    against: Mapping[str, str],
    places: Mapping[str, float],
    factor: float,
    up: Mapping[str, Any],
) -> dict[str, Any]:
    """A line from the baseline of a block to each level compared with it: the pairs that the effect rests on."""
    firsts = {(each.level, each.block): each for each in shown if not each.twin and each.value is not None}
    joins: list[Mapping[str, Any]] = []
    for (level, block), each in firsts.items():
        other = firsts.get((against.get(level, ""), block))
        if other is not None and other.value is not None and each.value is not None:
            ends = {"y": other.value * factor, "y2": each.value * factor}
            joins.append({"x": places[other.anchor], "x2": places[each.anchor], **ends})
    return {
        "data": rows(joins),
        "mark": {"type": "rule", "color": "@quiet", "opacity": 0.5},
        "encoding": {
            "x": {"field": "x", **_ACROSS}, "x2": {"field": "x2"}, "y": {"field": "y", **up},
            "y2": {"field": "y2"},
        },
    }  # fmt: skip


def _ringed(drawn: Sequence[Mapping[str, Any]], x: Mapping[str, Any], up: Mapping[str, Any]) -> dict[str, Any]:
    """Outliers and doubtful trials are used anyway; a ring says that something is to be read about them."""
    return {
        "data": rows([sign for sign in drawn if sign["value"] is not None and (sign["ring"] or sign["doubt"])]),
        "mark": {"type": "point", "shape": "circle", "filled": False, "size": 260, "color": "@slower"},
        "encoding": {"x": x, "y": {"field": "value", **up}},
    }


def _absent(x: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "transform": [{"filter": "!isValid(datum.value)"}],
        "mark": {"type": "text", "text": "\N{MULTIPLICATION SIGN}", "color": "@slower", "fontSize": 16, "clip": False},
        "encoding": {
            "x": x, "y": {"value": HEIGHT + ABSENT_Y}, "href": {"field": "href"},
            "tooltip": tooltip(label="left out", block="block", state="state", why="why"),
        },
    }  # fmt: skip


def _rows(metric: str, shown: Sequence[ReportRow], columns: Sequence[tuple[str, int]]) -> tuple[tuple[Cell, ...], ...]:
    texts = iter(quantity_texts(metric, [each.value for each in shown if each.value is not None]))
    cells = {each.anchor: next(texts) if each.value is not None else each.state for each in shown}
    blocks = grouped(shown, lambda each: each.block)
    found = {block: {(each.level, each.twin): each for each in inside} for block, inside in blocks.items()}
    return tuple(
        (
            Cell(block, numeric=True),
            *(
                Cell(cells[each.anchor], f"#{each.anchor}", numeric=True)
                if (each := held.get(column)) is not None
                else Cell("missing", numeric=True)
                for column in columns
            ),
        )
        for block, held in found.items()
    )


def _reading(weighing: Weighing, with_value: Sequence[ReportRow], shown: Sequence[ReportRow]) -> str:
    blocks = len({each.block for each in shown})
    sentence = f"{count_text(len(with_value), 'trial')} in {count_text(blocks, 'block')}; a line joins the pairs"
    called = level_names([e for each in weighing.comparisons for e in (each.against, each.level)], weighing.by)
    counted = [_above(each.against, each.level, with_value, called) for each in weighing.comparisons]
    told = [part for part in counted if part]
    return f"{sentence}{': ' if told else ''}{some_of(told)}. The axis does not begin at zero.{_signs(shown)}"


def _signs(shown: Sequence[ReportRow]) -> str:
    """What the signs mean that no level has, where there are any."""
    absent, ringed = any(each.value is None for each in shown), any(_is_ringed(each) for each in shown)
    cross = " A \N{MULTIPLICATION SIGN} below the plot is an excluded trial." if absent else ""
    ring = " A ring marks suspect trials and outliers; both are included." if ringed else ""
    hollow = f" A hollow sign is an {AA_REPEAT}." if any(each.twin and each.value is not None for each in shown) else ""
    return f"{hollow}{cross}{ring}"


def _is_ringed(each: ReportRow) -> bool:
    return each.value is not None and (bool(each.outlier) or each.state == "suspect")


def _above(against: str, level: str, with_value: Sequence[ReportRow], called: Mapping[str, str]) -> str:
    values = {(each.level, each.block): each.value for each in with_value if not each.twin}
    pairs = [
        (value, values[against, block])
        for (name, block), value in values.items()
        if name == level and (against, block) in values
    ]
    above = sum(ours > theirs for ours, theirs in pairs if ours is not None and theirs is not None)
    return f"{called[level]} lay above {called[against]} in {above} of {len(pairs)}" if pairs else ""
