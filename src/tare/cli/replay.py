"""`tare replay`: a log that a device's own tool has written, read as the probes would have read it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import click

from tare.cli.options import json_option, say, width
from tare.errors import TareError

NAMED = 20  # lines that are not of the tool are named up to so many; all of them are counted


class Line(NamedTuple):
    """One line of the log: its number, its text, and what was understood of it."""

    number: int
    text: str
    said: dict[str, Any] | None


@click.group("replay")
def command() -> None:
    """Read a recorded log as the probes would have read it: the same figures, in base units."""


@command.command("tegrastats")
@click.argument("log", metavar="FILE", type=click.File("r", encoding="utf-8-sig", errors="replace"))
@json_option
def tegrastats(log: Iterable[str], as_json: bool) -> None:
    """Read a log of NVIDIA's tegrastats, of any Jetson; `-` reads what is piped in.

    With --json it prints one JSON object for each line of the log: bytes, hertz, watts, degrees Celsius, and shares
    from 0 to 1. What a line does not have is not in its object; a core that is off is null.
    """
    from tare.report.tegrastats import tegrastats_table

    strange: list[Line] = []
    understood = _understood(log, strange)
    if as_json:
        found = sum(_print(line) for line in understood)
    else:
        rows = [(line.number, line.said or {}) for line in understood]
        found = len(rows)
        if rows:
            click.echo(tegrastats_table(rows, width()))
    for line in strange[:NAMED]:
        say(f"line {line.number} is not of tegrastats: {line.text[:60]!r}")
    if strange:
        say(f"{len(strange)} of {len(strange) + found} lines are not of tegrastats, and were passed over.")
    if not found:
        raise TareError("there is no line of tegrastats in this log; one begins like `RAM 534/3964MB (lfb 98x4MB)`.")


def _understood(log: Iterable[str], strange: list[Line]) -> Iterator[Line]:
    """The lines that were understood, one by one; the others go to `strange`."""
    from tare.parts.tegrastats import parse_line

    for number, text in enumerate(log, start=1):
        line = Line(number, text.strip(), parse_line(text))
        if line.said is None:
            strange.append(line)
        else:
            yield line


def _print(line: Line) -> bool:
    click.echo(json.dumps(line.said, allow_nan=False, ensure_ascii=False))
    return True
