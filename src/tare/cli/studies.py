"""`tare list studies`: the papers' experiments, ready to run; and loading the study that a verb was given."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import click

from tare.base.errors import StudyError
from tare.base.near_name import did_you_mean, unknown_name
from tare.cli.options import json_option, need
from tare.cli.scaffold import Verb, print_json, say, width
from tare.study.load import at_every_scale, load
from tare.study.model import Study

_SIZES = ("smoke", "small", "cuda", "clocks", "full")

scale_option: Callable[[Any], Any] = click.option(
    "--scale",
    metavar="NAME",
    help="How large, for a study that has scales: smoke, small, full (the paper's); some have cuda, clocks.",
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
    """List the papers' experiments: what each asks, where the paper has it, and how long it takes at each scale.

    With NAME, one of them is explained: its question and where the paper has it, what it varies, its scales with trials
    and time, what it needs, and what it ends in: claims, rows of the paper's tables, charts, commands.

    `tare run NAME --scale smoke` runs one, `tare plan NAME --scale small` lists its trials. The scale cuda, where there
    is one, is small for a server with an NVIDIA GPU; clocks also sets the GPU's clocks, for which it must be
    yours. Times are estimates for a small machine (full: for a board with a GPU) and for everything in the study,
    whatever can be run here.

    --json: [{"name", "asks", "paper", "section", "scales": {"smoke", "small", "full"}}]; scales are seconds. With NAME:
    {"name", "asks", "paper", "section", "scales": {SCALE: {"seconds", "cells", "trials", "varies", "needs"}},
    "compares", "claims", "rows", "charts", "commands"}.
    """
    if name is not None:
        _explain(name, as_json)
        return
    found = [each for name, path in built_in().items() if (each := described(name, path))["paper"]]
    if as_json:
        print_json(found)
    else:
        click.echo(_listed(found))


def _explain(name: str, as_json: bool) -> None:
    from tare.cli.study_explained import described_study, explained_text

    ours = built_in()
    if name not in ours:
        raise StudyError(unknown_name("study", name, list(ours)))
    found = described_study(name, ours[name])
    if as_json:
        print_json(found)
    else:
        click.echo(explained_text(found, width()))


def built_in() -> dict[str, Path]:
    """The studies that come with tare, by name."""
    folder = Path(str(resources.files("tare.papers.studies")))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def described(name: str, path: Path) -> dict[str, Any]:
    """One of them, as `--json` has it."""
    at = at_every_scale(path, trust=True)
    study = next(iter(at.values()))
    seconds = {scale: round(planned_seconds(each)) for scale, each in at.items()}
    return {"name": name, "asks": study.about, "paper": study.paper, "section": study.section, "scales": seconds}


def planned_seconds(study: Study) -> float:
    """What a study takes, as its plan guesses it."""
    from tare.plan.matrix import baseline, cells
    from tare.plan.model import planned_s

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
    from tare.study.load import with_python

    return study if python is None else with_python(study, python)


def known_interpreter(study: Study, folder: Path) -> str | None:
    """The one that the store there was begun with, so that who goes on need not say it again; says so."""
    if not (folder / "store.json").exists():
        return None
    from tare.records.store import Store
    from tare.study.load import begun_with

    with Store.open(folder) as store:
        python = begun_with(store.study, study)
    if python is not None:
        say(f"resuming with --python {python}, as {folder} was started.")
    return python


def folder_of(study: Study) -> Path:
    """Where a study's store lies by default: each scale below the whole has its own."""
    from tare.study.scales import FULL

    return Path("out") / (study.study if study.scale in ("", FULL) else f"{study.study}-{study.scale}")


def _time(study: dict[str, Any], scale: str) -> str:
    """A guess needs no seconds beside minutes, and five columns of them have to stand side by side."""
    seconds = study["scales"].get(scale)
    if seconds is None:
        return ""
    return next(
        f"{seconds / unit:.0f} {name}" for unit, name in ((3600, "h"), (60, "min"), (1, "s")) if seconds >= 2 * unit
    )


def _listed(studies: list[dict[str, Any]]) -> str:
    from tare.report.columns import table, wrap

    scales = sorted(dict.fromkeys(scale for each in studies for scale in each["scales"]), key=_SIZES.index)
    rows = [(each["name"], each["paper"], *(_time(each, scale) for scale in scales)) for each in studies]
    lines = [table(rows, ("study", "paper", *scales), width()), ""]
    for each in studies:
        lines += wrap(f"{each['name']}: {each['asks']} ({each['paper']} {each['section']})", width(), indent="  ")
    lines += ["", *wrap("`tare run NAME --scale smoke` runs one; without --scale it is as in the paper.", width())]
    return "\n".join(lines)
