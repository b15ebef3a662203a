"""`tare device baseload`: the idle device under each platform and power mode of a study."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.api.running import folder_of, load_study, needs_of_study, no_power, run_into, study_text, too_short
from tare.base.declare import Role
from tare.base.errors import ObstacleError, StudyError, TareError
from tare.cli.scaffold import (
    DURATION,
    FOLDER,
    STORE,
    Verb,
    json_option,
    output_option,
    print_json,
    reading,
    say,
    scale_option,
    trust_option,
    width,
)

if TYPE_CHECKING:
    from tare.studies.model import Study

_MOST_SETTLE_S = 5.0  # what ran before has died away by then
_OPENING_S = 600  # a virtual machine may take minutes to boot


@click.command("baseload", cls=Verb)
@click.argument("study", metavar="STUDY|DIR", type=STORE)
@click.option(
    "--duration", type=DURATION, default="60s", show_default=True,
    help="How long to watch, each time; less than a sensor needs for an energy (1 s to 10 s) is refused.",
)  # fmt: skip
@click.option("--blocks", type=click.IntRange(1, 1000), default=6, show_default=True, help="How many blocks.")
@click.option("--states", is_flag=True, help="Idle states as a study of their own: logging on/off, DVFS on/off.")
@output_option("The folder of the study's store: the baseload is next to it.  [default: DIR, or out/NAME]", FOLDER)
@scale_option
@trust_option
@json_option
def command(
    study: Path, duration: float, blocks: int, states: bool, output: Path | None, scale: str | None, trust: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Measure what the idle device draws on each platform and in each power mode of STUDY, or of the store DIR.

    It is a separate study of the `idle` workload, run like any other and kept next to the study's store
    (out/NAME-baseload). `tare show out/NAME energy`, `compare`, `choose front` and `papers claims` find it there,
    whenever it was run. A second run continues where the first one stopped.
    """
    from tare.analysis.observations import baseload_folder, idle_powers
    from tare.records.store import Store
    from tare.studies.load import from_plain
    from tare.trial.undo.restoration import refuse_pending

    theirs, folder = _asked(study, output, trust, scale)
    if sentences := no_power(theirs):  # an idle hour with no watt read is an hour lost
        raise ObstacleError(f"no power probe is enabled in {theirs.study}, and nothing was run:", sentences)
    if short := too_short(theirs, duration):
        raise StudyError("\n".join(["--duration is too short for an energy, and nothing was run:", *short]))
    plain = (_states if states else _baseload)(theirs, duration, blocks)
    made = from_plain(plain, "tare device baseload")
    store = folder.with_name(f"{folder.name}-idle-states") if states else baseload_folder(folder)
    with needs_of_study(made):
        outcome = run_into(made, study_text(made), store)
    say(f"{outcome.why}.")
    _tell(store, as_json)
    if outcome.interrupted:
        say("The same command resumes.")
        refuse_pending()
        say("The device is as it was found.")
        raise SystemExit(130)
    with Store.open(store) as opened:
        if not idle_powers(opened.records()):
            raise TareError(f"no idle power was measured; `tare show {store}` lists the trials.")


def _asked(study: Path, output: Path | None, trust: bool, scale: str | None) -> tuple[Study, Path]:
    """The study, and where its store lies or will lie."""
    from tare.records.schema import is_store

    if not is_store(study):
        loaded = load_study(study, trust, scale)
        return loaded, output or folder_of(loaded)
    from tare.studies.load import from_plain

    with reading(study) as store:
        return from_plain(store.study, str(study)), output or study


def _baseload(study: Study, duration_s: float, blocks: int) -> dict[str, Any]:
    """The same platforms, modes and probes, and nothing to do."""
    from tare.analysis.observations import OF_DATA

    plain = study.as_plain()
    controls = {name: levels for name, levels in plain["control"].items() if name not in OF_DATA}
    known = ("platform", *(f"control.{name}" for name in controls))
    return {
        **_idle_study(study, "baseload", duration_s, blocks),
        "platform": _unlimited(plain["platform"]),
        "control": controls,
        "exclude": [each for each in plain["exclude"] if all(_is_of(key, known) for key in each)],
    }


