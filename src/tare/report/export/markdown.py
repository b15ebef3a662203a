"""A report as Markdown: for an issue, a wiki, a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from tare.report.export.markdown_text import safe as _safe
from tare.report.export.markdown_text import table as _table
from tare.report.figure import Cell
from tare.report.page import Page


def as_markdown(page: Page) -> str:
    """The first screen, then what each figure says with its numbers, then where it all comes from."""
    blocks = [f"# {_safe(page.question)}", f"{_safe(page.counts)}. {_safe(page.coverage)}".strip()]
    blocks += [f"**{_safe(a.level)}: {_safe(a.phrase)}**{_safe(a.doubts)}. {_safe(a.sentence)}" for a in page.answers]
    blocks += _section("What taints this", page.taints)
    headers = ("level", "median", "effect", "interval", "verdict", "n")
    verdicts = [(row.level, row.median, row.effect, row.interval, row.phrase, row.n) for row in page.verdicts]
    blocks += [_table(headers, verdicts)] if verdicts else []
    blocks += _section("Left out", [cell.text for cell in page.left_out])
    blocks += _section("To know", page.notes)
    if page.others:
        blocks += ["## Beside it (no claims)", _cells(page.other_headers, page.others)]
    if page.devices is not None:
        blocks += _section("Devices", page.devices.sentences)
        for sheet in page.devices.sheets:
            blocks += [f"### {_safe(sheet.title)}", _cells(sheet.headers, sheet.rows)]
    for figure in page.figures:
        blocks += [f"## {_safe(figure.title)}", _safe(figure.reading), _cells(figure.headers, figure.rows)]
    blocks += _section("Methods", page.methods)
    blocks += ["## Device", _table(("fact", "value"), page.device)] if page.device else []
    blocks += [f"Made by tare, {_safe(page.generated_utc)}."]
    return "\n\n".join(blocks) + "\n"


def _section(title: str, sentences: Sequence[str]) -> list[str]:
    return [f"## {title}", "\n".join(f"- {_safe(sentence)}" for sentence in sentences)] if sentences else []


def _cells(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    return _table(headers, [[cell.text for cell in row] for row in rows])
