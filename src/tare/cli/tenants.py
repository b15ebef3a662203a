"""`tare tenants`: what sharing the device cost each tenant."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tare.cli.options import SHARE, STORE, json_option, print_json, say, width


@click.command("tenants")
@click.argument("store", type=STORE)
@click.option("--margin", type=SHARE, default="5%", show_default=True, help="What counts as equivalent.")
@json_option
def command(store: Path, margin: float, as_json: bool) -> None:
    """Say how much each tenant was slowed down by the others, and how fairly the device was shared.

    The store is of a study with `tenants: [1, 4]` or `tenants: [1, {beside: {torch_infer: {}}}]`.
    """
    from tare.analysis.tenants import sharing
    from tare.records.store import Store
    from tare.report.tenants import sharing_text

    with Store.open(store) as opened:
        for problem in opened.problems:
            say(f"note: {problem}")
        found = sharing(opened.records(), margin=margin)
    if as_json:
        print_json({"tenants": [asdict(one) for one in found]})
    else:
        click.echo(sharing_text(found, width()))
