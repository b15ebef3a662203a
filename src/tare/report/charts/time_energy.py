"""Time against energy: every configuration as a point, and the front of those that no other beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tare.analysis.configurations import Configuration, by_group, centres, configurations
from tare.analysis.fronts import on_front
from tare.analysis.observations import record_observations
from tare.records.model import Record
from tare.records.settings import varied
from tare.report.charts.lanes import tooltip
from tare.report.charts.naming import legend, setting_name
from tare.report.drawing import rows
from tare.report.evidence import Evidence
from tare.report.figure import Cell, Figure
from tare.report.theme import level_colour, shape_of
from tare.report.words import count_text, metric_name, quantity_text, safe_text, scaled

FEWEST = 3  # two points make a comparison, and no front
WIDE = 5  # times the smallest: then the axis is logarithmic
PAIRS = (("step_s", "energy_step_j"), ("wall_s", "energy_j"))
JOBS = ("workload.model", "workload.application", "workload.data", "workload")  # what is another job, not another way
ALL = "all configurations"


class Spot(NamedTuple):
    """One configuration of one job, where it lies, and whether it is on the front of that job."""

    job: str
    where: str
    time_s: float
    energy_j: float
    n: int
    on_front: bool


def time_energy_figure(evidence: Evidence) -> Figure | None:
    """None where fewer than three configurations have both figures."""
    records = [record for held in evidence.usable().values() for record in held]
    for time, energy in PAIRS:
        having = [record for record in records if time in record.compared and energy in record.compared]
        spots = _spots(having, time, energy) if having else []
        if len(spots) >= FEWEST:
            return _figure(spots, time, energy)
    return None


def job_factor(records: Sequence[Record]) -> str | None:
    """The setting that makes another job of it, where several were run: the model, say."""
    factors = varied([record.settings for record in records])
    return next((name for name in JOBS if name in factors), None)


def _spots(records: Sequence[Record], time: str, energy: str) -> list[Spot]:
    job = job_factor(records)
    ways = [name for name in varied([record.settings for record in records]) if name != job]
    told = record_observations(records, settings=ways, values=(time, energy), group=job)
    found: list[Spot] = []
    for group, held in by_group(configurations(told, (time, energy))).items():
        places = centres(held, (time, energy))
        name = safe_text(group) if group is not None else ALL
        for each, place, flag in zip(held, places.tolist(), on_front(places).tolist(), strict=True):
            found.append(Spot(name, _where(each, held), place[0], place[1], each.n, flag))
    return found


def _where(each: Configuration, among: Sequence[Configuration]) -> str:
    """What sets it apart from the others of its job."""
    own = {
        name: value
        for name, value in each.settings.items()
        if any(other.settings.get(name) != value for other in among)
    }
    return ", ".join(setting_name(name, value) for name, value in own.items())


def _figure(spots: Sequence[Spot], time: str, energy: str) -> Figure:
    best = [spot for spot in spots if spot.on_front]
    jobs = list(dict.fromkeys(spot.job for spot in spots))
    quickest, thriftiest = min(best, key=lambda spot: spot.time_s), min(best, key=lambda spot: spot.energy_j)
    ends = (
        f"the quickest {quickest.where} ({_both(quickest, time, energy)}), the thriftiest {thriftiest.where} "
        f"({_both(thriftiest, time, energy)})"
        if quickest != thriftiest
        else f"{quickest.where} is both the quickest and the thriftiest ({_both(quickest, time, energy)})"
    )
    of_jobs = f" of {count_text(len(jobs), 'job')}" if len(jobs) > 1 else f": {ends}"
    reading = (
        f"{len(best)} of {count_text(len(spots), 'configuration')} are on the front{of_jobs}; the pale ones are "
        "beaten by another in both, and how sure that is `tare pareto` tells."
    )
    headers = ("job", "configuration", metric_name(time), metric_name(energy), "trials", "on the front")
    title = f"{metric_name(time)} against {metric_name(energy)}, with the front"
    return Figure("time-energy", title[:1].upper() + title[1:], reading, _chart(spots, jobs, time, energy), headers,
                  tuple(_row(spot, time, energy) for spot in spots))  # fmt: skip


def _both(spot: Spot, time: str, energy: str) -> str:
    return f"{quantity_text(time, spot.time_s)}, {quantity_text(energy, spot.energy_j)}"


def _row(spot: Spot, time: str, energy: str) -> tuple[Cell, ...]:
    figures = (quantity_text(time, spot.time_s), quantity_text(energy, spot.energy_j), f"{spot.n:,}")
    numbers = (Cell(text, "#trials", numeric=True) for text in figures)
    return Cell(spot.job), Cell(spot.where, "#trials"), *numbers, Cell("yes" if spot.on_front else "no")


def _chart(spots: Sequence[Spot], jobs: Sequence[str], time: str, energy: str) -> dict[str, Any]:
    time_unit, time_factor = scaled(time, [spot.time_s for spot in spots])
    energy_unit, energy_factor = scaled(energy, [spot.energy_j for spot in spots])
    points = [
        {
            "job": spot.job, "where": spot.where, "time": spot.time_s * time_factor,
            "energy": spot.energy_j * energy_factor, "shown": _both(spot, time, energy),
            "front": "on the front" if spot.on_front else "beaten by another", "n": spot.n,
        }
        for spot in sorted(spots, key=lambda spot: spot.time_s)
    ]  # fmt: skip
    x = {"field": "time", "type": "quantitative", "title": f"{metric_name(time)}, {time_unit}",
         "scale": _scale([spot.time_s for spot in spots])}  # fmt: skip
    y = {"field": "energy", "type": "quantitative", "title": f"{metric_name(energy)}, {energy_unit}",
         "scale": _scale([spot.energy_j for spot in spots])}  # fmt: skip
    places = range(1, len(jobs) + 1)
    colour = {"field": "job", "scale": {"domain": jobs, "range": [level_colour(place) for place in places]},
              "legend": legend(jobs) if len(jobs) > 1 else None}  # fmt: skip
    shape = {**colour, "scale": {"domain": jobs, "range": [shape_of(place) for place in places]}}
    return {
        "height": 300,
        "layer": [
            {
                "data": rows([point for point in points if point["front"] == "on the front"]),
                "mark": {"type": "line", "interpolate": "step-after", "strokeDash": [4, 3]},
                "encoding": {"x": x, "y": y, "color": colour},
            },
            {
                "data": rows(points),
                "params": [{"name": "zoom", "select": "interval", "bind": "scales"}],
                "mark": {"type": "point", "filled": True, "size": 60},
                "encoding": {
                    "x": x, "y": y, "color": colour, "shape": shape,
                    "opacity": {
                        "field": "front",
                        "scale": {"domain": ["on the front", "beaten by another"], "range": [1, 0.3]},
                        "legend": None,
                    },
                    "tooltip": tooltip(job="job", where="configuration", shown="takes", n="trials", front="is"),
                },
            },
        ],
    }  # fmt: skip


def _scale(values: Sequence[float]) -> dict[str, Any]:
    wide = min(values) > 0 and max(values) > WIDE * min(values)
    return {"type": "log", "nice": False, "padding": 14} if wide else {"zero": False}
