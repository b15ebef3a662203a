"""`tare run`: run or resume a study, on this device or on a fleet.

`tare run --fleet`, `tare run --cluster`: the same study over many devices.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.api.running import (
    await_device,
    compares_power,
    folder_of,
    holds_secret,
    known_interpreter,
    load_study,
    measures_power,
    needs_of_study,
    open_store,
    refuse_silent_changes_on,
    row,
    run_into,
    study_path,
    study_text,
    with_blocks,
    with_interpreter,
)
from tare.base.errors import NotRestoredError, ObstacleError, StudyError
from tare.base.rulings import Ruling
from tare.cli.report import finish, left_text
from tare.cli.scaffold import (
    FOLDER,
    Option,
    Verb,
    json_option,
    need,
    output_option,
    python_option,
    say,
    scale_option,
    several,
    trust_option,
    wait_option,
)
from tare.records.schema import STORE_FILE, STUDY_FILE

if TYPE_CHECKING:
    from tare.fleet.inventory import Device
    from tare.fleet.run import FleetRun
    from tare.fleet.schedule import Outcome
    from tare.plan.check import MissingParts
    from tare.plan.matrix import OnDevice, Trial
    from tare.records.store import Store
    from tare.studies.model import Study

_INTERRUPTED = 130
_FIRST_STOP = (
    "no further trials; what the devices are at is waited for. Press Ctrl-C again to leave them alone with it: each "
    "restores its settings itself when its trial has ended, and the next run collects the records."
)
_LATER_STOP = "dask's processes are being ended; this takes a moment."

fleet_options: Option = several(
    click.option(
        "--fleet",
        type=click.Path(path_type=Path),
        help="Run on the devices of this inventory, over ssh; `slurm`: on nodes of Slurm, named with --on.",
    ),
    click.option(
        "--on",
        multiple=True,
        metavar="NAME",
        help="Of the inventory only devices of this name, type or tag; of Slurm these nodes.",
    ),
    click.option("--cluster", metavar="ADDRESS", help="A dask cluster whose workers are, or drive, the devices."),
    click.option("--patience", default="2 min", show_default=True, help="How long a device may be out of reach."),
)


@dataclass(frozen=True)
class Over:
    """Which devices, as the command line named them."""

    inventory: Path | None
    cluster: str | None
    on: tuple[str, ...]
    patience_s: float
    trust: bool

    @property
    def on_slurm(self) -> bool:
        """Whether the devices are nodes of Slurm; a file called `slurm` is an inventory."""
        return self.inventory is not None and str(self.inventory) == "slurm" and not self.inventory.exists()

    def words(self) -> str:
        """The options that name the same devices again."""
        words = [f"--fleet {self.inventory}"] if self.inventory is not None else []
        words += [f"--cluster {self.cluster}"] if self.cluster is not None else []
        return " ".join([*words, *(f"--on {word}" for word in self.on)])


def over_devices(said: Mapping[str, Any], trust: bool) -> Over | None:
    """None for a run on this device."""
    if said["fleet"] is None and said["on"]:
        raise StudyError("--on names devices of an inventory: give one with --fleet.")
    if said["fleet"] is None and said["cluster"] is None:
        return None
    from tare.studies.model import time_between

    try:
        patience_s = time_between(1, 86400, "from 1 s to 1 d", "2 min")(said["patience"])
    except ValueError as error:
        raise StudyError(f"--patience: {str(error).replace('{given}', repr(said['patience']))}.") from None
    return Over(said["fleet"], said["cluster"], said["on"], patience_s, trust)


@dataclass(frozen=True)
class Wanted:
    """What is to be run there."""

    study: Study
    text: str
    name: str
    folder: Path
    accept_changes: bool
    retry_failed: bool
    ignore_managers: bool


class Lines:
    """One line for each trial that has ended."""

    def __init__(self) -> None:
        self._total = self._done = 0

    def started(self, trials: int, devices: int) -> None:
        self._total = trials
        say(f"{trials} trials to run on {devices} devices")

    def ended(self, device: str, label: str, state: str, seconds: float) -> None:
        self._done += 1
        say(f"[{self._done}/{self._total}] {device}: {label}: {state}, {seconds:.1f} s")

    def note(self, text: str) -> None:
        say(text)


@dataclass(frozen=True)
class Came:
    """What came of a run."""

    outcome: Outcome
    given_up: dict[str, Ruling]
    at_work: Sequence[str]  # devices that are still at a trial
    not_restored: Sequence[Device]


def run_over(wanted: Wanted, over: Over, as_json: bool, again: str) -> None:
    """Run, then say what came of it; exit 1 where a device had to be given up, 70 where one was not restored."""
    try:
        came = _run(wanted, over)
    except KeyboardInterrupt:  # while dask's processes are started, or ended
        say(f"stopped. Devices that run a trial finish it and restore their settings; `{again}` collects the records.")
        raise SystemExit(_INTERRUPTED) from None
    for sentence in came.given_up.values():
        say(f"skipped: {sentence}")
    going_on = f"{again} --retry-failed" if wanted.retry_failed else again
    code = _tell_stopped(came, going_on) if came.outcome.interrupted else _finished(wanted, came, as_json, again)
    for device in came.not_restored:
        how = "The next run there restores it." if device.lean else "`tare device restore` on it restores it."
        say(f"{device.name}: THIS DEVICE WAS NOT RESTORED. {how}")
        code = NotRestoredError.exit_code
    if code:
        raise SystemExit(code)


def _tell_stopped(came: Came, again: str) -> int:
    if came.at_work:
        say(
            f"still running a trial: {', '.join(came.at_work)}. Each device finishes it without us, and restores its "
            "settings itself."
        )
    say(f"{left_text(came.outcome)}; `{again}` resumes, and collects what the devices have finished by then.")
    return _INTERRUPTED


def _finished(wanted: Wanted, came: Came, as_json: bool, again: str) -> int:
    """The verdict; returns the exit code."""
    code = 0
    try:
        finish(wanted.folder, came.outcome, as_json, again)
    except SystemExit as ended:
        code = int(ended.code or 0)
    if came.given_up:
        say(f"`{again}` resumes on them once they are there.")
    return code or (1 if came.given_up else 0)


def _run(wanted: Wanted, over: Over) -> Came:
    from tare.fleet.inventory import plans

    if holds_secret(wanted.study):  # it would lie in a file on every device for as long as the trial runs
        raise StudyError(f"{wanted.study.study} holds a secret, and secrets are not sent to the devices of a fleet.")
    if over.inventory is not None and not over.on_slurm:
        plans(wanted.study, _devices(over))  # what is wrong with it is said before anything is started
    with _cluster(over) as (cluster, devices):
        missing = _missing_parts(wanted, devices, cluster, over.patience_s)
        wanted = replace(wanted, study=_left(wanted.study, missing, devices))
        with open_store(wanted.study, wanted.text, wanted.folder) as store:
            return _run_into(store, wanted, missing, devices, cluster, over.patience_s)


def _run_into(
    store: Store, wanted: Wanted, missing: MissingParts, devices: Sequence[Device], cluster: Any, patience_s: float
) -> Came:
    from tare.fleet.incoming import name_on_devices
    from tare.fleet.interruption import Interruption
    from tare.fleet.inventory import Task, plans
    from tare.fleet.readiness import record_missing
    from tare.fleet.run import FleetRun

    planned = plans(wanted.study, devices, missing)
    for device in devices:
        if device not in planned:
            say(f"{device.name}: the study excludes it, so nothing is run there.")
    leaves_out = wanted.study.missing == "leave_out"
    if leaves_out and not store.states():
        record_missing(store, missing)
    _note_plan(wanted, store, {device.name: its for device, its in planned.items()})
    task = Task(
        study_text(wanted.study), wanted.name, name_on_devices(store), os.urandom(4).hex(), wanted.retry_failed,
        wanted.ignore_managers, wanted.accept_changes, leaves_out, missing,
    )  # fmt: skip
    lines = Lines()
    interruption = Interruption(lines.note, _FIRST_STOP, _LATER_STOP)
    fleet = FleetRun(wanted.study, task, planned, store, cluster, lines, interruption, patience_s)
    with interruption.watching():
        return Came(_until_the_end(fleet), fleet.drained, fleet.at_work, fleet.not_restored)


def _missing_parts(wanted: Wanted, devices: Sequence[Device], cluster: Any, patience_s: float) -> MissingParts:
    """What is left out: as it was settled when the store was begun, else as the devices say now."""
    from tare.fleet.exchange import Questions
    from tare.fleet.inventory import plans
    from tare.fleet.readiness import ask_all_devices, recorded_missing
    from tare.plan.check import NOTHING

    if wanted.study.missing == "refuse":
        return NOTHING
    if (known := recorded_missing(wanted.folder)) is not None:
        return known
    asked = list(plans(wanted.study, devices))  # and none that the study excludes
    return ask_all_devices(asked, study_text(wanted.study), wanted.name, Questions(cluster, patience_s), say)


def _left(study: Study, missing: MissingParts, devices: Sequence[Device]) -> Study:
    """The study as every device is asked to run it; what is left out is said. Refused where nothing is left."""
    from tare.fleet.inventory import factors
    from tare.plan.check import left_of

    if study.missing == "refuse":
        return study
    places: list[OnDevice] = [()] if study.for_fleet is None else [factors(device) for device in devices]
    left = left_of(study, missing, places).study
    if left.left_out and compares_power(left) and not measures_power(left):
        said = f"no power probe of {study.study} works on every device, and nothing was run:"
        raise ObstacleError(said, left.left_out)
    for sentence in left.left_out:
        say(f"not measured here: {sentence}")
    return left


def _until_the_end(fleet: FleetRun) -> Outcome:
    """Stopped at once, it still says what it leaves behind: devices go on without us."""
    try:
        fleet.collect()
        fleet.ready()
        return fleet.run()
    except KeyboardInterrupt:
        return fleet.stopped()


def _note_plan(wanted: Wanted, store: Store, planned: dict[str, list[Trial]]) -> None:
    """The plan of these devices, beside what the store has planned on others."""
    for sentence in refuse_silent_changes_on(store, wanted.study, planned, wanted.accept_changes):
        say(sentence)
    others = [one for one in store.planned() if (one.get("settings") or {}).get("device", "") not in ("", *planned)]
    rows: list[dict[str, Any]] = [*others, *(row(trial) for its in planned.values() for trial in its)]
    rows.sort(key=lambda one: (one["block"], one["position"]))
    store.plan(rows)


@contextmanager
def _cluster(over: Over) -> Iterator[tuple[Any, Sequence[Device]]]:
    """Workers, and the devices that they drive."""
    from tare.fleet.cluster import OwnCluster, ThereCluster
    from tare.fleet.clusters import over_tls

    cluster: Any
    if over.on_slurm:
        from tare.fleet.slurm import SlurmCluster

        if over.cluster is not None:
            raise StudyError("--fleet slurm starts a cluster of its own: leave --cluster away.")
        with closing(SlurmCluster(over.on, say)) as cluster:
            yield cluster, _driven(cluster.names(), (), "Slurm")
        return
    devices = _devices(over)
    if over.cluster is None:
        cluster = OwnCluster([device.name for device in devices])
    else:
        cluster = ThereCluster(over_tls(over.cluster))
    try:
        yield cluster, devices if over.cluster is None else _driven(cluster.names(), devices, over.cluster)
    finally:
        cluster.close()


def _devices(over: Over) -> Sequence[Device]:
    from tare.fleet.inventory import load_inventory

    if over.inventory is None:
        return ()
    return load_inventory(over.inventory, trust=over.trust).called(over.on)


def _driven(names: Sequence[str], devices: Sequence[Device], address: str) -> Sequence[Device]:
    """The inventory's devices, each by the worker of its name; without an inventory each worker is a device."""
    from tare.fleet.driving import here

    if not names:
        raise ObstacleError(f"no worker at {address} says that it is a device: start it with --resources device=1.")
    if not devices:
        return [here(name) for name in names]
    if missing := sorted({device.name for device in devices} - set(names)):
        raise StudyError(f"no worker at {address} is called {', '.join(missing)}. Workers there: {', '.join(names)}.")
    return devices


