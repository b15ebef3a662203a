"""How far off `tare choose predict` and other methods are, on the same random splits into measured and held-out modes.

    python -m benchmarks.predictions SOURCE --features gpu_mhz,cores --columns time=ms,energy=joules --group model

SOURCE is a store or a table, as for `tare choose predict`. `tare` sees the measured modes of the workload itself,
`tare+transfer` also all modes of the others; `linear` is the paper's method (S3 5.7); `linear-own` has a regression of
the energy for each workload.

--json: {"results": [{"group", "k", "method", "splits", "time_mape", "power_mape", "energy_mape", "held": {"time",
...}}], "designs": [...]}, shares, medians over the splits; "held" is the share inside the 90 % intervals. Where no
energy was measured, "power_mape" and "energy_mape" are absent.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import click
import numpy as np

from tare.analysis.choose.designs import adaptive_choice
from tare.analysis.choose.fit import fit
from tare.analysis.choose.law import Array, Law, Rows, coordinates
from tare.analysis.choose.learning import MOST_FITTED, Lesson, calibrate, lesson, predicted, teachers
from tare.analysis.choose.modes import Columns, ModeTable, Workload, read_modes
from tare.analysis.choose.predictions import regression_text, shares_text
from tare.analysis.choose.regression import (
    PAPER_MODES,
    SOLVER,
    Regression,
    energy_at,
    papers_choice,
    regress,
    universal_energy,
)
from tare.analysis.choose.surface import FIGURES, LEVEL, WIDER, centre, with_energy
from tare.base.columns import wrap
from tare.base.errors import StudyError, TareError
from tare.base.text import safe_text
from tare.cli.scaffold import NAMES, columns_option, width
from tare.records.model import grouped
from tare.report.columns import sentences, table

COUNTS = (4, 6, 8, 12)  # measured modes
SPLITS = 50
INTERVAL_SPLITS = 8  # of them the intervals are tried on
MOST_HELD_OUT = 400  # modes of a split that are predicted: more would not make a median surer


@dataclass(frozen=True)
class Outcome:
    """One workload, one method: the median over splits of the mean absolute error, as a share of what was measured."""

    group: str | None
    k: int
    method: str
    design: str  # how the measured modes were chosen: random, ours, paper
    splits: int
    time_mape: float
    power_mape: float | None = None  # None where no energy was measured
    energy_mape: float | None = None
    held: Mapping[str, float] | None = None  # of each figure, the share of held-out modes inside their intervals
    rank: float | None = None  # of a regression for time: medians over the splits
    unknowns: int | None = None
    condition: float | None = None


@dataclass(frozen=True)
class Answer:
    """Time and, if known, energy (splits, held-out) by a method; for a regression also how it was determined."""

    time: Array
    energy: Array | None
    regression: Regression | None = None
    held: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Bench:
    """All workloads, and which of the modes of each are measured in each split."""

    workloads: tuple[Workload, ...]
    law: Law
    chosen: tuple[Rows, ...]  # of each workload (splits, k)
    lessons: Mapping[str | None, Lesson] = field(default_factory=dict)  # of each workload, by name, what others taught

    @cached_property
    def universal(self) -> Regression | None:
        """The paper's energy model of each split."""
        return universal_energy(self.workloads, self.chosen)


Method = Callable[[Bench, int, Rows], Answer]


