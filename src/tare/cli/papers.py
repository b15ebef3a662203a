"""`tare papers`: the five papers' studies, claims and tables, answered from one's own records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.cli import studies
from tare.cli.scaffold import STORE, Result, Verbs, json_option, need, print_json, reads_stores, say_notes, width

if TYPE_CHECKING:
    from tare.papers.tables.model import Paper
    from tare.papers.tables.picking import Machine
    from tare.papers.tables.rows import Answered
    from tare.records.store import Store
    from tare.records.trials import StoreTrials

PARTS = ("rows", "claims", "layers", "marks")
USUAL = PARTS[:2]
RESULTS = Path("studies-results")
EVERYWHERE = ("smoke", "small")  # scales that every ready study has; without one it is as in the paper


@click.group("papers", cls=Verbs)
def command() -> None:
    """The five papers (S0 to S4): their studies, which of their claims hold here, their tables with your results."""


command.add_command(studies.command, "studies")


@command.command("claims")
@reads_stores(required=False)
@click.option(
    "--paper",
    help="Only the claims of one paper: s0, s1, s2, s3 or s4; also lists those that were not measured, and why.",
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
    found, ready = answers(known, sources), studies.built_in()
    return Result(
        lambda: {"claims": [answer.as_json(ready) for answer in found]},
        lambda: (
            answers_text(found, ready, width(), _scale_of(sources), brief=paper is None)
            if sources
            else claims_text(known, ready, width())
        ),
    )


def _scale_of(sources: Sequence[StoreTrials]) -> str | None:
    """The scale at which these stores were run, if all that have one have the same, and every study has it."""
    scales = {source.study["scale"] for source in sources if source.study.get("scale")}
    return next((scale for scale in EVERYWHERE if scales == {scale}), None)


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
@json_option
def tables(name: str, results: Path, parts: tuple[str, ...], form: str, as_json: bool) -> None:
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
    _say_notes(found.machines)
    if as_json:
        print_json(_as_json(found))
    elif form == "md":
        from tare.papers.pages.markdown import paper_markdown

        click.echo(paper_markdown(found, parts or USUAL))
    else:
        from tare.papers.pages.terminal import paper_text

        click.echo(paper_text(found, parts or USUAL, width()))


@contextmanager
def each_paper_once() -> Iterator[None]:
    """In here a paper is answered once, however many of its parts are asked for: for one who reads whole pages."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


_kept: ContextVar[dict[tuple[str, Path], Answered] | None] = ContextVar("_kept", default=None)


def _answered(asked: Paper, results: Path) -> Answered:
    kept = _kept.get()
    if kept is None:
        return _read_and_answered(asked, results)
    key = (asked.paper, results.resolve())
    if key not in kept:
        kept[key] = _read_and_answered(asked, results)
    return kept[key]


def _read_and_answered(asked: Paper, results: Path) -> Answered:
    from tare.papers.tables.picking import machines
    from tare.papers.tables.rows import PAPER, TAKEN_APART, answered, studies_of, studies_read
    from tare.records.unpack import each_pack_once

    apart: dict[str, set[str]] = {study: set() for study in TAKEN_APART} if asked.paper == PAPER else {}
    with each_pack_once():
        read = machines(results, studies_read(asked) | apart)
    return answered(asked, [each for each in read if each.has_any(studies_of(asked) | apart)])


def _say_notes(read: Sequence[Machine]) -> None:
    for machine in read:
        for held in machine.held:
            say_notes(held.notes, held.name)


def _as_json(found: Answered) -> dict[str, Any]:
    from tare.papers.pages.rows import device_text, software_text
    from tare.papers.tables.rows import PAPER, layers

    ready = studies.built_in()
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