class _StudyVerb(Verb):
    """A verb of a study, which a newcomer may give a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args[:-1]:
            words = shlex.join(args[args.index("--") + 1 :])
            raise click.UsageError(f"`{ctx.command_path}` takes a study. Did you mean `tare weigh -- {words}`?", ctx)
        return super().parse_args(ctx, args)


@click.command("run", cls=_StudyVerb)
@click.argument("study", type=click.Path(path_type=Path))
@output_option("The store's folder; else out/NAME.", FOLDER)
@scale_option
@python_option
@click.option("--accept-changes", is_flag=True, help="Resume despite changes to the study file, the kernel or tare.")
@click.option(
    "--retry-failed", is_flag=True, help="Repeat trials that failed, ran out of time or of memory, or were invalid."
)
@click.option(
    "--blocks",
    type=click.IntRange(1, 1000),
    help="How many blocks in all. Intervals are wider after a second look at a store.",
)
@trust_option
@click.option(
    "--ignore-managers", is_flag=True, help="Run although something else (TuneD, jtop ...) manages the same settings."
)
@click.option("--verbose", is_flag=True, help="Show what the trials print, each line after its platform.")
@wait_option
@fleet_options
@json_option
def command(
    study: Path, output: Path | None, scale: str | None, python: str | None, accept_changes: bool, retry_failed: bool,
    blocks: int | None, trust: bool, ignore_managers: bool, verbose: bool, wait_s: float | None, as_json: bool,
    **fleet: Any,
) -> None:  # fmt: skip
    """Run or resume STUDY, a file or a built-in name: a second run continues where the first one stopped.

    A store in the place of STUDY is continued; with --blocks it gets more blocks: tare run out/weigh-1 --blocks 20

    The exit code is 0 if every cell has usable trials, even if some trials are not (the last line shows how many); 1 if
    a trial failed, or a cell has no usable trial; 130 if it was interrupted.

    `tare list studies` lists the names. If the study has `missing: leave_out`, what this device cannot run is left out
    and listed; if nothing is left, nothing is run, and the exit code is 3.
    """
    over = over_devices(fleet, trust)
    need(over is None or python is None, "--python is for this device: for others set `python` in the inventory.")
    need(over is None or wait_s is None, "--wait is for this device: on others each trial waits for its turn.")
    need(over is None or not verbose, "--verbose is for this device: what trials on others print is in the store.")
    need(over is None or blocks is None, "--blocks is for this device: for others set `repeat` in the study.")
    if (study / STORE_FILE).is_file():
        output, study = output or study, study / STUDY_FILE
    loaded = load_study(study, trust, scale, python)
    folder = output or folder_of(loaded)
    adding = blocks is not None
    if blocks is not None:
        loaded = with_blocks(loaded, folder, blocks)
    # With an interpreter from the command line the file is not what is run: the study itself says which it was.
    text = study_text(loaded) if python or adding else study_path(study).read_text(encoding="utf-8-sig")
    said_again = (("scale", scale), ("python", python), ("blocks", blocks and str(blocks)))
    words = "".join(f" --{name} {shlex.quote(said)}" for name, said in said_again if said)
    if over is not None:
        wanted = Wanted(loaded, text, str(study), folder, accept_changes, retry_failed, ignore_managers)
        run_over(wanted, over, as_json, f"tare run {study}{words} {over.words()} -o {folder}")
        return
    loaded = with_interpreter(loaded, None if python else known_interpreter(loaded, folder))
    await_device(wait_s or 0.0)
    with needs_of_study(loaded):
        outcome = run_into(
            loaded, text, folder, accept_changes, retry_failed, ignore_managers, verbose,
            wait_s=wait_s or 0.0, adding=adding,
        )  # fmt: skip
    finish(folder, outcome, as_json, f"tare run {study}{words} -o {folder}", retried=retry_failed)
