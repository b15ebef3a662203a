"""Going on with a store: what has changed since it was begun is not passed over in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tare import __version__
from tare.errors import StudyError

if TYPE_CHECKING:
    from tare.host import Host
    from tare.plan.model import Trial
    from tare.records.store import Store
    from tare.study.model import Study

DECLARED = ("repeat", "compare", "order", "aa")  # what must not be changed once a result has been seen


def refuse_silent_changes(store: Store, study: Study, planned: list[Trial], accept: bool) -> None:
    """An edited study is not gone on with by accident; its rules for stopping and judging not at all."""
    from tare.plan.order import changes

    now = study.as_plain()
    if edited := [key for key in DECLARED if store.study.get(key) != now[key]]:
        raise StudyError(
            f"{', '.join(edited)} in the study differs from what {store.root} was begun with. How a run stops and is "
            "judged is declared before it; give another folder with -o."
        )
    known = store.states()
    changed = changes(known, planned)
    if known and (changed.new or changed.gone) and not accept:
        raise StudyError(
            f"the study has changed since {store.root} was begun: {len(changed.new)} new trials, "
            f"{len(changed.gone)} gone, {len(changed.unchanged)} unchanged.\n"
            "`tare run --accept-changes` goes on (old results stay); or give another folder with -o."
        )


def refuse_mixing(store: Store, host: Host, planned: list[Trial], accept: bool) -> None:
    """Trials of two kernels, or of two versions of tare, are not put into one store by accident."""
    from tare.records.attempts import newest_usable
    from tare.records.model import FINISHED
    from tare.trial.facts import device_facts

    states = store.states()
    if accept or all(states.get(trial.id) in FINISHED for trial in planned):
        return
    before = newest_usable(store.records())
    kernels = {str(found["kernel"]) for each in before if "kernel" in (found := each.facts.get("device") or {})}
    versions = {each.tare_version for each in before if each.tare_version}
    now = {"the kernel": (kernels, str(device_facts(host)["kernel"])), "tare": (versions, __version__)}
    said = [
        f"{what} has changed since {store.root} was begun: {', '.join(sorted(then))} then, {today} now."
        for what, (then, today) in now.items()
        if then - {today}
    ]
    if said:
        raise StudyError(
            "\n".join(said) + "\nWhat was measured before cannot be told apart from what is measured now. "
            "`tare run --accept-changes` goes on all the same, and every comparison of the two is marked as tainted; "
            "or give another folder with -o."
        )
