"""`tare report`: a store's findings as one HTML file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tare.cli.options import SHARE, say
from tare.errors import StoreError

if TYPE_CHECKING:
    from tare.analysis.model import Weighing
    from tare.records.store import Store


@click.command("report")
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The HTML file; else STORE/report.html."
)
@click.option("--by", help="The factor to compare by; as in the study, or platform.")
@click.option("--against", help="The level to compare with; as in the study, or bare.")
@click.option("--margin", type=SHARE, help="What counts as equivalent; as in the study, or 5%.")
@click.option("--metric", help="The headline figure; as in the study, or step_s, or wall_s.")
def command(
    store: Path, output: Path | None, by: str | None, against: str | None, margin: float | None, metric: str | None
) -> None:
    """Write the findings of STORE as one self-contained HTML file that opens offline."""
    from tare.analysis.weighing import weigh
    from tare.records.store import Store

    output = output or store / "report.html"
    with Store.open(store) as opened:
        for problem in opened.problems:
            say(f"note: {problem}")
        write_report(opened, weigh(opened, by=by, against=against, margin=margin, metric=metric), output)
    say(f"report: {output}")


def write_report(store: Store, weighing: Weighing, output: Path) -> None:
    """Render, then replace in one step: a full disk leaves the old report, not half of a new one."""
    from tare.report.html import render

    now = datetime.now(UTC).isoformat(timespec="seconds")
    page = render(weighing, store.records(), now, study_text=store.text(), problems=store.problems, store=store)
    part = output.with_name(output.name + ".part")
    try:
        part.write_text(page, encoding="utf-8")
        part.replace(output)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StoreError(f"{output}: the report could not be written: {error.strerror}.") from None
