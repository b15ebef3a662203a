"""Predicted against measured: a few modes teach, the others are held out, as `tare predict --measured` does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from tare.analysis.observations import Observation, record_observations
from tare.analysis.predict.modes import Columns, ModeTable, modes_of
from tare.analysis.predict.predictions import Answer, predict
from tare.errors import TareError
from tare.records.model import Record
from tare.records.settings import varied
from tare.report.charts.lanes import tooltip
from tare.report.charts.naming import last_part, legend, some_of
from tare.report.charts.time_energy import PAIRS, job_factor
from tare.report.drawing import rows
from tare.report.evidence import Evidence
from tare.report.figure import Cell, Figure
from tare.report.theme import level_colour, shape_of
from tare.report.words import metric_name, quantity_text, safe_text, scaled, share_text

TEACH, FEWEST = 4, 8  # the papers' four modes; fewer held out than taught would show little
MOST = 400  # modes of a workload: more take too long for a report
CLOCKS = ("_mhz", "_khz", "_hz")
FIGURES = ("time", "energy")
MEASURED: tuple[tuple[str, str | None], ...] = (*PAIRS, *((time, None) for time, _ in PAIRS))  # time alone is enough

Told: TypeAlias = Mapping[str, Any]


def predicted_figures(evidence: Evidence) -> list[Figure]:
    """Time and, if measured, energy of the held-out modes; none where no clock was varied or modes are few."""
    records = [record for held in evidence.usable().values() for record in held]
    columns = _columns(records)
    if columns is None:
        return []
    try:
        table = _table(evidence, records, columns)
        answers = predict(table, measured=TEACH, count_next=0) if table is not None else []
        varying = table.columns.features if table is not None else ()
    except TareError:  # modes from which nothing can be told: `tare predict` says why
        return []
    told = zip(FIGURES, columns.figures, strict=False)  # time may be the only one
    return [_figure(name, metric, varying, answers) for name, metric in told if answers]


def _columns(records: Sequence[Record]) -> Columns | None:
    """What makes a mode and what was measured in it; None where no clock was varied."""
    features = _features(records)
    pair = next((pair for pair in MEASURED if all(_have(records, metric) for metric in pair if metric)), None)
    if pair is None or not any(name.endswith(CLOCKS) for name in features):
        return None
    return Columns(tuple(features), *pair, group=job_factor(records))


def _have(records: Iterable[Record], metric: str) -> bool:
    return any(metric in record.compared for record in records)


def _features(records: Sequence[Record]) -> list[str]:
    """What makes a mode: numbers that a control was set to, and how many cores there were."""
    factors = varied([record.settings for record in records])
    return [
        name
        for name in factors
        if (name.startswith("control.") or name == "platform.cores")
        and all(isinstance(record.settings.get(name), int | float) for record in records)
    ]


def _table(evidence: Evidence, records: Sequence[Record], columns: Columns) -> ModeTable | None:
    told = record_observations(records, settings=columns.features, values=columns.figures, group=columns.group)
    whole = [each for each in told if all(metric in each.values for metric in columns.figures)]
    modes = Counter(group for group, _ in {(each.group, _mode(each)) for each in whole})
    enough = [each for each in whole if FEWEST <= modes[each.group] <= MOST]
    if not enough or evidence.store is None:
        return None
    return modes_of(evidence.store.path, enough, columns)


def _mode(each: Observation) -> tuple[Any, ...]:
    return tuple(sorted(each.settings.items()))


def _figure(name: str, metric: str, features: Sequence[str], answers: Sequence[Answer]) -> Figure:
    told = [row for answer in answers for row in _held_out(name, metric, features, answer)]
    errors = [f"{share_text(each.errors[name])} ({_job(each)})" for each in answers if each.errors]
    reading = (
        f"From {TEACH} measured modes of a workload its others ({len(told)} in all) are told with a mean error of "
        f"{some_of(errors)}; on the line they would be exact."
    )
    headers = ("workload", "mode", "measured", "predicted", "between", "off by")
    body = tuple(_row(row) for row in told)
    return Figure(f"predicted-{name}", f"{metric_name(metric).capitalize()}: predicted against measured", reading,
                  _chart(metric, told), headers, body)  # fmt: skip


def _held_out(name: str, metric: str, features: Sequence[str], answer: Answer) -> list[Told]:
    found: list[Told] = []
    for each in answer.predictions:
        if each.measured is None:
            continue
        estimate, measured = each.figures[name], each.measured[name]
        mode = ", ".join(f"{last_part(one)} {value:g}" for one, value in zip(features, each.mode, strict=True))
        low, high = (quantity_text(metric, end) if end is not None else "" for end in (estimate.low, estimate.high))
        found.append(
            {
                "job": _job(answer), "mode": safe_text(mode), "measured": measured, "predicted": estimate.value,
                "low": estimate.low, "high": estimate.high, "shown": quantity_text(metric, estimate.value),
                "was": quantity_text(metric, measured), "between": f"{low} and {high}" if low else "",
                "off": share_text(estimate.value / measured - 1),
            }
        )  # fmt: skip
    return found


def _job(answer: Answer) -> str:
    return "all" if answer.group is None else safe_text(answer.group)


def _row(told: Told) -> tuple[Cell, ...]:
    figures = (Cell(told[key], "#trials", numeric=True) for key in ("was", "shown"))
    return Cell(told["job"]), Cell(told["mode"]), *figures, Cell(told["between"]), Cell(told["off"], numeric=True)


def _chart(metric: str, told: Sequence[Told]) -> dict[str, Any]:
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
              "scale": {"domain": jobs, "range": [level_colour(place + 1) for place in range(len(jobs))]}}  # fmt: skip
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
