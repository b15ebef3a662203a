"""`tare list studies`: the papers' experiments, ready to run; and loading the study that a verb was given.

`tare papers studies NAME`: one of them: what it asks, varies, takes, needs, and what it ends in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.base.errors import StudyError, did_you_mean, unknown_name
from tare.cli.scaffold import Verb, json_option, need, print_json, say, width
from tare.studies.load import at_every_scale, load
from tare.studies.model import Study

if TYPE_CHECKING:
    from tare.plan.matrix import Cell

_SIZES = ("smoke", "small", "cuda", "full")  # each a column; other scales are for certain hardware

_SHOWN = 6  # levels of a setting
_KERNEL = ("ftrace", "perf", "syscalls")
_IDENTITY = ("platform", "workload", "workload.model", "workload.name")
_NAMED_ONCE = "control.power_mode.mode"  # the name of a mode, whose cores and clocks are settings of their own

scale_option: Callable[[Any], Any] = click.option(
    "--scale",
    metavar="NAME",
    help="How large, for a study that has scales: smoke, small, full (the paper's); see `tare list studies`.",
)


def _from_anywhere(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A trial starts in a folder of its own; a link stays one, since by it an environment is known."""
    need(value != "", "--python is empty: name an interpreter, like /usr/bin/python3.")
    return str(Path(value).absolute()) if value is not None and "/" in value else value


python_option: Callable[[Any], Any] = click.option(
    "--python",
    metavar="PATH",
    callback=_from_anywhere,
    help="The interpreter that has torch, if it is not the platform's own: `python` of each workload that names none.",
)


@click.command("studies", cls=Verb)
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """List the built-in studies: what each asks, where a paper has it, and how long it takes at each scale.

    With NAME, one of them is explained: its question and where the paper has it, what it varies, its scales with trials
    and time, what it needs, and what it ends in: claims, rows of the paper's tables, charts, commands.

    `tare run NAME --scale smoke` runs one, `tare plan NAME --scale small` lists its trials. The scale cuda, where there
    is one, is small for a server with an NVIDIA GPU; clocks also sets the GPU's clocks, for which it must be
    yours. Times are estimates for a small machine (cuda: for a server of 16 cores; full: for a board with a GPU) and
    for everything in the study, whatever can be run here; `tare plan` and `tare run` estimate for this machine.

    --json: [{"name", "asks", "paper", "section", "scales": {"smoke", "small", "full"}}]; scales are seconds. With NAME:
    {"name", "asks", "paper", "section", "scales": {SCALE: {"seconds", "cells", "trials", "varies", "needs"}},
    "compares", "claims", "rows", "charts", "commands"}.
    """
    if name is not None:
        _explain(name, as_json)
        return
    found = [described(name, path) for name, path in built_in().items()]
    if as_json:
        print_json(found)
    else:
        click.echo(_listed(found))


def _explain(name: str, as_json: bool) -> None:
    ours = built_in()
    if name not in ours:
        raise StudyError(unknown_name("study", name, list(ours)))
    found = explained(name, at_every_scale(ours[name], trust=True))
    if as_json:
        print_json(found)
    else:
        click.echo(explained_text(found, width()))


def built_in() -> dict[str, Path]:
    """The studies that come with tare, by name."""
    folder = Path(str(resources.files("tare.papers") / "studies"))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def described(name: str, path: Path) -> dict[str, Any]:
    """One of them, as `--json` has it."""
    at = at_every_scale(path, trust=True)
    study = next(iter(at.values()))
    seconds = {scale: round(planned_seconds(each)) for scale, each in at.items()}
    return {"name": name, "asks": study.about, "paper": study.paper, "section": study.section, "scales": seconds}


def planned_seconds(study: Study) -> float:
    """What a study takes, as its plan guesses it."""
    from tare.plan.matrix import baseline, cells, planned_s

    found = cells(study)
    return planned_s(study, found, baseline(study, found) if study.aa and len(found) > 1 else ())


def study_path(study: Path) -> Path:
    """The file itself, or the built-in study of that name."""
    if study.exists():
        return study
    ours = built_in()
    if str(study) in ours:
        return ours[str(study)]
    hint = did_you_mean(str(study), ours) or "`tare list studies` lists those that come with tare."
    raise StudyError(f"{study}: there is no such study file. {hint}")


def load_study(study: Path, trust: bool = False, scale: str | None = None, python: str | None = None) -> Study:
    """The study that a verb was given, at the scale that it was given."""
    path = study_path(study)
    try:
        loaded = load(path, trust=trust, scale=scale)
    except StudyError:
        if path != study and scale is not None:  # ours: its file and its lines are nothing that the user wrote
            _refuse_no_scale(str(study), path, scale)
        raise
    return with_interpreter(loaded, python)


def _refuse_no_scale(name: str, path: Path, scale: str) -> None:
    known = [each for each in at_every_scale(path, trust=True) if each]
    if scale in known:
        return
    if not known:
        raise StudyError(f"{name} has no scales, and so no scale {scale!r}. Leave --scale out.") from None
    raise StudyError(f"{name}: {unknown_name('scale', scale, known)}") from None


