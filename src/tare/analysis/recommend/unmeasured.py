"""Configurations that nobody has measured, as the predictor sees them, with the figures of the whole job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tare.analysis.model import Estimate
from tare.analysis.observations import Observation, Setting, columns_of
from tare.analysis.quantities import column_for
from tare.analysis.recommend.job import OF_THE_RUN, Job, of_job
from tare.analysis.recommend.model import Predicted
from tare.errors import StudyError
from tare.records.unpacking import is_store

FIGURES = ("time", "energy", "power")


def predictions(
    source: Path, job: Job, rows: Sequence[Observation], *, group: str | None = None
) -> tuple[list[Predicted], tuple[str, ...]]:
    """What the predictor offers, and why it offers nothing where it was asked in vain."""
    features = _features(rows)
    columns = _columns(source, job)
    if not features or "time" not in columns or not ({"energy", "power"} & columns.keys()):
        return [], ()
    if _nothing_is_left(rows):
        return [], ()
    if is_store(source) and job.times is not None and set(columns.values()) & set(OF_THE_RUN):
        return [], ()  # how many steps a run that was not made would have had, nobody knows
    from tare.analysis.predict.modes import Columns, read_modes
    from tare.analysis.predict.predictions import predict

    asked = Columns(features, columns["time"], columns.get("energy"), columns.get("power"), group)
    try:
        table = read_modes(source, asked)
        answers = predict(table, ("tare",), count_next=0)
    except StudyError as error:
        told = str(error).partition(". --")[0]
        return [], () if "none to predict" in told else (f"Nothing is predicted: {told}",)
    constant = {name: rows[0].settings[name] for name in features if name not in table.columns.features}
    offered = []
    for answer in answers:
        for each in answer.predictions:
            mode = dict(zip(table.columns.features, each.mode, strict=True))
            offered.append(_predicted(job, columns, answer.group, {**constant, **mode}, each.figures))
    return offered, ()


def _features(rows: Sequence[Observation]) -> tuple[str, ...]:
    """The settings, where all of them are numbers in every row: the predictor knows clocks and counts, not names."""
    names = list(dict.fromkeys(name for row in rows for name in row.settings))
    numeric = all(isinstance(row.settings.get(name), float) for row in rows for name in names)
    return tuple(names) if numeric else ()


def _nothing_is_left(rows: Sequence[Observation]) -> bool:
    """Whether each group was measured in every combination of the settings' levels."""
    modes: dict[str | None, set[tuple[Setting, ...]]] = {}
    for row in rows:
        if "time" in row.values:
            modes.setdefault(row.group, set()).add(tuple(row.settings.values()))
    levels = math.prod(len(set(column)) for column in zip(*(row.settings.values() for row in rows), strict=True))
    return all(len(measured) == levels for measured in modes.values())


def _columns(source: Path, job: Job) -> dict[str, str]:
    known = columns_of(source)
    found = {word: column_for((job.columns or {}).get(word, word), known) for word in FIGURES}
    return {word: column.name for word, column in found.items() if column is not None}


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
    whole = of_job(Observation(settings, values, "predicted", group), job, known, of_run=False)
    scaled = {
        word: _scaled(estimate, whole.values[word] / estimate.value)
        for word, estimate in figures.items()
        if word in whole.values and estimate.value > 0
    }
    if "cost" in whole.values:
        scaled["cost"] = _scaled(figures["time"], whole.values["cost"] / figures["time"].value)
    return Predicted(settings, scaled, group)


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    low = None if estimate.low is None else estimate.low * factor
    high = None if estimate.high is None else estimate.high * factor
    return replace(estimate, value=estimate.value * factor, low=low, high=high)
