"""The job that is to be run: its limits, and what each trial's figures say about the whole of it, in base units."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tare.analysis.choose.configurations import NAMES, Column, column_for
from tare.analysis.observations import columns_of, number, observations
from tare.base.errors import StudyError, unknown_name
from tare.records.schema import is_store
from tare.records.trials import TrialRow

GROWS_WITH_THE_JOB = ("time", "energy", "cost")
OF_THE_RUN = ("wall_s", "cpu_s", "energy_j")  # of a store: figures of the whole trial, not of one step
ALSO = ("time", "energy", "power", "stall", "compute")  # taken along where they are there: evidence, and gains
_MADE_FROM = {"power": ("energy", "time"), "energy": ("power", "time"), "cost": ("time",)}


@dataclass(frozen=True, slots=True)
class Limit:
    """A figure that must not be passed."""

    name: str  # "deadline"
    figure: str  # "time", or a column
    at_most: float  # seconds, joules, watts; else in the column's own unit


@dataclass(frozen=True, slots=True)
class Job:
    """What is asked. Without `times` and `samples` a trial's figures are taken as those of the whole job."""

    minimise: str
    limits: tuple[Limit, ...] = ()
    times: float | None = None  # steps (or epochs, where a table's figures are of an epoch)
    samples: float | None = None  # then the steps are samples / batch, configuration by configuration
    price_per_h: str | None = None  # a number, or the column that has it
    columns: Mapping[str, str] | None = None  # word -> column, where the caller names it


def word_for(name: str, known: Sequence[str], columns: Mapping[str, str]) -> str:
    """`energy` for `joules`: a column that has a word of its own is known by it, so that it is scaled as such."""
    if name in known:
        for word in ("time", "energy", "power", "cost"):
            column = column_for(columns.get(word, word), known)
            if column is not None and column.name == name:
                return word
    return name


def job_observations(
    source: Path, job: Job, *, settings: Sequence[str] | None, group: str | None = None
) -> list[TrialRow]:
    """Each trial with the figures of the whole job, by word (time, energy, power, cost) or by column."""
    known = columns_of(source)
    needed = list(dict.fromkeys([job.minimise, *(limit.figure for limit in job.limits)]))
    columns = _columns(source, job, known, needed)
    of_run = is_store(source) and job.times is not None
    asked = list(dict.fromkeys([column.name for column in columns.values()]))
    asked += [name for name in _further_columns(job, known, of_run) if name not in asked]
    rows = observations(source, settings=settings, values=asked, group=group)
    return [of_job(row, job, columns, of_run) for row in rows]


def _columns(source: Path, job: Job, known: Sequence[str], needed: Sequence[str]) -> dict[str, Column]:
    """Word -> column, for what is needed and what is good to have; a figure that cannot be had is refused."""
    found: dict[str, Column] = {}
    for word in dict.fromkeys([*needed, *ALSO, "cost"]):
        named = (job.columns or {}).get(word, word)
        column = column_for(named, known)
        if column is not None:
            found[word] = column
        elif named != word:
            raise StudyError(f"{source}: {unknown_name(f'column for {word}', named, list(known))}")
    for word in needed:
        if word not in found and not _can_be_made(word, found, job):
            raise StudyError(f"{source}: {_how_to_get(word, known)}")
    return found


def _can_be_made(word: str, found: Mapping[str, Column], job: Job) -> bool:
    parts = _MADE_FROM.get(word)
    return (
        parts is not None and all(part in found for part in parts) and (word != "cost" or job.price_per_h is not None)
    )


def _how_to_get(word: str, known: Sequence[str]) -> str:
    hint = {
        "cost": "give --price, as a number per hour or as a column, and a time",
        "time": "name its column with --time",
        "energy": "name its column with --energy, or --power and --time",
        "power": "name its column with --power, or --energy and --time",
    }.get(word, "name one of the columns")
    return f"no figure is known for {word!r}: {hint}. Available: {', '.join(known)}."


def _further_columns(job: Job, known: Sequence[str], of_run: bool) -> list[str]:
    price = [job.price_per_h] if job.price_per_h is not None and number(job.price_per_h) is None else []
    return [*price, *(["steps"] if of_run and "steps" in known else [])]


def of_job(row: TrialRow, job: Job, columns: Mapping[str, Column], of_run: bool) -> TrialRow:
    """The row with its figures in base units and for the whole job."""
    values: dict[str, float] = {}
    for word, column in columns.items():
        if column.name in row.metrics:
            times = _times(row, job, column.name, of_run) if word in GROWS_WITH_THE_JOB else 1.0
            unit = column.factor if word in NAMES else 1.0  # a column that is asked for by name keeps its unit
            values[word] = row.metrics[column.name] * unit * times
    if "power" not in values and values.get("time") and "energy" in values:
        values["power"] = values["energy"] / values["time"]
    if "energy" not in values and {"power", "time"} <= values.keys():
        values["energy"] = values["power"] * values["time"]
    price = _price(row, job)
    if "cost" not in values and price is not None and "time" in values:
        values["cost"] = values["time"] / 3600 * price
    return replace(row, metrics=values)


def _times(row: TrialRow, job: Job, column: str, of_run: bool) -> float:
    """How many of what this row measured the job is made of."""
    if job.samples is not None:
        return math.ceil(job.samples / _batch(row))
    if job.times is None:
        return 1.0
    steps = row.metrics.get("steps") if of_run and column in OF_THE_RUN else None
    return job.times / steps if steps else job.times


def _batch(row: TrialRow) -> float:
    found = [value for name, value in row.settings.items() if name.rpartition(".")[2] == "batch"]
    if len(found) != 1 or not isinstance(found[0], float) or found[0] <= 0:
        raise StudyError(f"{row.trial}: --samples needs a setting called batch, to know how many steps that makes.")
    return found[0]


def _price(row: TrialRow, job: Job) -> float | None:
    if job.price_per_h is None:
        return None
    fixed = number(job.price_per_h)
    return row.metrics.get(job.price_per_h) if fixed is None else fixed
