"""`tare weigh`: one command from a workload to a verdict."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tare.api.running import await_device, continued, load_study, needs_of_study, run_into, study_text
from tare.api.studies import USUAL_S, choose_platform, fetched, new_folder, refuse_no_images, sides, weigh_study
from tare.cli.asked import Asked, asked_workload, load_option, slo_option, trial_limit_option, workload_options
from tare.cli.command_line import CommandVerb, refuse_no_program
from tare.cli.limits import limit_option
from tare.cli.own_line import Described, described_options, taken
from tare.cli.ramp import at_rates, ramp_goal, rates_to_try
from tare.cli.report import finish
from tare.cli.scaffold import (
    DURATION,
    FOLDER,
    STORE,
    json_option,
    margin_option,
    need,
    output_option,
    say,
)
from tare.records.schema import STORE_FILE, STUDY_FILE

_WITH_RESUME = ("resume", "budget_s", "blocks", "as_json")


@click.command("weigh", cls=CommandVerb)
@click.option("--in", "inside", metavar="PLATFORM", help="The platform to weigh.  [default: the first that works]")
@click.option("--image", help="The container's image, fetched if it is not here.  [default: this device's own files]")
@click.option("--against-image", metavar="IMAGE", help="Weigh --image against this image, both in a container.")
@limit_option
@described_options
@workload_options
@trial_limit_option
@load_option
@slo_option
@click.option(
    "--budget", "budget_s", type=DURATION, metavar="TIME",
    help=f"How long the whole command may take, like 5min.  [default: {USUAL_S} s, or six blocks if they take longer]",
)  # fmt: skip
@click.option("--blocks", type=click.IntRange(1, 1000), help="This many in all.  [default: 6 to 20, by the noise]")
@margin_option("5%")
@click.option("--resume", type=STORE, metavar="DIR", help="Finish this weighing; --budget or --blocks adds blocks.")
@output_option("The store's folder; else out/weigh-TIME.", FOLDER)
@json_option
@click.argument("command_line", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@asked_workload
def command(
    inside: str | None, asked: Asked, limits: dict[str, Any], blocks: int | None, margin: float, image: str | None,
    against_image: str | None, described: Described, budget_s: float | None, resume: Path | None, output: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Weigh a workload on bare metal against a container, in turns, and say what the container costs.

    COMMAND is any program. A PyTorch script is timed by step, without a change to it. A container that you have is
    weighed as it is: put its `docker run` or `podman run` line in the place of COMMAND.

    tare weigh -- python train.py --epochs 1

    tare weigh --in docker --image app:1 --limit cpus=2 -- python train.py

    tare weigh -- docker run --cpus 2 -v $PWD:/work -w /work app:1 python train.py

    tare weigh --resume out/weigh-1 --budget 5min

    A server is started inside and gets its requests from outside. Its latency and start-up are judged; with a
    percentile in --slo, the highest rate that meets it:

    tare weigh --server "python app.py" --port 8000 --load rate:50/s

    tare weigh --server "python app.py" --port 8000 --slo "p99 < 300 ms"
    """
    began_s = time.monotonic()
    if resume is not None:
        _resume(resume, blocks, budget_s, as_json)
        return
    ramp = ramp_goal(asked.serving, margin)
    need(ramp is None or not against_image, "a goal like 'p99 < 300 ms' finds a rate on bare metal and in a container.")
    given = {"--in": inside, "--image": image, "--against-image": against_image, "--limit": limits}
    if described.is_given:
        await_device()  # before a container beside it is started
    line = taken(asked.words, asked.fields, given | asked.about_container(), asked.end_early, described=described)
    work = line.work if line else asked.workload(image=bool(image))
    named = asked.is_own or bool(asked.built_in)
    need(named or not image, "--image needs the command to run in it (-- COMMAND), or --workload.")
    need(not against_image or bool(image), "--against-image needs --image: the image that is weighed.")
    refuse_no_images(image, against_image)
    if line is None:
        refuse_no_program(work)
    await_device()
    with ExitStack() as stack:
        if line is None:
            chosen = choose_platform(inside, stack)
            fetched(chosen, image, against_image)
            if asked.is_own:
                say(asked.script.environment(in_image=any("in_image" in fields for fields in work.values())))
            container = {**asked.script.platform(), **limits, **asked.fields.platform}
            levels, against = sides(chosen, container, image, against_image, command=asked.is_own)
        else:
            levels, against = line.levels, {"against": {"platform": "bare"}}
        folder = output or new_folder("weigh")
        more = dict(asked.fields.study)
        if ramp is not None:
            say("searching for the rates around the goal, on each side by itself (these trials are not compared):")
            rates = rates_to_try(levels, work, ramp, folder / "search")
            (work, extra), folder = at_rates(work, rates, ramp), folder / "blocks"
            more |= extra
            lowest, highest = (end(rate for own in rates.values() for rate in own) for end in (min, max))
            say(f"now the sides take turns, in blocks, at rates from {lowest:g}/s to {highest:g}/s:")
        left_s = None if budget_s is None else max(1.0, budget_s - (time.monotonic() - began_s))
        study = weigh_study(work, levels, against, blocks=blocks, margin=margin, budget_s=left_s, more=more)
        outcome = run_into(study, study_text(study), folder)
        if outcome.out_of_time:
            outcome = replace(outcome, why=would_not_fit(budget_s))
        finish(folder, outcome, as_json, f"tare run {folder}")


def _resume(folder: Path, blocks: int | None, budget_s: float | None, as_json: bool) -> None:
    """More blocks for a weighing that is there."""
    given = click.get_current_context()
    source = click.core.ParameterSource.COMMANDLINE
    others = [param for param in given.command.params if given.get_parameter_source(str(param.name)) is source]
    wrong = next((param for param in others if param.name not in _WITH_RESUME), None)
    need(wrong is None, f"{wrong and wrong.opts[0]}: --resume takes what {folder} was started with.")
    need((folder / STORE_FILE).is_file(), f"--resume {folder}: there is no store in this folder.")
    from tare.records.store import Store
    from tare.report.following import has_companions

    with Store.open(folder) as store:
        beside = has_companions(store.study.get("platform"))
    began_s = time.monotonic()
    study = load_study(folder / STUDY_FILE)
    need(
        not beside,
        f"--resume {folder}: the containers beside it ran until that weighing ended. The command that made it, with "
        f"`-o {folder}`, starts them again and continues.",
    )
    await_device()
    is_adding = blocks is not None or budget_s is not None
    with needs_of_study(study):
        if is_adding:
            left_s = None if budget_s is None else max(1.0, budget_s - (time.monotonic() - began_s))
            study = continued(study, folder, blocks, left_s)
        outcome = run_into(study, study_text(study), folder, adding=is_adding)
    if outcome.out_of_time and budget_s is not None:
        outcome = replace(outcome, why=would_not_fit(budget_s))
    finish(folder, outcome, as_json, f"tare run {folder}")


def would_not_fit(budget_s: float | None) -> str:
    """Why no other block was begun: by whose word."""
    allowed = (
        f"tare weigh's default of {USUAL_S} s (--budget)" if budget_s is None else f"the {budget_s:g} s of --budget"
    )
    return f"another block would not fit into {allowed}"
