"""`tare compare`: levels of a factor, in a store or in any table of measurements."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tare.cli.options import SHARE, STORE, color, json_option, need, print_json, say, width
from tare.errors import StudyError

if TYPE_CHECKING:
    from tare.analysis.model import Comparison, Weighing


@click.command("compare")
@click.argument("source", metavar="STORE|TABLE", type=STORE)
@click.option("--by", help="The factor, or the table's column, whose levels are compared.  [default: platform]")
@click.option("--against", help="The level that the others are compared with.  [default: bare, or the first]")
@click.option("--margin", type=SHARE, help="What counts as equivalent.  [default: 5%, or as in the study]")
@click.option("--metric", help="Of a store: the figure to compare.  [default: as in the study, step_s or wall_s]")
@click.option("--value", help="Of a table: the column with the figure; more is slower.")
@click.option("--block", help="Of a table: the column that says which rows belong together; they are paired.")
@click.option("--fail-over", type=SHARE, help="Exit 1 if a level is slower by more than this, and surely slower.")
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

    The source is a store (a folder), or any table with one row a trial: CSV, TSV, Parquet or JSON lines.

    tare compare out/weigh-1 --by platform --fail-over 5%

    tare compare mine.csv --by platform --value step_s --block run
    """
    from tare.records.unpacking import is_store
    from tare.report.terminal import verdict_text

    if is_store(source):
        need(not (value or block), "--value and --block are for tables; of a store, --metric names the figure.")
        weighing = _of_store(source, by, against, margin, metric)
    else:
        need(metric is None, "--metric is for stores; of a table, --value names the column.")
        weighing = _of_table(source, by, against, margin, value, block)
    if as_json:
        print_json({"comparisons": [comparison.as_json() for comparison in weighing.comparisons]})
    else:
        click.echo(verdict_text(weighing, width(), color()))
    if fail_over is not None and _too_slow(weighing, fail_over):
        raise SystemExit(1)


def _of_store(source: Path, by: str | None, against: str | None, margin: float | None, metric: str | None) -> Weighing:
    from tare.analysis.weighing import weigh
    from tare.cli.damaged import counted_apart
    from tare.records.store import Store

    with Store.open(source) as store:
        for problem in store.problems:
            say(f"note: {problem}")
        return counted_apart(weigh(store, by=by, against=against, margin=margin, metric=metric), store)


def _of_table(
    source: Path, by: str | None, against: str | None, margin: float | None, value: str | None, block: str | None
) -> Weighing:
    from tare.analysis.weighing_table import weigh_table

    if value is None:
        raise StudyError(f"{source}: --value COLUMN says which column holds the figure to compare.")
    return weigh_table(source, by=by or "platform", value=value, block=block, against=against, margin=margin)


def _too_slow(weighing: Weighing, limit: float) -> bool:
    """Whether a level is worse than the limit, and surely worse than nothing, whatever the margin calls it."""
    worse = [found for found in map(_harm, weighing.comparisons) if found is not None and found.harm > limit]
    for found in worse:
        sure = "" if found.sure else ", but its interval holds zero, so that may be noise and is not counted"
        say(f"{found.level} is {found.harm:.1%} slower than {found.against}, over {limit:.1%}{sure}.")
    return any(found.sure for found in worse)


@dataclass(frozen=True)
class Harm:
    """How much worse a level is, positive where it is worse, and whether its interval leaves out zero."""

    level: str
    against: str
    harm: float
    sure: bool


def _harm(found: Comparison) -> Harm | None:
    from tare.analysis.compare import rises_when_faster

    if found.effect is None:
        return None
    harm = -found.effect if rises_when_faster(found.metric) else found.effect
    apart = found.low is not None and found.high is not None and (found.low > 0 or found.high < 0)
    above_noise = found.aa_floor is None or abs(found.effect) > found.aa_floor
    return Harm(found.level, found.against, harm, sure=apart and above_noise)
