"""`tare run`: run what the store does not have yet."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.cli.changes import refuse_mixing, refuse_moved_images, refuse_silent_changes
from tare.cli.engines import needs_of_study
from tare.cli.fleet_options import fleet_options, over_devices
from tare.cli.interpreter import known_interpreter, python_option, with_interpreter
from tare.cli.options import color, json_option, need, print_json, say, width
from tare.cli.studies import folder_of, load_study, scale_option, study_path
from tare.errors import ObstacleError

if TYPE_CHECKING:
    from tare.analysis.model import Weighing
    from tare.fleet.local import Outcome
    from tare.plan.check import Check
    from tare.plan.model import Trial
    from tare.records.model import Record
    from tare.records.store import Store
    from tare.study.model import Study


REPORT = "report.html"
NEEDS_ENERGY = ("energy", "pareto")  # verbs that have nothing to say of a store whose trials have none
TYPICAL_SCATTER = 0.02  # between trials of one kind on a quiet machine; a loud one has five times as much


@click.command("run")
@click.argument("study", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The store's folder; else out/NAME.")
@scale_option
@python_option
@click.option(
    "--accept-changes", is_flag=True, help="Go on although the study file, the kernel or tare has changed since."
)
@click.option(
    "--retry-failed", is_flag=True, help="Run trials again that failed, ran out of time or of memory, or were invalid."
)
@click.option("--trust", is_flag=True, help="Accept a study file that others may write.")
@click.option(
    "--ignore-managers", is_flag=True, help="Run although something else (TuneD, jtop ...) manages the same knobs."
)
@fleet_options
@json_option
def command(
    study: Path, output: Path | None, scale: str | None, python: str | None, accept_changes: bool, retry_failed: bool,
    trust: bool, ignore_managers: bool, as_json: bool, **fleet: Any,
) -> None:  # fmt: skip
    """Run STUDY, a file or a built-in name; a second run goes on where the first one stopped.

    The exit code is 0 where every cell has trials that could be used, also if some could not (the last line says how
    many); 1 where a trial failed, or a cell has none; 130 where it was interrupted.

    `tare studies` lists the names. Where the study says `missing: leave_out`, what this device cannot run is left out
    and said; if nothing is left, nothing is run, and the exit code is 3.
    """
    over = over_devices(fleet, trust)
    need(over is None or python is None, "--python is for this device: of others the inventory names it (`python`).")
    loaded = load_study(study, trust, scale, python)
    folder = output or folder_of(loaded)
    # With an interpreter from the command line the file is not what is run: the study itself says which it was.
    text = study_text(loaded) if python else study_path(study).read_text(encoding="utf-8-sig")
    words = "".join(f" --{name} {shlex.quote(said)}" for name, said in (("scale", scale), ("python", python)) if said)
    if over is not None:
        from tare.cli.fleet_run import Wanted, run_over

        wanted = Wanted(loaded, text, str(study), folder, accept_changes, retry_failed, ignore_managers)
        run_over(wanted, over, as_json, f"tare run {study}{words} {over.words()} -o {folder}")
        return
    loaded = with_interpreter(loaded, None if python else known_interpreter(loaded, folder))
    with needs_of_study(loaded):
        outcome = run_into(loaded, text, folder, accept_changes, retry_failed, ignore_managers)
    finish(folder, outcome, as_json, f"tare run {study}{words} -o {folder}", retried=retry_failed)


def run_into(
    study: Study,
    text: str,
    folder: Path,
    accept_changes: bool = False,
    retry_failed: bool = False,
    ignore_managers: bool = False,
) -> Outcome:
    """Plan, check, then run into the store at `folder`, which is made if it is not there."""
    from tare.fleet.local import run_study
    from tare.host import LocalHost
    from tare.plan.check import check
    from tare.plan.leaving_out import possible
    from tare.plan.order import trials
    from tare.report.progress import progress_on
    from tare.trial.busy import LEAST_S, advice, glance

    host = LocalHost()
    before, began_s = glance(), time.monotonic()
    study, its_cells = possible(study, host)
    planned = trials(study, its_cells)
    checked = check(study, its_cells, host, ignore_managers=ignore_managers)
    if checked.blocked:
        raise ObstacleError("this device cannot run the study, and nothing was run:", checked.blocked)
    refuse_without_power(study)
    tell_scale(study, checked)
    with open_store(study, text, folder) as store:
        refuse_silent_changes(store, study, planned, accept_changes)
        refuse_mixing(store, host, planned, accept_changes)
        refuse_moved_images(store, host, planned)
        store.plan([row(trial) for trial in planned])
        say(sensitivity(study))
        time.sleep(max(0.0, LEAST_S - (time.monotonic() - began_s)))
        if busy := advice(before, glance()):
            say(busy)
        return run_study(study, planned, store, host, progress_on(), retry_failed=retry_failed)


def tell_scale(study: Study, checked: Check) -> None:
    """How large it is and what is not in it, before it begins."""
    from tare.report.words import count_text, duration_text

    if study.scale:
        trials, seconds = count_text(len(checked.trials), "trial"), duration_text(checked.seconds)
        say(f"scale {study.scale}: {trials}, about {seconds} (a guess).")
    for sentence in study.left_out:
        say(f"not measured here: {sentence}")


def refuse_without_power(study: Study) -> None:
    """A study that compares power or energy is not begun where nothing tells them."""
    from tare.cli.power import no_power

    if compares_power(study) and (sentences := no_power(study)):
        raise ObstacleError(f"no probe of {study.study} tells power here, and nothing was run:", sentences)


def compares_power(study: Study) -> bool:
    """Whether what the study compares is power or energy."""
    return (study.compare.metric or "").startswith(("energy", "power"))


def sensitivity(study: Study) -> str:
    """What the run can see at all, said before it: the smallest effect, at a quiet machine's scatter."""
    from tare.analysis.power import expected_mde
    from tare.report.words import count_text

    seen = expected_mde(TYPICAL_SCATTER, study.repeat.min)
    if seen is None:
        blocks = count_text(study.repeat.min, "block")
        return f"with {blocks} there is no 95 % interval: figures are shown, and nothing is claimed."
    return (
        f"before the run: {study.repeat.min} blocks can see about {seen:.1%} "
        f"where trials scatter by {TYPICAL_SCATTER:.0%}; more scatter needs more blocks."
    )


