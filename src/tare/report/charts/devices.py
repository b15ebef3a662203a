"""Devices and effect: what a level costs on each of them, over all of them, and on one more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tare.analysis.fleet.random_effects import Effect, Fleet, Population, Quantity
from tare.base.text import effect_text, interval_text, metric_name, safe_text, share_text
from tare.report.charts.evidence import ReportData
from tare.report.figure import Cell, Figure, rows
from tare.report.layout import share_axis, some_of, tooltip
from tare.report.text.analyse import WORDS, effect_rows, population_name, standing_row

MOST = 60  # lanes that a figure holds; the table has all
LANE = 22  # pixels
DEVICE, UNLIKE, ALL = "a device", "outlier among identical devices", "over devices"
COLOURS = {DEVICE: "@level-1", UNLIKE: "@slower", ALL: "@ink"}
SHAPES = {DEVICE: "circle", UNLIKE: "square", ALL: "diamond"}


_LINES = "Behind is the margin; the thin lines are where one more device is expected."


def devices_figure(evidence: ReportData) -> Figure | None:
    """The effect on each device of a fleet; where nothing is compared, how far each lies from identical devices."""
    fleet = evidence.fleet
    if fleet is None or not fleet.quantities:
        return None
    quantity = fleet.quantities[0]
    return _of_effects(fleet, quantity) if quantity.effects else _of_standings(quantity)


def _of_effects(fleet: Fleet, quantity: Quantity) -> Figure:
    odd = {(each.device, each.effect) for each in quantity.odd}
    several = len(quantity.effects) > 1
    lanes = [lane for effect in quantity.effects for lane in _lanes(effect, several, odd)]
    headers = ("effect of", "device", "type", "effect", "95 % interval", "blocks")
    body = [(_contrast(effect), *row) for effect in quantity.effects for row in effect_rows(effect)]
    title = f"Effect on {metric_name(quantity.metric)}, device by device"
    told = [_told(effect, each, several) for effect in quantity.effects for each in effect.populations[:1]]
    reading = f"O{some_of(told)[1:]}. {_LINES}" if told else "Too few devices to say what holds for devices in general."
    return Figure(
        "devices", title, f"{reading}{_not_all(lanes)}", _chart(lanes, fleet.margin), headers, _cells(body, 3)
    )


def _of_standings(quantity: Quantity) -> Figure | None:
    lanes = [
        _lane(each.device, each.deviation, each.low, each.high, UNLIKE if each.unlike else DEVICE)
        for each in quantity.standings
        if each.deviation is not None
    ]
    if not lanes:
        return None
    headers = ("device", "type", "trials", "from the others", "95 % interval", "its own", "")
    odd = [each.device for each in quantity.standings if each.unlike]
    reading = f"Outliers among identical devices: {some_of(odd)}." if odd else "No outlier among identical devices."
    title = f"{metric_name(quantity.metric)[:1].upper()}{metric_name(quantity.metric)[1:]}, each device in its type"
    body = [standing_row(each) for each in quantity.standings]
    return Figure("devices", title, f"{reading}{_not_all(lanes)}", _chart(lanes, None), headers, _cells(body, 2))


def _lanes(effect: Effect, several: bool, odd: set[tuple[str, tuple[str, str] | None]]) -> list[dict[str, Any]]:
    """Those over devices first, then the devices."""
    before = f"{_contrast(effect)}: " if several else ""
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


def _contrast(effect: Effect) -> str:
    where = f", {safe_text(effect.where)}" if effect.where else ""
    return f"{safe_text(effect.level)}{where}"


def _told(effect: Effect, found: Population, several: bool) -> str:
    mean = effect_text(found.mean.value)
    who = _contrast(effect) if several else f"{safe_text(effect.level)} against {safe_text(effect.against)}"
    ahead = interval_text(found.next_low, found.next_high)
    return (
        f"over {found.mean.n} devices {who} is {WORDS[found.verdict]}, {mean}; on one more it is expected in {ahead} %"
    )


def _not_all(lanes: Sequence[Mapping[str, Any]]) -> str:
    return f" The first {MOST} of {len(lanes)} are drawn; the table has all." if len(lanes) > MOST else ""


def _cells(body: Sequence[Sequence[str]], words: int) -> tuple[tuple[Cell, ...], ...]:
    return tuple(tuple(Cell(text, numeric=place >= words) for place, text in enumerate(row)) for row in body)


def _chart(every: Sequence[Mapping[str, Any]], margin: float | None) -> dict[str, Any]:
    """The margin behind; of what holds over devices a thin line for one more device, and its mean down the figure."""
    lanes = list(every[:MOST])
    kinds = [kind for kind in COLOURS if any(lane["kind"] == kind for lane in lanes)]
    scale = {"domain": _reach(lanes, margin), "nice": False, "clamp": True}
    across = {"type": "quantitative", "scale": scale, "axis": share_axis("difference")}
    down = {"field": "lane", "type": "nominal", "sort": None, "axis": {"title": None, "labelLimit": 130}}
    colour = {"field": "kind", "scale": {"domain": kinds, "range": [COLOURS[kind] for kind in kinds]}, "title": None}
    told = tooltip(lane="what", figures="effect and interval", kind="is")
    means = [lane for lane in lanes if "next_low" in lane]
    known = [lane for lane in lanes if lane["low"] is not None]
    shape = {"field": "kind", "scale": {"domain": kinds, "range": [SHAPES[kind] for kind in kinds]}, "title": None}
    return {
        "height": {"step": LANE},
        "layer": [
            *_band(margin, across),
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


def _band(margin: float | None, across: Mapping[str, Any]) -> list[dict[str, Any]]:
    if margin is None:
        return []
    ends = rows([{"from": -margin, "to": margin, "what": f"margin, ±{share_text(margin)}"}])
    encoding = {"x": {"field": "from", **across}, "x2": {"field": "to"}, "tooltip": tooltip(what="band")}
    return [{"data": ends, "mark": {"type": "rect", "color": "@band"}, "encoding": encoding}]


def _reach(lanes: Sequence[Mapping[str, Any]], margin: float | None) -> list[float]:
    """Wide enough for every interval; how far one more device may lie is cut where it would dwarf them."""
    ends = [0.0] if margin is None else [0.0, margin, -margin]
    ends += [lane[key] for lane in lanes for key in ("effect", "low", "high") if lane[key] is not None]
    room = 0.08 * (max(ends) - min(ends) or 0.01)
    return [min(ends) - room, max(ends) + room]