def evaluate(
    table: ModeTable,
    methods: Sequence[str],
    counts: Sequence[int] = COUNTS,
    splits: int = SPLITS,
    seed: int = 0,
    step: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Every workload, count and method on random splits; `step` is called after each of them."""
    law = table.law
    lessons = {}
    for each in table.workloads if "tare+transfer" in methods else ():
        if others := teachers([other for other in table.workloads if other is not each], law):
            lessons[each.name] = lesson(law, others)
    outcomes = []
    for k in counts:
        able = tuple(each for each in table.workloads if len(each.modes) > k)
        drawn = tuple(_draw(len(each.modes), k, splits, seed) for each in able)
        bench = Bench(able, law, tuple(chosen for chosen, _ in drawn), lessons)
        for place, (_, held) in enumerate(drawn):
            for method in methods:
                if method != "tare+transfer" or able[place].name in lessons:
                    outcomes.append(_outcome(bench, place, held, method, "random"))
                step()
    return outcomes


def evaluate_designs(
    table: ModeTable, counts: Sequence[int], seed: int = 0, step: Callable[[], None] = lambda: None
) -> list[Outcome]:
    """Our choice of modes, and the paper's where its search can be made: all workloads measured in the same modes."""
    law = table.law
    outcomes = []
    for workload in table.workloads:
        able = [k for k in counts if k < len(workload.modes)]
        order = adaptive_choice(law, workload, max(able, default=0)) if len(workload.modes) <= MOST_FITTED else []
        for k in able if order else ():
            rows = np.array(order[:k])
            held = np.setdiff1d(np.arange(len(workload.modes)), rows)[None]
            outcomes.append(_outcome(Bench((workload,), law, (rows[None],)), 0, held, "tare", "ours"))
        step()
    return outcomes + _papers(table, law, seed)


def methods_of(table: ModeTable) -> list[str]:
    """All methods; without energy `linear-own` would be `linear` once more."""
    return [name for name in METHODS if table.columns.powered or name != "linear-own"]


def count_steps(table: ModeTable, methods: Sequence[str], counts: Sequence[int]) -> int:
    """How often `step` is called in all."""
    return len(table.workloads) + sum(len(each.modes) > k for each in table.workloads for k in counts) * len(methods)


def possible_counts(table: ModeTable, counts: Sequence[int]) -> list[int]:
    """The counts that leave something to predict in one workload or more."""
    most = max(len(each.modes) for each in table.workloads)
    possible = sorted({k for k in counts if k < most})
    if not possible:
        raise StudyError(
            f"{table.source}: {most} modes are measured at most; an evaluation with {min(counts)} of them measured and"
            " some held out needs more."
        )
    return possible


def _papers(table: ModeTable, law: Law, seed: int) -> list[Outcome]:
    first = table.workloads[0].modes
    same = all(each.modes.shape == first.shape and np.array_equal(each.modes, first) for each in table.workloads)
    if not same or len(table.workloads) < 2 or not PAPER_MODES < len(first) <= MOST_FITTED:
        return []
    chosen = papers_choice(first, [each.time for each in table.workloads], seed)
    found = []
    for place, rows in enumerate(chosen):
        bench = Bench(table.workloads, law, tuple(rows[None] for _ in table.workloads))
        held = np.setdiff1d(np.arange(len(first)), rows)[None]
        found += [_outcome(bench, place, held, method, "paper") for method in ("tare", "linear")]
    return found


def _outcome(bench: Bench, place: int, held: Rows, method: str, design: str) -> Outcome:
    answer = METHODS[method](bench, place, held)
    workload, chosen = bench.workloads[place], bench.chosen[place]
    regression = answer.regression
    return Outcome(
        workload.name,
        chosen.shape[1],
        method,
        design,
        len(chosen),
        **_errors(answer, workload, held),
        held=answer.held,
        rank=float(np.median(regression.rank)) if regression else None,
        unknowns=regression.unknowns if regression else None,
        condition=float(np.median(regression.condition)) if regression else None,
    )


def _errors(answer: Answer, workload: Workload, held: Rows) -> dict[str, float]:
    """Of each figure that was measured, as an outcome has them."""
    time = workload.time[held]
    found = {"time_mape": _median_error(answer.time, time)}
    if workload.energy is None or answer.energy is None:
        return found
    energy = workload.energy[held]
    power_mape = _median_error(answer.energy / answer.time, energy / time)
    return {**found, "power_mape": power_mape, "energy_mape": _median_error(answer.energy, energy)}


def _median_error(predicted: Array, measured: Array) -> float:
    return float(np.median(np.mean(np.abs(predicted / measured - 1), axis=1)))


def _draw(modes: int, k: int, splits: int, seed: int) -> tuple[Rows, Rows]:
    """Measured (splits, k) and held-out rows; workloads with as many modes have the same splits."""
    rng = np.random.default_rng([seed, modes, k])
    orders = np.stack([rng.permutation(modes) for _ in range(splits)])
    return orders[:, :k], orders[:, k : k + MOST_HELD_OUT]


def _by_law(bench: Bench, place: int, held: Rows, *, transfer: bool = False) -> Answer:
    """The law on the workload's own measured modes, or also taught by the others with all of theirs (`transfer`)."""
    workload, chosen = bench.workloads[place], bench.chosen[place]
    taught = bench.lessons[workload.name] if transfer else None
    law = taught.law if taught else bench.law
    modes = coordinates(law.resources, workload.modes)
    off = taught.departure(modes) if taught else np.zeros((1, len(modes)))
    left = workload.logs - off[: len(workload.logs)]
    fitted = fit(law, modes[chosen], np.moveaxis(left[:, chosen], 1, 0))
    time, *others = np.exp(np.moveaxis(centre(fitted, modes[held]), 1, 0) + off[:, held])
    return Answer(time, others[-1] if others else None, held=_held(bench, place, held, taught))


def _held(bench: Bench, place: int, held: Rows, taught: Lesson | None) -> dict[str, float]:
    """How much of what was held out lies in its interval, on the first splits: each takes as long as a prediction."""
    law, workload, chosen = bench.law, bench.workloads[place], bench.chosen[place]
    modes, logs = coordinates(law.resources, workload.modes), workload.logs
    others = teachers([each for each in bench.workloads if each is not workload], law) if taught else []
    wider = calibrate(law, others, chosen.shape[1]).wider if others else WIDER
    inside = []
    for rows, there in zip(chosen[:INTERVAL_SPLITS], held, strict=False):
        _, found = predicted(law, taught, (modes[rows], logs[:, rows]), modes[there])
        inside.append((np.abs(with_energy(logs[:, there]) - found.centre) <= found.reach(wider)).mean(axis=1))
    return dict(zip(FIGURES, np.mean(inside, axis=0).tolist(), strict=False))


def _by_linear(bench: Bench, place: int, held: Rows, *, own: bool = False) -> Answer:
    """The paper's regressions; `own`: the energy of each workload has one of its own."""
    workload, chosen = bench.workloads[place], bench.chosen[place]
    there = workload.modes[held]
    regression = regress(workload.modes[chosen], workload.time[chosen])
    time = regression.at(there)
    if not own:
        return Answer(time, energy_at(bench.universal, there, time), regression)
    energy = None if workload.energy is None else regress(workload.modes[chosen], workload.energy[chosen]).at(there)
    return Answer(time, energy, regression)


METHODS: Mapping[str, Method] = {
    "tare": _by_law,
    "linear": _by_linear,
    "linear-own": partial(_by_linear, own=True),
    "tare+transfer": partial(_by_law, transfer=True),
}


def outcomes_text(modes: ModeTable, outcomes: Sequence[Outcome], designs: Sequence[Outcome], width: int = 80) -> str:
    """The error of each method in per cent, and how much the choice of modes matters."""
    splits = max(outcome.splits for outcome in outcomes)
    head = f"Mean absolute error of the modes that were held out, in %: medians over {splits} random splits."
    figures = tuple(modes.columns.names)
    rows = [_outcome_row(outcome) for outcome in outcomes]
    lines = [*wrap(head, width), "", table(rows, ("workload", "k", "method", *figures), width)]
    lines += _regression_lines(outcomes, width)
    lines += _interval_lines(outcomes, width)
    if designs:
        lines += ["", *wrap("The same with modes chosen on purpose instead of at random:", width), ""]
        chosen = [[*_outcome_row(outcome)[:3], outcome.design, *_outcome_row(outcome)[3:]] for outcome in designs]
        lines.append(table(chosen, ("workload", "k", "method", "choice", *figures), width))
    return "\n".join([*lines, *sentences((f"note: {note}" for note in modes.notes), width)])


def _interval_lines(outcomes: Sequence[Outcome], width: int) -> list[str]:
    """For each method and count, how much of what was held out lay in its interval."""
    found = grouped([each for each in outcomes if each.held is not None], lambda each: (each.method, each.k))
    lines = [f"Held-out modes inside their {100 * LEVEL:.0f} % intervals (mean over the workloads):"] if found else []
    for (method, k), group in found.items():
        names = group[0].held or {}
        shares = {name: fmean((each.held or {})[name] for each in group) for name in names}
        lines.append(f"{method}, k = {k}: {shares_text(shares)}.")
    return ["", *sentences(lines, width)] if lines else []


def _outcome_row(outcome: Outcome) -> list[str]:
    errors = [each for each in (outcome.time_mape, outcome.power_mape, outcome.energy_mape) if each is not None]
    name = safe_text(outcome.group) if outcome.group is not None else "all"
    return [name, str(outcome.k), outcome.method, *(f"{100 * error:.1f}" for error in errors)]


def _regression_lines(outcomes: Sequence[Outcome], width: int) -> list[str]:
    by_count = {outcome.k: outcome for outcome in outcomes if outcome.method == "linear"}
    told = [
        f"k = {k}: {regression_text(outcome.rank, outcome.unknowns, outcome.condition)}"
        for k, outcome in by_count.items()
    ]
    lines = [f"linear: {SOLVER}.", *told] if told else []
    return ["", *sentences(lines, width)] if lines else []


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--features", type=NAMES, required=True, help="What makes a mode, such as gpu_mhz,cores.")
@columns_option("time", "energy", "power", help_text="Which column has the time (required), the energy, the power.")
@click.option("--group", metavar="COLUMN", help="The column that tells the workloads apart.")
@click.option("--measured", type=click.IntRange(2), metavar="K", help="Besides 4, 6, 8 and 12 so many measured modes.")
@click.option("--splits", type=click.IntRange(1, 10_000), default=SPLITS, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the random splits.")
@click.option("--method", type=click.Choice(["all", *METHODS]), default="all", show_default=True)
@click.option("--json", "as_json", is_flag=True)
def command(
    source: Path,
    features: tuple[str, ...],
    columns: dict[str, str],
    group: str | None,
    measured: int | None,
    splits: int,
    seed: int,
    method: str,
    as_json: bool,
) -> None:
    """How far off each method is, in per cent of what was measured."""
    if "time" not in columns:
        raise StudyError("--columns time=COLUMN names the time of a step or an epoch.")
    modes = read_modes(source, Columns(features, columns["time"], columns.get("energy"), columns.get("power"), group))
    asked = [] if measured is None else possible_counts(modes, [measured])  # asked for by name, so refused by name
    counts = possible_counts(modes, [*COUNTS, *asked])
    methods = methods_of(modes) if method == "all" else [method]
    total = count_steps(modes, methods, counts)
    with click.progressbar(length=total, label="evaluating", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        outcomes = evaluate(modes, methods, counts, splits, seed, lambda: bar.update(1))
        designs = evaluate_designs(modes, counts, seed, lambda: bar.update(1)) if method != "linear" else []
    if as_json:
        found = {
            "results": [_outcome_json(each) for each in outcomes],
            "designs": [_outcome_json(each) for each in designs], "units": modes.columns.names,
            "features": modes.columns.features, "seed": seed, "solver": SOLVER, "notes": modes.notes,
        }  # fmt: skip
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo(outcomes_text(modes, outcomes, designs, width()))


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    known = outcome.condition is not None and math.isfinite(outcome.condition)
    found = {**asdict(outcome), "condition": outcome.condition if known else None}
    return {name: value for name, value in found.items() if name == "group" or value is not None}


if __name__ == "__main__":
    try:
        command()
    except TareError as error:
        sys.exit(f"{error}")
