"""`tare run`: run or resume a study, on this device or on a fleet."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from tare.api.needs import needs_of_study
from tare.api.running import run_into, study_text
from tare.cli.endings import finish
from tare.cli.fleet_run import Wanted, fleet_options, over_devices, run_over
from tare.cli.options import FOLDER, json_option, need, output_option, trust_option
from tare.cli.scaffold import Verb
from tare.cli.studies import (
    folder_of,
    known_interpreter,
    load_study,
    python_option,
    scale_option,
    study_path,
    with_interpreter,
)


@click.command("run", cls=Verb)
@click.argument("study", type=click.Path(path_type=Path))
@output_option("The store's folder; else out/NAME.", FOLDER)
@scale_option
@python_option
@click.option("--accept-changes", is_flag=True, help="Resume despite changes to the study file, the kernel or tare.")
@click.option(
    "--retry-failed", is_flag=True, help="Repeat trials that failed, ran out of time or of memory, or were invalid."
)
@trust_option
@click.option(
    "--ignore-managers", is_flag=True, help="Run although something else (TuneD, jtop ...) manages the same settings."
)
@click.option("--verbose", is_flag=True, help="Show what the trials print, each line after its platform.")
@fleet_options
@json_option
def command(
    study: Path, output: Path | None, scale: str | None, python: str | None, accept_changes: bool, retry_failed: bool,
    trust: bool, ignore_managers: bool, verbose: bool, as_json: bool, **fleet: Any,
) -> None:  # fmt: skip
    """Run or resume STUDY, a file or a built-in name: a second run continues where the first one stopped.

    The exit code is 0 if every cell has usable trials, even if some trials are not (the last line shows how many); 1 if
    a trial failed, or a cell has no usable trial; 130 if it was interrupted.

    `tare list studies` lists the names. If the study has `missing: leave_out`, what this device cannot run is left out
    and listed; if nothing is left, nothing is run, and the exit code is 3.
    """
    over = over_devices(fleet, trust)
    need(over is None or python is None, "--python is for this device: for others set `python` in the inventory.")
    need(over is None or not verbose, "--verbose is for this device: what trials on others print is in the store.")
    loaded = load_study(study, trust, scale, python)
    folder = output or folder_of(loaded)
    # With an interpreter from the command line the file is not what is run: the study itself says which it was.
    text = study_text(loaded) if python else study_path(study).read_text(encoding="utf-8-sig")
    words = "".join(f" --{name} {shlex.quote(said)}" for name, said in (("scale", scale), ("python", python)) if said)
    if over is not None:
        wanted = Wanted(loaded, text, str(study), folder, accept_changes, retry_failed, ignore_managers)
        run_over(wanted, over, as_json, f"tare run {study}{words} {over.words()} -o {folder}")
        return
    loaded = with_interpreter(loaded, None if python else known_interpreter(loaded, folder))
    with needs_of_study(loaded):
        outcome = run_into(loaded, text, folder, accept_changes, retry_failed, ignore_managers, verbose)
    finish(folder, outcome, as_json, f"tare run {study}{words} -o {folder}", retried=retry_failed)
