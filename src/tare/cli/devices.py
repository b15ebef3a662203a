"""`tare devices`: what holds for devices, how they scatter, and which is unlike its twins."""

from __future__ import annotations

from pathlib import Path

import click

from tare.cli.options import SHARE, STORE, json_option, print_json, width


@click.command("devices")
@click.argument("stores", metavar="STORE...", nargs=-1, required=True, type=STORE)
@click.option("--metric", "metrics", multiple=True, help="A figure to tell of.  [default: the study's, power, energy]")
@click.option("--by", help="The factor whose effect is told.  [default: as in the study, or platform]")
@click.option("--against", help="The level to compare with.  [default: as in the study, or bare]")
@click.option("--margin", type=SHARE, help="What counts as equivalent.  [default: as in the study, or 5%]")
@json_option
def command(
    stores: tuple[Path, ...],
    metrics: tuple[str, ...],
    by: str | None,
    against: str | None,
    margin: float | None,
    as_json: bool,
) -> None:
    """Say what holds for devices in general, how they scatter, and which one is unlike its twins.

    A STORE is of a run with --fleet, or there is one for each device. Each device is one of the sample: trials of
    several are never pooled. Devices of one type are twins.

    --json: {"devices", "study", "types", "margin", "by", "quantities": [{"metric", "effects": [{"level", "against",
    "where", "devices": [{"device", "type", "effect"}], "populations": [{"of", "mean", "tau", "next_low",
    "next_high", "verdict"}]}], "spreads": [{"where", "trials", "components": [{"level", "deviation", "share"}]}],
    "standings": [{"device", "type", "trials", "deviation", "low", "high", "random_effect", "p", "unlike"}],
    "odd": [{"device", "what", "deviation", "p", "candidates", "sentence"}], "could_see", "notes"}], "notes"};
    estimates are {"value", "low", "high", "n", "method"}, in shares.
    """
    from tare.analysis.fleet import fleet_of_stores
    from tare.report.devices import fleet_text

    found = fleet_of_stores(stores, by=by, against=against, margin=margin, metrics=metrics)
    if as_json:
        print_json(found.as_json())
    else:
        click.echo(fleet_text(found, width()))
