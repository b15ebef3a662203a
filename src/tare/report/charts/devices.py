"""The devices of a fleet as a figure: what a level costs on each, over all and on one more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tare.analysis.fleet.devices import WORDS, effect_name, effects_table, population_name, standings_table
from tare.analysis.fleet.results import Effect, Fleet, Population, Quantity
from tare.base.text import effect_text, interval_text, metric_name, safe_text, share_text
from tare.report.figure import Figure, rows
from tare.report.layout import not_all_drawn, share_axis, some_of, tooltip, with_room
from tare.report.sections import linked_rows

MOST = 60  # lanes that a figure holds; the table has all
LANE = 22  # pixels
DEVICE, UNLIKE, ALL = "a device", "outlier among identical devices", "over devices"
COLOURS = {DEVICE: "@level-1", UNLIKE: "@slower", ALL: "@ink"}
SHAPES = {DEVICE: "circle", UNLIKE: "square", ALL: "diamond"}
_LINES = "Behind is the margin; the thin lines are where one more device is expected."


def devices_figure(fleet: Fleet) -> Figure | None:
    """The effect on each device of a fleet; where nothing is compared, how far each lies from identical devices."""
    if not fleet.quantities:
        return None
    quantity = fleet.quantities[0]
    return _of_effects(fleet, quantity) if quantity.effects else _of_standings(quantity)


def _of_effects(fleet: Fleet, quantity: Quantity) -> Figure:
    odd = {(each.device, each.effect) for each in quantity.odd}
    several = len(quantity.effects) > 1
    lanes = [lane for effect in quantity.effects for lane in _lanes(effect, several, odd)]
    title = f"Effect on {metric_name(quantity.metric)}, device by device"
    told = [_told(effect, each, several) for effect in quantity.effects for each in effect.populations[:1]]
    reading = f"O{some_of(told)[1:]}. {_LINES}" if told else "Too few devices to say what holds for devices in general."
    reading += not_all_drawn(len(lanes), MOST)
    return Figure(
        "devices", title, reading, _chart(lanes, fleet.margin), *linked_rows(effects_table(quantity.effects), {})
    )


def _of_standings(quantity: Quantity) -> Figure | None:
    lanes = [
        _lane(each.device, each.deviation, each.low, each.high, UNLIKE if each.unlike else DEVICE)
        for each in quantity.standings
        if each.deviation is not None
    ]
    if not lanes:
        return None
    odd = [each.device for each in quantity.standings if each.unlike]
    reading = f"Outliers among identical devices: {some_of(odd)}." if odd else "No outlier among identical devices."
    title = f"{metric_name(quantity.metric)[:1].upper()}{metric_name(quantity.metric)[1:]}, each device in its type"
    reading += not_all_drawn(len(lanes), MOST)
    return Figure("devices", title, reading, _chart(lanes, None), *linked_rows(standings_table(quantity), {}))


def _lanes(effect: Effect, several: bool, odd: set[tuple[str, tuple[str, str] | None]]) -> list[dict[str, Any]]:
    """Those over devices first, then the devices."""
    before = f"{safe_text(effect_name(effect))}: " if several else ""
    made = [
        {**_lane(f"{before}{population_name(each)}", each.mean.value, each.mean.low, each.mean.high, ALL),
         "next_low": each.next_low, "next_high": each.next_high}
        for each in effect.populations
    ]  # fmt: skip
    for each in effect.devices:
        kind = UNLIKE if (each.device, (effect.level, effect.against)) in odd else DEVICE
        made.append(_lane(f"{before}{each.device}", each.effect.value, each.effect.low, each.effect.high, kind))
    return made


def _lane(name: str, value: float, low: float | None, high: float | None, kind: str) -> dict[str, Any]:
    figures = effect_text(value) if low is None or high is None else f"{effect_text(value)}  {interval_text(low, high)}"
    return {
        "lane": safe_text(name), "effect": value, "low": low, "high": high, "kind": kind,
        "figures": figures.replace("-", "\N{MINUS SIGN}"),
    }  # fmt: skip


def _told(effect: Effect, found: Population, several: bool) -> str:
    mean = effect_text(found.mean.value)
    who = (
        safe_text(effect_name(effect)) if several else f"{safe_text(effect.level)} against {safe_text(effect.against)}"
    )
    ahead = interval_text(found.next_low, found.next_high)
    return (
        f"over {found.mean.n} devices {who} is {WORDS[found.verdict]}, {mean}; on one more it is expected in {ahead} %"
    )


def _chart(every: Sequence[Mapping[str, Any]], margin: float | None) -> dict[str, Any]:
    """The margin behind; of what holds over devices a thin line for one more device, and its mean down the figure."""
    lanes = list(every[:MOST])
    kinds = [kind for kind in COLOURS if any(lane["kind"] == kind for lane in lanes)]
    # Wide enough for every interval; how far one more device may lie is cut where it would dwarf them.
    ends = [0.0] if margin is None else [0.0, margin, -margin]
    ends += [lane[key] for lane in lanes for key in ("effect", "low", "high") if lane[key] is not None]
    scale = {"domain": with_room(ends), "nice": False, "clamp": True}
    across = {"type": "quantitative", "scale": scale, "axis": share_axis("difference")}
    down = {"field": "lane", "type": "nominal", "sort": None, "axis": {"title": None, "labelLimit": 130}}
    colour = {"field": "kind", "scale": {"domain": kinds, "range": [COLOURS[kind] for kind in kinds]}, "title": None}
    told = tooltip(lane="what", figures="effect and interval", kind="is")
    means = [lane for lane in lanes if "next_low" in lane]
    known = [lane for lane in lanes if lane["low"] is not None]
    shape = {"field": "kind", "scale": {"domain": kinds, "range": [SHAPES[kind] for kind in kinds]}, "title": None}
    band = [] if margin is None else [{"from": -margin, "to": margin, "what": f"margin, ±{share_text(margin)}"}]
    return {
        "height": {"step": LANE},
        "layer": [
            {"data": rows(band), "mark": {"type": "rect", "color": "@band"},
             "encoding": {"x": {"field": "from", **across}, "x2": {"field": "to"}, "tooltip": tooltip(what="band")}},
            {"data": rows([{"at": 0.0}]), "mark": {"type": "rule", "color": "@ink"},
             "encoding": {"x": {"field": "at", **across}}},
            {"data": rows(means[:1]), "mark": {"type": "rule", "color": "@quiet", "strokeDash": [4, 3]},
             "encoding": {"x": {"field": "effect", **across}}},
            {"data": rows(means), "mark": {"type": "rule", "color": "@quiet", "strokeWidth": 1},
             "encoding": {"y": down, "x": {"field": "next_low", **across}, "x2": {"field": "next_high"}}},
            {"data": rows(known), "mark": {"type": "rule", "strokeWidth": 2.5},
             "encoding": {"y": down, "x": {"field": "low", **across}, "x2": {"field": "high"}, "color": colour,
                          "tooltip": told}},
            {"data": rows(lanes), "mark": {"type": "point", "size": 70, "opacity": 1, "filled": True},
             "encoding": {"y": down, "x": {"field": "effect", **across}, "color": colour, "shape": shape,
                          "tooltip": told}},
        ],
    }  # fmt: skip
