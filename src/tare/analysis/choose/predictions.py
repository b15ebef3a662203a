"""The modes that were not measured, workload by workload: time, power and energy, and which modes to measure next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tare.analysis.choose.designs import Choice, adaptive_choice, next_modes
from tare.analysis.choose.law import Array, Law, coordinates
from tare.analysis.choose.learning import FEWEST_MODES, MOST_FITTED, calibrate, lesson, predicted, teachers, thinned
from tare.analysis.choose.modes import Columns, ModeTable, Workload, grid, mode_of, unmeasured
from tare.analysis.choose.regression import Regression, energy_at, regress, universal_energy
from tare.analysis.choose.surface import FIGURES, LEVEL, WIDER
from tare.analysis.model import Estimate
from tare.base.errors import StudyError

METHODS = ("tare", "linear")
_Figure = TypeVar("_Figure")


@dataclass(frozen=True)
class Prediction:
    """One mode: its features, and an estimate of each figure in the units of the columns; time may be the only one."""

    mode: tuple[float, ...]
    figures: Mapping[str, Estimate]
    measured: Mapping[str, float] | None = None  # what it was, where the mode was held out


@dataclass(frozen=True)
class Answer:
    """What one method says of one workload."""

    group: str | None
    method: str
    measured: tuple[tuple[float, ...], ...]  # the modes that it rests on
    predictions: tuple[Prediction, ...]
    next: tuple[Choice, ...] = ()
    stages: Mapping[str, float] | None = None  # time of each stage at the highest clocks on the fewest cores
    taught_by: tuple[str, ...] = ()
    errors: Mapping[str, float] | None = None  # mean absolute error of the held-out modes, as a share
    regression: Regression | None = None
    expected: Mapping[str, float] | None = None  # the same of modes that were not measured, as it is expected to be


@dataclass(frozen=True)
class _Task:
    """A workload cut down to the modes that count as measured, and the modes to predict."""

    known: Workload
    whole: Workload
    wanted: Array
    held_out: Mapping[tuple[float, ...], Mapping[str, float]]  # what the modes to predict were, where it is known


class NothingToPredict(StudyError):
    """Every mode of the table is measured, and no other was asked for."""


def predict(
    table: ModeTable,
    methods: Sequence[str] = ("tare",),
    *,
    measured: int | None = None,
    at: Sequence[Mapping[str, float]] = (),
    count_next: int = 3,
) -> list[Answer]:
    """Answers for each workload and method. `measured`: pretend that only so many modes, chosen by us, are known."""
    law = table.law
    tasks = [_task(table, law, workload, measured, at) for workload in table.workloads]
    if not any(len(task.wanted) for task in tasks):
        raise NothingToPredict(
            f"{table.source}: every mode of it is measured, so there is none to predict. --measured 8 holds all but 8"
            " out and reports the error, --at 'FEATURE=VALUE,...' predicts another mode."
        )
    able = {"tare": lambda place: _by_law(table, law, tasks, place, count_next),
            "linear": lambda place: _by_linear(table, tasks, place)}  # fmt: skip
    return [able[method](place) for place in range(len(tasks)) if len(tasks[place].wanted) for method in methods]


def _task(
    table: ModeTable, law: Law, workload: Workload, measured: int | None, at: Sequence[Mapping[str, float]]
) -> _Task:
    known = workload
    if measured is not None:
        most = min(len(workload.modes) - 1, MOST_FITTED)
        if not 2 <= measured <= most:
            where = f"{table.source}, {workload.name}" if workload.name is not None else str(table.source)
            raise StudyError(
                f"{where}: --measured {measured} cannot be; {len(workload.modes)} modes were measured, so 2 to"
                f" {most} of them can be taken as known."
            )
        known = thinned(workload)
        known = known.take(sorted(adaptive_choice(law, known, measured)))
    asked = []
    for each in at:
        for resource in law.resources:
            if resource.role != "other" and each.get(resource.name, 1.0) <= 0:
                raise StudyError(f"--at: {resource.name} is a {resource.role} and must be more than zero.")
        asked.append(mode_of(each, table.columns.features))
    if asked:
        wanted = np.array(asked)
    elif measured is not None:
        wanted = unmeasured(known, workload.modes)
    else:
        wanted = workload.wanted if len(workload.wanted) else unmeasured(workload, grid(table))
    figures = _figures(table.columns, workload.time, workload.energy).T.tolist()
    held_out = {tuple(mode): _named(each) for mode, each in zip(workload.modes.tolist(), figures, strict=True)}
    return _Task(known, workload, wanted, held_out)


def _by_law(table: ModeTable, law: Law, tasks: Sequence[_Task], place: int, count_next: int) -> Answer:
    task = tasks[place]
    known = thinned(task.known)
    others = [each.known for each in tasks if each is not task and len(each.known.modes) >= FEWEST_MODES]
    taught = lesson(law, teachers(others, law)) if others else None
    at = (coordinates(law.resources, known.modes), known.logs)
    fitted, found = predicted(law, taught, at, coordinates(law.resources, task.wanted))
    seen = calibrate(law, teachers(others, law), len(known.modes)) if others else None
    wider = seen.wider if seen else WIDER
    unit = np.log(table.columns.factors)[:, None]
    figures = np.exp(np.stack([found.centre, *found.interval(wider)]) + unit)  # (3, figures, modes)
    method = "pipeline law, the prior set by other workloads" if taught else "pipeline law"
    estimates = [
        [Estimate(value, low, high, len(known.modes), method, LEVEL) for value, low, high in of_mode]
        for of_mode in figures.T.tolist()
    ]
    predictions = [_prediction(task, mode, each) for mode, each in zip(task.wanted, estimates, strict=True)]
    left = (unmeasured(task.known, modes) for modes in (task.whole.modes, task.wanted))
    candidates = np.unique(np.concatenate([*left]), axis=0)
    typical = np.einsum("s,sc->c", fitted.weights[0], fitted.constants[0])
    return Answer(
        task.whole.name,
        "tare+transfer" if taught else "tare",
        tuple(map(tuple, task.known.modes.tolist())),
        tuple(predictions),
        tuple(next_modes(fitted, candidates, count_next)) if count_next else (),
        {name: float(np.exp(typical[place])) for place, name in enumerate(("device", "launch", "loader"))},
        tuple(str(each.name) for each in others),
        _errors(predictions),
        expected=_named([float(each) for each in (seen.errors if seen else found.expected_error())]),
    )


def _by_linear(table: ModeTable, tasks: Sequence[_Task], place: int) -> Answer:
    task = tasks[place]
    regression = regress(task.known.modes, task.known.time)
    every = [each.known for each in tasks]
    universal = universal_energy(every, [np.arange(len(each.modes)) for each in every])
    time = regression.at(task.wanted)
    figures = _figures(table.columns, time, energy_at(universal, task.wanted, time))
    count = len(task.known.modes)
    predictions = [
        _prediction(task, mode, [Estimate(float(value), None, None, count, "linear") for value in of_mode])
        for mode, of_mode in zip(task.wanted, figures.T, strict=True)
    ]
    measured = tuple(map(tuple, task.known.modes.tolist()))
    return Answer(
        task.whole.name, "linear", measured, tuple(predictions), errors=_errors(predictions), regression=regression
    )


def _prediction(task: _Task, mode: Array, estimates: Sequence[Estimate]) -> Prediction:
    features = tuple(mode.tolist())
    return Prediction(features, _named(estimates), task.held_out.get(features))


def _figures(columns: Columns, time: Array, energy: Array | None) -> Array:
    """Time, power and energy (figures, modes) in the units of the columns; time alone where no energy was measured."""
    known = np.stack([time] if energy is None else [time, energy / time, energy])
    scaled: Array = known * columns.factors[:, None]
    return scaled


def _named(figures: Sequence[_Figure]) -> dict[str, _Figure]:
    return dict(zip(FIGURES, figures, strict=False))  # time is the first, and may be the only one


def _errors(predictions: Sequence[Prediction]) -> dict[str, float] | None:
    pairs = [(each.figures, each.measured) for each in predictions if each.measured is not None]
    if not pairs:
        return None
    names = pairs[0][0]
    return {name: float(np.mean([abs(found[name].value / was[name] - 1) for found, was in pairs])) for name in names}
