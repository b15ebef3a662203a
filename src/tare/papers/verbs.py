"""`tare papers`: the five papers' studies, claims and tables, answered from one's own records."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.base.errors import StudyError, unknown_name
from tare.ext.verbs import STORE, Result, Verbs, built_in, need, prints, reads_stores, say_notes, width

if TYPE_CHECKING:
    from tare.ext.analysis import Store
    from tare.ext.verbs import Cell, Study
    from tare.papers.tables.model import Paper
    from tare.papers.tables.rows import Answered

PARTS = ("rows", "claims", "layers", "marks")
USUAL = PARTS[:2]
RESULTS = Path("studies-results")
LISTED = Path(__file__).parent / "studies" / "listed.json"  # by `make docs`; to read all studies takes 2 s
EVERYWHERE = ("smoke", "small")  # scales that every ready study has; without one it is as in the paper
_SIZES = ("smoke", "small", "cuda", "full")  # each a column; other scales are for certain hardware
_SHOWN = 6  # levels of a setting
_KERNEL = ("ftrace", "perf", "syscalls")
_IDENTITY = ("platform", "workload", "workload.model", "workload.name")
_NAMED_ONCE = "control.power_mode.mode"  # the name of a mode, whose cores and clocks are settings of their own


@click.group("papers", cls=Verbs)
def command() -> None:
    """The five papers (S0 to S4): their studies, which of their claims hold here, their tables with your results."""


@command.command("studies")
@click.argument("name", required=False)
@prints
def studies(name: str | None) -> Result:
    """List the built-in studies: what each asks, where a paper has it, and how long it takes at each scale.

    With NAME, one of them is explained: its question and where the paper has it, what it varies, its scales with trials
    and time, what it needs, and what it ends in: claims, rows of the paper's tables, charts, commands.

    `tare run NAME --scale smoke` runs one, `tare plan NAME --scale small` lists its trials. The scale cuda, where there
    is one, is small for a server with an NVIDIA GPU; clocks also sets the GPU's clocks, for which it must be
    yours. Times are estimates for a small machine (cuda: for a server of 16 cores; full: for a board with a GPU) and
    for everything in the study, whatever can be run here; `tare plan` and `tare run` estimate for this machine.

    --json: {"studies": [{"name", "asks", "paper", "section", "scales": {"smoke", "small", "full"}}]}; scales are
    seconds. With NAME:
    {"name", "asks", "paper", "section", "scales": {SCALE: {"seconds", "cells", "trials", "varies", "needs"}},
    "compares", "claims", "rows", "charts", "commands"}.
    """
    if name is None:
        found = json.loads(LISTED.read_text())
        return Result(lambda: {"studies": found}, lambda: _listed(found))
    from tare.ext.verbs import at_every_scale

    ours = built_in()
    if name not in ours:
        raise StudyError(unknown_name("study", name, list(ours)))
    one = explained(name, at_every_scale(ours[name], trust=True))
    return Result(lambda: one, lambda: explained_text(one, width()))


@command.command("claims")
@reads_stores(required=False)
@click.option(
    "--paper",
    help="The claims of one paper (s0, s1, s2, s3 or s4) with their evidence, and those not measured, and why.",
)
def claims(stores: Sequence[Store], paper: str | None) -> Result:
    """Which of the papers' claims hold here, by the records of one store or more; a folder stands for all in it.

    Each is answered with: holds here (the whole interval lies beyond the margin, or within it for what stays), does
    not hold here (the whole interval lies on its other side), undecided, or not measured. Stores of the same device and
    software are joined: each has its own effect, and these are joined as a random effect. Otherwise each population has
    its own answer. Without STORE: lists every claim, and the study that measures it.

    --json: {"claims": [{"id", "paper", "section", "statement", "word", "effect", "low", "high", "n", "trials", "why",
    "study", "where", "kind", "study_ready"}]}; effects are shares (`kind`: a change, a share itself, or the points
    by which one has changed), and a study that is ready is one that comes with tare.
    """
    from tare.papers.claims.deciding import answers, claims_of, source_of
    from tare.papers.pages.claims import answers_text, claims_text

    known = claims_of(paper)
    sources = [source_of(store, str(store.path)) for store in stores]
    for store, source in zip(stores, sources, strict=True):
        say_notes([note for note in source.notes if note not in store.problems], source.name)
    found, ready = answers(known, sources), built_in()
    scales = {source.study["scale"] for source in sources if source.study.get("scale")}
    # The scale at which all of them were run that have one, if every study has it.
    common = next((scale for scale in EVERYWHERE if scales == {scale}), None)
    return Result(
        lambda: {"claims": [answer.as_json(ready) for answer in found]},
        lambda: (
            answers_text(found, ready, width(), common, brief=paper is None)
            if sources
            else claims_text(known, ready, width())
        ),
    )


@command.command("tables")
@click.argument("name", metavar="PAPER")
@click.argument("results", metavar="[RESULTS]", required=False, default=RESULTS, type=STORE)
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(PARTS),
    help="Only this part, or these; layers: S0's superseded result, layer by layer; marks: each row in a word.  "
    "[default: rows, claims]",
)
@click.option("--format", "form", type=click.Choice(["text", "md"]), default="text", show_default=True, help="How.")
@prints
def tables(name: str, results: Path, parts: tuple[str, ...], form: str) -> Result:
    """Print a paper's tables row by row: what it printed, and what was found on each machine in RESULTS.

    PAPER is s0, s1, s2, s3 or s4. RESULTS holds the stores and packs of each machine: MACHINE/STUDY.tare, or store
    folders; else studies-results. Rows of one figure of one study are corrected together, as in `compare`; letters in
    brackets refer to the notes below the table: how the trials differ from the paper's, why there is no figure, what
    taints one. Then its claims: how many hold, each with its word and its evidence.

    --json: {"paper", "machines": [{"name", "device", "software"}], "rows": [{"id", "section", "quantity", "paper",
    "hazard", "ours": {MACHINE: {"word", "metric", "sides", "change", "low", "high", "n", "why", ...}}}], "claims",
    "layers"}; times are seconds, changes are shares, and layers are S0's only.
    """
    from tare.papers.tables.model import paper
    from tare.papers.tables.rows import PAPER

    asked = paper(name)
    need("layers" not in parts or asked.paper == PAPER, f"the layers of a container belong to {PAPER} alone.")
    found = _answered(asked, results)
    for each in (held for machine in found.machines for held in machine.held):
        say_notes(each.notes, each.name)

    def text() -> str:
        from tare.papers.pages.markdown import paper_markdown
        from tare.papers.pages.terminal import paper_text

        return paper_markdown(found, parts or USUAL) if form == "md" else paper_text(found, parts or USUAL, width())

    return Result(lambda: _as_json(found), text)


@contextmanager
def each_paper_once(subjects: Collection[tuple[str, ...]]) -> Iterator[None]:
    """In here a paper is answered once, however many of its parts are asked for: for one who reads whole pages.

    The files of the papers in `subjects`, the first words of commands, are read before processes are forked.
    """
    from tare.papers.tables.model import paper
    from tare.papers.tables.rows import studies_read

    for subject in subjects:
        if subject[:2] == ("papers", "tables"):
            with suppress(StudyError):  # said when the page is looked at
                studies_read(paper(subject[-1]))
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


_kept: ContextVar[dict[tuple[str, Path], Answered] | None] = ContextVar("_kept", default=None)


def _answered(asked: Paper, results: Path) -> Answered:
    from tare.ext.analysis import each_pack_once
    from tare.papers.tables.picking import machines
    from tare.papers.tables.rows import PAPER, TAKEN_APART, answered, studies_of, studies_read

    kept, key = _kept.get(), (asked.paper, results.resolve())
    if kept is not None and key in kept:
        return kept[key]
    apart: dict[str, set[str]] = {study: set() for study in TAKEN_APART} if asked.paper == PAPER else {}
    with each_pack_once():
        read = machines(results, studies_read(asked) | apart)
    found = answered(asked, [each for each in read if each.has_any(studies_of(asked) | apart)])
    if kept is not None:
        kept[key] = found
    return found


def _as_json(found: Answered) -> dict[str, Any]:
    from tare.papers.pages.rows import device_text, software_text
    from tare.papers.tables.rows import PAPER, layers

    ready = built_in()
    rows = [
        {
            "id": row.id,
            "section": row.section,
            "quantity": row.quantity,
            "paper": {
                "sides": dict(row.paper.sides),
                "change": row.paper.change,
                "derived": sorted(row.paper.derived),
                "numbers": row.paper.numbers(),
            },
            "hazard": row.hazard,
            "ours": {machine: ours.as_json() for machine, ours in found.rows[row.id].items()},
        }
        for row in found.paper.rows
    ]
    claims = [
        {**answer.as_json(ready), "machine": machine} for machine, answers in found.claims.items() for answer in answers
    ]
    return {
        "paper": found.paper.paper,
        "machines": [
            {"name": each.name, "device": device_text(each), "software": software_text(each)} for each in found.machines
        ],
        "rows": rows,
        "claims": claims,
        "layers": {each.machine: each.as_json() for each in layers(found)} if found.paper.paper == PAPER else {},
    }


# The experiments of the papers: what each asks, varies, takes, needs, and what it ends in.


def described(name: str, path: Path) -> dict[str, Any]:
    """One of them, as LISTED has it."""
    from tare.ext.verbs import at_every_scale

    at = at_every_scale(path, trust=True)
    study = next(iter(at.values()))
    seconds = {scale: round(planned_seconds(each)) for scale, each in at.items()}
    return {"name": name, "asks": study.about, "paper": study.paper, "section": study.section, "scales": seconds}


def planned_seconds(study: Study) -> float:
    """What a study takes, as its plan guesses it."""
    from tare.ext.verbs import baseline, planned_s
    from tare.ext.verbs import planned_cells as cells

    found = cells(study)
    return planned_s(study, found, baseline(study, found) if study.aa and len(found) > 1 else ())


def _time(study: dict[str, Any], scale: str) -> str:
    """A guess needs no seconds beside minutes. A study without scales has one time."""
    seconds = study["scales"].get(scale, study["scales"].get("") if scale == _SIZES[-1] else None)
    if seconds is None:
        return ""
    return next(
        f"{seconds / unit:.0f} {name}" for unit, name in ((3600, "h"), (60, "min"), (1, "s")) if seconds >= 2 * unit
    )


def _listed(studies: list[dict[str, Any]]) -> str:
    from tare.base.columns import wrap
    from tare.ext.report import table

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
    from tare.ext.verbs import aa_repeats
    from tare.ext.verbs import planned_cells as cells
    from tare.papers.claims.deciding import every_claim

    claims = [claim for claim in every_claim() if claim.study == name]
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
        "claims": [{"id": each.id, "statement": each.statement, "command": each.command} for each in claims],
        "rows": _rows(name, {claim.id for claim in claims}),
        "charts": charts(whole, list(scales.values())[-1]["varies"]),
        "commands": list(whole.ends_in),
    }


def varied(found: Sequence[Cell]) -> dict[str, list[Any]]:
    """Setting -> its levels, where there are several; without those that only follow from platform and workload."""
    from tare.ext.analysis import label_text as text
    from tare.ext.analysis import varied as varying

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
    """What the device must have, in words; `tare plan NAME` says what of it is missing here."""
    from tare.ext.analysis import POWER_PROBES

    values = study.factors.values
    found = [choice.name for stack in study.platforms for choice in stack if choice.name != "bare"]
    if any("kvm" in each for name, each in values.items() if name.endswith(".accel")):
        found.append("KVM")
    cores = [v for name, each in values.items() if name.endswith(".cores") for v in each if isinstance(v, int | float)]
    if cores and max(cores) > 2:
        found.append(f"{max(cores):g} cores")
    if "cuda" in values.get("workload.device", ()):
        found.append("a GPU")
    found += [f"control {levels[0].name}" for levels in study.controls]
    probes = [choice.name for choice in study.probes]
    if power := [probe for probe in probes if probe in POWER_PROBES]:
        found.append(f"for energy: {' or '.join(power)}")
    if kernel := [probe for probe in probes if probe in _KERNEL]:
        found.append(f"for the kernel's view: root, {', '.join(kernel)}")
    return list(dict.fromkeys(found))


def charts(study: Study, varies: Mapping[str, Sequence[Any]]) -> list[str]:
    """What its report draws, as far as the device reports it."""
    from tare.ext.analysis import POWER_PROBES

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


def _rows(name: str, claims: Collection[str]) -> list[dict[str, str]]:
    """The rows of the papers' tables that ask this study, or a claim that it decides."""
    from tare.papers.tables.model import ByClaim, names, paper

    return [
        {"id": row.id, "section": row.section, "quantity": row.quantity}
        for each in names()
        for row in paper(each).rows
        if any(one.claim in claims if isinstance(one, ByClaim) else one.study == name for one in row.ours)
    ]


def explained_text(found: Mapping[str, Any], width: int) -> str:
    """The same for people."""
    from tare.base.columns import wrap
    from tare.base.text import count_text, duration_text
    from tare.ext.report import table

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
    lines += ["", *wrap(f"`tare plan {found['name']}{option}` says what is missing here; `tare run` runs it.", width)]
    return "\n".join(lines)


def _levels(varied_by: Mapping[str, Sequence[Any]]) -> str:
    from tare.ext.analysis import label_text as text

    parts = []
    for name, values in varied_by.items():
        more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
        shown = [each for each in values if each is not None]
        ordered = sorted(shown) if all(isinstance(each, int | float) for each in shown) else shown
        told = ", ".join([*map(text, ordered[:_SHOWN]), *(["unset"] if len(shown) < len(values) else [])])
        parts.append(f"{name} {told}{more}")
    return "; ".join(parts)


def _under(heading: str, items: Sequence[str], width: int) -> list[str]:
    from tare.base.columns import wrap

    lines = [f"  {heading}:" if items else f"  {heading}: none"]
    for item in items:
        lines += ["    " + line for line in wrap(item, width - 4, indent="  ")]
    return lines
