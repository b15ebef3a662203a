"""`tare figure`: one figure of a report as a file for an article."""

from __future__ import annotations

from pathlib import Path

import click

from tare.cli.drawing import draw
from tare.cli.options import STORE, json_option, print_json, say, width
from tare.cli.patience import patience
from tare.cli.report import comparing
from tare.errors import StudyError


@click.command("figure")
@click.argument("name", default="")
@click.argument("store", type=STORE, required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="FILE.pdf, .svg or .png.")
@click.option(
    "--width", "width_mm", type=click.FloatRange(40, 400), default=162, show_default=True, help="In millimetres."
)
@comparing
@json_option
def command(
    name: str, store: Path | None, output: Path | None, width_mm: float, as_json: bool,
    by: str | None, against: str | None, margin: float | None, metric: str | None,
) -> None:  # fmt: skip
    """Write the figure NAME of STORE (else of this folder) as a file; without NAME, or without -o, list them."""
    from tare.analysis.weighing import weigh
    from tare.records.store import Store
    from tare.report.page import page
    from tare.report.terminal import table

    if store is None:
        name, store = ("", Path(name)) if _is_path(name) else (name, Path())
    with patience("drawing"), Store.open(store) as opened:
        found = page(
            weigh(opened, by=by, against=against, margin=margin, metric=metric), opened.records(), "", "", (), opened
        ).figures
    if not found:
        say(f"{store}: there is nothing to draw, for no trial of it has a figure yet; `tare show {store}` lists them.")
    if not name or output is None:
        if as_json:
            print_json([{"name": each.name, "title": each.title, "reading": each.reading} for each in found])
        elif found:
            click.echo(table([[each.name, each.title] for each in found], ["figure", "shows"], width()))
        return
    known = {each.name: each for each in found}
    if name not in known:
        raise StudyError(f"{store}: it has no figure {name!r}. It has: {', '.join(known) or 'none'}.")
    draw(known[name], output, round(width_mm / 25.4 * 72))
    say(known[name].reading)


def _is_path(name: str) -> bool:
    """`tare figure STORE` lists: no figure's name is that of a folder or a file, or has a folder in it."""
    return bool(name) and ("/" in name or Path(name).exists())