def with_interpreter(study: Study, python: str | None) -> Study:
    """The study as the option wants it."""
    from tare.studies.load import with_python

    return study if python is None else with_python(study, python)


def known_interpreter(study: Study, folder: Path) -> str | None:
    """The one that the store there was begun with, so that who goes on need not say it again; says so."""
    if not (folder / "store.json").exists():
        return None
    from tare.records.store import Store
    from tare.studies.load import begun_with

    with Store.open(folder) as store:
        python = begun_with(store.study, study)
    if python is not None:
        say(f"resuming with --python {python}, as {folder} was started.")
    return python


def folder_of(study: Study) -> Path:
    """Where a study's store lies by default: each scale below the whole has its own."""
    from tare.studies.load import FULL

    return Path("out") / (study.study if study.scale in ("", FULL) else f"{study.study}-{study.scale}")


def _time(study: dict[str, Any], scale: str) -> str:
    """A guess needs no seconds beside minutes. A study without scales has one time."""
    from tare.studies.load import FULL

    seconds = study["scales"].get(scale, study["scales"].get("") if scale == FULL else None)
    if seconds is None:
        return ""
    return next(
        f"{seconds / unit:.0f} {name}" for unit, name in ((3600, "h"), (60, "min"), (1, "s")) if seconds >= 2 * unit
    )


def _listed(studies: list[dict[str, Any]]) -> str:
    from tare.report.columns import table, wrap

    rows = [
        (
            each["name"],
            each["paper"],
            *(_time(each, scale) for scale in _SIZES),
            ", ".join(scale for scale in each["scales"] if scale not in ("", *_SIZES)),
        )
        for each in studies
    ]
    lines = [table(rows, ("study", "paper", *_SIZES, "also"), width()), ""]
    for each in studies:
        place = f" ({each['paper']} {each['section']})" if each["paper"] else ""
        lines += wrap(f"{each['name']}: {each['asks']}{place}", width(), indent="  ")
    lines += ["", *wrap("`tare run NAME --scale smoke` runs one; without --scale it is as in the paper.", width())]
    return "\n".join(lines)


def explained(name: str, at: Mapping[str, Study]) -> dict[str, Any]:
    """All of it as plain data, as `--json` has it; `at` is the study at each of its scales, from the smallest."""
    from tare.plan.matrix import aa_repeats, cells

    whole = list(at.values())[-1]
    scales: dict[str, dict[str, Any]] = {}
    for scale, study in at.items():
        found = cells(study)
        scales[scale] = {
            "seconds": round(planned_seconds(study)),
            "cells": len(found),
            "trials": (len(found) + len(aa_repeats(study, found))) * study.repeat.max,
            "varies": varied(found),
            "needs": needs(study),
        }
    return {
        "name": name,
        "asks": whole.about,
        "paper": whole.paper,
        "section": whole.section,
        "scales": scales,
        "compares": {"by": whole.compare.by, "metric": whole.compare.metric, "margin": whole.compare.margin},
        "claims": _claims(name),
        "rows": _rows(name),
        "charts": charts(whole, list(scales.values())[-1]["varies"]),
        "commands": list(whole.ends_in),
    }


def varied(found: Sequence[Cell]) -> dict[str, list[Any]]:
    """Setting -> its levels, where there are several; without those that only follow from platform and workload."""
    from tare.analysis.labels import text
    from tare.records.model import varied as varying

    several = [cell.settings for cell in found]
    names = [name for name in varying(several) if name != _NAMED_ONCE] or varying(several)
    known = [name for name in _IDENTITY if name in names]

    def follows(name: str) -> bool:
        pairs = {(tuple(text(each.get(one)) for one in known), text(each.get(name))) for each in several}
        return len(pairs) == len({identity for identity, _ in pairs})

    kept = [name for name in names if name in known or not follows(name)]
    levels = {name: list({text(each.get(name)): each.get(name) for each in several}.values()) for name in kept}
    return {name: values for name, values in levels.items() if len(values) > 1}


def needs(study: Study) -> list[str]:
    """What the device must have, in words; `tare check NAME` says what of it is missing here."""
    return list(dict.fromkeys(_needs(study)))


def _needs(study: Study) -> Iterator[str]:
    from tare.analysis.resources.energy import POWER_PROBES

    values = study.factors.values
    for stack in study.platforms:
        for choice in stack:
            yield from [] if choice.name == "bare" else [f"{choice.name}"]
    yield from ["KVM"] if any("kvm" in each for name, each in values.items() if name.endswith(".accel")) else []
    cores = [v for name, each in values.items() if name.endswith(".cores") for v in each if isinstance(v, int | float)]
    yield from [f"{max(cores):g} cores"] if cores and max(cores) > 2 else []
    yield from ["a GPU"] if "cuda" in values.get("workload.device", ()) else []
    for levels in study.controls:
        yield f"control {levels[0].name}"
    probes = [choice.name for choice in study.probes]
    power = [probe for probe in probes if probe in POWER_PROBES]
    yield from [f"for energy: {' or '.join(power)}"] if power else []
    kernel = [probe for probe in probes if probe in _KERNEL]
    yield from [f"for the kernel's view: root, {', '.join(kernel)}"] if kernel else []


