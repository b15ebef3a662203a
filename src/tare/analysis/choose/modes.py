"""Rows in, modes out: of each workload the modes that were measured, and those that are wanted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tare.analysis.choose.columns import base_factor, column_for
from tare.analysis.choose.law import Array, Law, resources
from tare.analysis.observations import columns_of, number, observations
from tare.base.declare import Role
from tare.base.errors import StudyError
from tare.records.model import TrialRow, grouped
from tare.records.schema import is_store

_ALIKE = 1 - 1e-9  # of a correlation: the two features are one
_APART = 1.5  # so many times as long is not the same thing measured again
MOST_MODES = 100_000  # of a grid: more is not a list for people
DERIVED_ENERGY = Role.ENERGY.metric
TIME_ALONE = (
    "no energy was measured, so only times are predicted; where a column of the source has it, `--columns"
    " energy=COLUMN` names it."
)
SOME_TIMES_ALONE = (
    "some trials have no energy, so only times are predicted; with `--columns energy=COLUMN` those trials count as not"
    " measured."
)

Mode = tuple[float, ...]


@dataclass(frozen=True)
class Columns:
    """Which columns hold what, and so in which units the figures are."""

    features: tuple[str, ...]
    time: str
    energy: str | None = None
    power: str | None = None
    group: str | None = None

    @property
    def powered(self) -> bool:
        """Whether the energy is known, or the power, which tells it; otherwise all is about time alone."""
        return bool(self.energy or self.power)

    @property
    def figures(self) -> tuple[str, ...]:
        """The columns that are read: time, and what tells the energy where something does."""
        told = self.energy or self.power
        return (self.time, told) if told else (self.time,)

    @property
    def names(self) -> dict[str, str]:
        """What each figure is called, in the units in which it is given; what is not known is not there."""
        if not self.powered:
            return {"time": self.time}
        return {"time": self.time, "power": self.power or "power_w", "energy": self.energy or DERIVED_ENERGY}

    @property
    def factors(self) -> Array:
        """By what each figure is multiplied to be in these units; time and energy are in them already."""
        return np.array([self.power_unit if figure == "power" else 1.0 for figure in self.names])

    @property
    def power_unit(self) -> float:
        """One unit of energy over one of time, in units of power."""
        energy = base_factor(self.energy or DERIVED_ENERGY)
        return energy / base_factor(self.time) / base_factor(self.names["power"])


@dataclass(frozen=True)
class Workload:
    """One group of rows: its measured modes in order, one figure each, and the modes without figures."""

    name: str | None
    modes: Array  # (measured, features)
    time: Array
    energy: Array | None  # None where it was not measured
    wanted: Array  # (wanted, features)

    @property
    def logs(self) -> Array:
        """Logarithms (figures, measured) of time and, if known, of power, in units of energy over units of time."""
        return np.log(np.stack([self.time] if self.energy is None else [self.time, self.energy / self.time]))

    def take(self, rows: Sequence[int]) -> Workload:
        """The same with only these of its measured modes."""
        chosen = list(rows)
        energy = None if self.energy is None else self.energy[chosen]
        return replace(self, modes=self.modes[chosen], time=self.time[chosen], energy=energy)


@dataclass(frozen=True)
class ModeTable:
    """The whole source: workloads by name, and what was noticed on the way."""

    source: Path
    columns: Columns
    workloads: tuple[Workload, ...]
    notes: tuple[str, ...]

    @property
    def modes(self) -> Array:
        """Every mode that is in it, measured or not."""
        return np.concatenate([part for each in self.workloads for part in (each.modes, each.wanted)])

    @property
    def law(self) -> Law:
        """The law over its features; of time alone where no energy was measured."""
        return Law(resources(self.columns.features, self.modes), powered=self.columns.powered)


def read_modes(source: Path, columns: Columns) -> ModeTable:
    """The modes of a table or of a store; whatever cannot be predicted from is refused with a sentence."""
    _refuse_two_roles(columns)
    found = columns if columns.powered else _with_usual_energy(source, columns)
    rows = observations(source, settings=found.features, values=found.figures, group=found.group)
    if found is not columns and any(columns.time in row.metrics and len(row.metrics) == 1 for row in rows):
        # Nobody asked for the energy, so no time that was measured is given up for it.
        return modes_of(source, rows, columns, SOME_TIMES_ALONE)
    return modes_of(source, rows, found)


def modes_of(source: Path, rows: Sequence[TrialRow], columns: Columns, alone: str = TIME_ALONE) -> ModeTable:
    """The same of rows that were read already; `alone` is said where it is about times alone."""
    varying, notes = _varying(source, rows, columns)
    columns = replace(columns, features=varying)
    notes += [] if columns.powered else [alone]
    groups = grouped(rows, lambda row: row.group)
    workloads = []
    for name in sorted(groups, key=str):
        workload, said = _workload(source, name, groups[name], columns)
        workloads.append(workload)
        notes += said
    table = ModeTable(source, columns, tuple(workloads), tuple(notes))
    _refuse_twins(table)
    return table


def mode_of(assignment: Mapping[str, float], features: Sequence[str]) -> Mode:
    """What `--at` names, as a mode."""
    if missing := [name for name in features if name not in assignment]:
        raise StudyError(f"--at: it does not say {', '.join(missing)}; a mode needs all of {', '.join(features)}.")
    return tuple(assignment[name] for name in features)


def grid(table: ModeTable) -> Array:
    """Every combination of the features' levels."""
    levels = [np.unique(column) for column in table.modes.T]
    if math.prod(map(len, levels)) > MOST_MODES:
        raise StudyError(f"{table.source}: the features have more than {MOST_MODES} combinations; name some with --at.")
    return np.array(list(itertools.product(*levels)))


