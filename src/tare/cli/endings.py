"""What is printed when a run has ended: the verdict, where the report lies, what failed, and what to do next."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.cli.report import write_report
from tare.cli.scaffold import color, print_json, reading, say, weighed, width

if TYPE_CHECKING:
    from tare.analysis.model import Weighing
    from tare.fleet.local import Outcome
    from tare.records.model import Record


REPORT = "report.html"
NEEDS_ENERGY = ("analyse energy", "choose front")  # verbs that have nothing to say of a store whose trials have none


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
    if nothing and any(each.code == "figure.beyond-rates" for left in weighing.left_out for each in left.reasons):
        say(
            "in too many blocks of a side the goal is met, or missed, at all of its rates, so nothing is compared: "
            "take rates on both sides of it. `tare weigh --goal` finds them again in another folder (-o)."
        )
        raise SystemExit(1)
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
        verbs = [(verb, rest) for verb, rest in verbs if not _needs_energy(verb, rest)]
    return [f"tare {verb} {shlex.quote(str(folder))}{rest}" for verb, rest in verbs]


def _needs_energy(verb: str, rest: str) -> bool:
    return "energy" in rest or (verb in NEEDS_ENERGY and "--minimise" not in rest)