def charts(study: Study, varies: Mapping[str, Sequence[Any]]) -> list[str]:
    """What its report draws, as far as the device reports it."""
    from tare.analysis.resources.energy import POWER_PROBES

    probes = {choice.name for choice in study.probes}
    numbers = {
        name: [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        for name, values in varies.items()
    }
    curves = [name.rpartition(".")[2] for name, values in numbers.items() if len(values) >= 3]
    phases = True in study.factors.values.get("workload.phases", ())
    found = [
        "effect and interval of each level" if varies else "",
        *(f"curve by {name}" for name in dict.fromkeys(curves)),
        "trials by block",
        "parts of a step",
        "forward, backward and optimiser step" if phases else "",
        "energy, and time by energy" if probes & set(POWER_PROBES) else "",
        "use of CPU, memory and what else is sampled, over time",
        "system calls, page faults, write-backs" if probes & set(_KERNEL) else "",
        "claims",
    ]
    return [each for each in found if each]


def _claims(name: str) -> list[dict[str, str]]:
    from tare.papers.claims.deciding import every_claim

    mine = [claim for claim in every_claim() if claim.study == name]
    return [{"id": each.id, "statement": each.statement, "command": each.command} for each in mine]


def _rows(name: str) -> list[dict[str, str]]:
    """The rows of the papers' tables that ask this study, or a claim that it decides."""
    from tare.papers.claims.deciding import every_claim
    from tare.papers.tables.model import ByClaim, names, paper

    claims = {claim.id for claim in every_claim() if claim.study == name}
    return [
        {"id": row.id, "section": row.section, "quantity": row.quantity}
        for each in names()
        for row in paper(each).rows
        if any(one.claim in claims if isinstance(one, ByClaim) else one.study == name for one in row.ours)
    ]


def explained_text(found: Mapping[str, Any], width: int) -> str:
    """The same for people."""
    from tare.base.text import count_text, duration_text
    from tare.report.columns import table, wrap

    place = f" ({found['paper']} {found['section']})" if found["paper"] else ""
    lines = wrap(f"{found['name']}: {found['asks']}{place}", width, indent="  ")
    compares = found["compares"]
    by = f" by {compares['by']}" if compares["by"] else ""
    lines += ["", *wrap(f"Compares {compares['metric']}{by}, margin {compares['margin']:.0%}.", width), ""]
    scales = found["scales"]
    timed = [
        (name or "only", count_text(each["cells"], "cell"), str(each["trials"]), duration_text(each["seconds"]))
        for name, each in scales.items()
    ]
    lines += [table(timed, ("scale", "cells", "trials at most", "about"), width), ""]
    last = list(scales.values())[-1]
    for heading, key in (("Varies", "varies"), ("Needs", "needs")):
        for name, each in scales.items():
            if each is not last and each[key] == last[key]:
                continue
            said = _levels(each[key]) if key == "varies" else "; ".join(each[key])
            lines += wrap(f"{heading}{f' ({name})' if name else ''}: {said or 'nothing'}.", width, indent="  ")
    lines += ["", "Ends in:"]
    lines += _under(
        "claims it is made for (its store may answer more)",
        [f"{each['id']}: {each['statement']}" for each in found["claims"]],
        width,
    )
    lines += _under("rows", [f"{each['id']} {each['quantity']}" for each in found["rows"]], width)
    lines += _under("charts", found["charts"], width)
    lines += _under("commands", [f"tare {each}" for each in found["commands"]], width)
    smallest = next(iter(scales))
    option = f" --scale {smallest}" if smallest else ""
    lines += ["", *wrap(f"`tare check {found['name']}{option}` says what is missing here; `tare run` runs it.", width)]
    return "\n".join(lines)


def _levels(varied_by: Mapping[str, Sequence[Any]]) -> str:
    from tare.analysis.labels import text

    parts = []
    for name, values in varied_by.items():
        more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
        shown = [each for each in values if each is not None]
        ordered = sorted(shown) if all(isinstance(each, int | float) for each in shown) else shown
        told = ", ".join([*map(text, ordered[:_SHOWN]), *(["unset"] if len(shown) < len(values) else [])])
        parts.append(f"{name} {told}{more}")
    return "; ".join(parts)


def _under(heading: str, items: Sequence[str], width: int) -> list[str]:
    from tare.report.columns import wrap

    lines = [f"  {heading}:" if items else f"  {heading}: none"]
    for item in items:
        lines += ["    " + line for line in wrap(item, width - 4, indent="  ")]
    return lines
