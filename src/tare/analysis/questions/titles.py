"""What a comparison is called: who against whom, and doing what."""

from __future__ import annotations

from collections.abc import Sequence

from tare.analysis.labels import text, workload_kind
from tare.base.command_words import script_and_options
from tare.base.declare import before
from tare.records.model import COMMAND, LABEL, Record

LISTED = 4


def question(levels: Sequence[str], against: str, by: str, records: Sequence[Record]) -> str:
    """Who against whom, and doing what."""
    spoken = [_spoken(level, by) for level in levels[:LISTED]]
    if len(levels) > LISTED:
        spoken.append(f"{len(levels) - LISTED} more")
    sides = " vs ".join(filter(None, (", ".join(spoken), _spoken(against, by))))
    prefix = "" if by == "platform" or records else f"{by}: "  # a label of records names its factor
    return ", ".join(part for part in (f"{prefix}{sides}", workload(records, by)) if part)


def workload(records: Sequence[Record], by: str = "") -> str:
    """What all records ran: the title that the trial stored, else from its settings."""
    titles = {_title(record) for record in records if record.facts.get("title")}
    if len(titles) == 1:
        return titles.pop()
    names = {text(record.settings.get("workload", "")) for record in records}
    if len(names) != 1:
        return ""
    lines = [record.settings.get(COMMAND) for record in records]
    if all(isinstance(line, list) and line for line in lines):
        return ", ".join(dict.fromkeys(script_and_options(line)[0] for line in lines if line))
    known = ("model", "size", "batch", "argv") if names <= {"generate", "finetune"} else ("model", "batch", "argv")
    details = [_detail(name, records) for name in known if f"workload.{name}" != by]
    return " ".join([workload_kind(names.pop()), *(f"({told})" for told in [", ".join(filter(None, details))] if told)])


def _title(record: Record) -> str:
    """As stored; of a server, which an older tare called by its whole command line, the program and the load."""
    title, held = str(record.facts["title"]), record.settings
    if held.get("workload") != "server" or held.get(LABEL) is not None or not isinstance(held.get(COMMAND), list):
        return title
    return f"{script_and_options(held[COMMAND] or [''])[0]}, {title.rpartition(', ')[2]}"


def _detail(name: str, records: Sequence[Record]) -> str:
    values = [record.settings.get(f"workload.{name}") for record in records]
    if not values or values[0] is None or any(value != values[0] for value in values):
        return ""
    words = " ".join(map(str, values[0])) if isinstance(values[0], list | tuple) else text(values[0])
    return {"batch": f"batch {words}", "size": f"GPT-2 {words}"}.get(name, words)


def _spoken(level: str, by: str) -> str:
    return (before().part("platform", level).words if by == "platform" else "") or level
