"""`tare weigh`: one command from a workload to a verdict.

`tare weigh --server ... --goal "p99 < 300 ms"`: the rates at which the sides are weighed to find the highest.

A search on each side by itself finds where to look. What is judged comes after it: all rates around what was found, on
all sides in turns, in blocks (analysis/resources/bottlenecks.py).
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import click

from tare.api.running import await_device, run_into, study_text, with_interpreter
from tare.api.studies import (
    USUAL_S,
    Script,
    built_in_workload,
    choose_platform,
    end_early,
    fetched,
    new_folder,
    refuse_no_images,
    sides,
    weigh_study,
)
from tare.base.errors import StudyError, TareError
from tare.base.text import heard_by, share_text
from tare.base.units import PER_SECOND, parse_quantity, parse_seconds
from tare.cli.command_line import CommandVerb, refuse_no_program, words_of
from tare.cli.own_line import Allowed, line_options, taken
from tare.cli.report import finish
from tare.cli.scaffold import (
    FOLDER,
    Option,
    as_one,
    json_option,
    margin_option,
    need,
    output_option,
    python_option,
    reading,
    say,
    wait_option,
)
from tare.records.model import counted_attempts, is_usable

# What `tare weigh` and `tare why` run: a built-in workload, a command or a server, and the options for each.


def _script(
    reads: tuple[Path, ...], writes: tuple[Path, ...], env: tuple[str, ...], network: str, keep_outputs: bool
) -> Script:
    if Path("/") in writes:
        raise StudyError("--writes /: the command would write to the whole device for real; name its folders.")
    for words in env:
        name, equals, _ = words.partition("=")
        need(bool(name and equals) and " " not in name, f"--env {words!r}: write NAME=VALUE.")
    return Script(reads, writes, dict(words.split("=", 1) for words in env), network, keep_outputs)


def _serving(server: str | None, port: int | None, **options: Any) -> dict[str, Any]:
    """The fields of a server and its load; none without `--server`."""
    load = {name: value for name, value in options.items() if value is not None}
    need(server is not None or not (load or port), "--port, --requests and the like need --server.")
    need(server is None or port is not None, "--server needs --port: where does it listen?")
    if server is None:
        return {}
    if "goal" in load:
        _need_quantity("goal", load, parse_seconds, "a time (300ms), or a percentile below 100 of it ('p99 < 300 ms')")
    if "rate" in load:
        _need_quantity("rate", load, lambda text: parse_quantity(text, PER_SECOND, "rate"), "a rate (50/s)")
    load |= {name: str(load[name]) for name in ("requests", "trace") if name in load}
    load |= {"arrivals": "trace"} if "trace" in load else {}
    return {"argv": words_of(server, "--server"), "port": port, **load}


def _need_quantity(option: str, load: Mapping[str, Any], parse: Callable[[str], float], wanted: str) -> None:
    """More than zero, and with its unit; after a percentile, where it is a goal."""
    found = percentile_goal(load) if option == "goal" else None
    try:
        good = parse(found[2] if found else load[option]) > 0
    except ValueError:
        good = False
    need(good, f"--{option} {load[option]!r}: write {wanted}, more than zero and with its unit.")


_PATH = click.Path(path_type=Path, exists=True, resolve_path=True)
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True)
script_options: Option = as_one(
    "script", _script,
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
server_options: Option = as_one(
    "serving", _serving,
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
steps_option: Option = click.option(
    "--steps", type=click.IntRange(1), help="End each trial after so many steps of a PyTorch script."
)
minutes_option: Option = click.option(
    "--minutes", type=click.FloatRange(0, min_open=True), help="End each trial so long after its first step began."
)


@dataclass(frozen=True)
class Asked:
    """The one workload that a command line names, and where it ends early."""

    built_in: str | None
    words: tuple[str, ...]
    serving: dict[str, Any]
    script: Script
    steps: int | None
    minutes: float | None

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
        need(
            self.is_own or not self.script.for_commands(), "--reads, --writes, --env and --keep-outputs need a command."
        )
        if self.serving:
            own = self.script.workload(tuple(self.serving["argv"]), image=image)["command"]
            work: dict[str, Any] = {"server": {**own, **self.serving}}
        elif self.words:
            work = self.script.workload(self.words, image=image)
        else:
            work = built_in_workload(self.built_in or "lenet5")
        self.end_early(work)
        return work

    def about_container(self) -> dict[str, object]:
        """What was given of it beside the platform."""
        return {"one of --reads, --writes, --env and --keep-outputs": self.script.for_commands()}

    def end_early(self, work: dict[str, Any]) -> None:
        end_early(work, self.steps, self.minutes)


def asked_workload(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The verb gets what its options and words say of the workload as one value called `asked`."""

    @functools.wraps(verb)
    def taking(
        *, workload: str | None, command_line: tuple[str, ...], serving: dict[str, Any], script: Script,
        steps: int | None, minutes: float | None, **others: Any,
    ) -> Any:  # fmt: skip
        return verb(asked=Asked(workload, command_line, serving, script, steps, minutes), **others)

    return taking


