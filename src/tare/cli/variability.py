"""`tare variability`: how much a figure varies across epochs, trials, days and devices."""

from __future__ import annotations

from pathlib import Path

import click

from tare.cli.deciding import NAMES, say_left_out
from tare.cli.options import SHARE, STORE, json_option, need, print_json, width


@click.command("variability")
@click.argument("source", metavar="STORE|TABLE", type=STORE)
@click.option("--value", help="The figure: a table's column, or a store's metric.  [of a store: step_s]")
@click.option("--epoch", help="Of a table: the column with the epoch's number. A trial's first epoch is kept apart.")
@click.option("--trial", help="Of a table: the column that tells trials apart.  [default: each row is one]")
@click.option("--device", help="Of a table: the column that tells devices apart.")
@click.option("--day", help="Of a table: the column that tells days apart.")
@click.option("--settings", type=NAMES, help="What makes a configuration: only its own values are compared.")
@click.option("--half-width", type=SHARE, default=0.02, show_default="2%", help="How narrow the mean should be known.")
@click.option("--keep-first", is_flag=True, help="Do not keep a trial's first epoch apart.")
@json_option
def command(
    source: Path,
    value: str | None,
    epoch: str | None,
    trial: str | None,
    device: str | None,
    day: str | None,
    settings: tuple[str, ...] | None,
    half_width: float,
    keep_first: bool,
    as_json: bool,
) -> None:
    """Say how much a figure varies, where that comes from, whether it drifts, and how many repeats are enough.

    tare variability runs.csv --value epoch_s --epoch epoch --trial run --device board

    --json: {"figure", "samples", "cells", "components": [{"level", "deviation": {"value", "low", "high", "n",
    "method"}, "share"}], "first_epoch", "drift_in_trial", "drift_in_study", "worst": [{"what", "where",
    "deviation"}], "target", "plans": [{"trials", "epochs", "half_width"}], "cheapest", "notes"}; shares.
    """
    from tare.analysis.variability import store_samples, table_samples, variability
    from tare.records.unpacking import is_store
    from tare.report.variability import variability_text

    if is_store(source):
        need(not (epoch or trial or device or day), "--epoch, --trial, --device and --day are for tables.")
        say_left_out(source)
        figure = value or "step_s"
        samples = store_samples(source, figure, settings)
    else:
        need(value is not None, f"{source}: --value COLUMN says which column holds the figure.")
        figure = value or ""
        samples = table_samples(
            source, figure, settings=settings or (), epoch=epoch, trial=trial, device=device, day=day
        )
    found = variability(samples, figure, target=half_width, keep_first=keep_first)
    if as_json:
        print_json(found.as_json())
    else:
        click.echo(variability_text(found, width()))
