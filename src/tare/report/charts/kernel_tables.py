"""The kernel's view of traced trials as figures: a section's rows are its table, whoever draws it."""

from __future__ import annotations

from collections.abc import Mapping

from tare.analysis.kernel.model import WORDS, Section, Traced
from tare.report.figure import Cell
from tare.report.kernel import cell_text

Rows = tuple[tuple[Cell, ...], ...]


def table_of(section: Section, hrefs: Mapping[str, str]) -> tuple[tuple[str, ...], Rows]:
    """Headers and rows, without columns that are empty throughout; the first column leads to the trials."""
    kinds = [column.kind for column in section.columns]
    used = [place for place in range(len(kinds)) if any(row[place] not in (None, "") for row in section.rows)]
    headers = tuple(section.columns[place].title for place in used)
    return headers, tuple(
        tuple(
            Cell(
                cell_text(row[place], kinds[place]),
                hrefs.get(str(row[0]), "#trials") if place == 0 or kinds[place] not in WORDS else "",
                numeric=kinds[place] not in WORDS,
            )
            for place in used
        )
        for row in section.rows
    )


def hrefs_of(trials: list[Traced], level_hrefs: Mapping[str, str], level_of: Mapping[str, str]) -> dict[str, str]:
    """Where the trials of each cell of the kernel's view are listed; they may be of several levels."""
    found: dict[str, set[str]] = {}
    for trial in trials:
        found.setdefault(trial.label, set()).add(level_hrefs.get(level_of.get(trial.record.trial, ""), "#trials"))
    return {label: places.pop() if len(places) == 1 else "#trials" for label, places in found.items()}


def with_notes(reading: str, section: Section) -> str:
    """The sentence, and what there is to know about the table."""
    return " ".join([reading, *(f"{note[:1].upper()}{note[1:]}" for note in section.notes)])