STEP = 0.05  # two rates are at least so far apart
AROUND = (-3, -1, 0, 1, 3)  # the rates of a side: so many steps from what the search found
WITHIN = 2 * STEP  # the search ends when a rate that meets the goal and one that misses it are no further apart
FEWEST_LATE = 10  # requests that may miss the goal: with fewer, chance decides
FIRST_LOOK = 200  # requests, one after the other
SLOWEST = 1 / 64  # of the rate of the first look: below it nothing meets the goal
LEAST_LIMIT_S = 600.0  # of a trial
_GOAL = re.compile(r"p(\d{1,2}(?:\.\d+)?) *<=? *(.+)")


@dataclass
class Found:
    """What was found of one side, in requests per second."""

    met: float | None = None  # the highest rate that meets the goal
    missed: float | None = None  # the lowest that does not
    why_no_more: str = ""  # why the search ended before it was as narrow as it should be
    tried: dict[float, float] = field(default_factory=dict)  # rate -> the share of good requests


def percentile_goal(serving: Mapping[str, Any]) -> re.Match[str] | None:
    """The percentile and the time of a goal like `p99 < 300 ms`; None where the goal is a time alone."""
    return _GOAL.fullmatch(str(serving.get("goal", "")).strip())


def ramp_goal(serving: dict[str, Any], margin: float) -> float | None:
    """The share of requests that must be good, of a goal like `p99 < 300 ms`; None where the goal is a time alone."""
    found = percentile_goal(serving)
    if found is None:
        return None
    need("rate" not in serving and "trace" not in serving, f"--goal {serving['goal']!r} finds the rate: leave --rate.")
    need(margin >= STEP, f"--margin: rates are tried {share_text(STEP)} apart, and a smaller margin cannot be decided.")
    share = float(found[1]) / 100
    serving["goal"] = found[2]
    serving.setdefault("count", math.ceil(FEWEST_LATE / (1 - share)))
    least = math.ceil(1 / (1 - share))
    few = (
        f"--goal 'p{found[1]} < ...' with --count {serving['count']}: it takes {least} requests or more for one of them"
    )
    need(int(serving["count"]) >= least, f"{few} to be late. Give a higher --count, or none, or a lower percentile.")
    return share


def search(share_at: Callable[[float], float], first: float, share: float) -> Found:
    """Doubling from `first`, or halving, until one rate meets the goal and one does not; then the middle of the two."""
    found = Found()
    while not (found.met and found.missed and found.missed <= found.met * (1 + WITHIN)):
        if found.met and found.missed:
            rate = math.sqrt(found.met * found.missed)
        else:
            rate = 2 * found.met if found.met else found.missed / 2 if found.missed else first
        rate = float(f"{rate:.4g}")
        if rate < SLOWEST * first:
            found.why_no_more = f"not even {found.missed:g}/s meets it"
            break
        try:
            found.tried[rate] = share_at(rate)
        except TareError as error:
            found.why_no_more = f"{rate:g}/s could not be measured: {error}"
            break
        if found.tried[rate] >= share:
            found.met = rate
        else:
            found.missed = rate
    return found


def rates_to_try(
    levels: list[Any], work: dict[str, Any], share: float, folder: Path, python: str | None
) -> dict[str, list[float]]:
    """Search on each side by itself; the rates around what was found, at which the sides are weighed."""
    middles, failed = {}, []
    for level in levels:
        side = level if isinstance(level, str) else next(iter(level))

        def loads(name: str, level: Any = level, side: str = side, **load: Any) -> dict[str, Any]:
            plain = {"platform": [level], "workload": {"server": {**work["server"], **load}}, "limit": limit(load)}
            return _load(plain, folder / f"{side}-{name}", python)

        def share_at(rate: float, loads: Any = loads, side: str = side) -> float:
            load = loads(f"{rate:g}", rate=f"{rate:g}/s", count=work["server"]["count"])
            found = float(load["good"] / load["sent"])
            say(f"  {side}, {rate:g}/s: {share_text(found)} of the requests are good")
            return found

        look = loads("closed", count=min(FIRST_LOOK, work["server"]["count"]))
        found = search(share_at, float(f"{look['ok'] / look['seconds']:.2g}"), share)
        if found.met and found.missed and not found.why_no_more:
            middles[side] = math.sqrt(found.met * found.missed)
        else:
            failed.append(rate_text(side, found, f"{share_text(share)} of the requests are good"))
    if failed:
        raise TareError("\n".join(["the rates to weigh at were not found, so there is no verdict:", *failed]))
    return rates_around(middles)


