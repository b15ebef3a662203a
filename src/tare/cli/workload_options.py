"""What `tare weigh` and `tare why` run: a built-in workload, a command or a server, and the options for each."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tare.api.weighing import Script, built_in_workload, end_early
from tare.base.errors import StudyError
from tare.cli.options import Option, need

_PATH = click.Path(path_type=Path, exists=True, resolve_path=True)
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True)
_FOR_SCRIPTS = (
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
_FOR_SERVERS = (
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
    click.option("--trace", metavar="FILE", type=_FILE,
                 help="Open loop: requests at the times of a recording, in seconds, one on each line."),
    click.option("--load-cores", type=click.IntRange(0),
                 help="Cores that make the load and that the server does not get; 0: all share all.  [default: 1]"),
    click.option("--goal", metavar="GOAL",
                 help="Good requests are answered within this: 300ms. With 'p99 < 300 ms' `tare weigh` compares the "
                 "highest rates that meet it.  [default: any time]"),
    click.option("--goal-of", type=click.Choice(["latency", "first_token"]),
                 help="What the goal is of; first_token: of streamed answers.  [default: latency]"),
)  # fmt: skip
_LOAD = (
    "ready", "api", "requests", "count", "warm_up", "concurrency", "rate", "trace", "load_cores", "goal", "goal_of",
)  # fmt: skip
steps_option: Option = click.option(
    "--steps", type=click.IntRange(1), help="End each trial after so many steps of a PyTorch script."
)
minutes_option: Option = click.option(
    "--minutes", type=click.FloatRange(0, min_open=True), help="End each trial so long after its first step began."
)


def chosen_workload(
    built_in: str | None,
    words: tuple[str, ...],
    serving: dict[str, Any],
    script: Script,
    *,
    image: bool,
    steps: int | None,
    minutes: float | None,
) -> dict[str, Any]:
    """The one workload that the command line names, and where it ends early."""
    need(not (serving and (built_in or words)), "give either --server, --workload or a command after --.")
    need(not (built_in and words), "give either --workload or a command after --, not both.")
    own = bool(words or serving)
    need(own or not script.for_commands(), "--reads, --writes, --env and --keep-outputs need a command.")
    if serving:
        work = server_workload(serving, script, image=image)
    elif words:
        work = script.workload(words, image=image)
    else:
        work = built_in_workload(built_in or "lenet5")
    end_early(work, steps, minutes)
    return work


def script_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The options, which the verb gets as one value called `script`."""

    @functools.wraps(verb)
    def taking(
        *, reads: Any, writes: Any, env: tuple[str, ...], network: str, keep_outputs: bool, **others: Any
    ) -> Any:
        if Path("/") in writes:
            raise StudyError("--writes /: the command would write to the whole device for real; name its folders.")
        return verb(script=Script(reads, writes, _variables(env), network, keep_outputs), **others)

    for option in reversed(_FOR_SCRIPTS):
        taking = option(taking)
    return taking


def _variables(given: tuple[str, ...]) -> dict[str, str]:
    for words in given:
        if not words.partition("=")[0] or "=" not in words or " " in words.partition("=")[0]:
            raise StudyError(f"--env {words!r}: write NAME=VALUE.")
    return dict(words.split("=", 1) for words in given)


def server_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The options, which the verb gets as one value called `serving`: a mapping, empty without `--server`."""

    @functools.wraps(verb)
    def taking(*, server: str | None, port: int | None, **others: Any) -> Any:
        load = {name: value for name in _LOAD if (value := others.pop(name)) is not None}
        need(server is not None or not (load or port), "--port, --requests and the like need --server.")
        need(server is None or port is not None, "--server needs --port: where does it listen?")
        if server is None:
            return verb(serving={}, **others)
        load |= {name: str(load[name]) for name in ("requests", "trace") if name in load}
        load |= {"arrivals": "trace"} if "trace" in load else {}
        return verb(serving={"argv": words_of(server), "port": port, **load}, **others)

    for option in reversed(_FOR_SERVERS):
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
