"""`tare weigh`: one command from a workload to a verdict."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from tare.api.running import run_into, study_text
from tare.api.weighing import Script, choose_platform, fetched, sides, weigh_study
from tare.cli.endings import finish
from tare.cli.options import FOLDER, ShareOption, json_option, margin_option, need, output_option
from tare.cli.ramp import at_rates, ramp_goal, rates_to_try
from tare.cli.scaffold import Verb, say
from tare.cli.studies import python_option, with_interpreter
from tare.cli.workload_options import (
    chosen_workload,
    minutes_option,
    script_options,
    server_options,
    steps_option,
)


@click.command("weigh", cls=Verb)
@click.option("--in", "inside", metavar="PLATFORM", help="The platform to weigh.  [default: the first that works]")
@click.option("--workload", metavar="NAME", help="A built-in workload: see `tare list workloads`.  [default: lenet5]")
@python_option
@click.option(
    "--repeat", type=click.IntRange(1, 1000), help="Exactly so many blocks.  [default: 7 to 20, by the noise]"
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
    default=140,
    show_default=True,
    help="After the seventh block, start no block that would exceed this.",
)
@steps_option
@minutes_option
@click.option(
    "--design",
    type=click.Choice(["blocks", "slices"]),
    default="blocks",
    show_default=True,
    help="slices: both sides alive at once, in turns of a fraction of a second, for a noisy machine.",
)
@click.option(
    "--quiet", type=ShareOption(), help="In slices: leave out rounds in which others took a larger CPU share."
)
@click.option("--cpu-time", is_flag=True, help="Judge the CPU time as well, which leaves out all waiting.")
@click.option("--verbose", is_flag=True, help="Show what the trials print, each line after its platform.")
@script_options
@server_options
@output_option("The store's folder; else out/weigh-TIME.", FOLDER)
@json_option
@click.argument("command_line", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
def command(
    inside: str | None,
    workload: str | None,
    python: str | None,
    repeat: int | None,
    margin: float,
    image: str | None,
    against_image: str | None,
    seconds: int,
    steps: int | None,
    minutes: float | None,
    design: str,
    quiet: float | None,
    cpu_time: bool,
    verbose: bool,
    script: Script,
    serving: dict[str, Any],
    output: Path | None,
    as_json: bool,
    command_line: tuple[str, ...],
) -> None:
    """Weigh a workload on bare metal against a container, in interleaved blocks, and say what it costs.

    With COMMAND, any program of yours; where it is a PyTorch script its steps are marked without a change to it:

    tare weigh -- python train.py --epochs 1

    First each side runs once, which is not counted: a platform on which it cannot run is found out there. A script of
    hours is ended early: --steps 200, or --minutes 3.

    A server is started inside and sent requests from outside: the mean and the tail of their latency are judged, the
    requests answered in time, and the start-up.

    tare weigh --server "python app.py" --port 8000 --requests requests.txt --rate 50/s

    A goal with a percentile finds the highest rate that meets it, and compares the sides by it: a search finds where to
    look, then the sides take turns at five rates around it, in blocks. Resume it with the same command and -o:

    tare weigh --server "python app.py" --port 8000 --goal "p99 < 300 ms"
    """
    ramp = ramp_goal(serving, margin)
    need(ramp is None or not against_image, "a goal like 'p99 < 300 ms' finds a rate on bare metal and in a container.")
    work = chosen_workload(workload, command_line, serving, script, image=bool(image), steps=steps, minutes=minutes)
    own = bool(command_line or serving)
    need(not (python and command_line), "--python is for built-in workloads: a command names its own.")
    need(own or bool(workload) or not image, "--image needs the command to run in it (-- COMMAND), or --workload.")
    need(not against_image or bool(image), "--against-image needs --image: the image that is weighed.")
    need(quiet is None or design == "slices", "--quiet is about rounds of slices: add --design slices.")
    slices = {"slices": {"quiet": quiet} if quiet is not None else {}} if design == "slices" else {}
    if own:
        say(script.environment(in_image=any("in_image" in fields for fields in work.values())))
    with ExitStack() as stack:
        chosen = choose_platform(inside, stack)
        fetched(chosen, image, against_image)
        levels, against = sides(chosen, script.platform(), image, against_image, command=own)
        folder = output or Path("out") / f"weigh-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        more: dict[str, Any] = {}
        if ramp is not None:
            say("searching for the rates around the goal, on each side by itself (these trials are not compared):")
            rates = rates_to_try(levels, work, ramp, folder / "search", python)
            (work, more), folder = at_rates(work, rates, ramp), folder / "blocks"
            lowest, highest = (end(rate for own in rates.values() for rate in own) for end in (min, max))
            say(f"now the sides take turns, in blocks, at rates from {lowest:g}/s to {highest:g}/s:")
        settings = {**slices, **({"cpu_time": True} if cpu_time else {})}
        study = weigh_study(
            work, levels, against, repeat=repeat, margin=margin, seconds=seconds, design=settings, **more
        )
        study = with_interpreter(study, python)
        outcome = run_into(study, study_text(study), folder, verbose=verbose)
        if outcome.out_of_time:
            named = click.get_current_context().get_parameter_source("seconds") is ParameterSource.COMMANDLINE
            outcome = replace(outcome, why=would_not_fit(seconds, named))
        finish(folder, outcome, as_json, f"tare run {folder}/study.yaml -o {folder}")


def would_not_fit(seconds: int, named: bool) -> str:
    """Why no other block was begun: by whose word."""
    allowed = f"the {seconds} s of --seconds" if named else f"tare weigh's default of {seconds} s (--seconds)"
    return f"another block would not fit into {allowed}"
