"""The options of `tare weigh` for a server: its command line, its port, and the load that is made for it."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tare.api.weighing import Script
from tare.base.errors import StudyError
from tare.cli.options import need

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True)
_OPTIONS = (
    click.option("--server", metavar="COMMAND", help='Weigh a server ("python app.py"), under load from outside.'),
    click.option("--port", type=click.IntRange(1, 65535), help="Where the server listens, at 127.0.0.1."),
    click.option("--ready", metavar="PATH|WORDS",
                 help="The server is ready when /PATH answers, or it prints WORDS.  [default: the port is open]"),
    click.option("--api", type=click.Choice(["http", "completions", "chat", "embeddings"]),
                 help="How requests are sent: as the file has them, or as OpenAI-compatible servers take them."),
    click.option("--requests", metavar="FILE", type=_FILE,
                 help="A request on each line: a path, a prompt, or JSON.  [default: GET /]"),
    click.option("--count", type=click.IntRange(1), help="Requests of a trial.  [default: 200]"),
    click.option("--warm-up", type=click.IntRange(0),
                 help="At most so many requests before anything is measured.  [default: 200]"),
    click.option("--concurrency", type=click.IntRange(1), help="Closed loop: requests in flight.  [default: 1]"),
    click.option("--rate", metavar="RATE", help="Open loop: requests per second (50/s), at random times."),
    click.option("--load-cores", type=click.IntRange(0),
                 help="Cores that make the load and that the server does not get; 0: all share all.  [default: 1]"),
    click.option("--goal", metavar="TIME", help="Good requests are answered within this (300ms).  [default: any time]"),
)  # fmt: skip
_LOAD = ("ready", "api", "requests", "count", "warm_up", "concurrency", "rate", "load_cores", "goal")


def server_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The options, which the verb gets as one value called `serving`: a mapping, empty without `--server`."""

    @functools.wraps(verb)
    def taking(*, server: str | None, port: int | None, **others: Any) -> Any:
        load = {name: value for name in _LOAD if (value := others.pop(name)) is not None}
        need(server is not None or not (load or port), "--port, --requests and the like need --server.")
        need(server is None or port is not None, "--server needs --port: where does it listen?")
        if server is None:
            return verb(serving={}, **others)
        if "requests" in load:
            load["requests"] = str(load["requests"])
        return verb(serving={"argv": words_of(server), "port": port, **load}, **others)

    for option in reversed(_OPTIONS):
        taking = option(taking)
    return taking


def words_of(line: str) -> list[str]:
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise StudyError(f"--server {line!r}: {error}.") from None
    if not words:
        raise StudyError("--server: the command is empty.")
    return words


def server_workload(serving: dict[str, Any], script: Script, *, image: bool) -> dict[str, Any]:
    """The server as a workload, with what the options for scripts give."""
    own = script.workload(tuple(serving["argv"]), image=image)["command"]
    return {"server": {**own, **serving}}
