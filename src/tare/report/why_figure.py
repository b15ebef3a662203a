"""The waterfall: each layer of a container stands on those before it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from tare.analysis.why import LayerCost, Waterfall, waterfall
from tare.errors import TareError
from tare.records.model import Record
from tare.report.columns import cut
from tare.report.figure import NARROW, WIDE, Cell, Drawing, Figure, Key, drawn, in_words
from tare.report.svg import Scale, box, key, line, text, ticks
from tare.report.verdicts import effect_of, interval_of, verdict_word
from tare.report.why import layer_name, moved_text
from tare.report.words import metric_name

ROW, BAR, EDGE, AXIS = 46.0, 16.0, 4.0, 34.0
_HEADERS = ("layer", "adds", "interval", "verdict", "without it", "counters that moved")


def why_figure(records: Sequence[Record], margin: float) -> Figure | None:
    """None unless the store holds containers of different layers."""
    ours = [record.settings for record in records if record.settings.get("platform") == "runc"]
    made = {str(settings.get("platform.isolation")) for settings in ours}
    if len(made) < 2:
        return None
    try:
        found = waterfall(records, margin=margin)
    except TareError:  # no usable trial of bare metal: there is nothing to stand on
        return None
    title, reading = "What the container is made of, layer by layer", _reading(found)
    wide, narrow = drawn("why", title, reading, _drawing(found, WIDE), _drawing(found, NARROW))
    legend = (
        Key(key(box(1, 2, 14, 12, "fill-0")), "surely slower with it"),
        Key(key(box(1, 2, 14, 12, "fill-2")), "not surely"),
        Key(key(line(1, 8, 15, 8, "whisker")), "interval of what it adds"),
    )
    return Figure("why", title, reading, wide, narrow, legend, _HEADERS, tuple(map(_row, found.layers)))


def _reading(found: Waterfall) -> str:
    whole = f"The whole container: {effect_of(found.total)} {interval_of(found.total)} {metric_name(found.metric)}."
    if not found.guilty:
        return f"{whole} No layer is surely slower than those before it."
    return f"{whole} Surely slower with it: {in_words([layer_name(layer.layer) for layer in found.guilty])}."


def _row(layer: LayerCost) -> tuple[Cell, ...]:
    added, kept = layer.added, layer.kept
    cells = ("", "", "") if added is None else (effect_of(added), interval_of(added), verdict_word(added))
    without = "" if kept is None else f"{effect_of(kept)} {verdict_word(kept)}"
    texts = (*cells, without, "; ".join(map(moved_text, layer.moved)))
    return Cell(layer_name(layer.layer)), *(Cell(each, "#trials" if each else "") for each in texts)


def _drawing(found: Waterfall, width: float) -> Drawing:
    """Each bar begins where the one before it ended: as shares of bare metal."""
    steps = [layer for layer in found.layers if layer.added is not None and layer.added.effect is not None]
    spans = _spans(steps)
    reach = [0.0, *(edge for span in spans for edge in span)]
    room = 0.06 * (max(reach) - min(reach) or 0.01)
    across = Scale(min(reach) - room, max(reach) + room, EDGE, width - EDGE)
    bottom = ROW * len(steps) + 6
    content: list[Markup] = [line(across(0), 0, across(0), bottom, "zero")]
    for place, (layer, (begin, end, low, high)) in enumerate(zip(steps, spans, strict=True)):
        top = ROW * place
        content.append(text(EDGE, top + 14, cut(layer_name(layer.layer), round(width / 11)), class_="strong"))
        assert layer.added is not None
        content.append(text(width - EDGE, top + 14, effect_of(layer.added), anchor="end", class_="figure"))
        left, right = sorted((across(begin), across(end)))
        fill = "fill-0" if layer in found.guilty else "fill-2"
        content.append(box(left, top + 21, max(right - left, 1.5), BAR, fill))
        content.append(line(across(low), top + 21 + BAR / 2, across(high), top + 21 + BAR / 2, "whisker"))
    return Drawing((*content, *_axis(across, bottom)), bottom + AXIS)


def _spans(steps: Sequence[LayerCost]) -> list[tuple[float, float, float, float]]:
    """Where each bar begins and ends, and its interval: effects multiply, so that they add up as logarithms."""
    spans, at = [], 0.0
    for layer in steps:
        added = layer.added
        assert added is not None
        assert added.effect is not None
        end = at + math.log1p(added.effect)
        low = end if added.low is None else at + math.log1p(added.low)
        high = end if added.high is None else at + math.log1p(added.high)
        spans.append((math.expm1(at), math.expm1(end), math.expm1(low), math.expm1(high)))
        at = end
    return spans


def _axis(across: Scale, bottom: float) -> list[Markup]:
    content = [line(across.start, bottom, across.end, bottom, "axis")]
    for place in ticks(across.low, across.high, 5):
        content.append(line(across(place), bottom, across(place), bottom + 4, "axis"))
        content.append(text(across(place), bottom + 18, f"{place * 100:+g} %" if place else "0", anchor="middle"))
    return content
