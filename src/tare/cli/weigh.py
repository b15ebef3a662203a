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

from tare.base.errors import ObstacleError, StudyError
from tare.base.near_name import unknown_name
from tare.base.rulings import Ruling
from tare.cli.needs import needs_of, platform
from tare.cli.options import FOLDER, Option, ShareOption, json_option, margin_option, need, output_option
from tare.cli.scaffold import Verb, say
from tare.cli.scripts import Script, script_options
from tare.cli.studies import python_option, with_interpreter
from tare.cli.study_runs import finish, run_into, study_text

steps_option: Option = click.option(
    "--steps", type=click.IntRange(1), help="End each trial after so many steps of a PyTorch script."
)
minutes_option: Option = click.option(
    "--minutes", type=click.FloatRange(0, min_open=True), help="End each trial so long after its first step began."
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
    output: Path | None,
    as_json: bool,
    command_line: tuple[str, ...],
) -> None:
    """Weigh a workload on bare metal against a container, in interleaved blocks, and say what it costs.

    With COMMAND, any program of yours; where it is a PyTorch script its steps are marked without a change to it:

    tare weigh -- python train.py --epochs 1

    First each side runs once, which is not counted: a platform on which it cannot run is found out there. A script of
    hours is ended early: --steps 200, or --minutes 3.
    """
    need(not (workload and command_line), "give either --workload or a command after --, not both.")
    need(not (python and command_line), "--python is for built-in workloads: a command names its own.")
    need(bool(command_line) or not script.for_commands(), "--reads, --writes, --env and --keep-outputs need a command.")
    need(not against_image or bool(image), "--against-image needs --image: the image that is weighed.")
    need(quiet is None or design == "slices", "--quiet is about rounds of slices: add --design slices.")
    from tare.study.load import from_plain

    slices = {"slices": {"quiet": quiet} if quiet is not None else {}} if design == "slices" else {}
    work = script.workload(command_line, image=bool(image)) if command_line else built_in_workload(workload or "lenet5")
    end_early(work, steps, minutes)
    if command_line:
        say(script.environment(in_image="in_image" in work["command"]))
    with ExitStack() as stack:
        chosen = choose_platform(inside, stack)
        fetched(chosen, image, against_image)
        levels, against = sides(chosen, script.platform(), image, against_image, command=bool(command_line))
        study = from_plain(
            {
                "study": "weigh",
                "platform": levels,
                "workload": work,
                "repeat": repeat or {"min": 7, "max": 20, "until": margin / 2, "within": f"{seconds} s"},
                "design": {**slices, **({"cpu_time": True} if cpu_time else {})},
                "compare": {**against, "margin": margin},
                "rehearse": True,
            },
            "tare weigh",
        )
        study = with_interpreter(study, python)
        folder = output or Path("out") / f"weigh-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        outcome = run_into(study, study_text(study), folder, verbose=verbose)
        if outcome.out_of_time:
            named = click.get_current_context().get_parameter_source("seconds") is ParameterSource.COMMANDLINE
            outcome = replace(outcome, why=would_not_fit(seconds, named))
        finish(folder, outcome, as_json, f"tare run {folder}/study.yaml -o {folder}")


def would_not_fit(seconds: int, named: bool) -> str:
    """Why no other block was begun: by whose word."""
    allowed = f"the {seconds} s of --seconds" if named else f"tare weigh's default of {seconds} s (--seconds)"
    return f"another block would not fit into {allowed}"


def sides(
    chosen: str, fields: dict[str, Any], image: str | None, against: str | None, *, command: bool
) -> tuple[list[Any], dict[str, Any]]:
    """What is weighed against what: platforms as a study has them, and its baseline. Says which software bare runs."""
    image, against = (None if each is None else placed(each) for each in (image, against))
    if against:
        by = "platform.image"
        return [{chosen: {**fields, "image": [against, image]}}], {"by": by, "against": {by: against}}
    bare: Any = "bare"
    if image and command:
        bare = {"bare": {"image": image}}
        say(f"bare metal runs in the file system of {image} too: the same bytes on both sides.")
    elif image:
        say(f"bare metal runs this device's software, {chosen} that of {image}: what differs is in the report.")
    fields = {**fields, **({"image": image} if image else {})}
    return [bare, {chosen: fields} if fields else chosen], {"against": {"platform": "bare"}}


def end_early(work: dict[str, Any], steps: int | None, minutes: float | None) -> None:
    """The workload, ended after so many steps or minutes where that is asked for."""
    bounds = {name: value for name, value in (("steps", steps), ("minutes", minutes)) if value is not None}
    need("command" in work or not bounds, "--steps and --minutes are for a command after --.")
    if bounds:
        work["command"] |= bounds


def fetched(platform: str, *images: str | None) -> None:
    """Images that are not on this device are fetched before anything is run."""
    from tare.drivers.containers.pulling import fetch
    from tare.drivers.containers.unpacked import refuse_no_image

    for image in dict.fromkeys(images):
        if image:
            refuse_no_image(image)
            fetch(platform, placed(image), say)


def placed(image: str) -> str:
    """An image as a study names it: a file or folder by its whole path."""
    from tare.drivers.containers.unpacked import is_path

    return str(Path(image).expanduser().resolve()) if is_path(image) else image


def built_in_workload(name: str) -> dict[str, Any]:
    """A workload of the papers, in a size for a few seconds a trial, or any workload part that needs no fields."""
    from tare.drivers.workloads.presets import PRESETS
    from tare.parts.find import find, names

    presets = {preset.name: preset.workload(quick=True) for preset in PRESETS}
    plain = [part for part in names("workloads") if not find("workloads", part).example]
    known = {**{part: {part: {}} for part in plain}, **presets}
    if name in known:
        return known[name]
    raise StudyError(unknown_name("built-in workload", name, [*presets, *plain]))


def choose_platform(asked: str | None, stack: ExitStack) -> str:
    """The platform that was asked for, or the first container that works here; says what it passed over."""
    need(asked != "bare", "bare metal is what the others are weighed against; name a container platform.")
    refused: list[Ruling] = []
    names = [asked] if asked else tried()
    for name in names:
        obstacles = _obstacles(name, stack)
        if not obstacles:
            if refused:
                say(f"weighing in {name} instead:")
                for sentence in refused:
                    say(f"  - {sentence}")
            return name
        refused += obstacles
    what = f"{asked} cannot" if asked else "none of " + ", ".join(names) + " can"
    raise ObstacleError(f"{what} be used here, and nothing was run:", refused)


def _obstacles(name: str, stack: ExitStack) -> list[Ruling]:
    from tare.base.host import LocalHost

    stack.enter_context(needs_of([name]))
    return platform(name)().obstacles(LocalHost())


def tried() -> list[str]:
    """The platforms that are tried where none is named, in this order."""
    from tare.parts.find import names

    ranks = {name: platform(name).tried for name in names("platforms")}
    return sorted((name for name, rank in ranks.items() if rank is not None), key=lambda name: ranks[name] or 0)