def unmeasured(workload: Workload, modes: Array) -> Array:
    """Those of the modes that this workload was not measured in."""
    known = {tuple(mode) for mode in workload.modes}
    left = [mode for mode in modes if tuple(mode) not in known]
    return np.array(left).reshape(-1, modes.shape[1])


def _with_usual_energy(source: Path, columns: Columns) -> Columns:
    """The energy of the same step or epoch, else the power, by its usual name; neither where the source has none."""
    taken = {*columns.features, columns.time, columns.group}
    known = [name for name in columns_of(source) if name not in taken]
    # `step` of step_s and of step_mean_s: a store has energies of other things as well.
    of_what = columns.time.rpartition("_")[0].removesuffix("_mean")
    for word in (f"energy_{of_what}_j", f"{of_what}_j"):
        if word in known:
            return replace(columns, energy=word)
    if (power := column_for("power", known)) is not None:
        return replace(columns, power=power.name)
    if is_store(source):
        return columns  # its other energies are of other things than the time
    of_the_same = [name for name in known if not (of_what and name.endswith("step_j"))]  # here the time is of no step
    energy = column_for("energy", of_the_same)
    return replace(columns, energy=energy.name) if energy is not None else columns


def _varying(source: Path, rows: Sequence[TrialRow], columns: Columns) -> tuple[tuple[str, ...], list[str]]:
    """The features that have more than one value; the others are said, and left out."""
    # A column with one text in it arrives as texts: the one that is no number is the one to name.
    for name, row in itertools.product(columns.features, rows):
        value = row.settings.get(name)
        if isinstance(value, str) and number(value) is None:
            where = f"{source}, {row.trial}, column {name!r}"
            raise StudyError(f"{where}: {value!r} is not a number; features are numbers.")
    levels = {name: {_number(source, row, name) for row in rows} for name in columns.features}
    constant = [name for name, values in levels.items() if len(values) == 1]
    if len(constant) == len(levels):
        raise StudyError(f"{source}: there is one mode only; to predict others, two or more must have been measured.")
    notes = [f"{name} is {next(iter(levels[name])):g} in every row, so it carries no information and is left out."
             for name in constant]  # fmt: skip
    return tuple(name for name in columns.features if name not in constant), notes


