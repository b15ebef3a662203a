"""`tare report`: a store's findings as one HTML file, or in a form for other programs and pages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tare.cli.options import SHARE, STORE, say
from tare.cli.patience import patience
from tare.errors import StoreError

if TYPE_CHECKING:
    from tare.analysis.model import Weighing
    from tare.records.store import Store

FORMATS = {"html": "report.html", "md": "report.md", "csv": "trials.csv", "parquet": "trials.parquet",
           "latex": "report.tex", "json": "report.json"}  # fmt: skip
Verb = TypeVar("Verb", bound=Callable[..., Any])


def comparing(verb: Verb) -> Verb:
    """The options that say what is compared with what."""
    options: list[Callable[[Any], Any]] = [
        click.option("--metric", help="The headline figure; as in the study, or step_s, or wall_s."),
        click.option("--margin", type=SHARE, help="What counts as equivalent; as in the study, or 5%."),
        click.option("--against", help="The level to compare with; as in the study, or bare."),
        click.option("--by", help="The factor to compare by; as in the study, or platform."),
    ]
    for option in options:
        verb = option(verb)
    return verb


@click.command("report")
@click.argument("store", type=STORE)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="The file, - for stdout; else STORE/report.html (of a pack: beside it), or as the format is called.",
)  # fmt: skip
@click.option(
    "--format", "kind", type=click.Choice(list(FORMATS)),
    help="As the file's name ends, or html; md for a page; csv and parquet for the trials as a table; latex for the "
    "verdicts; json for all.",
)  # fmt: skip
@comparing
def command(
    store: Path, output: Path | None, kind: str | None,
    by: str | None, against: str | None, margin: float | None, metric: str | None,
) -> None:  # fmt: skip
    """Write the findings of STORE as one self-contained HTML file that opens offline, or as --format says."""
    from tare.analysis.weighing import weigh
    from tare.cli.damaged import counted_apart
    from tare.records.store import Store

    kind = kind or _kind_of(output)
    output = output or _beside(store, FORMATS[kind])
    with patience("writing the report"), Store.open(store) as opened:
        for problem in opened.problems:
            say(f"note: {problem}")
        if kind == "parquet":
            _write_parquet(opened, output)
        elif kind == "csv":
            written(output, _csv(opened).encode())
        else:
            weighing = counted_apart(weigh(opened, by=by, against=against, margin=margin, metric=metric), opened)
            written(output, _text(opened, weighing, kind).encode())
    if str(output) != "-":
        say(f"report: {output}")


def _beside(store: Path, name: str) -> Path:
    """In the store's folder; of a pack, beside it under its name."""
    from tare.records.unpacking import is_pack

    return store.with_name(f"{store.stem}-{name}") if is_pack(store) else store / name


def _kind_of(output: Path | None) -> str:
    """What a file's name asks for: report.md is Markdown."""
    ending = output.suffix.lstrip(".").lower() if output is not None else ""
    return {"tex": "latex", "htm": "html"}.get(ending, ending if ending in FORMATS else "html")


def write_report(store: Store, weighing: Weighing, output: Path) -> None:
    """The HTML file."""
    written(output, _text(store, weighing, "html").encode())


def written(output: Path, content: bytes) -> None:
    """To its place in one step: a full disk leaves the old file, not half of a new one."""
    if str(output) == "-":
        click.echo(content, nl=False)
        return
    part = output.with_name(output.name + ".part")
    try:
        part.write_bytes(content)
        part.replace(output)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StoreError(f"{output}: it could not be written: {error.strerror}.") from None


def _text(store: Store, weighing: Weighing, kind: str) -> str:
    from tare.report.export.latex import as_latex
    from tare.report.export.markdown import as_markdown
    from tare.report.html import render
    from tare.report.page import page

    now = datetime.now(UTC).isoformat(timespec="seconds")
    if kind == "html":
        return render(weighing, store.records(), now, study_text=store.text(), problems=store.problems, store=store)
    if kind == "json":
        return _json(store, weighing, now)
    content = page(weighing, store.records(), now, store.text(), store.problems, store)
    return as_markdown(content) if kind == "md" else as_latex(content)


def _json(store: Store, weighing: Weighing, now: str) -> str:
    import json
    from dataclasses import asdict

    told = {"generated_utc": now, "study_text": store.text(), "problems": list(store.problems), **asdict(weighing)}
    told["records"] = [record.as_json() for record in store.records()]
    return json.dumps(told, indent=1, allow_nan=False, default=str) + "\n"


def _csv(store: Store) -> str:
    from tare.report.export.trial_table import as_csv

    return as_csv(store.records())


def _write_parquet(store: Store, output: Path) -> None:
    from tare.report.export.trial_table import write_parquet

    if str(output) == "-":
        raise StoreError("a Parquet file cannot go to stdout; name it with -o.")
    part = output.with_name(output.name + ".part")
    try:
        write_parquet(store.records(), part)
        part.replace(output)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StoreError(f"{output}: it could not be written: {error.strerror}.") from None
