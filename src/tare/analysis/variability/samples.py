"""What varies: one sample an epoch (or a trial, where no epochs are known), with where it belongs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tare.analysis.cells import text
from tare.analysis.compare import unknown_name
from tare.analysis.devices import DEVICE, TYPE, device_of
from tare.analysis.energy.baseload import records_of
from tare.analysis.observations import (
    NOTHING_USABLE,
    figure_column,
    label_column,
    started_s,
    usable_attempts,
)
from tare.analysis.table import Table, read_table
from tare.errors import StudyError
from tare.records.model import Record
from tare.records.settings import varied
from tare.records.store import Store

PER_EPOCH = {"step_s": "step", "stall_s": "fetch", "compute_s": "compute", "copy_s": "copy"}  # metric -> mark


@dataclass(frozen=True, slots=True)
class Sample:
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
) -> list[Sample]:
    """One sample a row that has the figure."""
    table = read_table(path)
    values = figure_column(table, value)
    cells = zip(*(label_column(table, name) for name in settings), strict=True) if settings else [()] * len(table)
    epochs = _epochs(table, epoch)
    devices, days, trials = (_labels(table, name) for name in (device, day, trial))
    made = []
    for place, (figure, cell) in enumerate(zip(values, cells, strict=True)):
        if figure is None:
            continue
        if figure <= 0:
            raise table.error(place + 1, value, f"{figure:g} cannot be compared; values must be more than zero.")
        made.append(Sample(figure, ", ".join(cell), devices[place], days[place], trials[place], epochs[place]))
    if not made:
        raise StudyError(f"{path}: column {value!r} has no figure in any row.")
    return made


def store_samples(root: Path, metric: str = "step_s", settings: Sequence[str] | None = None) -> list[Sample]:
    """One sample an epoch of each usable trial, where its marks have epochs, else one a trial."""
    with Store.open(root) as store:
        records = [record for record in usable_attempts(records_of(store), [metric]) if metric in record.compared]
        if not records:
            known = sorted({name for record in usable_attempts(records_of(store), []) for name in record.metrics})
            raise StudyError(f"{root}: {unknown_name('figure', metric, known) if known else NOTHING_USABLE}")
        names = list(settings) if settings is not None else _telling(records)
        return [sample for record in records for sample in _of_record(store, record, metric, names)]


def _telling(records: Sequence[Record]) -> list[str]:
    """What makes a configuration: all that varies, but the device of a fleet, which is a level of its own."""
    types = {str(record.settings.get(TYPE)) for record in records}
    names = [name for name in varied([record.settings for record in records]) if name not in (DEVICE, TYPE)]
    return [*names, *([TYPE] if len(types) > 1 else [])]


def epoch_medians(marks: dict[str, npt.NDArray[Any]], mark: str) -> list[tuple[float, float]]:
    """(number of the epoch, median seconds of this interval in it), from a trial's marks."""
    return [(number, float(np.median(inside))) for number, inside in _by_epoch(marks, mark)]


def epoch_means(marks: dict[str, npt.NDArray[Any]], mark: str) -> list[tuple[float, float]]:
    """The same with means: what an epoch takes, a stall in every fourth step with it."""
    return [(number, float(np.mean(inside))) for number, inside in _by_epoch(marks, mark)]


def _by_epoch(marks: dict[str, npt.NDArray[Any]], mark: str) -> Iterator[tuple[float, list[float]]]:
    spans = _spans(marks, mark)
    for number, (start, end) in enumerate(sorted((begin, end) for begin, end, _ in _spans(marks, "epoch"))):
        inside = [(stop - begin) / 1e9 for begin, stop, step in spans if step >= 0 and start <= begin < end]
        if inside:
            yield float(number), inside


def _of_record(store: Store, record: Record, metric: str, names: Sequence[str]) -> list[Sample]:
    cell = ", ".join(f"{name}={text(record.settings[name])}" for name in names if name in record.settings)
    when = started_s(record)
    day = None if when is None else datetime.fromtimestamp(when, UTC).date().isoformat()
    epochs = epoch_medians(store.marks(record.trial, record.attempt), PER_EPOCH[metric]) if metric in PER_EPOCH else []
    found: list[tuple[float | None, float]] = [(number, value) for number, value in epochs if value > 0]
    if len(found) < 2:
        found = [(None, record.metrics[metric])]
    return [
        Sample(value, cell, device_of(record), day, record.trial, number, when) for number, value in found if value > 0
    ]


def _spans(marks: dict[str, npt.NDArray[Any]], name: str) -> list[tuple[int, int, int]]:
    """(begin, end, step) of each interval of this name, in the order of its ends."""
    open_at: dict[int, int] = {}
    made = []
    mine = marks["name"] == name
    columns = (marks[column][mine] for column in ("t_ns", "edge", "step"))
    for t_ns, edge, step in zip(*columns, strict=True):
        if edge == "begin":
            open_at[int(step)] = int(t_ns)
        elif edge == "end" and int(step) in open_at:
            made.append((open_at.pop(int(step)), int(t_ns), int(step)))
    return made


def _epochs(table: Table, name: str | None) -> list[float | None]:
    return [None] * len(table) if name is None else figure_column(table, name)


def _labels(table: Table, name: str | None) -> Sequence[str | None]:
    return [None] * len(table) if name is None else label_column(table, name)
