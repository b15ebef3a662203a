"""`tare show`: the trials of a store, or one of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.cli.options import json_option, print_json, say, width

if TYPE_CHECKING:
    from tare.records.model import Record
    from tare.records.store import Store


@click.command("show")
@click.argument("store", type=click.Path(path_type=Path))
@click.argument("trial", required=False)
@json_option
def command(store: Path, trial: str | None, as_json: bool) -> None:
    """Show the trials of STORE, or all about TRIAL (the first letters of its id are enough)."""
    from tare.records.store import Store
    from tare.report.terminal import records_table

    with Store.open(store) as opened:
        for problem in opened.problems:
            say(f"note: {problem}")
        if trial is not None:
            _show_one(opened, opened.find(trial), as_json)
            return
        records = opened.records()
        waiting = sum(state in ("planned", "running") for state in opened.states().values())
    if as_json:
        print_json({"store": str(store), "trials": [record.as_json() for record in records], "waiting": waiting})
        return
    click.echo(records_table(records, width()))
    if waiting:
        say(f"{waiting} planned trials have not been run.")


def _show_one(store: Store, record: Record, as_json: bool) -> None:
    out, err = store.output(record.trial, record.attempt)
    series = _series(store, record)
    if as_json:
        print_json({**record.as_json(), "series": series, "out": out, "err": err})
        return
    from tare.report.terminal import table
    from tare.report.words import metric_text, plain_text, time_text

    lines: list[str] = [f"trial {record.trial}, attempt {record.attempt}: {record.state}"]
    lines += [f"  {plain_text(sentence)}" for sentence in (*record.reasons, *record.notes)]
    lines += ["", table([[key, str(value)] for key, value in record.settings.items()], ["setting", "value"], width())]
    figures = [[name, metric_text(name, value)] for name, value in sorted(record.metrics.items())]
    lines += ["", table(figures, ["figure", "value"], width())]
    phases = [[name, time_text(seconds)] for name, seconds in record.phases.items()]
    lines += ["", table(phases, ["phase", "time"], width())]
    rows = [[s["channel"], str(s["n"]), f"{s['first']:.6g}", f"{s['last']:.6g}"] for s in series]
    lines += ["", table(rows, ["series", "readings", "first", "last"], width())]
    for title, text in (("stdout", out), ("stderr", err)):
        if text.strip():
            lines += ["", f"{title}:", plain_text(text.rstrip()[-4000:])]
    click.echo("\n".join(lines))


def _series(store: Store, record: Record) -> list[dict[str, Any]]:
    return [
        {"channel": channel, "n": len(values), "first": float(values[0]), "last": float(values[-1])}
        for channel, (_, values) in sorted(store.readings(record.trial, record.attempt).items())
        if len(values)
    ]