def _number(source: Path, row: TrialRow, name: str) -> float:
    value = row.settings.get(name)
    if value is None:
        raise StudyError(f"{source}, {row.trial}, column {name!r}: it is empty; every mode needs all its features.")
    return float(value)


def _workload(source: Path, name: str | None, rows: Sequence[TrialRow], columns: Columns) -> tuple[Workload, list[str]]:
    trials: dict[Mode, list[tuple[float, ...]]] = {}
    wanted: set[Mode] = set()
    partial = 0
    for row in rows:
        mode = tuple(_number(source, row, feature) for feature in columns.features)
        if all(figure in row.metrics for figure in columns.figures):
            trials.setdefault(mode, []).append(_figures(source, row, columns))
        else:
            wanted.add(mode)
            partial += bool(row.metrics)
    where = f"{source}, {name}" if name is not None else str(source)
    _refuse_few(where, trials, columns)
    modes = sorted(trials)
    typical = [np.exp(np.median(np.log(trials[mode]), axis=0)) for mode in modes]
    time, *energy = np.array(typical).T
    left = np.array(sorted(wanted - set(modes))).reshape(-1, len(columns.features))
    workload = Workload(name, np.array(modes), time, energy[0] if energy else None, left)
    return workload, _notes(where, trials, partial)


def _figures(source: Path, row: TrialRow, columns: Columns) -> tuple[float, ...]:
    """Time and, if known, energy."""
    for figure in columns.figures:
        if row.metrics[figure] <= 0:
            value = f"{row.metrics[figure]:g}"
            raise StudyError(f"{source}, {row.trial}, column {figure!r}: {value} cannot be; it must be more than zero.")
    time, *second = (row.metrics[figure] for figure in columns.figures)
    return (time, *(each if columns.energy else each * time / columns.power_unit for each in second))


def _refuse_few(where: str, trials: Mapping[Mode, Sequence[tuple[float, ...]]], columns: Columns) -> None:
    if len(trials) < 2:
        count = "no mode was" if not trials else "one mode only was"
        raise StudyError(f"{where}: {count} measured; to predict others, measure two or more (four are a good start).")
    times = {time for each in trials.values() for time, *_ in each}
    if len(times) == 1:
        raise StudyError(
            f"{where}: {columns.time} is {times.pop():g} in every mode. Real times differ a little: is it the column?"
        )


def _notes(where: str, trials: Mapping[Mode, Sequence[tuple[float, ...]]], partial: int) -> list[str]:
    notes = []
    repeated = [each for each in trials.values() if len(each) > 1]
    if repeated:
        notes.append(f"{where}: modes measured more than once: {len(repeated)}; the median of each is used.")
        apart = max(max(times) / min(times) for each in repeated for times in [[time for time, *_ in each]])
        if apart > _APART:
            notes.append(
                f"{where}: times of one mode differ up to {apart:.1f}-fold. If these are different workloads, --group"
                " names the column that distinguishes them."
            )
    if partial:
        notes.append(f"{where}: rows with time or energy but not both: {partial}; they count as not measured.")
    return notes


def _refuse_two_roles(columns: Columns) -> None:
    named = [*columns.features, columns.time, columns.energy, columns.power, columns.group]
    twice = next((name for name in named if name is not None and named.count(name) > 1), None)
    if twice is not None:
        raise StudyError(
            f"{twice!r} is named twice: a column is a feature, the time, the energy, the power or the group."
        )


def _refuse_twins(table: ModeTable) -> None:
    """Two features that rise and fall together cannot be told apart."""
    names = table.columns.features
    modes = np.unique(table.modes, axis=0)
    related = np.atleast_2d(np.corrcoef(modes, rowvar=False))
    for one, other in itertools.combinations(range(len(names)), 2):
        if abs(related[one, other]) > _ALIKE:
            raise StudyError(
                f"{table.source}: {names[one]} and {names[other]} are collinear: they change together in every mode, so"
                f" their effects cannot be told apart. Leave one of them out of --features."
            )
