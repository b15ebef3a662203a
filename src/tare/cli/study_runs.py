"""Running a study into a store, for all verbs that measure; and what is printed when a run has ended."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.base.errors import ObstacleError, StudyError, TareError
from tare.cli.changes import refuse_mixing, refuse_moved_images, refuse_silent_changes
from tare.cli.needs import refuse_without_power
from tare.cli.report import write_report
from tare.cli.scaffold import color, print_json, reading, say, weighed, width

if TYPE_CHECKING:
    from tare.analysis.model import Weighing
    from tare.fleet.local import Outcome
    from tare.plan.check import Check
    from tare.plan.model import Trial
    from tare.records.model import Record
    from tare.records.store import Store
    from tare.study.model import Study


REPORT = "report.html"
NEEDS_ENERGY = ("analyse energy", "choose front")  # verbs that have nothing to say of a store whose trials have none
TYPICAL_SCATTER = 0.02  # between trials of one kind on a quiet machine; a loud one has five times as much


def run_into(
    study: Study,
    text: str,
    folder: Path,
    accept_changes: bool = False,
    retry_failed: bool = False,
    ignore_managers: bool = False,
    verbose: bool = False,
) -> Outcome:
    """Plan, check, then run into the store at `folder`, which is made if it is not there."""
    from tare.base.files import state_dir
    from tare.base.host import LocalHost
    from tare.fleet.local import run_study
    from tare.plan.check import check, possible, room_obstacles
    from tare.plan.matrix import trials
    from tare.report.progress import progress_on
    from tare.trial.conditions import LEAST_S, advice, glance

    host = LocalHost()
    before, began_s = glance(), time.monotonic()
    study, its_cells = possible(study, host)
    planned = trials(study, its_cells)
    checked = check(study, its_cells, host, ignore_managers=ignore_managers)
    layered = any(tenant.workload.layered for cell in its_cells for tenant in cell.everyone())
    rooms = room_obstacles(host, folder, checked.disk_bytes, state_dir() / "scratch" if layered else None)
    if blocked := [*checked.blocked, *rooms]:
        raise ObstacleError("this device cannot run the study, and nothing was run:", blocked)
    refuse_without_power(study)
    tell_scale(study, checked)
    with new_store_goes_if_refused(folder), open_store(study, text, folder) as store:
        refuse_silent_changes(store, study, planned, accept_changes)
        refuse_mixing(store, host, planned, accept_changes)
        refuse_moved_images(store, host, planned)
        store.plan([row(trial) for trial in planned])
        say(sensitivity(study))
        time.sleep(max(0.0, LEAST_S - (time.monotonic() - began_s)))
        if busy := advice(before, glance()):
            say(busy)
        return run_study(study, planned, store, host, progress_on(), retry_failed=retry_failed, verbose=verbose)


@contextmanager
def new_store_goes_if_refused(folder: Path) -> Iterator[None]:
    """A store that was made for a run which was refused before its first trial goes again: it would block the next."""
    from tare.records.store import Store

    if folder.exists() and not folder.is_dir():
        raise StudyError(f"{folder} is a file, and a store is a folder: give another one with -o.")
    there = folder.exists()
    is_new = not there or not any(folder.iterdir())
    try:
        yield
    except TareError:
        if is_new and (folder / "store.json").exists():
            with Store.open(folder) as store:
                is_empty = not (store.records() or store.rehearsals() or store.spooled())
            if is_empty:
                shutil.rmtree(folder)
                if there:
                    folder.mkdir()
        raise


def tell_scale(study: Study, checked: Check) -> None:
    """How large it is and what is not in it, before it begins."""
    from tare.base.text import count_text, duration_text

    if study.scale:
        trials, seconds = count_text(len(checked.trials), "trial"), duration_text(checked.seconds)
        say(f"scale {study.scale}: {trials}, about {seconds} (a guess).")
    for sentence in study.left_out:
        say(f"not measured here: {sentence}")


def sensitivity(study: Study) -> str:
    """What the run can see at all, said before it: the smallest effect, at a quiet machine's scatter."""
    from tare.analysis.compare import expected_mde
    from tare.base.text import count_text

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
    from tare.base.text import count_text
    from tare.records.model import USABLE
    from tare.trial.undo.restoration import refuse_pending

    with reading(folder) as store:
        study = store.study
        weighing = weighed(store)
        write_report(store, weighing, folder / REPORT)
        failed = [trial for trial, state in store.states().items() if state in ("failed", "timeout", "oom")]
        unusable = unusable_cells(store.records())
        traced = all(record.traced for record in store.records() if record.state in USABLE)
        metered = any("energy_j" in record.compared for record in store.records() if record.state in USABLE)
    _tell(endings(study, folder, metered), study, folder, weighing, outcome, as_json)
    say(f"{outcome.why}.")
    if outcome.interrupted:
        going_on = f"{again} --retry-failed" if retried else again
        say(f"{left_text(outcome)}; `{going_on}` resumes.")
        refuse_pending()
        say("The device is as it was found.")
        raise SystemExit(130)
    if weighing.never_ran:
        skipped = f"{count_text(outcome.skipped, 'trial')} skipped. " if outcome.skipped else ""
        say(f"{skipped}See `tare show {folder}`; `{again} --retry-failed` tries again what never ran.")
        raise SystemExit(1)
    if failed:
        what = count_text(len(failed), "trial")
        say(f"{what} failed: see `tare show {folder}`; `{again} --retry-failed` repeats them.")
        raise SystemExit(1)
    if traced and not unusable and outcome.done:
        say(f"every trial was traced, so no times are compared; see `tare analyse kernel {folder}`.")
        return
    nothing = weighing.comparisons and all(each.ours is None or each.theirs is None for each in weighing.comparisons)
    if not nothing and not unusable:
        _tell_unusable(folder, weighing, again)
        return
    if nothing:
        say("at least one side has no usable trial, so nothing was compared; the reasons are above.")
    else:
        say(f"{count_text(unusable, 'cell')} without a usable trial: see `tare show {folder}`.")
    say(f"Once the disturbance is gone, `{again} --retry-failed` repeats them.")
    raise SystemExit(1)


