"""`tare compare`: levels of a factor, in a store or in any table of measurements."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.base.errors import LISTED, StudyError, unknown_name
from tare.cli.report import answer_text, steps_of, written
from tare.cli.scaffold import (
    FILE,
    SHARE,
    Result,
    Verb,
    comparing,
    higher_option,
    need,
    numpy_on_one_thread,
    order_option,
    reading_stages,
    reads_either,
    say,
    weighed,
)

if TYPE_CHECKING:
    from tare.analysis.model import Weighing
    from tare.report.following import Step


@click.command("compare", cls=Verb)
@reads_either("comparing")
@comparing
@click.option("--block", metavar="COLUMN", help="Of a table: the column that pairs rows, such as the run.")
@order_option
@higher_option
@click.option("--fail-over", type=SHARE, help="Exit 1 if a level is surely worse by more than this, or hides it.")
@click.option("--fail-over-start-up", type=SHARE, help="Exit 1 if its start-up to the first step is.")
@click.option("--junit", type=FILE, help="Write the answer as JUnit XML: a test case per level.")
@click.option("--comment", type=FILE, help="Write the answer as Markdown, for a comment on a change.")
@click.option("-v", "--verbose", is_flag=True, help="All that is known: metrics that are not tested, noise, notes.")
def command(
    source: tuple[Path, ...], block: str | None, order: str | None, fail_over: float | None,
    fail_over_start_up: float | None, junit: Path | None, comment: Path | None, verbose: bool, **asked: Any,
) -> Result:  # fmt: skip
    """Compare the levels of a factor: slower, faster, equivalent within the margin, or cannot tell.

    The source is a store (a folder or a pack), the folder of a `tare why`, any table with one row per trial (CSV, TSV,
    Parquet, JSON lines), or what another tool wrote (hyperfine, pyperf, pytest-benchmark, Google Benchmark, Criterion,
    optimum-benchmark, MLPerf LoadGen, perf stat, AIPerf, vLLM's bench serve, llama-bench), or a text with one number a
    line.
    Of a table, --metric names the column to compare. Whether more of it is better follows from its name (samples/s:
    higher; step_ms, loss: lower); --higher-is-better or --lower-is-better states it where the name does not. Accuracy
    and its kin are compared by their error rates.
    Rows are taken as run in the order in which they stand: levels that were run one after another, or in the same order
    in every block, get no sure word, since a drift would look like a difference. --order names the column with
    another order. A table that `tare report --format csv` (or parquet) wrote is judged as the store that it came from.

    tare compare out/weigh-1 --by platform --fail-over 5%

    tare compare mine.csv --by platform --metric step_s --block run

    tare compare before.json after.json

    --json: {"answer": [a sentence; the first is the headline], "comparisons": [{"metric", "level", "against", "effect",
    "low", "high", "verdict", "direction", "withheld", "phrase", "sentence", "reading", ...}], "tested": [the same of
    the tail and the start-up], "interactions": [{"factor", "level", "against", "here", "there", "found", "sentence"}],
    "marked": [{"level", "suspect", "trials", "without"}], "knees": [a sentence on each server at several rates, or on
    the goal], "gate": null or {"limit", "start_up", "passed", "reasons", "remarks"}}.
    """
    numpy_on_one_thread()
    from tare.analysis.answer import weighing_json
    from tare.analysis.tables.foreign import recognised_folder
    from tare.records.schema import is_store

    steps: list[Step] = []
    if len(source) > 1:
        weighing = _of_files(source, block, order, **asked)
    elif is_store(source[0]) and recognised_folder(source[0]) is None:
        need(block is None, "--block is for tables; a store knows its blocks.")
        need(order is None, "--order is for tables; a store knows when each trial was run.")
        from tare.records.store import Store

        with reading_stages(source[0]) as store:
            weighing = weighed(store, **asked)
            if isinstance(store, Store):  # the stages of a `why` have said what comes next
                steps = steps_of(store, weighing)
    else:
        weighing = _of_table(source[0], block, order, **asked)
    passed = None
    if fail_over is not None or fail_over_start_up is not None:
        from tare.report.export import gate

        passed = gate(weighing, fail_over, fail_over_start_up)
    for each in () if passed is None else (*passed.reasons, *passed.remarks):
        say(f"{'gate' if each.weight == 'failed' else 'note'}: {each}")
    if junit is not None:
        from tare.report.export import as_junit

        written(junit, as_junit(weighing, passed))
    if comment is not None:
        from tare.report.export import as_comment

        written(comment, as_comment(weighing, passed).encode())
    return Result(
        lambda: {**weighing_json(weighing), "gate": passed and {**asdict(passed), "passed": passed.passed}},
        lambda: answer_text(weighing, steps, verbose=verbose, more="the same command with -v"),
        exit_code=0 if passed is None or passed.passed else 1,
    )


def _of_files(
    sources: tuple[Path, ...], block: str | None, order: str | None, by: str | None, metric: str | None, **asked: Any
) -> Weighing:
    """What a benchmark tool wrote, each file a level."""
    from tare.analysis.tables.table import several_files
    from tare.analysis.weighing import weigh_table

    table, foreign = several_files(sources)
    for note in foreign.notes:
        say(f"note: {note}")
    within = foreign.within if by in (None, foreign.by) else None
    by, metric = by or foreign.by, metric or foreign.metric
    return weigh_table(table, by=by, value=metric, block=block, order=order, within=within, **asked)


def _of_table(
    source: Path, block: str | None, order: str | None, by: str | None, metric: str | None, **asked: Any
) -> Weighing:
    from tare.analysis.tables.foreign import recognised
    from tare.analysis.tables.table import exported_trials, read_table
    from tare.analysis.weighing import weigh, weigh_table
    from tare.base.text import count_text

    if (exported := exported_trials(source)) is not None and block is None:
        # What tare wrote itself says how it is judged; columns may be named as in the table or as in the store.
        by, metric = by and by.removeprefix("setting."), metric and metric.removeprefix("metric.")
        return weigh(exported, by=by, metric=metric, **asked)
    within: str | None = None
    if (foreign := recognised(source)) is not None:
        within = foreign.within if by in (None, foreign.by) else None
        by, metric = by or foreign.by, metric or foreign.metric
        what = count_text(len(foreign.rows), "row" if foreign.notes else "run")
        said = f"{source} was written by {foreign.tool}: {what}."
        for note in (said, *foreign.notes):
            say(f"note: {note}")
        need(
            len({row.get(by) for row in foreign.rows}) > 1,
            f"{source} has one {by} only ({next(iter(foreign.rows)).get(by)}). Name a second file to compare it with: "
            f"`tare compare {source.name} OTHER`.",
        )
    if metric is None:
        columns = list(read_table(source).columns)
        raise StudyError(
            f"{source}: --metric COLUMN names the column to compare, --by COLUMN the one whose values are compared. "
            f"Columns: {', '.join(columns[:LISTED])}{', ...' if len(columns) > LISTED else ''}."
        )
    if by is None and "platform" not in (named := list(read_table(source).columns)):
        raise StudyError(f"{source}: {unknown_name('column', 'platform', named)} --by names the one to compare.")
    return weigh_table(source, by=by or "platform", value=metric, block=block, order=order, within=within, **asked)
