"""`tare plan`: the trials of a study, and whether this device can run them. Nothing is run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.api.running import load_study, sensitivity
from tare.base.errors import NothingLeft, cannot_run
from tare.base.host import LocalHost
from tare.base.text import count_text
from tare.cli.scaffold import Verb, json_option, print_json, python_option, say, scale_option, trust_option, width

if TYPE_CHECKING:
    from tare.plan.check import Check
    from tare.studies.model import Study


@click.command("plan", cls=Verb)
@click.argument("study", type=click.Path(path_type=Path))
@scale_option
@python_option
@trust_option
@json_option
def command(study: Path, scale: str | None, python: str | None, trust: bool, as_json: bool) -> None:
    """List the trials of STUDY in order, with the time and the disk they take. Runs nothing.

    Where this device cannot run it, the plan is still printed, then the reasons. The exit code is then 3, as of `tare
    run STUDY`; 2 where a program or file of a command is not there.
    """
    from tare.plan.check import check, possible
    from tare.plan.matrix import cells, trials

    whole = load_study(study, trust, scale, python)
    nothing_left: NothingLeft | None = None
    try:
        loaded, its_cells = possible(whole, LocalHost(), brought=True)
    except NothingLeft as nothing:  # the study as written is shown, and then why
        loaded, its_cells, nothing_left = whole, tuple(cells(whole)), nothing
    checked = check(loaded, its_cells, LocalHost(), brought=True)
    planned = trials(loaded, its_cells)
    rows: list[dict[str, Any]] = [
        {"trial": t.id, "block": t.block, "position": t.position, "twin": t.twin, "settings": dict(t.settings)}
        for t in planned
    ]
    if as_json:
        print_json(
            {
                "study": loaded.study,
                "trials": rows,
                "seconds": checked.seconds,
                "disk_bytes": checked.disk_bytes,
                "obstacles": checked.blocked if nothing_left is None else list(nothing_left.obstacles),
                "not_measured": list(loaded.left_out if nothing_left is None else nothing_left.gaps),
            }
        )
    else:
        _tell_plan(loaded, checked, rows)
    if nothing_left is not None:
        raise nothing_left.for_a_look()
    if checked.blocked:
        raise cannot_run(str(study), checked.blocked)


def _tell_plan(study: Study, checked: Check, rows: list[dict[str, Any]]) -> None:
    from tare.base.text import duration_text, size_text
    from tare.records.model import varied
    from tare.report.columns import table

    most = (
        f"{count_text(len(rows), 'trial')}, about {duration_text(checked.seconds)} and {size_text(checked.disk_bytes)}"
    )
    least = ""
    if checked.least_trials < len(rows):
        least = (
            f"; at the least {count_text(checked.least_trials, 'trial')}, about {duration_text(checked.least_seconds)}"
        )
        most = f"at the most {most}"
    click.echo(click.wrap_text(f"{study.study}: {most}{least} (times are guesses).", width(), "", "  "))
    click.echo(click.wrap_text(f"Stop rule: {study.repeat.sentence()}", width(), "", "  "))
    varying = varied([row["settings"] for row in rows])
    body = [[str(row["block"]), row["trial"][:8], *(_cell(row, key) for key in varying)] for row in rows]
    click.echo(table(body, ["block", "trial", *varying], width()))
    say(sensitivity(study))
    for sentence in (*checked.unasked, *checked.notes):
        say(f"note: {sentence}")
    for sentence in study.left_out:
        say(f"not measured here: {sentence}")


def _cell(row: dict[str, Any], key: str) -> str:
    from tare.records.model import AA_REPEAT

    value = row["settings"].get(key, "")
    text = "" if value is None else str(value)
    return f"{text} ({AA_REPEAT})" if key == "platform" and row["twin"] else text
