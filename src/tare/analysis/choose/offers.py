"""Configurations that were not measured, as the predictor estimates them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tare.analysis.choose.columns import column_for
from tare.analysis.choose.jobs import OF_THE_RUN, Job, of_job
from tare.analysis.model import Estimate
from tare.analysis.observations import Setting, columns_of
from tare.base.errors import StudyError
from tare.records.model import TrialRow, grouped
from tare.records.schema import is_store


@dataclass(frozen=True, slots=True)
class Predicted:
    """A configuration that nobody has measured, as a predictor sees it: figures by their word, with intervals."""

    settings: Mapping[str, Setting]
    figures: Mapping[str, Estimate]
    group: str | None = None


FIGURES = ("time", "energy", "power")


def predictions(
    source: Path, job: Job, rows: Sequence[TrialRow], *, group: str | None = None
) -> tuple[list[Predicted], tuple[str, ...]]:
    """What the predictor offers, and why it offers nothing where it was asked in vain."""
    known = columns_of(source)
    columns = {word: column.name for word in FIGURES if (column := job.column_for(word, known)) is not None}
    # The predictor knows clocks and counts, not names: settings must be numbers in every row.
    features = tuple(dict.fromkeys(name for row in rows for name in row.settings))
    numeric = all(isinstance(row.settings.get(name), float) for row in rows for name in features)
    if not features or not numeric or "time" not in columns or not ({"energy", "power"} & columns.keys()):
        return [], ()
    if _nothing_is_left(rows):
        return [], ()
    if is_store(source) and job.times is not None and set(columns.values()) & set(OF_THE_RUN):
        return [], ()  # how many steps a run that was not made would have had, nobody knows
    from tare.analysis.choose.modes import Columns, read_modes
    from tare.analysis.choose.predictions import NothingToPredict, predict

    asked = Columns(features, columns["time"], columns.get("energy"), columns.get("power"), group)
    try:
        table = read_modes(source, asked)
        answers = predict(table, ("tare",), count_next=0)
    except NothingToPredict:
        return [], ()
    except StudyError as error:
        return [], (f"Nothing is predicted: {error}",)
    constant = {name: rows[0].settings[name] for name in features if name not in table.columns.features}
    offered = []
    for answer in answers:
        for each in answer.predictions:
            mode = dict(zip(table.columns.features, each.mode, strict=True))
            offered.append(_predicted(job, columns, answer.group, {**constant, **mode}, each.figures))
    return offered, ()


def _nothing_is_left(rows: Sequence[TrialRow]) -> bool:
    """Whether each group was measured in every combination of the settings' levels."""
    timed = grouped((row for row in rows if "time" in row.metrics), lambda row: row.group)
    levels = math.prod(len(set(column)) for column in zip(*(row.settings.values() for row in rows), strict=True))
    return all(len({tuple(row.settings.values()) for row in its}) == levels for its in timed.values())


def _predicted(
    job: Job,
    columns: Mapping[str, str],
    group: str | None,
    settings: Mapping[str, Setting],
    figures: Mapping[str, Estimate],
) -> Predicted:
    """A prediction of one step, in the columns' units, made one of the whole job in base units."""
    values = {columns[word]: figures[word].value for word in columns}
    known = {word: column for word in columns if (column := column_for(columns[word], [columns[word]])) is not None}
    whole = of_job(TrialRow.foreign(settings, values, "predicted", group=group), job, known, of_run=False)
    scaled = {
        word: _scaled(estimate, whole.metrics[word] / estimate.value)
        for word, estimate in figures.items()
        if word in whole.metrics and estimate.value > 0
    }
    if "cost" in whole.metrics:
        scaled["cost"] = _scaled(figures["time"], whole.metrics["cost"] / figures["time"].value)
    return Predicted(settings, scaled, group)


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    low = None if estimate.low is None else estimate.low * factor
    high = None if estimate.high is None else estimate.high * factor
    return replace(estimate, value=estimate.value * factor, low=low, high=high)
