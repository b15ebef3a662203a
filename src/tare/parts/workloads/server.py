"""A program that listens, inside the platform, driven from outside by a load that tare makes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from tare.base.command_words import script_and_options
from tare.base.errors import TrialError
from tare.base.host import Host, Job, OwnDevice, shares_workdir
from tare.base.rulings import Ruling, obstacle
from tare.base.units import PositiveSeconds, parse_share
from tare.drivers.load import recorded_s, requests_of
from tare.drivers.places import launched
from tare.drivers.torch_programs import Rate
from tare.parts.protocols import Json, Machine
from tare.parts.workloads import command

SERVE = Path("inside") / "tare_inside" / "serve.py"
REHEARSED_REQUESTS = 20
_START_S = 1.0
"""Until a server answers: 0.3 s with the standard library alone, seconds where it imports a framework."""


class Server(command.Command):
    """Start a server of yours inside the platform, send it requests from outside, and mark each of them."""

    short: ClassVar[str | None] = None
    meets = "ready"
    reports = frozenset({"outcome", "metrics", "load", "settling"})  # of whoever makes the load
    example: ClassVar[Mapping[str, Json]] = {"argv": ("true",), "port": 8000}

    attach: Literal["none"] = "none"
    """The server knows nothing of us."""
    port: int = Field(gt=0, lt=65536)
    """Where it listens, at 127.0.0.1."""
    ready: str | None = None
    """When it is ready: a path that answers (`/health`), or words of a line that it prints; by default, when something
    listens on the port."""
    start: PositiveSeconds = 120.0
    """How long it may take until then."""
    grace: PositiveSeconds = 10.0
    """How long it may take to stop after SIGTERM, before it is killed."""
    api: Literal["http", "completions", "chat", "embeddings"] = "http"
    """`http`: requests as the file has them; the others as OpenAI-compatible servers take them, with streamed answers
    of completions and chat."""
    requests: Path | None = None
    """A file with a request on each line: a path, or JSON with method, path, headers and body; for the other APIs a
    prompt, or the JSON of the body. `GET /` by default, or a prompt of 22 words."""
    count: PositiveInt = 200
    """How many are sent and measured; the file's from the start again when they are over."""
    concurrency: PositiveInt = 1
    """Closed loop: so many in flight, the next one when one is answered."""
    rate: Rate | None = None
    """Open loop: so many a second (`50/s`), whatever the answers take; latencies count from when they were due."""
    arrivals: Literal["poisson", "even", "bursts", "trace"] = "poisson"
    """How the requests of an open loop come; `trace`: at the times of a file."""
    burst: PositiveInt = 10
    """Of `bursts`: requests that come at once."""
    trace: Path | None = None
    """A file with the times of requests, in seconds, one on each line."""
    timeout: PositiveSeconds = 30.0
    """A request without a whole answer after this has timed out; it counts, with this latency."""
    goal: PositiveSeconds | None = None
    """A good request is answered within this: `goodput_per_s` counts them; every answered one by default."""
    goal_of: Literal["latency", "first_token"] = "latency"
    """What the goal is of."""
    goal_share: Annotated[float, BeforeValidator(parse_share), Field(gt=0, lt=1)] | None = None
    """With several rates: the highest at which so many requests are good (`99 %`) is found in each block, and the sides
    are compared by it."""
    warm_up: NonNegativeInt = 200
    """At most so many requests are sent before anything is measured; fewer where they take as long as those before."""
    load_cores: NonNegativeInt = 1
    """Cores, the last of the device's, that make the load and that the server does not get; 0: all share all."""

    @field_validator("requests", "trace")
    @classmethod
    def _is_whole_path(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_absolute():
            raise ValueError(f"{str(path)!r} depends on where tare is started; write the whole path")
        return path

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.steps or self.minutes:
            raise ValueError("a server runs until its requests are answered: `count` says how many")
        if (self.arrivals == "trace") != (self.trace is not None):
            raise ValueError("`arrivals: trace` and `trace: FILE` go together")
        if self.rate is None and self.arrivals in ("even", "bursts"):
            raise ValueError(f"`arrivals: {self.arrivals}` needs a `rate`")
        if self.goal_share is not None and (self.goal is None or self.rate is None):
            raise ValueError("`goal_share` is the share of requests that meet a `goal`, at each `rate`: give all three")
        if self.goal_of == "first_token" and self.api not in ("completions", "chat"):
            raise ValueError("only streamed answers have a first token: `api: completions` or `chat`")
        return self

    def obstacles(self, host: Host) -> list[Ruling]:
        found = super().obstacles(host)
        if not isinstance(host, OwnDevice):
            found.append(obstacle("needs.full-device", "the load is made on the device itself, by a tare there."))
        for file, read in ((self.requests, partial(requests_of, self.api)), (self.trace, recorded_s)):
            try:
                if file is not None:
                    read(file)
            except FileNotFoundError:
                found.append(obstacle("needs.file", f"no file {file}."))
            except OSError as error:
                found.append(obstacle("needs.file", f"{file} cannot be read: {error.strerror}."))
            except ValueError as error:
                found.append(obstacle("needs.file", f"{error}."))
        return found

    def title(self) -> str:
        """Its program and its load; ports and the like tell people nothing."""
        if self.label is not None:
            return super().title()
        load = f"{self.concurrency} in flight"
        if self.arrivals == "trace":
            load = "as recorded"
        elif self.rate is not None:
            load = f"{self.rate:g} requests/s"
        return f"{script_and_options(self._argv())[0]}, {load}"

    def settings(self) -> dict[str, Json]:
        return {name: value for name, value in super().settings().items() if value is not None}

    def shortened(self) -> Self:
        few = min(self.count, REHEARSED_REQUESTS)
        return self.model_copy(update={"count": few, "warm_up": min(self.warm_up, few)})

    def guessed_s(self, machine: Machine) -> float | None:
        return None if self.rate is None else _START_S + self.count / self.rate

    def about_units(self) -> int | None:
        return self.count + self.warm_up

    def _timed(self, place: Host, workdir: Path, argv: tuple[str, ...], env: dict[str, str], folder: str) -> Job:
        if not place.python:
            raise TrialError("a server is started and stopped by a Python inside, and this image has none.")
        _, cores = self._cores()
        order = {
            "folder": str(workdir), "port": self.port, "ready": self.ready, "start_s": self.start,
            "grace_s": self.grace, "cores": cores,
        }  # fmt: skip
        wrapped = (place.python, "-I", "-S", str(workdir / SERVE), json.dumps(order), "--", *argv)
        own = {name: value for name, value in {**env, **self._env()}.items() if name != "TARE_MARKS"}
        return Job(launched(place.python, workdir, wrapped), own, folder)

    def _cores(self) -> tuple[list[int], list[int]]:
        """The cores of the load and those of the server; empty lists where there are not enough to share them out."""
        usable = sorted(os.sched_getaffinity(0))
        if not 0 < self.load_cores < len(usable):
            return [], []
        return usable[-self.load_cores :], usable[: -self.load_cores]

    def driver(self, place: Host, workdir: Path, seed: int) -> Job:
        """The program that makes the load; where the platform has a network of its own, within that."""
        if not shares_workdir(place):
            raise TrialError("a server in a virtual machine cannot be reached: tare gives it no network.")
        order = {
            "folder": str(workdir), "marks": str(workdir / "marks.bin"), "outcome": str(workdir / "outcome.json"),
            "cores": self._cores()[0], "seed": seed, "timeout_s": self.timeout, "goal_s": self.goal,
            **self.model_dump(
                mode="json",
                include={"port", "api", "requests", "count", "concurrency", "rate", "arrivals", "burst", "trace",
                         "goal_of", "warm_up"},
            ),
        }  # fmt: skip
        argv: tuple[str, ...] = (sys.executable, "-m", "tare.drivers.load", json.dumps(order))
        pid = place.scope().pid
        if pid is not None and _network(pid) != _network(os.getpid()):
            argv = ("nsenter", f"--net=/proc/{pid}/ns/net", "--", *argv)
        source = str(Path(__file__).parents[3])
        path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
        return Job(argv, {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": path}, "/")


def _network(pid: int) -> str:
    """Which network a process has; who may not know is taken to share ours."""
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return str(Path("/proc/self/ns/net").readlink())
