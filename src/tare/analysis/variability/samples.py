"""The values of a table or of a store's epochs, each with the groups that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from tare.analysis.labels import Labels, distinguishing, make_labels
from tare.analysis.numeric.medians import Floats
from tare.analysis.observations import NOTHING_USABLE, figure_column, records_of, usable_attempts
from tare.analysis.tables.table import Table, label_column, read_table
from tare.base.declare import Role, before
from tare.base.errors import StudyError, unknown_name
from tare.records.intervals import Marks, intervals
from tare.records.model import DEVICE, TYPE, Record, device_of, started_s, varied
from tare.records.store import Store

PER_EPOCH = {before().marks[mark]: mark for mark in ("step", "fetch", "compute", "copy")}


@dataclass(frozen=True, slots=True)
class NestedValue:
    """One value, positive, and the groups that it lies in; None where the source does not say."""

    value: float
    cell: str  # its configuration: samples of different ones are never compared
    device: str | None = None
    day: str | None = None
    trial: str | None = None
    epoch: float | None = None  # its number within the trial
    when_s: float | None = None


def table_samples(
    path: Path,
    value: str,
    *,
    settings: Sequence[str] = (),
    epoch: str | None = None,
    trial: str | None = None,
    device: str | None = None,
    day: str | None = None,
) -> list[NestedValue]:
    """One sample a row that has the figure."""
    table = read_table(path)
    values = figure_column(table, value)
    cells = zip(*(label_column(table, name) for name in settings), strict=True) if settings else [()] * len(table)
    epochs = [None] * len(table) if epoch is None else figure_column(table, epoch)
    devices, days, trials = (_labels(table, name) for name in (device, day, trial))
    made = []
    for place, (figure, cell) in enumerate(zip(values, cells, strict=True)):
        if figure is None:
            continue
        if figure <= 0:
            raise table.error(place + 1, value, f"{figure:g} cannot be compared; values must be more than zero.")
        made.append(NestedValue(figure, ", ".join(cell), devices[place], days[place], trials[place], epochs[place]))
    if not made:
        raise StudyError(f"{path}: column {value!r} has no figure in any row.")
    return made


def store_samples(
    root: Path, metric: str = Role.STEP_MEDIAN.metric, settings: Sequence[str] | None = None
) -> list[NestedValue]:
    """One sample an epoch of each usable trial, where its marks have epochs, else one a trial."""
    with Store.open(root) as store:
        records = [record for record in usable_attempts(records_of(store), [metric]) if metric in record.compared]
        if not records:
            usable = usable_attempts(records_of(store), [])
            if any(metric in record.metrics for record in usable):
                raise StudyError(
                    f"{root}: {metric} of these trials is not compared: they were traced, which costs time."
                )
            known = sorted({name for record in usable for name in record.compared})
            raise StudyError(f"{root}: {unknown_name('figure', metric, known) if known else NOTHING_USABLE}")
        names = list(settings) if settings is not None else _configuration_names(records)
        several = [record.settings for record in records]
        cells = make_labels(several, distinguishing(several, names))
        return [sample for record in records for sample in _of_record(store, record, metric, cells)]


def _configuration_names(records: Sequence[Record]) -> list[str]:
    """What makes a configuration: all that varies, but the device of a fleet, which is a level of its own."""
    types = {str(record.settings.get(TYPE)) for record in records}
    names = [name for name in varied([record.settings for record in records]) if name not in (DEVICE, TYPE)]
    return [*names, *([TYPE] if len(types) > 1 else [])]


def epoch_medians(marks: Marks, mark: str) -> list[tuple[float, float]]:
    """(number of the epoch, median seconds of this interval in it), from a trial's marks."""
    return [(number, float(np.median(inside))) for number, inside in _by_epoch(marks, mark)]


def epoch_means(marks: Marks, mark: str) -> list[tuple[float, float]]:
    """The same with means: what an epoch takes, a stall in every fourth step with it."""
    return [(number, float(np.mean(inside))) for number, inside in _by_epoch(marks, mark)]


def _by_epoch(marks: Marks, mark: str) -> Iterator[tuple[float, Floats]]:
    found, epochs = intervals(marks, mark).of_steps(), intervals(marks, "epoch")
    spans = sorted(zip(epochs.begin_ns.tolist(), epochs.end_ns.tolist(), strict=True))
    for number, (start_ns, end_ns) in enumerate(spans):
        inside = found.seconds[(start_ns <= found.begin_ns) & (found.begin_ns < end_ns)]
        if len(inside):
            yield float(number), inside


def _of_record(store: Store, record: Record, metric: str, cells: Labels) -> list[NestedValue]:
    cell = str(cells.words(record.settings))
    when = started_s(record)
    day = None if when is None else datetime.fromtimestamp(when, UTC).date().isoformat()
    epochs = epoch_medians(store.marks(record.trial, record.attempt), PER_EPOCH[metric]) if metric in PER_EPOCH else []
    found: list[tuple[float | None, float]] = [(number, value) for number, value in epochs if value > 0]
    if len(found) < 2:
        found = [(None, record.metrics[metric])]
    return [
        NestedValue(value, cell, device_of(record), day, record.trial, number, when)
        for number, value in found
        if value > 0
    ]


def _labels(table: Table, name: str | None) -> Sequence[str | None]:
    return [None] * len(table) if name is None else label_column(table, name)
