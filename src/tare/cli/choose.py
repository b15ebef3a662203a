"""`tare choose`: which configuration to use: the front, predictions of others, and one recommendation."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tare.base.declare import Role
from tare.base.errors import StudyError, unknown_name
from tare.cli.scaffold import (
    ENERGY,
    NAMES,
    POWER,
    SHARE,
    TIME,
    Result,
    Verbs,
    columns_option,
    group_option,
    need,
    order_option,
    reads_source,
    say_notes,
    settings_option,
    width,
)

if TYPE_CHECKING:
    from tare.analysis.choose.jobs import Limit
    from tare.analysis.choose.modes import ModeTable

MOST_INDENTED = 5000  # modes; a longer list is not read by eye


@click.group("choose", cls=Verbs)
def command() -> None:
    """Choose a configuration: the time-energy front, predictions for unmeasured modes, one recommendation."""


@command.command("front")
@reads_source()
@click.option(
    "--minimise", type=NAMES, default=("time", "energy"), show_default="time,energy",
    help="Two figures or more, by column or by word (time, energy, power, cost, latency).",
)  # fmt: skip
@settings_option
@group_option
@order_option
@click.option(
    "--default", "defaults", multiple=True, help="A configuration in use, as 'gpu_mhz=1980,cores=8'. Repeatable."
)
def front(
    source: Path, minimise: tuple[str, ...], settings: tuple[str, ...] | None, group: str | None,
    order: str | None, defaults: tuple[str, ...],
) -> Result:  # fmt: skip
    """The Pareto front: configurations that no other beats in every figure, and how sure that is.

    A configuration's place is the median of its trials; trials are drawn again to see how often it is on the front.

    tare choose front modes.csv --minimise ms,joules --settings gpu_mhz,cores --group model

    --json: {"fronts": [{"group", "minimised", "configurations", "points": [{"settings", "figures":
    {COLUMN: {"value", "low", "high", "n", "method"}}, "n", "on_front", "front_share"}], "defaults": [{"point",
    "dominated_by", "loss", "dominated_share"}], "resamples", "notes"}]}; a share that is unknown is null.
    """
    from tare.analysis.choose.columns import mixed_notes, need_column, need_direction
    from tare.analysis.choose.configurations import assignments
    from tare.analysis.choose.front import front_of_singles, fronts_answer, pareto
    from tare.analysis.choose.standing import order_note
    from tare.analysis.observations import columns_of, observations, unit_in
    from tare.analysis.resources.energy import need_energy
    from tare.analysis.tables.table import numeric_columns
    from tare.analysis.work import need_like_work, per_sample_rows
    from tare.records.schema import is_store
    from tare.report.sections import answer_text

    numbers = numeric_columns(source)
    known = list(numbers or columns_of(source))
    if is_store(source):
        need_energy(minimise, known, source)
    figures = tuple(need_column(word, known, "--minimise", source).name for word in minimise)
    need_direction(figures, source)
    fronts = None
    if settings and not (group or order or defaults or is_store(source)):
        fronts = front_of_singles(source, settings, figures, numbers)
    if fronts is None:
        rows = observations(source, settings=settings, values=figures, group=group)
        say_notes(mixed_notes(source, settings, group))
        rows, figures, notes = per_sample_rows(rows, figures)
        say_notes([*notes, *need_like_work(rows, figures, source)])
        fronts = pareto(rows, figures, defaults=[assignments(each) for each in defaults], source=source)
        if doubt := order_note(source, rows, order):
            say_notes([doubt])
            fronts = [
                replace(each, defaults=tuple(today.without_sure_word() for today in each.defaults)) for each in fronts
            ]
    return Result(
        lambda: {"fronts": [each.as_json() for each in fronts]},
        lambda: answer_text(fronts_answer(fronts, unit_in(source)), width()),
    )


def _compared_elsewhere(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    need(
        value is None,
        "How far the methods are off, on random splits, is compared in a clone of the repository, by `python -m"
        " benchmarks.predictions SOURCE` with --features, --columns etc.; here --measured K reports tare's own error.",
    )


@command.command("predict")
@reads_source(doing=None)
@click.option("--features", type=NAMES, required=True, help="What makes a mode, such as gpu_mhz,cores.")
@columns_option(
    "time", "energy", "power",
    help_text="Which column has the time of a step or an epoch (required), its energy, its mean power; power also "
    "stands in for energy.  [default: energy by its usual name]",
)  # fmt: skip
@group_option
@click.option("--measured", type=click.IntRange(2), metavar="K", help="Take only K modes, chosen by us, as measured.")
@click.option("--method", type=click.Choice(["tare", "linear", "all"]), default="tare", show_default=True)
@click.option("--at", multiple=True, metavar="MODE", help="Predict this mode: 'gpu_mhz=900,cores=4'. Repeatable.")
@click.option("--next", "count_next", type=click.IntRange(0, 100), default=3, show_default=True,
              help="So many modes to measure next.")  # fmt: skip
@click.option("--overhead", "against", metavar="PLATFORM", help="Predict what other platforms cost over this one.")
@click.option("--evaluate", "--splits", "--seed", is_flag=False, flag_value="", hidden=True, is_eager=True,
              expose_value=False, callback=_compared_elsewhere)  # fmt: skip
def predict(
    source: Path,
    features: tuple[str, ...],
    columns: dict[str, str],
    group: str | None,
    measured: int | None,
    method: str,
    at: tuple[str, ...],
    count_next: int,
    against: str | None,
) -> Result:
    """Time, power and energy of modes that were not measured, from a few that were, with an interval each.

    Rows without time and energy are predicted; where there are none, every combination of the features' levels.
    Where no energy was measured, time alone is predicted, and a note says so.

    tare choose predict modes.csv --features gpu_mhz,cores --columns time=ms,energy=joules --group model --measured 8

    --overhead bare: what each other platform costs over bare metal by the features (such as cores), with the error of
    modes that were left out. --json: {"overheads": [{"job", "level", "against", "form", "coefficients", "modes",
    "predictions", "error", "held", "notes"}]}, overheads as shares.

    --json: {"predictions": [{"group", "method", "measured", "modes": [{"mode", "time", "power", "energy", "measured"}],
    "next": [{"mode", "removes"}], "expected_errors", ...}]}.
    Where no energy was measured, "power", "energy" and their errors are absent, and "notes" says so.
    """
    from tare.analysis.choose.modes import Columns, read_modes

    need("time" in columns, "--columns time=COLUMN names the time of a step or an epoch.")
    if against is not None:
        other = measured is not None or method != "tare" or len(columns) > 1
        need(
            not other, "--overhead takes --features, --columns time=..., --group and --at; it always reports its error."
        )
        return _overhead(source, features, columns["time"], against, group, [_mode(each, features) for each in at])
    table = read_modes(source, Columns(features, columns["time"], columns.get("energy"), columns.get("power"), group))
    return _predict(table, method, measured, [_mode(each, features) for each in at], count_next)


def _predict(
    table: ModeTable, method: str, measured: int | None, at: list[dict[str, float]], count_next: int
) -> Result:
    from tare.analysis.choose.predictions import METHODS, predict, predictions_answer
    from tare.analysis.choose.surface import LEVEL
    from tare.report.sections import answer_text

    methods = METHODS if method == "all" else (method,)
    answers = predict(table, methods, measured=measured, at=at, count_next=count_next)
    return Result(
        lambda: {"predictions": [each.as_json(table.columns.features) for each in answers], "level": LEVEL,
                 "units": table.columns.names, "notes": table.notes},
        lambda: answer_text(predictions_answer(table, answers), width()),
        compact=sum(len(answer.predictions) for answer in answers) > MOST_INDENTED,
    )  # fmt: skip


def _overhead(
    source: Path, features: tuple[str, ...], time: str, against: str, group: str | None, at: list[dict[str, float]]
) -> Result:
    from tare.analysis.choose.overhead import overheads, overheads_answer
    from tare.analysis.choose.surface import LEVEL
    from tare.report.sections import answer_text

    found = overheads(source, features, time, against, group=group, at=at)
    return Result(
        lambda: {"overheads": [{**asdict(each), "formula": each.formula} for each in found], "level": LEVEL},
        lambda: answer_text(overheads_answer(found), width()),
    )


def _mode(written: str, features: tuple[str, ...]) -> dict[str, float]:
    from tare.analysis.choose.configurations import assignments

    found: dict[str, float] = {}
    for name, value in assignments(written).items():
        if name not in features:
            raise StudyError(f"--at {written!r}: {unknown_name('feature', name, list(features))}")
        if isinstance(value, str) or not math.isfinite(value):
            raise StudyError(f"--at {written!r}: {value!r} is not a finite number.")
        found[name] = value
    return found


@command.command("recommend")
@reads_source()
@click.option(
    "--minimise",
    help="time, energy, cost, latency_p99, or a column.  [default: energy where it is measured, else time; of a "
    "language model those per token]",
)
@click.option("--deadline", type=TIME, help="The job must end within this, such as 2h.")
@click.option("--power-cap", type=POWER, help="Mean power must stay below this, such as 30W.")
@click.option("--energy-budget", type=ENERGY, help="The job must not take more than this, such as 50Wh.")
@click.option("--at-most", multiple=True, help="Any other limit, in its column's own unit: 'stall_ms=2'. Repeatable.")
@click.option("--steps", type=click.FloatRange(min=0, min_open=True), help="The job has so many of the measured steps.")
@click.option("--epochs", type=click.FloatRange(min=0, min_open=True), help="The same, where a row is an epoch.")
@click.option(
    "--samples", type=click.FloatRange(min=0, min_open=True), help="The job sees so many; steps follow from batch."
)
@click.option("--price", help="Per hour: a number, or the column that has it. Makes a cost of a time.")
@columns_option(
    "time", "energy", "power", help_text="Which column has which.  [default: by their names; power from energy / time]"
)
@settings_option
@group_option
@order_option
@click.option("--default", help="The configuration in use, as 'gpu_mhz=1980,cores=8'.")
@click.option(
    "--confidence", type=SHARE, default=0.95, show_default="95%", help="How surely each run keeps all limits."
)
@click.option("--spread", type=SHARE, help="How much trials differ, where the rows cannot tell (each measured once).")
@click.option("--measured-only", is_flag=True, help="Do not look at configurations that were not measured.")
def recommend(
    source: Path,
    minimise: str | None,
    deadline: float | None,
    power_cap: float | None,
    energy_budget: float | None,
    at_most: tuple[str, ...],
    steps: float | None,
    epochs: float | None,
    samples: float | None,
    price: str | None,
    columns: dict[str, str],
    settings: tuple[str, ...] | None,
    group: str | None,
    order: str | None,
    default: str | None,
    confidence: float,
    spread: float | None,
    measured_only: bool,
) -> Result:
    """Recommend a configuration: the best that surely keeps the limits, what it gains, and how sure that is.

    tare choose recommend modes.csv --settings gpu_mhz,cores --group model --deadline 30min --steps 50000

    --json: {"recommendations": [{"group", "minimised", "limits", "confidence", "held_to", "configurations", "best":
    {"settings", "figures": {WORD: {"value", "low", "high", "n", "method"}}, "n", "chances", "keeps_all"} or null,
    "best_share", "predicted", "default", "gain", "nearest_miss", "next_trial": {"settings", "reason",
    "expected_gain"}, "practices": [{"statement", "estimate", "source", "trials"}], "notes", "conditions":
    what is no choice, such as model and rate}]}; times are in seconds, energy in joules, power in watts; what is
    unknown is null.
    """
    from tare.analysis.choose.columns import column_for, mixed_notes, need_less_is_better
    from tare.analysis.choose.configurations import assignments
    from tare.analysis.choose.jobs import Job, job_observations, word_for
    from tare.analysis.choose.offers import predictions
    from tare.analysis.choose.recommend import recommend as recommendations
    from tare.analysis.choose.recommend import recommendations_answer
    from tare.analysis.choose.standing import order_note
    from tare.analysis.observations import columns_of
    from tare.analysis.resources.energy import need_energy
    from tare.analysis.work import need_like_work
    from tare.records.schema import is_store
    from tare.report.sections import answer_text

    limits = _limits(deadline, power_cap, energy_budget, at_most)
    known = columns_of(source)
    of_job = any(each is not None for each in (steps, epochs, samples)) or any(
        limit.figure in ("time", "energy") for limit in limits
    )
    if not of_job and not columns:
        # Of a language model its figures of a token, which batches of any size have alike.
        tokens = {"time": Role.TOKEN_TIME.metric, "energy": Role.ENERGY_TOKEN.metric}
        columns = {word: column for word, column in tokens.items() if column in known}
        if columns:
            say_notes([f"{' and '.join(columns)}: per token."])
    asked = minimise or (
        "energy" if any(columns.get(word) or column_for(word, known) for word in ("energy", "power")) else "time"
    )
    if is_store(source):
        need_energy([asked, *(limit.figure for limit in limits)], [*known, *columns], source)
    need_less_is_better(asked, source)
    times = _times(source, steps, epochs, samples)
    job = Job(word_for(asked, known, columns), limits, times, samples, price, columns)
    rows = job_observations(source, job, settings=settings, group=group)
    say_notes(mixed_notes(source, settings, group))
    # The columns behind what is minimised and limited; with --epochs they are of an epoch, by the user's word.
    words = ["time" if word == "cost" else word for word in (job.minimise, *(limit.figure for limit in limits))]
    behind = [job.column_for(word, known) for word in words if word != "power"]
    figures = [] if epochs is not None else [column.name for column in behind if column is not None]
    say_notes(need_like_work(rows, list(dict.fromkeys(figures)), source, per_job=samples is not None))
    offered, doubts = ([], ()) if measured_only else predictions(source, job, rows, group=group)
    say_notes(doubts)
    today = None if default is None else assignments(default)
    found = recommendations(
        rows, job, default=today, confidence=confidence, stated_spread=spread, predicted=offered, source=source
    )
    if doubt := order_note(source, rows, order):
        say_notes([doubt])
        found = [replace(each, verdict=each.verdict and "cannot_tell", practices=()) for each in found]
    return Result(
        lambda: {"recommendations": [each.as_json() for each in found]},
        lambda: answer_text(recommendations_answer(found), width()),
    )


def _times(source: Path, steps: float | None, epochs: float | None, samples: float | None) -> float | None:
    """How often the job repeats what a row measured; None where the samples say it, or nobody does."""
    from tare.records.schema import is_store

    given = [value for value in (steps, epochs, samples) if value is not None]
    need(len(given) <= 1, "--steps, --epochs and --samples say the same thing in three ways: give one.")
    need(epochs is None or not is_store(source), "A store's figures are of a step: give --steps or --samples.")
    return steps if steps is not None else epochs


def _limits(
    deadline: float | None, power_cap: float | None, energy_budget: float | None, at_most: tuple[str, ...]
) -> tuple[Limit, ...]:
    from tare.analysis.choose.configurations import assignments
    from tare.analysis.choose.jobs import Limit

    given = (
        ("deadline", "time", deadline),
        ("power cap", "power", power_cap),
        ("energy budget", "energy", energy_budget),
    )
    limits = [Limit(name, figure, value) for name, figure, value in given if value is not None]
    for written in at_most:
        for column, value in assignments(written).items():
            if not isinstance(value, float) or value <= 0:
                raise StudyError(f"--at-most {written}: the limit must be a number above zero.")
            limits.append(Limit(f"{column} at most", column, value))
    return tuple(limits)
