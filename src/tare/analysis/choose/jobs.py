"""The job that is to be run: its limits, and the figures of the whole job from those of each trial, in base units."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tare.analysis.choose.columns import NAMES, Column, column_for
from tare.analysis.observations import columns_of, number, observations
from tare.base.declare import Role
from tare.base.errors import StudyError, unknown_name
from tare.records.model import TrialRow
from tare.records.schema import is_store

GROWS_WITH_THE_JOB = ("time", "energy", "cost")
# Of a store: figures of the whole trial, not of one step.
OF_THE_RUN = (Role.WHOLE_RUN.metric, Role.CPU.metric, Role.ENERGY.metric)
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

    @property
    def needed(self) -> list[str]:
        """The figures that every configuration must have."""
        return list(dict.fromkeys([self.minimise, *(limit.figure for limit in self.limits)]))

    def column_for(self, word: str, known: Sequence[str]) -> Column | None:
        """The column of this word, as the caller names it or as it is usually called."""
        return column_for((self.columns or {}).get(word, word), known)


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
    columns = _job_columns(source, job, known)
    of_run = is_store(source) and job.times is not None
    asked = [column.name for column in columns.values()]
    asked += [job.price_per_h] if job.price_per_h is not None and number(job.price_per_h) is None else []
    asked += ["steps"] if of_run and "steps" in known else []
    rows = observations(source, settings=settings, values=list(dict.fromkeys(asked)), group=group)
    return [of_job(row, job, columns, of_run) for row in rows]


_HOW_TO_GET: Mapping[str, str] = {
    "cost": "give --price, as a number per hour or as a column, and a time",
    "time": "name its column with `--columns time=COLUMN`",
    "energy": "name its column with `--columns energy=COLUMN`, or those of power and time",
    "power": "name its column with `--columns power=COLUMN`, or those of energy and time",
}


def _job_columns(source: Path, job: Job, known: Sequence[str]) -> dict[str, Column]:
    """Word -> column, for what is needed and what is good to have; a figure that cannot be had is refused."""
    found: dict[str, Column] = {}
    for word in dict.fromkeys([*job.needed, *ALSO, "cost"]):
        column = job.column_for(word, known)
        if column is not None:
            found[word] = column
        elif (named := (job.columns or {}).get(word, word)) != word:
            raise StudyError(f"{source}: {unknown_name(f'column for {word}', named, list(known))}")
    made_from = {word: parts for word, parts in _MADE_FROM.items() if word != "cost" or job.price_per_h is not None}
    for word in job.needed:
        if word not in found and not (word in made_from and found.keys() >= {*made_from[word]}):
            hint = _HOW_TO_GET.get(word, "name one of the columns")
            raise StudyError(f"{source}: no figure is known for {word!r}: {hint}. Available: {', '.join(known)}.")
    return found


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
    if "cost" not in values and job.price_per_h is not None and "time" in values:
        fixed = number(job.price_per_h)
        if (price := row.metrics.get(job.price_per_h) if fixed is None else fixed) is not None:
            values["cost"] = values["time"] / 3600 * price
    return replace(row, metrics=values)


def _times(row: TrialRow, job: Job, column: str, of_run: bool) -> float:
    """How many of what this row measured the job is made of."""
    if job.samples is not None:
        found = [value for name, value in row.settings.items() if name.rpartition(".")[2] == "batch"]
        if len(found) != 1 or not isinstance(found[0], float) or found[0] <= 0:
            raise StudyError(f"{row.trial}: --samples needs a setting called batch, to know how many steps that makes.")
        return math.ceil(job.samples / found[0])
    if job.times is None:
        return 1.0
    steps = row.metrics.get("steps") if of_run and column in OF_THE_RUN else None
    return job.times / steps if steps else job.times
