"""The rows of a paper's table that a machine has measured, and the others by the reason that there is no figure."""

from __future__ import annotations

from collections.abc import Mapping

from tare.analysis.papers.model import Row
from tare.analysis.papers.rows import NOT_HERE, Answered
from tare.report.paper_notes import (
    Note,
    Notes,
    alike,
    first_of,
    hazard_notes,
    notes_of,
    ours_notes,
    parted,
    reason_notes,
    reason_text,
)

NOT_MEASURED = "Rows that were measured on no machine, by the reason:"


def measured_rows(found: Answered) -> list[Row]:
    """Those that any machine has measured; all of them where there is no machine."""
    return [row for row in found.paper.rows if not found.machines or _is_measured(found, row)]


def _unmeasured_rows(found: Answered) -> list[Row]:
    return [row for row in found.paper.rows if found.machines and not _is_measured(found, row)]


def _is_measured(found: Answered, row: Row) -> bool:
    return any(ours.word != NOT_HERE for ours in found.rows[row.id].values())


def table_notes(found: Answered) -> Notes:
    """Every letter of the table and of the groups below it."""
    met: list[Note] = []
    for row in measured_rows(found):
        met += [note for ours in found.rows[row.id].values() for note in ours_notes(ours)]
    for row in _unmeasured_rows(found):
        whys = _whys(found, row).values()
        met += [note for why in whys if len(set(whys)) > 1 and parted(why)[0] for note in reason_notes(why)]
    met += [note for row in found.paper.rows for note in hazard_notes(row)]
    return notes_of(met)


def by_reason(found: Answered, notes: Notes) -> dict[str, list[Row]]:
    """Reason -> the rows that no machine has measured; where only details differ, as the first says."""
    told: dict[tuple[str, ...], dict[str, list[Row]]] = {}
    for row in _unmeasured_rows(found):
        whys = _whys(found, row)
        key = tuple(map(alike, whys.values()))
        told.setdefault(key, {}).setdefault(_heading(whys, notes), []).append(row)
    return {first_of(several): [row for rows in several.values() for row in rows] for several in told.values()}


def _whys(found: Answered, row: Row) -> dict[str, str]:
    return {name: reason_text(ours.why) for name, ours in found.rows[row.id].items()}


def _heading(whys: Mapping[str, str], notes: Notes) -> str:
    """The reason in whole where all machines have the same, else each machine's in short, with its letter."""
    if len(set(whys.values())) == 1:
        return next(iter(whys.values()))
    return "; ".join(f"{name}: {_in_short(why, notes)}" for name, why in whys.items())


def _in_short(why: str, notes: Notes) -> str:
    head, whole = parted(why)
    return f"{head}{notes.mark(reason_notes(why))}" if head else whole
