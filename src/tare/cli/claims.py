"""`tare claims`: the papers' take-aways, each tested on the user's own records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tare.cli.options import STORE, json_option, print_json, say, width
from tare.cli.studies import built_in

if TYPE_CHECKING:
    from tare.analysis.claims.pooling import Source


EVERYWHERE = ("smoke", "small")  # scales that every ready study has; without one it is as in the paper


@click.command("claims")
@click.argument("stores", metavar="[DIR]...", nargs=-1, type=STORE)
@click.option("--paper", help="Only the claims of one paper: s0, s1, s2, s3 or s4.")
@json_option
def command(stores: tuple[Path, ...], paper: str | None, as_json: bool) -> None:
    """Say which of the papers' take-aways hold here, by the records of one store or more.

    Each is answered with: holds here, does not hold here, undecided, or not measured. Stores are pooled where their
    device and software are the same; else each population has its own answer. Without DIR: lists every claim, and
    the study that measures it.

    --json: {"claims": [{"id", "paper", "section", "statement", "word", "effect", "low", "high", "n", "trials", "why",
    "study", "where", "kind", "study_ready"}]}; effects are shares (`kind`: a change, a share itself, or the points
    by which one has changed), and a study that is ready is one that comes with tare.
    """
    from tare.analysis.claims.answers import answers
    from tare.analysis.claims.pooling import read_source
    from tare.analysis.claims.registry import claims_of
    from tare.report.claims import answers_text, claims_text

    claims = claims_of(paper)
    sources = [read_source(store) for store in {path.resolve(): path for path in stores}.values()]
    for source in sources:
        for note in source.notes:
            say(f"note: {source.name}: {note}")
    found, ready = answers(claims, sources), built_in()
    if as_json:
        print_json({"claims": [answer.as_json(ready) for answer in found]})
    else:
        scale = _scale_of(sources)
        click.echo(answers_text(found, ready, width(), scale) if sources else claims_text(claims, ready, width()))


def _scale_of(sources: Sequence[Source]) -> str | None:
    """The scale at which these stores were run, where all that have one have the same, and every study has it."""
    scales = {source.study["scale"] for source in sources if source.study.get("scale")}
    return next((scale for scale in EVERYWHERE if scales == {scale}), None)