def _unlimited(levels: list[Any]) -> list[Any]:
    """The platforms without what limits a workload, each once: an idle one has nothing to be limited."""
    made = [[_without_limits(part) for part in level] if isinstance(level, list) else _without_limits(level)
            for level in levels]  # fmt: skip
    return [level for place, level in enumerate(made) if level not in made[:place]]


def _without_limits(part: Any) -> Any:
    from tare.analysis.observations import OF_LIMITS

    if not isinstance(part, dict):
        return part
    ((name, fields),) = part.items()
    kept = {key: value for key, value in (fields or {}).items() if key not in OF_LIMITS}
    return {name: kept} if kept else name


def _states(study: Study, duration_s: float, blocks: int) -> dict[str, Any]:
    """Bare metal, with a logging script and without, and with DVFS and without where that can be switched."""
    from tare.base.host import LocalHost
    from tare.parts.controls.power import Dvfs

    plain = _idle_study(study, "idle-states", duration_s, blocks)
    plain["platform"] = ["bare"]
    plain["workload"]["idle"]["logging"] = [False, True]
    if obstacles := Dvfs(state="off").obstacles(LocalHost()):
        say(f"note: DVFS cannot be switched here, so that logging alone is varied. {' '.join(map(str, obstacles))}")
        return plain
    return {**plain, "control": {"dvfs": ["on", "off"]}}


def _idle_study(study: Study, what: str, duration_s: float, blocks: int) -> dict[str, Any]:
    plain = study.as_plain()
    settle_s = min(_MOST_SETTLE_S, duration_s / 10)
    return {
        "study": f"{study.study[:50]}-{what}",
        "about": f"The idle device, for the study {study.study}.",
        "platform": plain["platform"],
        "workload": {"idle": {"duration": f"{duration_s:g} s", "settle": f"{settle_s:g} s"}},
        "probes": plain["probes"],
        "missing": study.missing,
        "repeat": blocks,
        "aa": False,
        "compare": {"metric": Role.POWER.metric},
        "limit": f"{duration_s + settle_s + _OPENING_S:g} s",
        "period": plain["period"],
    }


def _is_of(key: str, known: Iterable[str]) -> bool:
    """Whether a selector's key is about these, and not about a limit, which the baseload has none of."""
    from tare.analysis.observations import OF_LIMITS

    if key.startswith("platform.") and key.rpartition(".")[2] in OF_LIMITS:
        return False
    return any(key == name or key.startswith(f"{name}.") for name in known)


def _tell(store: Path, as_json: bool) -> None:
    """Idle power of each platform and mode; which trials gave none is said beside it."""
    from tare.analysis.observations import idle_powers
    from tare.analysis.resources.energy import idle_table, why_no_energy
    from tare.base.text import count_text, safe_text
    from tare.records.model import counted_attempts
    from tare.report.sections import body_text

    with reading(store) as opened:
        records = counted_attempts(opened.records())
    found = idle_powers(records)
    if as_json:
        idle = [{"label": each.label, "logging": each.logging, "power_w": each.power_w.value, "low": each.power_w.low,
                 "high": each.power_w.high, "n": each.power_w.n, "scope": each.scope} for each in found]  # fmt: skip
        print_json({"store": str(store), "idle": idle})
    elif found:
        click.echo(body_text(idle_table(found), width()))
    used = {trial for each in found for trial in each.trials}
    if without := [record for record in records if record.trial not in used]:
        reasons = dict.fromkeys(reason for record in without for reason in record.reasons or why_no_energy(record))
        say(f"{count_text(len(without), 'trial')} gave no idle power: {safe_text(' '.join(map(str, reasons)))}")
