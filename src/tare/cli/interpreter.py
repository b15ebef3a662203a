"""The option `--python`: the workloads' interpreter, where it is another one than tare's (a board's, with torch)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.cli.options import need, say

if TYPE_CHECKING:
    from tare.study.model import Study


def _from_anywhere(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A trial starts in a folder of its own; a link stays one, since by it an environment is known."""
    need(value != "", "--python is empty: name an interpreter, like /usr/bin/python3.")
    return str(Path(value).absolute()) if value is not None and "/" in value else value


python_option: Callable[[Any], Any] = click.option(
    "--python",
    metavar="PATH",
    callback=_from_anywhere,
    help="The interpreter that has torch, if it is not the platform's own: `python` of each workload that names none.",
)


def with_interpreter(study: Study, python: str | None) -> Study:
    """The study as the option wants it."""
    from tare.study.interpreter import with_python

    return study if python is None else with_python(study, python)


def known_interpreter(study: Study, folder: Path) -> str | None:
    """The one that the store there was begun with, so that who goes on need not say it again; says so."""
    if not (folder / "store.json").exists():
        return None
    from tare.records.store import Store
    from tare.study.interpreter import begun_with

    with Store.open(folder) as store:
        python = begun_with(store.study, study)
    if python is not None:
        say(f"going on with --python {python}, with which {folder} was begun.")
    return python
