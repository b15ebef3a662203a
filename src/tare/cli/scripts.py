"""What a script of the user's needs beside its command line: the options of `tare weigh` and `tare why` for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tare.api.weighing import Script
from tare.base.errors import StudyError

_PATH = click.Path(path_type=Path, exists=True, resolve_path=True)
_OPTIONS = (
    click.option("--reads", metavar="PATH", type=_PATH, multiple=True,
                 help="A file or folder of this device for an image, a sealed root or a container's /run; repeatable."),
    click.option("--writes", metavar="PATH", type=_PATH, multiple=True,
                 help="A folder or file that is written for real; what is written elsewhere goes with the trial."),
    click.option("--env", metavar="NAME=VALUE", multiple=True,
                 help="A variable for the command, on both sides; may be repeated."),
    click.option("--network", type=click.Choice(["none", "host"]), default="none", show_default=True,
                 help="host: the container has this device's network; none: the loopback alone."),
    click.option("--keep-outputs", is_flag=True, help="Keep what each trial wrote, in the store's folder outputs."),
)  # fmt: skip


def script_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The options, which the verb gets as one value called `script`."""

    @functools.wraps(verb)
    def taking(
        *, reads: Any, writes: Any, env: tuple[str, ...], network: str, keep_outputs: bool, **others: Any
    ) -> Any:
        if Path("/") in writes:
            raise StudyError("--writes /: the command would write to the whole device for real; name its folders.")
        return verb(script=Script(reads, writes, _variables(env), network, keep_outputs), **others)

    for option in reversed(_OPTIONS):
        taking = option(taking)
    return taking


def _variables(given: tuple[str, ...]) -> dict[str, str]:
    for words in given:
        if not words.partition("=")[0] or "=" not in words or " " in words.partition("=")[0]:
            raise StudyError(f"--env {words!r}: write NAME=VALUE.")
    return dict(words.split("=", 1) for words in given)
