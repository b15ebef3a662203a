"""Time against energy over configurations, with the front; and what is predicted of modes that were held out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tare.analysis.choose.configurations import Configuration, centres, configurations, models_apart
from tare.analysis.choose.pareto import on_front
from tare.analysis.observations import ENERGY, record_observations
from tare.analysis.work import (
    is_counted,
    is_per_sample,
    per_sample,
    samples_of,
    unlike_work,
    with_per_sample,
)
from tare.base.declare import Role
from tare.base.errors import TareError
from tare.base.text import count_text, estimate_texts, metric_name, quantity_text, safe_text, scaled, share_text
from tare.records.model import Record, TrialRow, grouped, varied
from tare.report.evidence import ReportData
from tare.report.figure import Cell, Figure, part_colour, rows, shape_of
from tare.report.layout import axis_title, last_part, legend, setting_name, some_of, tooltip

if TYPE_CHECKING:
    from tare.analysis.choose.modes import Columns, ModeTable
    from tare.analysis.choose.predictions import Predictions

FEWEST = 3  # two points make a comparison, and no front
WIDE = 5  # times the smallest: then the axis is logarithmic
PAIRS = (
    (Role.TOKEN_TIME.metric, Role.ENERGY_TOKEN.metric),
    (Role.STEP_MEDIAN.metric, Role.ENERGY_STEP.metric),
    (Role.WHOLE_RUN.metric, ENERGY),
)
ALL = "all configurations"
TEACH, FEWEST_PREDICTED = 4, 8  # the papers' four modes; fewer held out than taught would show little
MOST = 400  # modes of a workload: more take too long for a report
CLOCKS = ("_mhz", "_khz", "_hz")
FIGURES = ("time", "energy")
MEASURED: tuple[tuple[str, str | None], ...] = (*PAIRS, *((time, None) for time, _ in PAIRS))  # time alone is enough


class Spot(NamedTuple):
    """One configuration of one job, where it lies, and whether it is on the front of that job."""

    job: str
    where: str
    time_s: float
    energy_j: float
    n: int
    on_front: bool


def time_energy_figure(evidence: ReportData) -> Figure | None:
    """None where fewer than three configurations have both figures."""
    records = [record for held in evidence.usable.values() for record in held]
    for time, energy in PAIRS:
        having = [record for record in records if time in record.compared and energy in record.compared]
        if unlike_work(record.settings for record in having) and not is_per_sample(time):
            having, time, energy = _of_samples(having, time, energy)
        spots = _spots(having, time, energy) if having else []
        if len(spots) >= FEWEST:
            return _figure(spots, time, energy, evidence.weighing.unit)
    return None


def _of_samples(records: Sequence[Record], time: str, energy: str) -> tuple[list[Record], str, str]:
    """Steps of unlike work by their samples; none where these are not known, or a run is what was measured."""
    unlike = unlike_work(record.settings for record in records)
    names = per_sample(time), per_sample(energy)
    if None in names or not is_counted(unlike) or any(samples_of(each.settings) is None for each in records):
        return [], time, energy
    for name, of_sample in zip((time, energy), map(str, names), strict=True):
        records = [with_per_sample(record, name, of_sample) for record in records]
    return list(records), str(names[0]), str(names[1])


def _by_job(records: Sequence[Record], ways: Sequence[str], values: Sequence[str]) -> list[TrialRow]:
    """A row for each trial, with its job as the group and these settings; jobs are never compared with each other."""
    factors = varied([record.settings for record in records])
    told, _ = models_apart(record_observations(records, settings=[*dict.fromkeys([*ways, *factors])], values=values))
    return [
        replace(each, settings={name: each.settings[name] for name in ways if name in each.settings}) for each in told
    ]


def _spots(records: Sequence[Record], time: str, energy: str) -> list[Spot]:
    told = _by_job(records, varied([record.settings for record in records]), (time, energy))
    found: list[Spot] = []
    for group, held in grouped(configurations(told, (time, energy)), lambda each: each.group).items():
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


def _figure(spots: Sequence[Spot], time: str, energy: str, unit: str) -> Figure:
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
        "beaten by another in both, and `tare choose front` shows how sure that is."
    )
    called = metric_name(time, unit), metric_name(energy, unit)
    headers = ("job", "configuration", *called, "trials", "on the front")
    title = f"{called[0]} against {called[1]}, with the front"
    chart = _chart(spots, jobs, time, energy, called)
    body = []
    for spot in spots:
        figures = (quantity_text(time, spot.time_s), quantity_text(energy, spot.energy_j), f"{spot.n:,}")
        numbers = (Cell(text, "#trials", numeric=True) for text in figures)
        front = Cell("yes" if spot.on_front else "no")
        body.append((Cell(spot.job), Cell(spot.where, "#trials"), *numbers, front))
    return Figure("time-energy", title[:1].upper() + title[1:], reading, chart, headers, tuple(body))


def _both(spot: Spot, time: str, energy: str) -> str:
    return f"{quantity_text(time, spot.time_s)}, {quantity_text(energy, spot.energy_j)}"


def _chart(
    spots: Sequence[Spot], jobs: Sequence[str], time: str, energy: str, called: tuple[str, str]
) -> dict[str, Any]:
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
    x = {"field": "time", "type": "quantitative", "title": axis_title(called[0], time_unit),
         "scale": _scale([spot.time_s for spot in spots])}  # fmt: skip
    y = {"field": "energy", "type": "quantitative", "title": axis_title(called[1], energy_unit),
         "scale": _scale([spot.energy_j for spot in spots])}  # fmt: skip
    places = range(1, len(jobs) + 1)
    colour = {"field": "job", "scale": {"domain": jobs, "range": [part_colour(place - 1) for place in places]},
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


Told: TypeAlias = Mapping[str, Any]


def predicted_figures(evidence: ReportData) -> list[Figure]:
    """Time and, if measured, energy of the held-out modes; none where no clock was varied or modes are few."""
    records = [record for held in evidence.usable.values() for record in held]
    features = _features(records)
    known = {metric for record in records for metric in record.compared}
    pair = next((pair for pair in MEASURED if known.issuperset(filter(None, pair))), None)
    if pair is None or not any(name.endswith(CLOCKS) for name in features):
        return []
    from tare.analysis.choose.modes import Columns  # only here: what predicts is not for every report
    from tare.analysis.choose.predictions import predict

    columns = Columns(tuple(features), *pair)
    try:
        table = _table(evidence, records, columns)
        answers = predict(table, measured=TEACH, count_next=0) if table is not None else []
        varying = table.columns.features if table is not None else ()
    except TareError:  # modes from which nothing can be told: `tare choose predict` says why
        return []
    told = zip(FIGURES, columns.figures, strict=False)  # time may be the only one
    unit = evidence.weighing.unit
    return [_predicted_figure(name, metric, varying, answers, unit) for name, metric in told if answers]


def _features(records: Sequence[Record]) -> list[str]:
    """What makes a mode: numbers that a control was set to, and how many cores there were."""
    factors = varied([record.settings for record in records])
    return [
        name
        for name in factors
        if (name.startswith("control.") or name == "platform.cores")
        and all(isinstance(record.settings.get(name), int | float) for record in records)
    ]


def _table(evidence: ReportData, records: Sequence[Record], columns: Columns) -> ModeTable | None:
    from tare.analysis.choose.modes import modes_of

    told = _by_job(records, columns.features, columns.figures)
    whole = [each for each in told if all(metric in each.metrics for metric in columns.figures)]
    modes = Counter(group for group, _ in {(each.group, tuple(sorted(each.settings.items()))) for each in whole})
    enough = [each for each in whole if FEWEST_PREDICTED <= modes[each.group] <= MOST]
    if not enough or evidence.store is None:
        return None
    return modes_of(evidence.store.path, enough, columns)


def _predicted_figure(
    name: str, metric: str, features: Sequence[str], answers: Sequence[Predictions], unit: str
) -> Figure:
    told = [row for answer in answers for row in _held_out(name, metric, features, answer)]
    errors = [f"{share_text(each.errors[name])} ({_job(each)})" for each in answers if each.errors]
    reading = (
        f"From {TEACH} measured modes of a workload its others ({len(told)} in all) are predicted with a mean error of "
        f"{some_of(errors)}; on the line they would be exact."
    )
    headers = ("workload", "mode", "measured", "predicted", "between", "off by")
    body = []
    for row in told:
        figures = (Cell(row[key], "#trials", numeric=True) for key in ("was", "shown"))
        body.append(
            (Cell(row["job"]), Cell(row["mode"]), *figures, Cell(row["between"]), Cell(row["off"], numeric=True))
        )
    title = f"{metric_name(metric, unit).capitalize()}: predicted against measured"
    return Figure(f"predicted-{name}", title, reading, _predicted_chart(metric, told), headers, tuple(body))


def _held_out(name: str, metric: str, features: Sequence[str], answer: Predictions) -> list[Told]:
    found: list[Told] = []
    for each in answer.predictions:
        if each.measured is None:
            continue
        estimate, measured = each.figures[name], each.measured[name]
        mode = ", ".join(f"{last_part(one)} {value:g}" for one, value in zip(features, each.mode, strict=True))
        shown, interval = estimate_texts(metric, estimate.value, estimate.low, estimate.high)
        found.append(
            {
                "job": _job(answer), "mode": safe_text(mode), "measured": measured, "predicted": estimate.value,
                "low": estimate.low, "high": estimate.high, "shown": shown,
                "was": quantity_text(metric, measured), "between": interval,
                "off": share_text(estimate.value / measured - 1),
            }
        )  # fmt: skip
    return found


def _job(answer: Predictions) -> str:
    return "all" if answer.group is None else safe_text(answer.group)


def _predicted_chart(metric: str, told: Sequence[Told]) -> dict[str, Any]:
    unit, factor = scaled(metric, [row["measured"] for row in told])
    points = [
        {**row, **{key: row[key] * factor for key in ("measured", "predicted", "low", "high") if row[key] is not None}}
        for row in told
    ]
    jobs = list(dict.fromkeys(row["job"] for row in told))
    ends = [point[key] for point in points for key in ("measured", "predicted")]
    corners = [0.9 * min(ends), 1.1 * max(ends)]
    scale = {"type": "log", "domain": corners, "nice": False, "clamp": True}
    x = {"type": "quantitative", "title": f"measured, {unit}", "scale": scale}
    y = {"type": "quantitative", "title": f"predicted, {unit}", "scale": scale}
    colour = {"field": "job", "legend": legend(jobs) if len(jobs) > 1 else None,
              "scale": {"domain": jobs, "range": [part_colour(place) for place in range(len(jobs))]}}  # fmt: skip
    shape = {**colour, "scale": {"domain": jobs, "range": [shape_of(place + 1) for place in range(len(jobs))]}}
    shown = tooltip(job="workload", mode="mode", was="measured", shown="predicted", between="between", off="off by")
    across = {"x": {"field": "measured", **x}}
    return {
        "height": 320,
        "layer": [
            {
                "data": rows([{"at": corner} for corner in corners]),
                "mark": {"type": "line", "color": "@quiet", "strokeDash": [4, 3]},
                "encoding": {"x": {"field": "at", **x}, "y": {"field": "at", **y}},
            },
            {
                "data": rows([point for point in points if point["low"] is not None]),
                "mark": {"type": "rule", "opacity": 0.35},
                "encoding": {**across, "y": {"field": "low", **y}, "y2": {"field": "high"}, "color": colour},
            },
            {
                "data": rows(points),
                "params": [{"name": "chosen", "select": {"type": "point", "fields": ["job"]}, "bind": "legend"}],
                "mark": {"type": "point", "filled": True},
                "encoding": {
                    **across, "y": {"field": "predicted", **y}, "color": colour, "shape": shape,
                    "opacity": {"condition": {"param": "chosen", "value": 1}, "value": 0.1}, "tooltip": shown,
                },
            },
        ],
    }  # fmt: skip
