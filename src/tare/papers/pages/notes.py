"""What would stand in cell after cell stands once below the table, and a letter in the cell stands for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase
from typing import TypeAlias

from tare.base.text import safe_text
from tare.papers.tables.model import Row
from tare.papers.tables.rows import NOT_HERE, Answered, Ours
from tare.records.trials import collected

Note: TypeAlias = tuple[str, str]  # the heading of the list that it stands in, and its text

CONDITIONS = "What differs from the paper's conditions:"
REMARKS = "What to know of the figures here:"
REASONS = "Why something was not measured:"
TAINTS = "What else differs between the two sides, and could be what changes the figure:"
POPULATIONS = "Which trials are meant:"
HAZARDS = "What to know of the printed figures:"
_HEADINGS = (CONDITIONS, REMARKS, REASONS, TAINTS, POPULATIONS, HAZARDS)

SHORT = 48  # characters of a reason that still stand in a cell
MOST_TAINTS = 8
_DETAILS = re.compile(r" \([a-z0-9_]+\)|\b\d[\d.]*(?= s\b)")  # the name of a figure, a number of seconds


@dataclass(frozen=True)
class Notes:
    """The letters of a part, and what each stands for."""

    said: Mapping[Note, tuple[str, str]] = field(default_factory=dict)  # a note without details -> letter, text

    def mark(self, notes: Iterable[Note]) -> str:
        """` (a, m)`; nothing for what has no letter."""
        letters = [self.said[key][0] for key in map(_key, notes) if key in self.said]
        return f" ({', '.join(letters)})" if letters else ""

    def lists(self) -> dict[str, list[str]]:
        """Heading -> `a: scale small, on the CPU, 160 items`, and what else stands below it."""
        said = self.said.items()
        return collected((heading, f"{letter}: {safe_text(text)}") for (heading, _), (letter, text) in said)


NO_NOTES = Notes()


def notes_of(met: Iterable[Note]) -> Notes:
    """A letter for each, list after list, in the order in which a table meets them."""
    alike_ones: dict[Note, dict[str, None]] = {}
    for note in sorted(met, key=lambda note: _HEADINGS.index(note[0])):
        alike_ones.setdefault(_key(note), {})[note[1]] = None
    return Notes({key: (_letters(place), first_of(texts)) for place, (key, texts) in enumerate(alike_ones.items())})


def _key(note: Note) -> Note:
    heading, text = note
    return heading, alike(text) if heading == REASONS else text


def alike(why: str) -> str:
    """A reason without the details in which those of several rows differ."""
    return _DETAILS.sub("", why)


def first_of(several: Mapping[str, object]) -> str:
    """Of texts that differ in details alone, the first."""
    return f"{next(iter(several))}{', or the like' if len(several) > 1 else ''}"


def _letters(place: int) -> str:
    """a to z, then aa to zz, then aaa: from place 0 on, without end."""
    found = ""
    while place >= 0:
        place, last = divmod(place, len(ascii_lowercase))
        found = ascii_lowercase[last] + found
        place -= 1
    return found


def reason_text(why: str) -> str:
    """`only one model was trained`: a sentence that goes on where another began."""
    goes_on = f"{why[:1].lower()}{why[1:]}" if why[1:2].islower() else why
    return safe_text(goes_on.rstrip("."))


def parted(why: str) -> tuple[str, str]:
    """A reason as what stands in a cell and what stands below: `no power sensor`, and the whole sentence.

    A short one stands in the cell alone; one that is long and has no short beginning, below alone.
    """
    said = reason_text(why)
    if len(said) <= SHORT:
        return said, ""
    head, colon, _ = said.partition(": ")
    is_whole = head.count("`") % 2 == 0 and head.count("(") == head.count(")")
    return (head if colon and is_whole and len(head) <= SHORT else ""), said


def reason_notes(why: str) -> list[Note]:
    """A reason that stands below."""
    _, below = parted(why)
    return [(REASONS, below)] if below else []


def not_here(why: str, notes: Notes) -> str:
    """`not measured here: s4-gpu cannot be run there (k)`."""
    head, _ = parted(why)
    return f"{NOT_HERE}{f': {head}' if head else ''}{notes.mark(reason_notes(why))}"


def where_text(where: str, notes: Notes) -> str:
    """` (torch 2.13)`: the population that a word is of; a long name by its letter."""
    if len(where) > SHORT:
        return notes.mark([(POPULATIONS, where)])
    return f" ({where})" if where else ""


def where_notes(wheres: Iterable[str]) -> list[Note]:
    return [(POPULATIONS, where) for where in wheres if len(where) > SHORT]


def _taints_text(taints: Sequence[str]) -> str:
    more = len(taints) - MOST_TAINTS
    told = "; ".join(each.rstrip(".") for each in taints[:MOST_TAINTS])
    return told + (f"; and {more} more (--json has them all)" if more > 0 else "")


def cell_notes(ours: Ours) -> list[Note]:
    """What the letters at the end of a measured cell stand for: its conditions, remarks and taints.

    A remark is a note of its own: cells that differ in it alone share the letter of their conditions.
    """
    conditions = [(CONDITIONS, ", ".join(ours.conditions))] if ours.conditions else []
    tainted = [(TAINTS, _taints_text(ours.taints))] if ours.taints else []
    return [*conditions, *((REMARKS, remark) for remark in ours.remarks), *tainted]


def ours_notes(ours: Ours) -> list[Note]:
    """All that stands below for one cell."""
    if ours.word == NOT_HERE:
        return reason_notes(ours.why)
    return [*cell_notes(ours), *where_notes(each.where for each in (ours, *ours.also))]


def hazard_notes(row: Row) -> list[Note]:
    """What is wrong with what the paper printed."""
    return [(HAZARDS, row.hazard)] if row.hazard else []


NOWHERE_MEASURED = "Rows that were measured on no machine, by the reason:"


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
