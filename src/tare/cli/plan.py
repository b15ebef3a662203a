"""`tare plan`: what would be done; nothing is run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.api.running import sensitivity
from tare.base.errors import NothingLeft, cannot_run
from tare.cli.scaffold import Verb, json_option, print_json, say, trust_option, width
from tare.cli.studies import load_study, python_option, scale_option

if TYPE_CHECKING:
    from tare.plan.check import Check, Possible
    from tare.studies.model import Study


@click.command("plan", cls=Verb)
@click.argument("study", type=click.Path(path_type=Path))
@scale_option
@python_option
@trust_option
@json_option
def command(study: Path, scale: str | None, python: str | None, trust: bool, as_json: bool) -> None:
    """List the trials of STUDY in order, with the time and the disk they take. Runs nothing.

    Where something keeps this device from running it, the plan is still printed, and the exit code is 3, as of
    `tare check STUDY` and `tare run STUDY`; 2 where that is a program or file of a command that is not there.
    """
    from tare.base.host import LocalHost
    from tare.base.text import count_text, duration_text, size_text
    from tare.plan.check import check
    from tare.plan.matrix import trials
    from tare.records.model import varied
    from tare.report.columns import table

    (loaded, its_cells), nothing_left = _what_there_is(load_study(study, trust, scale, python))
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
        _refuse(study, checked, nothing_left)
        return
    varying = varied([row["settings"] for row in rows])
    headers = ["block", "trial", *varying]
    body = [[str(row["block"]), row["trial"][:8], *(_cell(row, key) for key in varying)] for row in rows]
    click.echo(table(body, headers, width()))
    say(f"stop rule: {loaded.repeat.sentence()}")
    if checked.least_trials < len(rows):
        say(f"at the least {count_text(checked.least_trials, 'trial')}, about {duration_text(checked.least_seconds)}")
    say(
        f"at the most {count_text(len(rows), 'trial')}, about {duration_text(checked.seconds)} "
        f"and {size_text(checked.disk_bytes)}; times are guesses"
    )
    say(sensitivity(loaded))
    for sentence in (*checked.unasked, *checked.notes):
        say(f"note: {sentence}")
    for sentence in loaded.left_out:
        say(f"not measured here: {sentence}")
    _refuse(study, checked, nothing_left)


def _what_there_is(study: Study) -> tuple[Possible, NothingLeft | None]:
    """What this device can run of the study; where that is nothing, the study as written, and why."""
    from tare.base.host import LocalHost
    from tare.plan.check import Possible, possible
    from tare.plan.matrix import cells

    try:
        return possible(study, LocalHost(), brought=True), None
    except NothingLeft as nothing:
        return Possible(study, tuple(cells(study))), nothing


def _refuse(study: Path, checked: Check, nothing_left: NothingLeft | None) -> None:
    if nothing_left is not None:
        raise nothing_left.for_a_look()
    if checked.blocked:
        raise cannot_run(str(study), checked.blocked)


def _cell(row: dict[str, Any], key: str) -> str:
    from tare.records.model import AA_REPEAT

    value = row["settings"].get(key, "")
    text = "" if value is None else str(value)
    return f"{text} ({AA_REPEAT})" if key == "platform" and row["twin"] else text
