"""`tare kernel`: what the kernel did for traced trials: counters, call graphs, faults, system calls, write-backs."""

from __future__ import annotations

from pathlib import Path

import click

from tare.cli.drawing import draw
from tare.cli.options import STORE, json_option, print_json, width
from tare.cli.patience import patience


@click.command("kernel")
@click.argument("folder", metavar="DIR", type=STORE)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False),
    help="Draw which page was written when (S2, Figure 4) into this file: .svg, .pdf or .png.",
)  # fmt: skip
@json_option
def command(folder: Path, output: Path | None, as_json: bool) -> None:
    """Show what the kernel did in traced trials: the workload, the engine's daemons and the host, side by side.

    Trials are traced where the study names a tracer: `probes: [perf]`, `[syscalls]` or `[ftrace]`. Their times are
    not compared with others.

    tare kernel out/my-study

    --json: {"sections": [{"name", "title", "rows": [{...}], "notes"}]}; counts, seconds and shares.
    """
    from tare.analysis.kernel import kernel_view
    from tare.records.store import Store
    from tare.report.charts.hot_pages import page_writes_figure
    from tare.report.kernel import kernel_text

    with patience("reading the traces"), Store.open(folder) as store:
        sections = kernel_view(store)
        if output is not None:
            draw(page_writes_figure(store), output)
    if as_json:
        print_json({"sections": [section.as_json() for section in sections]})
    else:
        click.echo(kernel_text(sections, width()))