def left_text(outcome: Outcome) -> str:
    """What a run that goes on will say it has to run, and what its stop rule may add."""
    from tare.base.text import count_text

    left = f"{count_text(outcome.left, 'trial')} left"
    return f"{left}, and at most {outcome.at_most_more} more by the stop rule" if outcome.at_most_more else left


def _tell_unusable(folder: Path, weighing: Weighing, again: str) -> None:
    """A verdict stands on the trials that could be used: how many could not is the last word, not a failure."""
    from tare.base.text import count_text

    invalid = weighing.counts.get("invalid", 0)
    if invalid:
        trials = count_text(weighing.counts["planned"], "trial")
        say(
            f"{invalid} of {trials} excluded as invalid: see `tare show {folder}`; "
            f"`{again} --retry-failed` repeats them."
        )


def _tell(
    following: Sequence[str], study: Mapping[str, Any], folder: Path, weighing: Weighing, outcome: Outcome,
    as_json: bool,
) -> None:  # fmt: skip
    """The verdict, where the report lies, and what else the study is good for."""
    from tare.analysis.sentences import weighing_json
    from tare.report.text.verdict import verdict_text

    report = folder / REPORT
    if as_json:
        told: dict[str, Any] = {
            "store": str(folder),
            "report": str(report),
            "ended": outcome.why,
            **weighing_json(weighing),
        }
        if weighing.never_ran:
            told["never_ran"] = [ruling.as_json() for ruling in weighing.never_ran]
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
    parted = [re.fullmatch(r"([^-]*?)( -.*)?", ending) for ending in study.get("ends_in", ())]
    verbs = [(found[1], found[2] or "") for found in parted if found]
    if not metered:
        verbs = [(verb, rest) for verb, rest in verbs if verb not in NEEDS_ENERGY and "energy" not in rest]
    return [f"tare {verb} {shlex.quote(str(folder))}{rest}" for verb, rest in verbs]


def row(trial: Trial) -> Any:
    return {
        "trial": trial.id,
        "study": trial.study,
        "block": trial.block,
        "position": trial.position,
        "twin": trial.twin,
        "settings": dict(trial.settings),
    }
