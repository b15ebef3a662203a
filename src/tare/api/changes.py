"""Going on with a store: what has changed since it was begun is not passed over in silence."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tare import __version__
from tare.base.errors import StudyError
from tare.base.text import count_text

if TYPE_CHECKING:
    from tare.base.host import Host
    from tare.plan.model import Trial
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
