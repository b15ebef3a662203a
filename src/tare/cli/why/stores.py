"""`tare why STORE STORE`: why the one is slower than the other, and the suspects tried here where that can be done."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.cli.options import need
from tare.cli.scaffold import print_json, reading, say, width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tare.analysis.why.stores import Pair
    from tare.cli.why.runs import Trying
    from tare.parts.protocols import Side
    from tare.plan.why import Suspects
    from tare.records.model import Record


def are_stores(words: tuple[str, ...]) -> bool:
    """Whether these are two stores, and no command line; a single one is refused."""
    from tare.records.schema import is_pack

    stores = [each for each in words if Path(each, "store.json").is_file() or is_pack(Path(each))]
    need(
        not (len(words) == 1 and stores),
        f"{words[0] if words else ''} is one store: `tare why STORE STORE` explains why one is slower than the other, "
        "`tare why -- COMMAND...` why a command is slower in a container.",
    )
    return len(words) == len(stores) == 2


def explain_stores(
    words: tuple[str, ...], trying: Trying | None, margin: float, metric: str | None, as_json: bool
) -> None:
    """What differs, what is slower, who is suspected; with `trying`, what the interventions show on this machine."""
    from tare.analysis.why.stores import pair
    from tare.plan.why import examined
    from tare.report.text.why import pair_text, suspects_text

    stores = {}
    for word in words:
        with reading(Path(word)) as store:
            stores[word] = store.records()
    found = pair(stores, margin=margin, metric=metric)
    slow, quick = (_side(name, side) for name, side in zip((found.slow, found.quick), found.records, strict=True))
    suspects = examined(slow, quick, {each.name: each.share for each in found.phases})
    plain: dict[str, Any] = {
        **found.as_json(),
        "suspects": {name: asdict(each) for name, each in suspects.held.items()},
        "ruled_out": suspects.ruled_out,
    }
    if not as_json:
        click.echo(pair_text(found, width()))
        titles = suspects.titles()
        about = {name: f"{titles[name]}: {each.evidence} Cure: {each.cure}" for name, each in suspects.held.items()}
        click.echo(suspects_text(about, suspects.ruled_out, width()))
    if not suspects.held and found.total.verdict == "slower":
        say("3. Not explained: nothing that was recorded differs. Program, data, or what else the device did may have.")
    elif trying is not None and (why_not := _try(trying, found, suspects, slow, quick, plain, as_json)):
        say(f"3. Not tried: {why_not}")
    elif trying is None and not as_json:
        say("3. Interventions: --try runs both sides again on this machine, and each suspect removed and added.")
    if as_json:
        print_json(plain)


def _side(name: str, records: Sequence[Record]) -> Side:
    from tare.analysis.why.causes import facts_of, metrics_of
    from tare.parts.protocols import Side

    settings = records[0].settings
    fields = {key.partition(".")[2]: value for key, value in settings.items() if key.startswith("platform.")}
    return Side(name, str(settings["platform"]), fields, facts_of(records), metrics_of(records))


def _try(
    trying: Trying, found: Pair, suspects: Suspects, slow: Side, quick: Side, plain: dict[str, Any], as_json: bool
) -> str:
    """Run the interventions; a sentence where that cannot be done here."""
    from tare.analysis.why.stores import is_here
    from tare.base.host import LocalHost
    from tare.plan.why import Level, Search, with_recorded_variables, workload_of
    from tare.report.text.why import Told, answer_text
    from tare.trial.facts import device_facts

    if found.total.verdict != "slower":
        return "a cost that is not sure cannot be seen to go away."
    if not is_here(found.records[0], device_facts(LocalHost())):
        return f"{found.slow} was recorded on another device. Run `tare why --try` with both stores there."
    ours, theirs = (records[0].settings for records in found.records)
    levels = with_recorded_variables(Level.of(ours), Level.of(theirs), slow, quick)
    if levels[0].settings() == levels[1].settings():
        return "both sides would run in the same way here: no limit, variable or image that was recorded differs."
    search = Search(*levels, suspects.held)
    if not search.candidates():
        return "no suspect can be removed or added on this machine."
    answer = trying.search(search, workload_of(ours), found.total.metric)
    if answer.total.verdict != "slower":
        say("Run again here and now, it is not surely slower: the difference lies in what was not recorded.")
    plain["answer"] = answer.as_json()
    if not as_json:
        held = suspects
        cannot = {name: each.untried for name, each in held.held.items() if each.untried}
        told = Told(held.titles(), held.evidence(), held.cures(), cannot, {}, found.phases)
        click.echo(answer_text(answer, told, width(), (found.slow, found.quick)))
    return ""