def open_store(study: Study, text: str, folder: Path) -> Store:
    """The store that is there, or a new one."""
    from tare.records.store import Store

    if (folder / "store.json").exists():
        return Store.open(folder, write=True)
    # A study that holds a secret is kept without it: the file as written stays with its owner.
    beside = [choice for level in study.tenancies for choice in level.beside]
    hides = any(choice.hides for choice in (*study.workloads, *beside))
    # At a scale, and where something is left out, the file is not what was run: the study itself says which it was.
    kept = study_text(study) if hides or study.scale or study.left_out else text
    return Store.create(folder, study.as_plain(), kept)


def study_text(study: Study) -> str:
    """The study as a file that `tare run` takes (JSON is YAML), with every secret masked."""
    return json.dumps(study.as_plain(), indent=1)


def finish(folder: Path, outcome: Outcome, as_json: bool, again: str, *, retried: bool = False) -> None:
    """Say what came of it: the verdict, the report, and how to go on."""
    from tare.analysis.weighing import weigh
    from tare.cli.damaged import counted_apart
    from tare.cli.report import write_report
    from tare.records.model import USABLE
    from tare.records.store import Store
    from tare.report.words import count_text

    with Store.open(folder) as store:
        study = store.study
        weighing = counted_apart(weigh(store), store)
        write_report(store, weighing, folder / REPORT)
        failed = [trial for trial, state in store.states().items() if state in ("failed", "timeout", "oom")]
        unusable = unusable_cells(store.records())
        traced = all(record.traced for record in store.records() if record.state in USABLE)
        metered = any("energy_j" in record.compared for record in store.records() if record.state in USABLE)
    _tell(endings(study, folder, metered), study, folder, weighing, outcome, as_json)
    say(f"{outcome.why}.")
    if outcome.interrupted:
        going_on = f"{again} --retry-failed" if retried else again
        say(f"{left_text(outcome)}; `{going_on}` goes on. The device is as it was found.")
        raise SystemExit(130)
    if failed:
        what = count_text(len(failed), "trial")
        say(f"{what} failed: `tare show {folder}` lists them, `{again} --retry-failed` runs them again.")
        raise SystemExit(1)
    if traced and not unusable and outcome.done:
        say(f"every trial was traced, so no times are compared: `tare kernel {folder}` shows what the kernel did.")
        return
    nothing = weighing.comparisons and all(comparison.effect is None for comparison in weighing.comparisons)
    if not nothing and not unusable:
        _tell_unusable(folder, weighing, again)
        return
    if nothing:
        say("of at least one side no trial could be used, so nothing was compared; the reasons are above.")
    else:
        say(f"of {count_text(unusable, 'cell')} no trial could be used: `tare show {folder}` says why.")
    say(f"Once what disturbed them is gone, `{again} --retry-failed` runs them again.")
    raise SystemExit(1)


