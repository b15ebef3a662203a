"""What `tare weigh` and `tare why` run: a built-in workload, a command or a server, and the options for each."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tare.api.studies import Script, built_in_workload, end_early, mounted, read_limit
from tare.base.errors import StudyError
from tare.base.units import PER_SECOND, parse_quantity, parse_seconds
from tare.cli.command_line import words_of
from tare.cli.fields import Fields, set_option
from tare.cli.scaffold import Option, QuantityOption, need, several

_GOAL = re.compile(r"p(\d{1,2}(?:\.\d+)?) *<=? *(.+)")
_OF = ("latency", "first_token")

trial_limit_option: Option = click.option(
    "--trial-limit", "ends", type=QuantityOption("limit", read_limit), metavar="LIMIT",
    help="End each trial of a PyTorch script early: 200steps, or 3min after its first step.",
)  # fmt: skip
mount_option: Option = click.option(
    "--mount", "mounts", metavar="PATH[:rw]", multiple=True,
    help="A file or folder of this device that the container reads; with :rw it is written to. Repeatable.",
)  # fmt: skip
server_options: Option = several(
    click.option("--server", metavar="COMMAND", help='Weigh a server ("python app.py"); tare sends it requests.'),
    click.option("--port", type=click.IntRange(1, 65535), help="Where the server listens, at 127.0.0.1."),
)
load_option: Option = click.option(
    "--load", metavar="LOAD",
    help="Requests to send: inflight:4 at a time, rate:50/s at random times, or replay:FILE with a time in seconds on "
    "each line.  [default: inflight:1]",
)  # fmt: skip
slo_option: Option = click.option(
    "--slo", metavar="GOAL",
    help='A good request is answered within "300 ms"; "first_token 300 ms" is of the first token. With a percentile, '
    '"p99 < 300 ms", the highest rates that meet it are compared.',
)  # fmt: skip
workload_options: Option = several(
    click.option("--workload", metavar="NAME",
                 help="A built-in workload; `tare list workloads` lists them.  [default: lenet5]"),
    mount_option, server_options, set_option,
)  # fmt: skip


def _load(text: str) -> dict[str, Any]:
    """The fields of a server's workload for a load."""
    kind, colon, value = text.partition(":")
    if colon and kind == "inflight" and value.isdecimal() and int(value) > 0:
        return {"concurrency": int(value)}
    if colon and kind == "rate":
        _need_quantity("--load rate:", value, lambda text: parse_quantity(text, PER_SECOND, "rate"), "a rate (50/s)")
        return {"rate": value}
    if colon and kind == "replay":
        need(Path(value).is_file(), f"--load {text}: there is no file {value}.")
        return {"trace": str(Path(value).resolve()), "arrivals": "trace"}
    raise StudyError(f"--load {text!r}: write inflight:4, rate:50/s or replay:FILE.")


def _goal(text: str) -> dict[str, Any]:
    """The fields of a server's workload for a goal: of what, and the time, maybe after a percentile."""
    of, _, rest = text.strip().partition(" ")
    named = {"goal_of": of} if of in _OF else {}
    goal = (rest if named else text).strip()
    found = _GOAL.fullmatch(goal)
    time = found[2] if found else goal.lstrip("<= ")
    wanted = "a time (300ms), or a percentile below 100 of it ('p99 < 300 ms')"
    _need_quantity("--slo ", time, parse_seconds, wanted, shown=text)
    return {**named, "goal": goal if found else time}


def _need_quantity(
    option: str, text: str, parse: Callable[[str], float], wanted: str, shown: str | None = None
) -> None:
    """More than zero, and with its unit."""
    try:
        good = parse(text) > 0
    except ValueError:
        good = False
    need(good, f"{option}{(shown or text)!r}: write {wanted}, more than zero and with its unit.")


def percentile_goal(serving: Mapping[str, Any]) -> re.Match[str] | None:
    """The percentile and the time of a goal like `p99 < 300 ms`; None where the goal is a time alone."""
    return _GOAL.fullmatch(str(serving.get("goal", "")).strip())


@dataclass(frozen=True)
class Asked:
    """The one workload that a command line names, and what is set of it."""

    built_in: str | None
    words: tuple[str, ...]
    serving: dict[str, Any]  # the fields of a server; none without --server
    script: Script
    ends: Mapping[str, float] | None
    fields: Fields

    @property
    def is_own(self) -> bool:
        """Whether it is a command or a server of theirs."""
        return bool(self.words or self.serving)

    def workload(self, *, image: bool) -> dict[str, Any]:
        """As a study has it; `image`: it is run in one."""
        need(
            not (self.serving and (self.built_in or self.words)),
            "give either --server, --workload or a command after --.",
        )
        need(not (self.built_in and self.words), "give either --workload or a command after --, not both.")
        need(self.is_own or not self.script.for_commands(), "--mount and workload.env need a command.")
        if self.serving:
            own = self.script.workload(tuple(self.serving["argv"]), image=image)["command"]
            work: dict[str, Any] = {"server": {**own, **self.serving}}
        elif self.words:
            work = self.script.workload(self.words, image=image)
        else:
            work = built_in_workload(self.built_in or "lenet5")
        self.end_early(work)
        return self.fields.on(work)

    def about_container(self) -> dict[str, object]:
        """What was given of it beside the platform."""
        return {"one of --mount and workload.env": self.script.for_commands()}

    def end_early(self, work: dict[str, Any]) -> None:
        end_early(work, self.ends)


def asked_workload(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The verb gets what its options and words say of the workload as one value called `asked`."""

    @functools.wraps(verb)
    def taking(
        *, workload: str | None, command_line: tuple[str, ...], server: str | None, port: int | None,
        mounts: tuple[str, ...], fields: Fields, ends: Mapping[str, float] | None = None, load: str | None = None,
        slo: str | None = None, **others: Any,
    ) -> Any:  # fmt: skip
        variables = {name: str(value) for name, value in fields.workload.get("env", {}).items()}
        if variables:
            fields.workload["env"] = variables
        serving: dict[str, Any] = {}
        need(server is not None or not (load or slo or port), "--port, --load and --slo need --server.")
        if server is not None:
            need(port is not None, "--server needs --port: where does it listen?")
            serving = {"argv": words_of(server, "--server"), "port": port}
            serving |= {**(_load(load) if load else {}), **(_goal(slo) if slo else {}), **fields.workload}
        script = Script(*mounted(mounts), variables)
        return verb(asked=Asked(workload, command_line, serving, script, ends, fields), **others)

    return taking
