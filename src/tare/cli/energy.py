"""`tare energy`: what the energy of a store's trials is made of."""

from __future__ import annotations

from pathlib import Path

import click

from tare.cli.options import STORE, json_option, print_json, say, width


@click.command("energy")
@click.argument("store", type=STORE)
@click.option("--by", help="The factor to compare by.  [default: the study's]")
@click.option("--against", help="The level to compare against.  [default: the study's]")
@json_option
def command(store: Path, by: str | None, against: str | None, as_json: bool) -> None:
    """Joules of each cell: what the idle device draws, what the work adds, and why one cell takes more than another.

    A difference is split into three parts that add up: it ran longer (at the idle power of what it is held against),
    idle power differs (over its own time), and more work (the rest). Idle power comes from `tare baseload`.

    --json: {"cells": [{"label", "n", "scope", "figures": {METRIC: {"value", "low", "high", "n", "method"}}, "trials",
    "shared_by", "doubts", "without"}], "differences": [{"level", "against", "unit", "theirs_j", "total", "longer",
    "idle", "work", "share", "trials"}], "idle": [{"label", "logging", "power_w", "scope", "values_w", "trials"}],
    "notes"}; joules, watts and shares; what is unknown is null.
    """
    from tare.analysis.energy.findings import energy_findings
    from tare.records.store import Store
    from tare.report.energy import energy_text

    with Store.open(store) as opened:
        for problem in opened.problems:
            say(f"note: {problem}")
        found = energy_findings(opened, by=by, against=against)
    if as_json:
        print_json(found.as_json())
    else:
        click.echo(energy_text(found, width()))
