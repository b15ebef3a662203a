"""Running a study into a store: planned, checked, refused where it cannot be run, run or resumed."""

from __future__ import annotations

import io
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.api.changes import refuse_mixing, refuse_moved_images, refuse_silent_changes
from tare.api.needs import refuse_without_power
from tare.base.errors import ObstacleError, StudyError, TareError
from tare.base.messages import say

if TYPE_CHECKING:
    from tare.fleet.local import Outcome
    from tare.plan.check import Check
    from tare.plan.model import Trial
    from tare.records.store import Store
    from tare.studies.model import Study


TYPICAL_SCATTER = 0.02  # between trials of one kind on a quiet machine; a loud one has five times as much


def run_into(
    study: Study,
    text: str,
    folder: Path,
    accept_changes: bool = False,
    retry_failed: bool = False,
    ignore_managers: bool = False,
    verbose: bool = False,
    progress: bool = True,
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
        if busy := advice(before, glance(), sliced=study.design.slices is not None):
            say(busy)
        watcher = progress_on() if progress else progress_on(io.StringIO())
        return run_study(study, planned, store, host, watcher, retry_failed=retry_failed, verbose=verbose)


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


def row(trial: Trial) -> Any:
    return {
        "trial": trial.id,
        "study": trial.study,
        "block": trial.block,
        "position": trial.position,
        "twin": trial.twin,
        "settings": dict(trial.settings),
    }
