"""`tare show`: the trials of a store, or one of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from tare.cli.scaffold import Result, Verb, reads_store, say, width

if TYPE_CHECKING:
    from tare.records.model import Record
    from tare.records.store import Store


SHOWN_CHARACTERS = 4000  # of what the workload printed; --json has all that was kept


@click.command("show", cls=Verb)
@reads_store()
@click.argument("trial", required=False)
def command(store: Store, trial: str | None) -> Result:
    """Show the trials of STORE, or all about TRIAL (the first letters of its id are enough)."""
    if trial is not None:
        return _one(store, store.find(trial))
    from tare.base.text import count_text
    from tare.report.text.trials import records_lines, records_table

    records, rehearsals = store.records(), store.rehearsals()
    states, damaged = store.states(), store.damaged()
    waiting = sum(state in ("planned", "running") for trial, state in states.items() if trial not in damaged)

    def data() -> dict[str, Any]:
        counts = {"waiting": waiting, "damaged": len(damaged)}
        tried = {"rehearsals": [record.as_json() for record in rehearsals]} if rehearsals else {}
        return {"store": str(store.path), "trials": [record.as_json() for record in records], **tried, **counts}

    def text() -> str:
        if waiting:
            say(f"{count_text(waiting, 'planned trial')} not run.")
        if damaged:
            say(f"{count_text(len(damaged), 'damaged trial')} left out; see `tare store check {store.path}`.")
        if rehearsals:
            say(f"{count_text(len(rehearsals), 'rehearsal')}, no data; `tare show {store.path} ID` has all about one:")
            for line in _rehearsed(rehearsals):
                say(line)
        return records_table(records, width()) if sys.stdout.isatty() else records_lines(records)

    return Result(data, text)


def _rehearsed(rehearsals: list[Record]) -> list[str]:
    """`r9f8e7d6 docker, batch 16: failed: the workload ...`: each by its id, what sets it apart, and why."""
    from tare.base.text import safe_text
    from tare.report.text.trials import SHORT_ID, setting_text, varied_settings

    factors = varied_settings(rehearsals)
    lines = []
    for each in rehearsals:
        apart = ", ".join(text for name in factors if (text := setting_text(each, name)))
        why = "".join(f": {safe_text(reason)}" for reason in each.reasons[:1])
        lines.append(f"  {safe_text(each.trial)[:SHORT_ID]} {apart}: {each.state}{why}")
    return lines


def _one(store: Store, record: Record) -> Result:
    out, err = store.output(record.trial, record.attempt)
    series = _series(store, record)
    return Result(
        lambda: {**record.as_json(), "series": series, "out": out, "err": err},
        lambda: _text(record, series, out, err),
    )


def _text(record: Record, series: list[dict[str, Any]], out: str, err: str) -> str:
    from tare.base.text import safe_text
    from tare.report.columns import table
    from tare.report.text.trials import record_text

    lines = [record_text(record, width())]
    if series:
        rows = [[each["channel"], str(each["n"]), f"{each['first']:.6g}", f"{each['last']:.6g}"] for each in series]
        lines += ["", table(rows, ["series", "readings", "first", "last"], width())]
    for title, text in (("stdout", out), ("stderr", err)):
        if text.strip():
            kept = text.rstrip()[-SHOWN_CHARACTERS:].splitlines()
            lines += ["", f"{title}:", *(safe_text(line) for line in kept)]
    return "\n".join(lines)


def _series(store: Store, record: Record) -> list[dict[str, Any]]:
    return [
        {"channel": channel, "n": len(values), "first": float(values[0]), "last": float(values[-1])}
        for channel, (_, values) in sorted(store.readings(record.trial, record.attempt).items())
        if len(values)
    ]
