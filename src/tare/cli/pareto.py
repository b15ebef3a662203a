"""`tare pareto`: the front of configurations that are worth choosing from."""

from __future__ import annotations

from pathlib import Path

import click

from tare.cli.deciding import NAMES, say_left_out, say_mixed
from tare.cli.options import STORE, json_option, print_json, width


@click.command("pareto")
@click.argument("source", metavar="STORE|TABLE", type=STORE)
@click.option(
    "--minimise", type=NAMES, default=("time", "energy"), show_default="time,energy",
    help="Two figures or more, by column or by word (time, energy, power, cost, latency); less is better.",
)  # fmt: skip
@click.option("--settings", type=NAMES, help="The columns that make a configuration.  [of a store: all that vary]")
@click.option("--group", help="A column, such as the model: a front for each of its values.")
@click.option(
    "--default", "defaults", multiple=True, help="A configuration in use, as 'gpu_mhz=1980,cores=8'. Repeats."
)
@json_option
def command(
    source: Path,
    minimise: tuple[str, ...],
    settings: tuple[str, ...] | None,
    group: str | None,
    defaults: tuple[str, ...],
    as_json: bool,
) -> None:
    """The Pareto front: configurations that no other beats in every figure, and how sure that is.

    A configuration's place is the median of its trials; trials are drawn again to see how often it is on the front.

    tare pareto modes.csv --minimise ms,joules --settings gpu_mhz,cores --group model

    --json: {"fronts": [{"group", "minimised", "configurations", "points": [{"settings", "figures":
    {COLUMN: {"value", "low", "high", "n", "method"}}, "n", "on_front", "front_share"}], "defaults": [{"point",
    "dominated_by", "loss", "dominated_share"}], "resamples", "notes"}]}; a share that is unknown is null.
    """
    from tare.analysis.configurations import assignments
    from tare.analysis.observations import columns_of, observations
    from tare.analysis.pareto import pareto
    from tare.analysis.quantities import need_column
    from tare.report.pareto import fronts_text

    say_left_out(source)
    known = columns_of(source)
    figures = tuple(need_column(word, known, "--minimise", source).name for word in minimise)
    rows = observations(source, settings=settings, values=figures, group=group)
    say_mixed(source, settings, group)
    fronts = pareto(rows, figures, defaults=[assignments(each) for each in defaults], source=source)
    if as_json:
        print_json({"fronts": [front.as_json() for front in fronts]})
    else:
        click.echo(fronts_text(fronts, width()))
