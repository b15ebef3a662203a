"""The waterfall: each layer of a container stands on those before it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tare.analysis.why import LayerCost, Waterfall, waterfall
from tare.errors import TareError
from tare.records.model import Record
from tare.report.charts.lanes import LANE, figures_above, label_above, tooltip
from tare.report.drawing import rows
from tare.report.figure import Cell, Figure, in_words
from tare.report.verdicts import effect_of, interval_of, verdict_word
from tare.report.why import layer_name, moved_text
from tare.report.words import metric_name

_HEADERS = ("layer", "adds", "interval", "verdict", "without it", "counters that moved")
_SURE, _UNSURE = "surely slower with it", "not surely"


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
    return Figure("why", title, reading, _chart(found), _HEADERS, tuple(map(_row, found.layers)))


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


def _chart(found: Waterfall) -> dict[str, Any]:
    """Each bar begins where the one before it ended: as shares of bare metal."""
    steps = [layer for layer in found.layers if layer.added is not None and layer.added.effect is not None]
    bars = [
        {
            "layer": layer_name(layer.layer), "begin": begin, "end": end, "low": low, "high": high,
            "adds": "" if layer.added is None else effect_of(layer.added),
            "interval": "" if layer.added is None else interval_of(layer.added),
            "sure": _SURE if layer in found.guilty else _UNSURE,
            "moved": "; ".join(map(moved_text, layer.moved)) or None,
        }
        for layer, (begin, end, low, high) in zip(steps, _spans(steps), strict=True)
    ]  # fmt: skip
    told = tooltip(layer="layer", adds="adds", interval="interval", moved="counters that moved")
    across = {"type": "quantitative", "axis": {"format": "+.1%", "title": None, "tickCount": 5}}
    return {
        "data": rows(bars),
        "height": {"step": LANE},
        "encoding": {"y": {"field": "layer", "type": "nominal", "sort": None, "axis": None}},
        "layer": [
            {"mark": "rule", "encoding": {"x": {"datum": 0, **across}}},
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