def left_text(outcome: Outcome) -> str:
    """What a run that goes on will say it has to run, and what its stop rule may add."""
    from tare.report.words import count_text

    left = f"{count_text(outcome.left, 'trial')} left"
    return f"{left}, and at most {outcome.at_most_more} more by the stop rule" if outcome.at_most_more else left


def _tell_unusable(folder: Path, weighing: Weighing, again: str) -> None:
    """A verdict stands on the trials that could be used: how many could not is the last word, not a failure."""
    from tare.report.words import count_text

    invalid = weighing.counts.get("invalid", 0)
    if invalid:
        say(
            f"{invalid} of {count_text(weighing.counts['planned'], 'trial')} could not be used (invalid): "
            f"`tare show {folder}` says why, `{again} --retry-failed` runs them again."
        )


def _tell(
    following: Sequence[str], study: Mapping[str, Any], folder: Path, weighing: Weighing, outcome: Outcome,
    as_json: bool,
) -> None:  # fmt: skip
    """The verdict, where the report lies, and what else the study is good for."""
    from tare.report.terminal import verdict_text

    report = folder / REPORT
    if as_json:
        comparisons = [comparison.as_json() for comparison in weighing.comparisons]
        told = {"store": str(folder), "report": str(report), "ended": outcome.why, "comparisons": comparisons}
        print_json({**told, "not_measured": study.get("left_out", []), "next": following})
        return
    click.echo(verdict_text(weighing, width(), color()))
    click.echo(f"report: {report}")
    for line in following:
        click.echo(f"next:   {line}")


def unusable_cells(records: Iterable[Record]) -> int:
    """How many cells were measured, and have no trial that may be believed."""
    from tare.records.model import USABLE

    usable: dict[str, bool] = {}
    for record in records:
        cell = json.dumps(record.settings, sort_keys=True)
        usable[cell] = usable.get(cell, False) or record.state in USABLE
    return sum(not found for found in usable.values())


def endings(study: Mapping[str, Any], folder: Path, metered: bool = True) -> list[str]:
    """The commands that make the tables and figures of a study out of its store; `metered`: it has energy."""
    parted = [ending.partition(" ") for ending in study.get("ends_in", ())]
    if not metered:
        parted = [each for each in parted if each[0] not in NEEDS_ENERGY and "energy" not in each[2]]
    return [" ".join(filter(None, ("tare", verb, shlex.quote(str(folder)), rest))) for verb, _, rest in parted]


def row(trial: Trial) -> Any:
    return {
        "trial": trial.id,
        "study": trial.study,
        "block": trial.block,
        "position": trial.position,
        "twin": trial.twin,
        "settings": dict(trial.settings),
    }
