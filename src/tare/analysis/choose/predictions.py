"""The modes that were not measured, workload by workload: time, power and energy, and which modes to measure next."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from tare.analysis.choose.designs import Choice, adaptive_choice, next_modes
from tare.analysis.choose.law import Array, Law, coordinates
from tare.analysis.choose.learning import FEWEST_MODES, MOST_FITTED, calibrate, lesson, predicted, teachers, thinned
from tare.analysis.choose.modes import Columns, ModeTable, Workload, grid, mode_of, unmeasured
from tare.analysis.choose.regression import SOLVER, Regression, energy_at, regress, universal_energy
from tare.analysis.choose.surface import FIGURES, LEVEL, WIDER
from tare.analysis.model import Estimate
from tare.analysis.sections import Answer, Column, Note, Section, Shown, Table
from tare.base.errors import StudyError
from tare.base.text import count_text, safe_text

METHODS = ("tare", "linear")
_Figure = TypeVar("_Figure")


@dataclass(frozen=True)
class Prediction:
    """One mode: its features, and an estimate of each figure in the units of the columns; time may be the only one."""

    mode: tuple[float, ...]
    figures: Mapping[str, Estimate]
    measured: Mapping[str, float] | None = None  # what it was, where the mode was held out


@dataclass(frozen=True)
class Predictions:
    """What one method predicts of one workload."""

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

    def as_json(self, features: Sequence[str]) -> dict[str, Any]:
        """Modes by the names of their features."""

        def named(mode: Sequence[float]) -> dict[str, float]:
            return dict(zip(features, mode, strict=True))

        known = self.regression
        return {
            "group": self.group,
            "method": self.method,
            "measured": [named(mode) for mode in self.measured],
            "modes": [
                {"mode": named(each.mode), **{name: _ends(value) for name, value in each.figures.items()},
                 "measured": each.measured}
                for each in self.predictions
            ],
            "next": [{"mode": named(each.mode), "removes": each.removes} for each in self.next],
            "stages": self.stages,
            "taught_by": self.taught_by,
            "errors": self.errors,
            "expected_errors": self.expected,
            "rank": int(known.rank) if known else None,
            "unknowns": known.unknowns if known else None,
            "condition": float(known.condition) if known and math.isfinite(known.condition) else None,
        }  # fmt: skip


def _ends(estimate: Estimate) -> dict[str, float]:
    if estimate.low is None or estimate.high is None:
        return {"value": estimate.value}
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


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
) -> list[Predictions]:
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


def _by_law(table: ModeTable, law: Law, tasks: Sequence[_Task], place: int, count_next: int) -> Predictions:
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
    return Predictions(
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


def _by_linear(table: ModeTable, tasks: Sequence[_Task], place: int) -> Predictions:
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
    return Predictions(
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


MOST_ROWS = 60  # of one workload; JSON has all


def predictions_answer(modes: ModeTable, found: Sequence[Predictions]) -> Answer[Sequence[Predictions]]:
    """Each workload's predictions, and what to measure next."""
    sections = [
        Section(f"predictions-{place}", _title(each), partial(_table, modes, each))
        for place, each in enumerate(found, 1)
    ]
    notes = Section("predictions-notes", "", partial(Note, tuple((note,) for note in modes.notes)))
    return Answer((), found, (*sections, notes))


def _title(found: Predictions) -> str:
    who = f"{found.group}, " if found.group is not None else ""
    return f"{who}by {found.method} from {count_text(len(found.measured), 'measured mode')}"


def _table(modes: ModeTable, found: Predictions) -> Table:
    names = modes.columns.names
    interval = "" if found.method == "linear" else f"{LEVEL:.0%} interval".replace("%", " %")
    shown = found.predictions[:MOST_ROWS]
    rows: list[tuple[str | Shown, ...]] = []
    for each in shown:
        mode = [f"{value:g}" for value in each.mode]
        figures = [Shown(names[figure], estimate, ", ".join(mode)) for figure, estimate in each.figures.items()]
        rows.append((*mode, *figures))
    columns = [*map(Column, modes.columns.features), *(Column(safe_text(name), interval) for name in names.values())]
    left = len(found.predictions) - len(shown)
    more = [(f"{count_text(left, 'more mode')}: --json has them all.",)] if left else []
    return Table(tuple(columns), tuple(rows), (*more, *((line,) for line in _sentences(modes, found))))


def _sentences(modes: ModeTable, found: Predictions) -> Iterator[str]:
    if found.taught_by:
        yield f"Learnt from the modes of {', '.join(found.taught_by)} as well."
    if found.stages:
        stages = ", ".join(f"{name} {value:.3g}" for name, value in found.stages.items())
        yield f"Stages at the highest clocks on the fewest cores, in {modes.columns.time}: {stages}."
    if found.regression:
        known = found.regression
        yield f"Solved by {SOLVER}."
        yield regression_text(float(known.rank), known.unknowns, float(known.condition))
    if found.expected:
        how = "as the other workloads were off" if found.taught_by else "by the uncertainty of the model"
        yield f"Expected error of a prediction, on average ({how}): {shares_text(found.expected)}."
    if found.errors:
        yield f"These modes were measured too; off by, on average: {shares_text(found.errors)}."
    if found.next:
        yield "Measure next: " + "; ".join(
            ", ".join(f"{name} {value:g}" for name, value in zip(modes.columns.features, choice.mode, strict=True))
            + f" ({100 * choice.removes:.0f} % of the variance that is left)"
            for choice in found.next
        )


def shares_text(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {100 * value:.1f} %" for name, value in shares.items())


def regression_text(rank: float, unknowns: float, condition: float) -> str:
    undetermined = "So the modes do not determine it; of the many solutions it is the one of least norm."
    return f"Rank {rank:g} of {unknowns:g} unknowns, condition number {condition:.3g}." + (
        f" {undetermined}" if rank < unknowns else ""
    )
