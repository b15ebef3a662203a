"""Options and outputs that several verbs share."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tare.errors import StudyError
from tare.measures import parse_share


class ShareOption(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """A share such as `5%` or `0.05`."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            share = parse_share(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not 0 < share < 1:
            hint = f"; did you mean {value}%?" if share >= 1 and "%" not in str(value) else ""
            self.fail(f"{value} is not between 0 % and 100 %{hint}", param, ctx)
        return share


SHARE = ShareOption()
# A store, a pack or what may stand in its place. Whether it may be read is said by who reads it, with his exit code:
# click would call the command line wrong.
STORE = click.Path(path_type=Path, readable=False)

json_option: Callable[[Any], Any] = click.option(
    "--json", "as_json", is_flag=True, help="Print the data as JSON on stdout."
)


def print_json(data: Any) -> None:
    """Strict JSON: a figure that is missing is null, never NaN."""
    click.echo(json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False))


def width() -> int:
    """Columns of the terminal, 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def color() -> bool:
    """Colour only for a person who has not asked for none."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def say(text: str) -> None:
    """Talk goes to stderr, so that stdout holds nothing but data."""
    click.echo(text, err=True)


def need(condition: bool, message: str) -> None:
    """Refuse the command line with a sentence."""
    if not condition:
        raise StudyError(message)
