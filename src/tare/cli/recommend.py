"""`tare recommend`: which configuration to use under a deadline, a power cap or an energy budget."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tare.cli.deciding import ENERGY, NAMES, POWER, TIME, say_left_out, say_mixed
from tare.cli.options import SHARE, STORE, json_option, need, print_json, say, width
from tare.errors import StudyError

if TYPE_CHECKING:
    from tare.analysis.recommend import Job, Limit


@click.command("recommend")
@click.argument("source", metavar="STORE|TABLE", type=STORE)
@click.option("--minimise", default="energy", show_default=True, help="time, energy, cost, latency_p99, or a column.")
@click.option("--deadline", type=TIME, help="The job must end within this, such as 2h.")
@click.option("--power-cap", type=POWER, help="Mean power must stay below this, such as 30W.")
@click.option("--energy-budget", type=ENERGY, help="The job must not take more than this, such as 50Wh.")
@click.option("--at-most", multiple=True, help="Any other limit, in its column's own unit: 'stall_ms=2'. Repeats.")
@click.option("--steps", type=click.FloatRange(min=0, min_open=True), help="The job has so many of the measured steps.")
@click.option("--epochs", type=click.FloatRange(min=0, min_open=True), help="The same, where a row is an epoch.")
@click.option(
    "--samples", type=click.FloatRange(min=0, min_open=True), help="The job sees so many; steps follow from batch."
)
@click.option("--price", help="Per hour: a number, or the column that has it. Makes a cost of a time.")
@click.option("--time", "time_column", help="The column with the time.  [default: by its name]")
@click.option("--energy", "energy_column", help="The column with the energy.  [default: by its name]")
@click.option("--power", "power_column", help="The column with the power.  [default: by its name, or energy / time]")
@click.option("--settings", type=NAMES, help="The columns that make a configuration.  [of a store: all that vary]")
@click.option("--group", help="A column, such as the model: a recommendation for each of its values.")
@click.option("--default", help="The configuration in use, as 'gpu_mhz=1980,cores=8'.")
@click.option(
    "--confidence", type=SHARE, default=0.95, show_default="95%", help="How surely each run keeps all limits."
)
@click.option("--spread", type=SHARE, help="How much trials differ, where the rows cannot tell (each measured once).")
@click.option("--measured-only", is_flag=True, help="Do not look at configurations that were not measured.")
@json_option
def command(
    source: Path,
    minimise: str,
    deadline: float | None,
    power_cap: float | None,
    energy_budget: float | None,
    at_most: tuple[str, ...],
    steps: float | None,
    epochs: float | None,
    samples: float | None,
    price: str | None,
    time_column: str | None,
    energy_column: str | None,
    power_column: str | None,
    settings: tuple[str, ...] | None,
    group: str | None,
    default: str | None,
    confidence: float,
    spread: float | None,
    measured_only: bool,
    as_json: bool,
) -> None:
    """Recommend a configuration: the best that surely keeps the limits, what it gains, and how sure that is.

    tare recommend modes.csv --settings gpu_mhz,cores --group model --deadline 30min --steps 50000 --minimise energy

    --json: {"recommendations": [{"group", "minimised", "limits", "confidence", "held_to", "configurations", "best":
    {"settings", "figures": {WORD: {"value", "low", "high", "n", "method"}}, "n", "chances", "keeps_all"} or null,
    "best_share", "predicted", "default", "gain", "nearest_miss", "next_trial": {"settings", "reason",
    "expected_gain"}, "practices": [{"statement", "estimate", "source", "trials"}], "notes"}]}; times are in
    seconds, energy in joules, power in watts; what is unknown is null.
    """
    from tare.analysis.configurations import assignments
    from tare.analysis.recommend import job_observations, predictions, recommend
    from tare.report.recommend import recommendations_text

    say_left_out(source)
    limits = _limits(deadline, power_cap, energy_budget, at_most)
    columns = {"time": time_column, "energy": energy_column, "power": power_column}
    job = _job(source, minimise, limits, columns, _times(source, steps, epochs, samples), samples, price)
    rows = job_observations(source, job, settings=settings, group=group)
    say_mixed(source, settings, group)
    offered, doubts = ([], ()) if measured_only else predictions(source, job, rows, group=group)
    for doubt in doubts:
        say(f"note: {doubt}")
    today = None if default is None else assignments(default)
    found = recommend(
        rows, job, default=today, confidence=confidence, stated_spread=spread, predicted=offered, source=source
    )
    if as_json:
        print_json({"recommendations": [each.as_json() for each in found]})
    else:
        click.echo(recommendations_text(found, width()))


def _times(source: Path, steps: float | None, epochs: float | None, samples: float | None) -> float | None:
    """How often the job repeats what a row measured; None where the samples say it, or nobody does."""
    from tare.records.unpacking import is_store

    given = [value for value in (steps, epochs, samples) if value is not None]
    need(len(given) <= 1, "--steps, --epochs and --samples say the same thing in three ways: give one.")
    need(epochs is None or not is_store(source), "A store's figures are of a step: give --steps or --samples.")
    return steps if steps is not None else epochs


def _limits(
    deadline: float | None, power_cap: float | None, energy_budget: float | None, at_most: tuple[str, ...]
) -> tuple[Limit, ...]:
    from tare.analysis.configurations import assignments
    from tare.analysis.recommend import Limit

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


def _job(
    source: Path,
    minimise: str,
    limits: tuple[Limit, ...],
    named: Mapping[str, str | None],
    times: float | None,
    samples: float | None,
    price: str | None,
) -> Job:
    """What is asked, with columns that have a word of their own called by it."""
    from tare.analysis.observations import columns_of
    from tare.analysis.recommend import Job
    from tare.analysis.recommend.job import word_for

    columns = {word: column for word, column in named.items() if column is not None}
    return Job(word_for(minimise, columns_of(source), columns), limits, times, samples, price, columns)
