"""Running a study into a store: planned, checked, refused where it cannot be run, run or resumed.

Going on with a store: what has changed since it was begun is not passed over in silence.
"""

from __future__ import annotations

import io
import json
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare import __version__
from tare.api.needs import refuse_without_power
from tare.base.errors import ObstacleError, StudyError, TareError
from tare.base.text import count_text, say

if TYPE_CHECKING:
    from tare.base.host import Host
    from tare.fleet.local import Outcome
    from tare.plan.check import Check
    from tare.plan.matrix import Trial
    from tare.records.store import Store
    from tare.studies.model import Study

MOST_NAMED, WIDEST = 3, 60  # settings in a message, and characters of each
_NO_DEVICE = ""  # of trials that were run here, and not over a fleet
PLANNED = ("platform", "workload", "control", "probes", "tenants", "exclude")  # what trials are planned from
DECLARED = ("repeat", "compare", "order", "aa")  # what must not be changed once a result has been seen


def refuse_silent_changes(store: Store, study: Study, planned: list[Trial], accept: bool) -> None:
    """An edited study is not gone on with by accident; its rules for stopping and judging not at all."""
    _refuse(store, study, store.states(), planned, accept)


def refuse_silent_changes_on(
    store: Store, study: Study, planned: Mapping[str, list[Trial]], accept: bool
) -> list[str]:  # fmt: skip
    """The same over a fleet: what is planned on each device of this run is compared with what was planned on it.

    Returns sentences about devices that are new in the store, and about those of it that are not in this run.
    """
    before = trials_by_device(store)
    both = [name for name in planned if name in before]
    known = [trial for name in (*both, _NO_DEVICE) for trial in before.get(name, ())]
    _refuse(store, study, known, [trial for name in both for trial in planned[name]], accept)
    new = [name for name in planned if before and name not in before]
    absent = [name for name in before if name not in planned and name != _NO_DEVICE]
    said = [f"new in {store.root}: {', '.join(new)}."] if new else []
    return said + ([f"not in this run, and left as it is: {', '.join(absent)}."] if absent else [])


def trials_by_device(store: Store) -> dict[str, list[str]]:
    """The trials that a store plans or holds, by the device that they are for."""
    rows = [(str(row["trial"]), row.get("settings") or {}) for row in store.planned()]
    rows += [(record.trial, record.settings) for record in store.records()]
    found: dict[str, dict[str, None]] = {}
    for trial, settings in rows:
        found.setdefault(str(settings.get("device", _NO_DEVICE)), {})[trial] = None
    return {device: list(trials) for device, trials in found.items()}


def _refuse(store: Store, study: Study, known: Iterable[str], planned: list[Trial], accept: bool) -> None:
    from tare.plan.matrix import changes

    now, known = study.as_plain(), list(known)
    edited = [key for key in DECLARED if store.study.get(key) != now[key]]
    changed = changes(known, planned)
    unlike = known and (changed.new or changed.gone) and not accept
    if (edited or unlike) and (theirs := str(store.study.get("study") or study.study)) != study.study:
        renamed = (
            " Where it is the same one under a new name, `tare run --accept-changes` resumes it (old results stay)."
        )
        raise StudyError(
            f"{store.root} holds another study: {theirs!r}, and this is {study.study!r}. Give another folder with -o."
            f"{'' if edited else renamed}"
        )
    if edited:
        raise StudyError(
            f"{', '.join(edited)} in the study differs from what {store.root} was begun with. How a run stops and is "
            "judged is declared before it; give another folder with -o."
        )
    if unlike:
        differs = _what_differs(store, planned)
        if planned and not changed.unchanged and all(store.study.get(key) == now[key] for key in PLANNED):
            raise StudyError(
                f"{store.root} was begun by another version of tare, which ran the same study in another way"
                f"{differs}. Its trials cannot be continued.\n"
                f"They can be read as before (`tare show {store.root}`). To run the study, give another folder with -o."
            )
        raise StudyError(
            f"the study has changed since {store.root} was begun: {len(changed.new)} new trials, "
            f"{len(changed.gone)} gone, {len(changed.unchanged)} unchanged{differs}.\n"
            "`tare run --accept-changes` resumes (old results stay); or give another folder with -o."
        )


def _what_differs(store: Store, planned: Iterable[Trial]) -> str:
    """The settings that no trial of the other side has in this way, a few of them, in brackets."""
    then = _values(row.get("settings") or {} for row in store.planned())
    now = _values(trial.settings for trial in planned)
    names = [name for name in dict.fromkeys((*then, *now)) if then.get(name) != now.get(name)]
    said = [f"{name}: {_list(then.get(name))} then, {_list(now.get(name))} now" for name in names[:MOST_NAMED]]
    rest = len(names) - MOST_NAMED
    more = [count_text(rest, "more setting")] if rest > 0 else []
    return f" ({'; '.join((*said, *more))})" if said else ""


def _values(all_settings: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, dict[str, None]] = {}
    for settings in all_settings:
        for name, value in settings.items():
            found.setdefault(name, {})[json.dumps(value, default=str)] = None
    return {name: sorted(values) for name, values in found.items()}


def _list(values: list[str] | None) -> str:
    text = ", ".join(values or ("not set",))
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 3]}..."


def refuse_moved_images(store: Store, host: Host, planned: list[Trial]) -> None:
    """A name that stands for another image than in this store is refused, also where nothing is left to run."""
    from tare.trial.conditions import refuse_another

    of_platforms = {trial.cell.platforms: trial for trial in planned}
    images = {stack: stack[0].image_now(host) for stack in of_platforms if len(stack) == 1}
    if any(images.values()):
        records = list(store.records())
        for stack, image in images.items():
            refuse_another(of_platforms[stack].settings, {"root": "image", "image_id": image}, records)


def refuse_mixing(store: Store, host: Host, planned: list[Trial], accept: bool) -> None:
    """Trials of two kernels, or of two versions of tare, are not put into one store by accident."""
    from tare.records.merging import changed_since
    from tare.records.model import FINISHED
    from tare.trial.facts import device_facts

    states = store.states()
    if accept or all(states.get(trial.id) in FINISHED for trial in planned):
        return
    now = {"kernel": str(device_facts(host)["kernel"]), "tare": __version__}
    said = changed_since(store.records(), str(store.root), now)
    if said:
        raise StudyError(
            "\n".join(said) + "\nWhat was measured before cannot be told apart from what is measured now. "
            "`tare run --accept-changes` resumes, and every comparison of the two is marked as tainted; "
            "or give another folder with -o."
        )


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
