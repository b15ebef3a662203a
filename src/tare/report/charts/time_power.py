"""Time against power over modes, one chart for each resource that was varied: cores, CPU, GPU and memory clock.

As S3's figures 11 and 13 to 16: a point is a mode, its colour the level of the resource, and a line joins modes that
differ in nothing else, so that one sees what the resource alone does to both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from tare.base.text import effect_text, metric_name, quantity_text, scaled
from tare.records.model import Record, varied
from tare.records.trials import grouped
from tare.report.charts.evidence import ReportData
from tare.report.charts.layout import tooltip
from tare.report.figure import Cell, Figure, rows
from tare.report.naming import last_part, setting_name, some_of

POWER = "power_mean_w"
TIMES = ("step_s", "wall_s")  # the first that the trials have
COLOURS = ("@level-0", "@level-1", "@level-3", "@level-5", "@level-2", "@level-7", "@level-4", "@level-6")
# The last parts of settings that are a resource of the device, and what people call them.
RESOURCES = {
    "cores": "cores", "quota": "CPU quota", "cpu_mhz": "CPU clock", "gpu_mhz": "GPU clock", "mem_mhz": "memory clock",
    "power_limit_w": "power limit",
}  # fmt: skip


class Mode(NamedTuple):
    """One combination of settings, and what it takes."""

    level: float  # of the resource
    rest: str  # the other settings that vary
    time_s: float
    power_w: float
    n: int


def time_power_figures(evidence: ReportData) -> list[Figure]:
    """A chart for each resource that has two levels or more in trials with time and power; none without power."""
    records = [record for held in evidence.usable().values() for record in held if POWER in record.compared]
    time = next((name for name in TIMES if records and all(name in record.compared for record in records)), None)
    if time is None:
        return []
    factors = varied([record.settings for record in records])
    found = {factor: _modes(records, factor, factors, time) for factor in factors if _is_resource(records, factor)}
    called = metric_name(time, evidence.weighing.unit)
    return [_figure(factor, modes, time, called) for factor, modes in found.items() if _chains(modes)]


def _is_resource(records: Sequence[Record], factor: str) -> bool:
    values = [record.settings.get(factor) for record in records]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return last_part(factor) in RESOURCES and numbers


def _modes(records: Sequence[Record], factor: str, factors: Sequence[str], time: str) -> list[Mode]:
    differing = [each for each in factors if len({str(record.settings.get(each)) for record in records}) > 1]
    others = [each for each in differing if each != factor]

    def place(record: Record) -> tuple[float, str]:
        rest = ", ".join(setting_name(each, record.settings.get(each)) for each in others)
        return float(record.settings[factor]), rest

    return [
        Mode(level, rest, median(r.compared[time] for r in held), median(r.compared[POWER] for r in held), len(held))
        for (level, rest), held in sorted(grouped(records, place).items())
    ]


def _chains(modes: Sequence[Mode]) -> dict[str, list[Mode]]:
    """Modes that differ in the resource alone, by all else that they have; two levels make a line."""
    return {rest: held for rest, held in grouped(modes, lambda mode: mode.rest).items() if len(held) > 1}


def _figure(factor: str, modes: Sequence[Mode], time: str, time_name: str) -> Figure:
    called = RESOURCES[last_part(factor)]
    told = [_told(factor, rest, held) for rest, held in _chains(modes).items()]
    reading = f"{some_of(told)}; a line joins modes that differ in {called} alone."
    headers = (called, "other settings", time_name, metric_name(POWER), "energy, power times time", "trials")
    title = f"{time_name} against power, by {called}"
    name = f"time-power-{last_part(factor).replace('_', '-')}"
    body = tuple(_row(factor, mode, time) for mode in modes)
    return Figure(name, title[:1].upper() + title[1:], reading, _chart(factor, modes, time, time_name), headers, body)


def _told(factor: str, rest: str, held: Sequence[Mode]) -> str:
    """`from 2 cores to 8 cores time changes by -3.1 % and power by +2.0 %`."""
    low, high = held[0], held[-1]
    where = f" ({rest})" if rest else ""
    ends = f"From {setting_name(factor, low.level)} to {setting_name(factor, high.level)}{where}"
    changes = (effect_text(high.time_s / low.time_s - 1), effect_text(high.power_w / low.power_w - 1))
    return f"{ends} time changes by {changes[0]} and power by {changes[1]}"


def _row(factor: str, mode: Mode, time: str) -> tuple[Cell, ...]:
    figures = (
        quantity_text(time, mode.time_s), quantity_text(POWER, mode.power_w),
        quantity_text("energy_j", mode.time_s * mode.power_w), f"{mode.n:,}",
    )  # fmt: skip
    numbers = (Cell(text, "#trials", numeric=True) for text in figures)
    return Cell(setting_name(factor, mode.level), "#trials"), Cell(mode.rest or "none"), *numbers


def _chart(factor: str, modes: Sequence[Mode], time: str, time_name: str) -> dict[str, Any]:
    time_unit, time_factor = scaled(time, [mode.time_s for mode in modes])
    points: list[Mapping[str, Any]] = [
        {
            "level": setting_name(factor, mode.level), "rank": mode.level, "rest": mode.rest,
            "time": mode.time_s * time_factor, "power": mode.power_w, "n": mode.n,
            "shown": f"{quantity_text(time, mode.time_s)}, {quantity_text(POWER, mode.power_w)}",
        }
        for mode in modes
    ]  # fmt: skip
    levels = [setting_name(factor, level) for level in sorted({mode.level for mode in modes})]
    few = len(levels) <= len(COLOURS)
    colour: dict[str, Any] = (
        {"field": "level", "scale": {"domain": levels, "range": list(COLOURS[: len(levels)])},
         "legend": {"columns": 4, "labelLimit": 320, "title": RESOURCES[last_part(factor)]}}
        if few
        else {"field": "rank", "type": "quantitative", "scale": {"range": [COLOURS[0], COLOURS[4]]},
              "title": RESOURCES[last_part(factor)]}
    )  # fmt: skip
    x = {
        "field": "time",
        "type": "quantitative",
        "title": f"{time_name}, {time_unit}",
        "scale": {"zero": False},
    }
    y = {"field": "power", "type": "quantitative", "title": "mean power, W", "scale": {"zero": False}}
    chains = _chains(modes)
    return {
        "height": 300,
        "layer": [
            {
                "data": rows([point for point in points if point["rest"] in chains]),
                "mark": {"type": "line", "color": "@quiet", "strokeWidth": 1},
                "encoding": {"x": x, "y": y, "detail": {"field": "rest"}, "order": {"field": "rank"}},
            },
            {
                "data": rows(points),
                "params": [{"name": "zoom", "select": "interval", "bind": "scales"}],
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                "encoding": {
                    "x": x, "y": y, "color": colour,
                    "tooltip": tooltip(level="resource", rest="other settings", shown="takes", n="trials"),
                },
            },
        ],
    }  # fmt: skip
