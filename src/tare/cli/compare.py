"""`tare compare`: levels of a factor, in a store or in any table of measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tare.cli.options import SHARE, color, json_option, print_json, say, width
from tare.errors import StudyError

if TYPE_CHECKING:
    from tare.analysis.model import Weighing


@click.command("compare")
@click.argument("source", metavar="STORE|TABLE", type=click.Path(path_type=Path))
@click.option("--by", help="The factor, or the table's column, whose levels are compared.  [default: platform]")
@click.option("--against", help="The level that the others are compared with.  [default: bare, or the first]")
@click.option("--margin", type=SHARE, help="What counts as equivalent.  [default: 5%, or as in the study]")
@click.option("--metric", help="Of a store: the figure to compare.  [default: as in the study, step_s or wall_s]")
@click.option("--value", help="Of a table: the column with the figure; more is slower.")
@click.option("--block", help="Of a table: the column that says which rows belong together; they are paired.")
@click.option("--fail-over", type=SHARE, help="Exit 1 if a level is slower by more than this.")
@json_option
def command(
    source: Path,
    by: str | None,
    against: str | None,
    margin: float | None,
    metric: str | None,
    value: str | None,
    block: str | None,
    fail_over: float | None,
    as_json: bool,
) -> None:
    """Compare the levels of a factor: slower, faster, equivalent within the margin, or cannot tell.

    SOURCE is a store (a folder), or any table with one row a trial: CSV, Parquet or JSON lines.

    tare compare out/weigh-1 --by platform --fail-over 5%

    tare compare mine.csv --by platform --value step_s --block run
    """
    from tare.report.terminal import verdict_text

    if source.is_dir():
        weighing = _of_store(source, by, against, margin, metric or value)
    else:
        weighing = _of_table(source, by, against, margin, value, block)
    if as_json:
        print_json({"comparisons": [comparison.as_json() for comparison in weighing.comparisons]})
    else:
        click.echo(verdict_text(weighing, width(), color()))
    if fail_over is not None and _too_slow(weighing, fail_over):
        raise SystemExit(1)


def _of_store(source: Path, by: str | None, against: str | None, margin: float | None, metric: str | None) -> Weighing:
    from tare.analysis.weighing import weigh
    from tare.records.store import Store

    with Store.open(source) as store:
        for problem in store.problems:
            say(f"note: {problem}")
        return weigh(store, by=by, against=against, margin=margin, metric=metric)


def _of_table(
    source: Path, by: str | None, against: str | None, margin: float | None, value: str | None, block: str | None
) -> Weighing:
    from tare.analysis.weighing import weigh_table

    if value is None:
        raise StudyError(f"{source}: --value COLUMN says which column holds the figure to compare.")
    return weigh_table(source, by=by or "platform", value=value, block=block, against=against, margin=margin)


def _too_slow(weighing: Weighing, limit: float) -> bool:
    """A claim needs its interval: an effect over the limit that may be noise is said, but does not fail."""
    slow = [c for c in weighing.comparisons if c.effect is not None and c.effect > limit]
    for comparison in slow:
        sure = "" if comparison.verdict == "slower" else ", but that may be noise, so it is not counted"
        say(f"{comparison.level} is {comparison.effect:+.1%} against {comparison.against}, over {limit:.1%}{sure}.")
    return any(comparison.verdict == "slower" for comparison in slow)
