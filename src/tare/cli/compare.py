"""`tare compare`: levels of a factor, in a store or in any table of measurements."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.base.errors import StudyError
from tare.cli.options import SHARE, comparing, need
from tare.cli.scaffold import Result, Verb, color, reading, reads_either, say, weighed, width

if TYPE_CHECKING:
    from tare.analysis.model import Comparison, Weighing


@click.command("compare", cls=Verb)
@reads_either("comparing")
@comparing
@click.option("--block", metavar="COLUMN", help="Of a table: the column that pairs rows, such as the run.")
@click.option("--order", metavar="COLUMN", help="Of a table: the column that tells when each row was run, or "
              "`shuffled`.  [default: the order of the rows]")  # fmt: skip
@click.option("--fail-over", type=SHARE, help="Exit 1 if a level is slower by more than this, and surely slower.")
def command(source: Path, block: str | None, order: str | None, fail_over: float | None, **asked: Any) -> Result:
    """Compare the levels of a factor: slower, faster, equivalent within the margin, or cannot tell.

    The source is a store (a folder or a pack), or any table with one row per trial: CSV, TSV, Parquet or JSON lines.
    Of a table, --metric names the column to compare; more is slower. Rows are taken as run in the order in which they
    stand: levels that were run one after another, or in the same order in every block, get no sure word, since a drift
    would look like a difference. --order names the column that tells another order.

    tare compare out/weigh-1 --by platform --fail-over 5%

    tare compare mine.csv --by platform --metric step_s --block run
    """
    from tare.records.unpack import is_store
    from tare.report.text.verdict import verdict_text

    if is_store(source):
        need(block is None, "--block is for tables; a store knows its blocks.")
        need(order is None, "--order is for tables; a store knows when each trial was run.")
        with reading(source) as store:
            weighing = weighed(store, **asked)
    else:
        weighing = _of_table(source, block, order, **asked)
    return Result(
        lambda: {"comparisons": [comparison.as_json() for comparison in weighing.comparisons]},
        lambda: verdict_text(weighing, width(), color()),
        exit_code=1 if fail_over is not None and _too_slow(weighing, fail_over) else 0,
    )


def _of_table(
    source: Path, block: str | None, order: str | None,
    by: str | None, against: str | None, margin: float | None, metric: str | None,
) -> Weighing:  # fmt: skip
    from tare.analysis.weighing import weigh_table

    if metric is None:
        raise StudyError(f"{source}: --metric COLUMN names the column to compare.")
    return weigh_table(
        source, by=by or "platform", value=metric, block=block, against=against, margin=margin, order=order
    )


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