def limit(load: Mapping[str, Any]) -> str:
    """Of a trial: no less than three times what its requests take."""
    rate = float(str(load.get("rate", "inf")).removesuffix("/s"))
    return f"{LEAST_LIMIT_S + 3 * load['count'] / rate:.0f} s"


def rates_around(middles: Mapping[str, float]) -> dict[str, list[float]]:
    """The rates of each side, on one scale of steps. Sides that are hardly apart have the same; all have the lowest."""
    first = next(iter(middles.values()))
    steps = {side: round(math.log(middle / first) / math.log1p(STEP)) for side, middle in middles.items()}
    if all(abs(step) <= 1 for step in steps.values()):
        first, steps = math.exp(fmean(map(math.log, middles.values()))), dict.fromkeys(steps, 0)
    lowest = min(steps.values()) + AROUND[0]
    return {
        side: [
            float(f"{first * (1 + STEP) ** place:.3g}") for place in sorted({lowest, *(step + each for each in AROUND)})
        ]
        for side, step in steps.items()
    }


def at_rates(
    work: dict[str, Any], rates: Mapping[str, list[float]], share: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The workload at all these rates, and what else a study of them has; a side is not run at the rates of another."""
    every = sorted({rate for own in rates.values() for rate in own})
    others = {side: [rate for rate in every if rate not in own] for side, own in rates.items()}
    server = {**work["server"], "rate": [f"{rate:g}/s" for rate in every], "goal_share": share}
    away = [
        {"platform": side, "workload.rate": [f"{rate:g}/s" for rate in left]} for side, left in others.items() if left
    ]
    longest = limit({"rate": every[0], "count": server["count"]})
    return {"server": server}, {"exclude": away, "aa": False, "rehearse": False, "limit": longest}


def rate_text(side: str, found: Found, goal: str) -> str:
    """`bare: up to 60/s 99 % of the requests are good; 120/s could not be measured: ...`."""
    told = f"{side}: up to {found.met:g}/s {goal}" if found.met else f"{side}: at no rate {goal}"
    missed = f" ({share_text(found.tried[found.missed])} at {found.missed:g}/s)" if found.missed else ""
    return f"{told}{missed}{f'; {found.why_no_more}' if found.why_no_more else ''}"


def _load(plain: dict[str, Any], folder: Path, python: str | None) -> dict[str, Any]:
    """Run one trial, unless an earlier run did; what came of its requests. One that may not be believed is an error."""
    from tare.studies.load import from_plain

    fixed = {"study": "ramp", "repeat": 1, "aa": False, "rehearse": False}
    study = with_interpreter(from_plain({**fixed, **plain}, "tare weigh"), python)
    with heard_by(lambda text: None):  # of one trial no interval, and of many the same words each time
        outcome = run_into(study, study_text(study), folder, progress=False, retry_failed=True)
    if outcome.interrupted:
        say(f"{outcome.why}. The same command with `-o {folder.parent.parent}` resumes.")
        raise SystemExit(130)
    with reading(folder) as store:
        (record,) = counted_attempts(store.records())
    load: dict[str, Any] = record.facts.get("outcome", {}).get("load", {"ok": 0})
    no_tokens = record.settings.get("workload.goal_of") == "first_token" and load.get("unstreamed", -1) == load["ok"]
    if no_tokens or not is_usable(record):
        raise TareError(" ".join(map(str, record.reasons)))
    return load


@click.command("weigh", cls=CommandVerb)
@click.option("--in", "inside", metavar="PLATFORM", help="The platform to weigh.  [default: the first that works]")
@click.option("--workload", metavar="NAME", help="A built-in workload: see `tare list workloads`.  [default: lenet5]")
@python_option
@click.option(
    "--repeat", type=click.IntRange(1, 1000), help="Exactly so many blocks.  [default: 6 to 20, by the noise]"
)
@margin_option("5%")
@click.option(
    "--image",
    help="The container's image, fetched if it is not here; else the host's own files, and what is written goes with "
    "the trial.",
)
@click.option("--against-image", metavar="IMAGE", help="Weigh --image against this image, both in a container.")
@click.option(
    "--seconds",
    type=click.IntRange(1),
    help=f"Start no block, after the first, that would exceed this.  [default: {USUAL_S}, after the sixth block]",
)
@steps_option
@minutes_option
@click.option(
    "--design",
    type=click.Choice(["blocks"]),
    help="blocks: whole runs, one after the other.  [default: turns at the ends of steps, where that can be]",
)
@click.option("--cpu-time", is_flag=True, help="Judge the CPU time as well, which leaves out all waiting.")
@click.option("--verbose", is_flag=True, help="Show what the trials print, each line after its platform.")
@wait_option
@script_options
@line_options
@server_options
@output_option("The store's folder; else out/weigh-TIME.", FOLDER)
@json_option
@click.argument("command_line", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@asked_workload
def command(
    inside: str | None,
    asked: Asked,
    allowed: Allowed,
    python: str | None,
    repeat: int | None,
    margin: float,
    image: str | None,
    against_image: str | None,
    seconds: int | None,
    design: str | None,
    cpu_time: bool,
    verbose: bool,
    wait_s: float | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Weigh a workload on bare metal against a container, in interleaved blocks, and say what it costs.

    With COMMAND, any program of yours; where it is a PyTorch script its steps are marked without a change to it:

    tare weigh -- python train.py --epochs 1

    Or put it before the `docker run` or `podman run` line that you have: your container as it is, against the same
    command without it, on this device's files.

    tare weigh -- docker run --cpus 2 -v $PWD:/work -w /work app:1 python train.py

    First each side runs once, which is not counted: a platform on which it cannot run is found out there. A script of
    hours is ended early: --steps 200, or --minutes 3.

    A server is started inside and sent requests from outside: the mean and the tail of their latency are judged, the
    requests answered in time, and the start-up.

    tare weigh --server "python app.py" --port 8000 --requests requests.txt --rate 50/s

    A goal with a percentile finds the highest rate that meets it, and compares the sides by it: a search finds where to
    look, then the sides take turns at five rates around it, in blocks. Resume it with the same command and -o:

    tare weigh --server "python app.py" --port 8000 --goal "p99 < 300 ms"
    """
    ramp = ramp_goal(asked.serving, margin)
    need(ramp is None or not against_image, "a goal like 'p99 < 300 ms' finds a rate on bare metal and in a container.")
    given = {"--in": inside, "--image": image, "--against-image": against_image} | asked.about_container()
    line = taken(asked.words, allowed, given, asked.end_early)
    work = line.work if line else asked.workload(image=bool(image))
    need(not (python and asked.words), "--python is for built-in workloads: a command names its own.")
    named = asked.is_own or bool(asked.built_in)
    need(named or not image, "--image needs the command to run in it (-- COMMAND), or --workload.")
    need(not against_image or bool(image), "--against-image needs --image: the image that is weighed.")
    refuse_no_images(image, against_image)
    if line is None:
        refuse_no_program(work)
    await_device(wait_s or 0.0)
    with ExitStack() as stack:
        if line is None:
            chosen = choose_platform(inside, stack)
            fetched(chosen, image, against_image)
            if asked.is_own:
                say(asked.script.environment(in_image=any("in_image" in fields for fields in work.values())))
            levels, against = sides(chosen, asked.script.platform(), image, against_image, command=asked.is_own)
        else:
            levels, against = line.levels, {"against": {"platform": "bare"}}
        folder = output or new_folder("weigh")
        more: dict[str, Any] = {}
        if ramp is not None:
            say("searching for the rates around the goal, on each side by itself (these trials are not compared):")
            rates = rates_to_try(levels, work, ramp, folder / "search", python)
            (work, more), folder = at_rates(work, rates, ramp), folder / "blocks"
            lowest, highest = (end(rate for own in rates.values() for rate in own) for end in (min, max))
            say(f"now the sides take turns, in blocks, at rates from {lowest:g}/s to {highest:g}/s:")
        settings = {**({"runs": design} if design else {}), **({"cpu_time": True} if cpu_time else {})}
        study = weigh_study(
            work, levels, against, repeat=repeat, margin=margin, seconds=seconds, design=settings, **more
        )
        study = with_interpreter(study, python)
        outcome = run_into(study, study_text(study), folder, verbose=verbose, wait_s=wait_s or 0.0)
        if outcome.out_of_time:
            outcome = replace(outcome, why=would_not_fit(seconds))
        finish(folder, outcome, as_json, f"tare run {folder}/study.yaml -o {folder}")


def would_not_fit(seconds: int | None) -> str:
    """Why no other block was begun: by whose word."""
    allowed = f"tare weigh's default of {USUAL_S} s (--seconds)" if seconds is None else f"the {seconds} s of --seconds"
    return f"another block would not fit into {allowed}"
