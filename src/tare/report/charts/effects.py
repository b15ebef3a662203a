"""The effects with their intervals, against the margin and the noise floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tare.analysis.model import Comparison, Weighing
from tare.analysis.sentences import (
    effect_of,
    figures_of,
    interval_of,
    open_reason,
    plain_word,
    verdict_phrase,
    verdict_word,
)
from tare.analysis.why.layers import LayerCost, Waterfall
from tare.base.text import safe_text, share_text
from tare.report.figure import Cell, Figure, level_colour, rows, shape_of
from tare.report.layout import (
    LANE,
    MOST_LANES,
    MOST_TOLD,
    figures_above,
    in_words,
    label_above,
    level_names,
    not_all_drawn,
    share_axis,
    some_of,
    tooltip,
    with_room,
    zero_mark,
)
from tare.report.panels import layer_spans
from tare.report.text.why import layer_name, moved_text

_HEADERS = ("level", "metric", "effect", "interval", "margin", "verdict")
_WATERFALL_HEADERS = ("layer", "adds", "interval", "verdict", "without it", "counters that moved")
_SURE, _UNSURE = "surely slower with it", "not surely"


def effects_figure(weighing: Weighing, level_hrefs: Mapping[str, str], numbers: Mapping[str, int]) -> Figure | None:
    """One row a comparison. None where there is no effect at all."""
    headline = [each for each in weighing.comparisons if each.effect is not None]
    if not headline:
        return None
    names = level_names([weighing.against, *(each.level for each in headline)], weighing.by)
    reading = f"{_reading(headline, names)}{not_all_drawn(len(headline))}"
    what = f"{weighing.called}, against {names[weighing.against]}"
    chart = _chart(headline[:MOST_LANES], numbers, names, what)
    body = tuple(
        (
            Cell(each.level, level_hrefs.get(each.level, "")),
            Cell(each.called),
            Cell(effect_of(each), "#trials", numeric=True),
            Cell(interval_of(each), numeric=True),
            Cell(f"±{share_text(each.margin)}", numeric=True),
            Cell(verdict_phrase(each)),
        )
        for each in headline
    )
    return Figure("effects", f"Effect on {what}", reading, chart, _HEADERS, body)


def _chart(
    headline: Sequence[Comparison],
    numbers: Mapping[str, int],
    names: Mapping[str, str],
    what: str,
) -> dict[str, Any]:
    """A lane for each effect: behind its interval the declared margin, and in it the noise of the same thing twice."""
    claimed = [_lane(each, names[each.level], numbers.get(each.level, 1)) for each in headline]
    margin = max(each.margin for each in headline)
    floors = [each.aa_floor for each in headline if each.aa_floor is not None]
    # Wide enough for the margin, the floor and every interval.
    reach = [0.0]
    for each in headline:
        reach += [each.margin, -each.margin]
        reach += [value for value in (each.effect, each.low, each.high) if value is not None]
        reach += [each.aa_floor, -each.aa_floor] if each.aa_floor is not None else []
    scale = {"domain": with_room(reach), "nice": False, "clamp": True}
    across = {"type": "quantitative", "scale": scale, "axis": share_axis(f"change of {what}")}
    colours, shapes = (list(dict.fromkeys(lane[key] for lane in claimed)) for key in ("colour", "shape"))
    colour = {
        "field": "colour",
        "scale": {"domain": colours, "range": [f"@{colour}" for colour in colours]},
        "legend": None,
    }
    shape = {"field": "shape", "scale": {"domain": shapes, "range": shapes}, "legend": None}
    told = tooltip(label="what", figures="effect and interval")
    layers: list[dict[str, Any]] = [
        _band(margin, "@band", f"declared margin, ±{share_text(margin)}", edge="@band-edge"),
        *([_band(max(floors), "@floor", f"A/A noise floor, ±{share_text(max(floors))}")] if floors else []),
        zero_mark(across),
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "strokeWidth": 2.5},
            "encoding": {
                "x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}, "color": colour,
                "tooltip": told,
            },
        },
        {
            "mark": {"type": "point", "size": 110, "opacity": 1},
            "encoding": {"x": {"field": "effect", **across}, "color": colour, "shape": shape, "tooltip": told},
        },
        label_above("label"),
        figures_above("figures"),
    ]  # fmt: skip
    return {
        "data": rows(claimed),
        "height": {"step": LANE},
        "encoding": {"y": {"field": "lane", "type": "nominal", "sort": None, "axis": None}},
        "layer": layers,
        "resolve": {"scale": {"color": "independent"}},
    }


def _lane(each: Comparison, label: str, number: int) -> dict[str, Any]:
    figures = effect_of(each)
    if each.low is not None:  # why there is no interval would not fit beside the label
        figures += f"  {interval_of(each)}"
    return {
        "lane": f"{label} {safe_text(each.metric)}", "label": label,
        "effect": each.effect, "low": each.low, "high": each.high,
        "figures": figures.replace("-", "\N{MINUS SIGN}"),
        "colour": level_colour(number)[1:], "shape": shape_of(number),
    }  # fmt: skip


def _band(reach: float, colour: str, name: str, edge: str = "") -> dict[str, Any]:
    """A strip behind every lane, with a line of the legend; a pale one has an edge."""
    around = {"stroke": edge, "strokeWidth": 1} if edge else {}
    return {
        "mark": {"type": "bar", "height": 18, **around},
        "encoding": {
            "x": {"datum": -reach, "type": "quantitative"},
            "x2": {"datum": reach},
            "color": {
                "datum": name, "type": "nominal", "scale": {"domain": [name], "range": [colour]},
                **({"legend": {"symbolStrokeColor": edge}} if edge else {}),
            },
        },
    }  # fmt: skip


def _reading(headline: Sequence[Comparison], names: Mapping[str, str]) -> str:
    inside = [each for each in headline if each.verdict == "equivalent"]
    outside = [each for each in headline if each.verdict in ("slower", "faster")]
    open_still = [each for each in headline if each.verdict == "cannot_tell"]
    margin = share_text(headline[0].margin)
    parts = []
    if inside:
        lies = "interval of {} lies" if len(inside) == 1 else "intervals of {} lie"
        told = [names[each.level] for each in inside]
        named = in_words(told) if len(told) <= MOST_TOLD else some_of(told)
        parts.append(f"the whole {lies.format(named)} inside the margin of ±{margin}")
    if outside:
        told = [f"{names[each.level]} is {plain_word(each, each.verdict)}: {figures_of(each)}" for each in outside]
        parts.append(some_of(told))
    for why in dict.fromkeys(map(open_reason, open_still)):
        alike = [names[each.level] for each in open_still if open_reason(each) == why]
        parts.append(f"{some_of(alike)} cannot be told: {why}")
    sentence = "; ".join(parts)
    return f"{sentence[:1].upper() if inside else sentence[:1]}{sentence[1:]}."


def why_figure(found: Waterfall | None) -> Figure | None:
    """None unless the store holds containers of different layers."""
    if found is None:
        return None
    title, reading = "What the container is made of, layer by layer", waterfall_reading(found)
    body = tuple(map(_row, found.layers))
    return Figure("why", title, reading, _waterfall_chart(found), _WATERFALL_HEADERS, body)


def waterfall_reading(found: Waterfall) -> str:
    """What the whole container costs, and which layers surely cost."""
    whole = f"The whole container: {effect_of(found.total)} {interval_of(found.total)} {found.total.called}."
    if not found.guilty:
        return f"{whole} No layer costs a measurable amount."
    return f"{whole} Surely slower with it: {in_words([layer_name(layer.layer) for layer in found.guilty])}."


def _row(layer: LayerCost) -> tuple[Cell, ...]:
    added, kept = layer.added, layer.kept
    cells = ("", "", "") if added is None else (effect_of(added), interval_of(added), verdict_word(added))
    without = "" if kept is None else f"{effect_of(kept)} {verdict_word(kept)}"
    texts = (*cells, without, "; ".join(map(moved_text, layer.moved)))
    return Cell(layer_name(layer.layer)), *(Cell(each, "#trials" if each else "") for each in texts)


def _waterfall_chart(found: Waterfall) -> dict[str, Any]:
    """Each bar begins where the one before it ended: as shares of bare metal."""
    steps = [layer for layer in found.layers if layer.added is not None and layer.added.effect is not None]
    bars = [
        {
            "layer": layer_name(layer.layer), "begin": begin, "end": end, "low": low, "high": high,
            "adds": "" if layer.added is None else effect_of(layer.added).replace("-", "\N{MINUS SIGN}"),
            "interval": "" if layer.added is None else interval_of(layer.added),
            "sure": _SURE if layer in found.guilty else _UNSURE,
            "moved": "; ".join(map(moved_text, layer.moved)) or None,
        }
        for layer, (begin, end, low, high) in zip(steps, layer_spans(steps), strict=True)
    ]  # fmt: skip
    told = tooltip(layer="layer", adds="adds", interval="interval", moved="counters that moved")
    what = f"change of {found.total.called}, layer upon layer"
    across = {"type": "quantitative", "axis": share_axis(what)}
    return {
        "data": rows(bars),
        "height": {"step": LANE},
        "encoding": {"y": {"field": "layer", "type": "nominal", "sort": None, "axis": None}},
        "layer": [
            zero_mark(across),
            {
                "mark": {"type": "bar", "height": 16, "minBandSize": 2},
                "encoding": {
                    "x": {"field": "begin", **across},
                    "x2": {"field": "end"},
                    "color": {
                        "field": "sure",
                        "scale": {"domain": [_SURE, _UNSURE], "range": ["@part-0", "@part-2"]},
                    },
                    "tooltip": told,
                },
            },
            {
                "mark": {"type": "rule", "strokeWidth": 1.6},
                "encoding": {"x": {"field": "low", **across}, "x2": {"field": "high"}, "tooltip": told},
            },
            label_above("layer", beside=80),
            figures_above("adds"),
        ],
    }
