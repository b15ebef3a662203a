"""What `tare kernel` shows: each section as a table, with what there is to know about it below."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tare.analysis.kernel.model import Cell, Kind, Section
from tare.report.columns import table, wrap
from tare.report.words import safe_text, share_text, time_text

FRAMES = 8  # of a stack: the outermost ones say where the request came from


def kernel_text(sections: Iterable[Section], width: int = 80) -> str:
    """All sections, one after another."""
    return "\n\n".join(section_text(section, width) for section in sections)


def section_text(section: Section, width: int) -> str:
    kinds = [column.kind for column in section.columns]
    used = [place for place in range(len(kinds)) if any(row[place] not in (None, "") for row in section.rows)]
    rows = [[cell_text(row[place], kinds[place]) for place in used] for row in section.rows]
    heads = [section.columns[place].title for place in used]
    lines = [*wrap(safe_text(section.title), width), table(rows, heads, width, whole=True)]
    for note in section.notes:
        lines += wrap(safe_text(f"note: {note}"), width, indent="  ")
    return "\n".join(lines)


def cell_text(value: Cell, kind: Kind) -> str:
    """One value for people; nothing for what is missing."""
    return "" if value is None else _TEXTS[kind](value)


def number_text(value: float) -> str:
    """`1234567.0` as `1,234,567`, `0.0123` as `0.0123`: whole where it is large, three digits where it is small."""
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:.3g}"


def stack_text(stack: str, most: int = FRAMES) -> str:
    """`a;b;...;z` as `a > b > ... > z`; of a long one its beginning and its end (all of it is in --json)."""
    frames = safe_text(stack).split(";")
    if len(frames) > most:
        frames = [*frames[: most - 3], "...", *frames[-2:]]
    return " > ".join(frames)


_TEXTS: Mapping[Kind, Callable[..., str]] = {
    "text": safe_text,
    "stack": stack_text,
    "count": lambda value: f"{value:,}",
    "number": number_text,
    "share": share_text,
    "ratio": lambda value: f"{value:.3f}",
    "seconds": time_text,
}
