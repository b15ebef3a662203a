"""`tare predict`: time, power and energy of modes that were not measured; time alone where there is no energy."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.cli.deciding import NAMES, say_left_out
from tare.cli.options import STORE, json_option, need, print_json, width
from tare.errors import StudyError

if TYPE_CHECKING:
    from tare.analysis.model import Estimate
    from tare.analysis.predict.evaluate import Outcome
    from tare.analysis.predict.modes import Columns, ModeTable
    from tare.analysis.predict.predictions import Answer

MOST_INDENTED = 5000  # modes


@click.command("predict")
@click.argument("source", metavar="STORE|TABLE", type=STORE)
@click.option("--features", type=NAMES, required=True, help="What makes a mode, such as gpu_mhz,cores.")
@click.option("--time", "time", required=True, metavar="COLUMN", help="The time of a step or an epoch.")
@click.option("--energy", metavar="COLUMN",
              help="The energy of the same step or epoch.  [default: by its usual name, if any]")  # fmt: skip
@click.option("--power", metavar="COLUMN", help="Its mean power; stands in for --energy, or names the unit.")
@click.option("--group", metavar="COLUMN", help="A column, such as the model: each of its values by itself.")
@click.option("--measured", type=click.IntRange(2), metavar="K", help="Take only K modes, chosen by us, as measured.")
@click.option("--evaluate", is_flag=True, help="Random splits: how far is each method off, for k = 4, 6, 8, 12?")
@click.option("--splits", type=click.IntRange(1, 10_000), help="Random splits of an evaluation.  [default: 50]")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the random splits.")
@click.option(
    "--method", type=click.Choice(["tare", "linear", "all"]), help="[default: tare; with --evaluate all]"
)  # fmt: skip
@click.option("--at", multiple=True, metavar="MODE", help="Predict this mode: 'gpu_mhz=900,cores=4'. Repeats.")
@click.option("--next", "count_next", type=click.IntRange(0, 100), default=3, show_default=True,
              help="So many modes to measure next.")  # fmt: skip
@json_option
def command(
    source: Path,
    features: tuple[str, ...],
    time: str,
    energy: str | None,
    power: str | None,
    group: str | None,
    measured: int | None,
    evaluate: bool,
    splits: int | None,
    seed: int,
    method: str | None,
    at: tuple[str, ...],
    count_next: int,
    as_json: bool,
) -> None:
    """Time, power and energy of modes that were not measured, from a few that were, with an interval each.

    Rows without time and energy are predicted; where there are none, every combination of the features' levels.
    Where no energy was measured, time alone is predicted, and a note says so.

    tare predict modes.csv --features gpu_mhz,cores --time ms --energy joules --group model --measured 8

    --json: {"predictions": [{"group", "method", "measured", "modes": [{"mode", "time", "power", "energy", "measured"}],
    "next": [{"mode", "removes"}], ...}]}; with --evaluate {"results": [{"group", "k", "method", "splits", "time_mape",
    "power_mape", "energy_mape"}], "designs": [...]}, shares, medians over the splits.
    Where no energy was measured, "power", "energy" and their errors are absent, and "notes" says so.
    """
    from tare.analysis.predict.modes import Columns, read_modes

    need(not (evaluate and at), "--at asks for a mode and --evaluate holds measured modes out; give one of them.")
    need(evaluate or splits is None, "--splits is of an evaluation; add --evaluate.")
    say_left_out(source)
    table = read_modes(source, Columns(features, time, energy, power, group))
    if evaluate:
        _evaluate(table, method or "all", measured, splits, seed, as_json)
    else:
        _predict(table, method or "tare", measured, [_mode(each, features) for each in at], count_next, as_json)


def _predict(
    table: ModeTable, method: str, measured: int | None, at: list[dict[str, float]], count_next: int, as_json: bool
) -> None:
    from tare.analysis.predict.predictions import METHODS, predict
    from tare.analysis.predict.surface import LEVEL
    from tare.report.predictions import answers_text

    methods = METHODS if method == "all" else (method,)
    answers = predict(table, methods, measured=measured, at=at, count_next=count_next)
    if as_json:
        shown = [_answer_json(table.columns, answer) for answer in answers]
        _print_modes({"predictions": shown, "level": LEVEL, "units": table.columns.names, "notes": table.notes})
    else:
        click.echo(answers_text(table, answers, width()))


def _evaluate(
    table: ModeTable, method: str, measured: int | None, splits: int | None, seed: int, as_json: bool
) -> None:
    from tare.analysis.predict import evaluate as bench
    from tare.analysis.predict.linear import SOLVER
    from tare.report.predictions import outcomes_text

    if measured is not None:
        bench.possible_counts(table, [measured])  # asked for by name, so refused by name
    counts = bench.possible_counts(table, [*bench.COUNTS, *([measured] if measured is not None else [])])
    methods = bench.methods_of(table) if method == "all" else [method]
    total = bench.count_steps(table, methods, counts)
    with click.progressbar(length=total, label="evaluating", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        outcomes = bench.evaluate(table, methods, counts, splits or bench.SPLITS, seed, lambda: bar.update(1))
        designs = bench.evaluate_designs(table, counts, seed, lambda: bar.update(1)) if method != "linear" else []
    if not as_json:
        click.echo(outcomes_text(table, outcomes, designs, width()))
        return
    results = [_outcome_json(each) for each in outcomes]
    print_json(
        {"results": results, "designs": [_outcome_json(each) for each in designs], "units": table.columns.names,
         "features": table.columns.features, "seed": seed, "solver": SOLVER, "notes": table.notes}
    )  # fmt: skip


def _mode(written: str, features: tuple[str, ...]) -> dict[str, float]:
    from tare.analysis.compare import unknown_name
    from tare.analysis.configurations import assignments

    found: dict[str, float] = {}
    for name, value in assignments(written).items():
        if name not in features:
            raise StudyError(f"--at {written!r}: {unknown_name('feature', name, list(features))}")
        if isinstance(value, str) or not math.isfinite(value):
            raise StudyError(f"--at {written!r}: {value!r} is not a finite number.")
        found[name] = value
    return found


def _answer_json(columns: Columns, answer: Answer) -> dict[str, Any]:
    def named(mode: tuple[float, ...]) -> dict[str, float]:
        return dict(zip(columns.features, mode, strict=True))

    regression = answer.regression
    return {
        "group": answer.group,
        "method": answer.method,
        "measured": [named(mode) for mode in answer.measured],
        "modes": [
            {"mode": named(each.mode), **{name: _ends(value) for name, value in each.figures.items()},
             "measured": each.measured}
            for each in answer.predictions
        ],
        "next": [{"mode": named(each.mode), "removes": each.removes} for each in answer.next],
        "stages": answer.stages,
        "taught_by": answer.taught_by,
        "errors": answer.errors,
        "rank": int(regression.rank) if regression else None,
        "unknowns": regression.unknowns if regression else None,
        "condition": _finite(float(regression.condition)) if regression else None,
    }  # fmt: skip


def _ends(estimate: Estimate) -> dict[str, float]:
    if estimate.low is None or estimate.high is None:
        return {"value": estimate.value}
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def _print_modes(data: dict[str, Any]) -> None:
    """As `print_json`, but a list that nobody reads by eye has no indent: that is five times quicker."""
    if sum(len(each["modes"]) for each in data["predictions"]) <= MOST_INDENTED:
        print_json(data)
    else:
        click.echo(json.dumps(data, allow_nan=False, ensure_ascii=False))


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    found = {**asdict(outcome), "condition": _finite(outcome.condition)}
    return {name: value for name, value in found.items() if name == "group" or value is not None}


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
