"""`tare paper`: a paper's own table, row by row, beside what the same studies gave on one's own machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.cli.options import STORE, json_option, need, print_json, say, width

if TYPE_CHECKING:
    from tare.analysis.papers.machines import Machine
    from tare.analysis.papers.model import Paper
    from tare.analysis.papers.rows import Answered

PARTS = ("rows", "claims", "layers")
USUAL = PARTS[:2]
RESULTS = Path("studies-results")


@click.command("paper")
@click.argument("name", metavar="PAPER")
@click.argument("results", metavar="[RESULTS]", required=False, default=RESULTS, type=STORE)
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(PARTS),
    help="Only this part, or these; layers: what S0 withdrew, layer by layer.  [default: rows, claims]",
)
@click.option("--format", "form", type=click.Choice(["text", "md"]), default="text", show_default=True, help="How.")
@json_option
def command(name: str, results: Path, parts: tuple[str, ...], form: str, as_json: bool) -> None:
    """Print a paper's tables row by row: what it printed, and what was found on each machine in RESULTS.

    PAPER is s0, s1, s2, s3 or s4. RESULTS holds the stores and packs of each machine: MACHINE/STUDY.tare, or store
    folders; else studies-results. Rows of one figure of one study are corrected together, as in `compare`; letters in
    brackets stand for what is told once below: how the trials differ from the paper's, why there is no figure, what
    taints one. Then its claims: how many hold, each with its word and what it rests on.

    --json: {"paper", "machines": [{"name", "device", "software"}], "rows": [{"id", "section", "quantity", "paper",
    "hazard", "ours": {MACHINE: {"word", "metric", "sides", "change", "low", "high", "n", "why", ...}}}], "claims",
    "layers"}; times are seconds, changes are shares, and layers are S0's only.
    """
    from tare.analysis.papers.layers import PAPER
    from tare.analysis.papers.library import paper

    asked = paper(name)
    need("layers" not in parts or asked.paper == PAPER, f"the layers of a container belong to {PAPER} alone.")
    found = _answered(asked, results)
    _say_notes(found.machines)
    if as_json:
        print_json(_as_json(found))
    elif form == "md":
        from tare.report.export.paper_markdown import paper_markdown

        click.echo(paper_markdown(found, parts or USUAL))
    else:
        from tare.report.paper import paper_text

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
    from tare.analysis.papers.layers import PAPER, TAKEN_APART
    from tare.analysis.papers.machines import machines
    from tare.analysis.papers.rows import answered, studies_of
    from tare.records.unpacking import each_pack_once

    apart: dict[str, set[str]] = {study: set() for study in TAKEN_APART} if asked.paper == PAPER else {}
    with each_pack_once():
        read = machines(results, studies_of(asked) | apart)
    return answered(asked, read)


def _say_notes(read: Sequence[Machine]) -> None:
    for machine in read:
        for held in machine.held:
            for note in held.source.notes:
                say(f"note: {held.name}: {note}")


def _as_json(found: Answered) -> dict[str, Any]:
    from tare.analysis.papers.layers import PAPER, layers
    from tare.cli.studies import built_in
    from tare.report.paper_words import device_text, software_text

    ready = built_in()
    rows = [
        {
            "id": row.id,
            "section": row.section,
            "quantity": row.quantity,
            "paper": {"sides": dict(row.paper.sides), "change": row.paper.change, "numbers": row.paper.numbers()},
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
