"""`tare show`: the trials of a store, or one of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.cli.options import STORE, json_option, print_json, say, width

if TYPE_CHECKING:
    from tare.records.model import Record
    from tare.records.store import Store


SHOWN_CHARACTERS = 4000  # of what the workload printed; --json has all that was kept


@click.command("show")
@click.argument("store", type=STORE)
@click.argument("trial", required=False)
@json_option
def command(store: Path, trial: str | None, as_json: bool) -> None:
    """Show the trials of STORE, or all about TRIAL (the first letters of its id are enough)."""
    from tare.records.store import Store
    from tare.report.terminal import records_table
    from tare.report.words import count_text

    with Store.open(store) as opened:
        for problem in opened.problems:
            say(f"note: {problem}")
        if trial is not None:
            _show_one(opened, opened.find(trial), as_json)
            return
        records = opened.records()
        states, damaged = opened.states(), opened.damaged()
        waiting = sum(state in ("planned", "running") for trial, state in states.items() if trial not in damaged)
    if as_json:
        counts = {"waiting": waiting, "damaged": len(damaged)}
        print_json({"store": str(store), "trials": [record.as_json() for record in records], **counts})
        return
    click.echo(records_table(records, width()))
    if waiting:
        say(f"{count_text(waiting, 'planned trial')} not run.")
    if damaged:
        say(f"{count_text(len(damaged), 'damaged trial')} left out; `tare store verify {store}` says what is wrong.")


def _show_one(store: Store, record: Record, as_json: bool) -> None:
    out, err = store.output(record.trial, record.attempt)
    series = _series(store, record)
    if as_json:
        print_json({**record.as_json(), "series": series, "out": out, "err": err})
        return
    from tare.report.terminal import record_text, table
    from tare.report.words import safe_text

    lines = [record_text(record, width())]
    if series:
        rows = [[each["channel"], str(each["n"]), f"{each['first']:.6g}", f"{each['last']:.6g}"] for each in series]
        lines += ["", table(rows, ["series", "readings", "first", "last"], width())]
    for title, text in (("stdout", out), ("stderr", err)):
        if text.strip():
            kept = text.rstrip()[-SHOWN_CHARACTERS:].splitlines()
            lines += ["", f"{title}:", *(safe_text(line) for line in kept)]
    click.echo("\n".join(lines))


def _series(store: Store, record: Record) -> list[dict[str, Any]]:
    return [
        {"channel": channel, "n": len(values), "first": float(values[0]), "last": float(values[-1])}
        for channel, (_, values) in sorted(store.readings(record.trial, record.attempt).items())
        if len(values)
    ]
