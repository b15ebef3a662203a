"""`tare anatomy`: what binds an input pipeline, and how many workers hide its stall."""

from __future__ import annotations

from pathlib import Path

import click

from tare.cli.deciding import NAMES, say_left_out
from tare.cli.options import SHARE, STORE, json_option, print_json, width


@click.command("anatomy")
@click.argument("source", metavar="STORE|TABLE", type=STORE)
@click.option("--step", help="The column with the time of a step (or epoch).  [default: by its name, step_s]")
@click.option("--stall", help="The column with the stall in it.  [default: by its name, stall_s]")
@click.option("--compute", help="The column with the computation in it.  [default: by its name, compute_s]")
@click.option("--workers", help="The setting with the number of loader workers.  [default: workers]")
@click.option("--storage", help="The setting with the medium.  [default: storage, medium or disk]")
@click.option("--cache", help="The setting with the state of the page cache.  [default: cache or page_cache]")
@click.option("--settings", type=NAMES, help="What else tells pipelines apart, such as model,batch.  [of a store: all]")
@click.option(
    "--hidden", type=SHARE, default=0.05, show_default="5%", help="A stall below this share of the step is hidden."
)
@json_option
def command(
    source: Path,
    step: str | None,
    stall: str | None,
    compute: str | None,
    workers: str | None,
    storage: str | None,
    cache: str | None,
    settings: tuple[str, ...] | None,
    hidden: float,
    as_json: bool,
) -> None:
    """Say what binds the input pipeline (disk, CPU or computation), and what hides the fetch stall.

    The fewest workers and the slowest medium that hide it, predicted from the trials without workers, and measured.

    tare anatomy loader.csv --settings model --workers workers --storage disk

    --json: {"share", "pipelines": [{"cell", "medium", "cache", "parts": [{"workers", "n", "step_s", "stall_s",
    "rest_s", "stall_share", "predicted_stall_s", "hidden", "by_median", "shares", "binds"}], "fetch_s", "disk_s",
    "disk_at_least", "workers_predicted", "workers_measured", "workers_by_median"}], "media": [{"cell", "cache",
    "workers", "slowest_predicted", "slowest_measured", "slowest_by_median"}], "notes"}; seconds and shares.
    """
    from tare.analysis.anatomy import anatomy, pipeline_rows
    from tare.report.anatomy import anatomy_text

    say_left_out(source)
    columns = {"step": step, "stall": stall, "compute": compute}
    factors = {"workers": workers, "storage": storage, "cache": cache}
    rows = pipeline_rows(
        source,
        settings=settings,
        columns={word: name for word, name in columns.items() if name is not None},
        factors={word: name for word, name in factors.items() if name is not None},
    )
    found = anatomy(rows, share=hidden, source=source)
    if as_json:
        print_json(found.as_json())
    else:
        click.echo(anatomy_text(found, width()))
