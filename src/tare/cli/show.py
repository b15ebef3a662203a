"""`tare show`: the trials of a store, one of them, or what they say about one topic."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.base.errors import near_names, unknown_name
from tare.cli.scaffold import Result, Verb, Verbs, need, reads_stages, say, width
from tare.cli.topics import TOPICS

if TYPE_CHECKING:
    from tare.records.model import Record
    from tare.records.stages import Stages
    from tare.records.store import Store


SHOWN_CHARACTERS = 4000  # of what the workload printed; --json has all that was kept


class Show(Verbs):
    """`tare show STORE TOPIC`: the topic, which decides what options there are, stands behind the store."""

    heading = "Topics"

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        place = next((n for n in range(len(args)) if self._is_topic(ctx, args, n)), None)
        if place is None:
            return "STORE", self.get_command(ctx, "trials"), args
        return self.path_to(args[place]), self.get_command(ctx, args[place]), [*args[:place], *args[place + 1 :]]

    def path_to(self, name: str) -> str:
        return f"STORE {name}"

    def _is_topic(self, ctx: click.Context, args: list[str], place: int) -> bool:
        """Whether this word names a topic: it may also be the value of an option, or a store of that name."""
        if args[place] not in self.list_commands(ctx):
            return False
        topic = self.get_command(ctx, args[place])
        assert topic is not None
        takes_value = {
            name
            for param in topic.params
            if isinstance(param, click.Option) and not param.is_flag
            for name in param.opts
        }
        is_store = Path(args[place]).exists() and all(word.startswith("-") for word in args[:place])
        return not is_store and (place == 0 or args[place - 1] not in takes_value)


@click.command("trials", cls=Verb)
@reads_stages()
@click.argument("trial", required=False)
def trials(store: Store | Stages, trial: str | None) -> Result:
    """Show the trials of STORE, or all about TRIAL (the first letters of its id are enough).

    For the folder of a `tare why`: its answer, in full, and the trials of all its stores.
    """
    from tare.records.stages import Stages

    if trial is not None and not re.fullmatch(r"r?[0-9a-f]+(\.\d+)?", trial):
        topics = command.list_commands(click.Context(command))
        need(not near_names(trial, topics), unknown_name("trial or topic", trial, topics))
    answer = ""
    if isinstance(store, Stages):
        answer = store.answer()
        if trial is not None:
            store = store.holding(trial)
    if trial is not None:
        assert not isinstance(store, Stages)
        record = store.find(trial)
        out, err = store.output(record.trial, record.attempt)
        series = [
            {"channel": channel, "n": len(values), "first": float(values[0]), "last": float(values[-1])}
            for channel, (_, values) in sorted(store.readings(record.trial, record.attempt).items())
            if len(values)
        ]
        return Result(
            lambda: {**record.as_json(), "series": series, "out": out, "err": err},
            lambda: _text(record, series, out, err),
        )
    from tare.base.text import count_text
    from tare.report.text.trials import records_lines, records_table

    records, rehearsals = store.records(), store.rehearsals()
    states, damaged = store.states(), store.damaged()
    waiting = sum(state in ("planned", "running") for trial, state in states.items() if trial not in damaged)

    def data() -> dict[str, Any]:
        counts = {"waiting": waiting, "damaged": len(damaged)}
        tried = {"rehearsals": [record.as_json() for record in rehearsals]} if rehearsals else {}
        told = {"answer": answer} if answer else {}
        return {"store": str(store.path), **told, "trials": [record.as_json() for record in records], **tried, **counts}

    def text() -> str:
        if waiting:
            say(f"{count_text(waiting, 'planned trial')} not run.")
        if damaged:
            say(f"{count_text(len(damaged), 'damaged trial')} left out; see `tare store check {store.path}`.")
        if rehearsals:
            say(f"{count_text(len(rehearsals), 'rehearsal')}, no data; `tare show {store.path} ID` has all about one:")
            for line in _rehearsed(rehearsals):
                say(line)
        if sys.stdout.isatty():
            return f"{answer}\n{records_table(records, width())}" if answer else records_table(records, width())
        if answer:
            say(answer)
        return records_lines(records)

    return Result(data, text)


@click.group(
    "show", cls=Show, commands={"trials": trials, **TOPICS}, context_settings={"ignore_unknown_options": True},
    subcommand_metavar="STORE [TRIAL | TOPIC]", options_metavar="[OPTIONS]",
)  # fmt: skip
def command() -> None:
    """Show the trials of STORE, all about one TRIAL, or what the trials say about a TOPIC.

    The first letters of a trial's id are enough. --json prints the data.

    tare show out/weigh-1

    tare show out/weigh-1 energy --by platform

    tare show out/weigh-1 energy --help
    """


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
