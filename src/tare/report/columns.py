"""Lines of pieces and tables that fit a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from os.path import commonprefix

from tare.base.columns import cut, display_width, pad, wrap
from tare.base.text import safe_text
from tare.records.model import grouped

Paint = Callable[[str], str]  # puts colour around a text that is already cut and padded

GAP = 2  # blanks between columns
NARROWEST_COLUMN = 8  # a column cut shorter than this says nothing any more
_NUMBER = re.compile(r"^[\[(]?[+-]?\d[\d.,]*+([ ,+-]*[+-]?\d[\d.,]*)?[\])]?( ?[%\w°/µ]{1,4})?$")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a line that is not torn while a line is wide enough for it."""

    text: str
    before: str = "  "  # what parts it from the piece before it on the same line
    paint: Paint | None = None


def sentences(texts: Iterable[str], width: int) -> list[str]:
    """Each on lines of its own."""
    return [line for text in texts for line in wrap(safe_text(text), width, indent="  ")]


def cut_apart(texts: Sequence[str], width: int) -> list[str]:
    """Each text in at most `width` cells; where that makes two equal, their common start is cut away."""
    shown = [cut(text, width) for text in texts]
    for _ in range(len(set(texts))):
        same = grouped(dict.fromkeys(zip(texts, shown, strict=True)), lambda pair: pair[1])
        alike = [[text for text, _ in held] for held in same.values() if len(held) > 1]
        if not alike:
            break
        for held in alike:
            start = len(commonprefix(held))  # noqa: RUF071 (they are no paths)
            shown = [
                cut(f"…{text[start:]}", width) if text in held else one for text, one in zip(texts, shown, strict=True)
            ]
    return shown


def flow(chunks: Sequence[Chunk], width: int, *, first: str = "", indent: str = "  ") -> list[str]:
    """The chunks on one line where it is wide enough, else broken between them; `indent` begins the later lines."""
    lines: list[list[tuple[str, Paint | None]]] = []
    used = 0
    for chunk in chunks:
        if lines and used + display_width(chunk.before + chunk.text) <= width:
            lines[-1] += [(chunk.before, None), (chunk.text, chunk.paint)]
            used += display_width(chunk.before + chunk.text)
            continue
        start = indent if lines else first
        for text in wrap(chunk.text, max(1, width - display_width(start))):
            lines.append([(start, None), (text, chunk.paint)])
            start, used = indent, display_width(start + text)
    return ["".join(paint(text) if paint else text for text, paint in line) for line in lines]


def table(
    rows: Sequence[Sequence[object]],
    headers: Sequence[str] = (),
    width: int = 80,
    *,
    indent: str = "",
    paint: Callable[[int, int], Paint | None] | None = None,
    whole: bool = False,
) -> str:
    """Rows in aligned columns, numbers to the right; too narrow becomes one line a cell.

    What is too long is cut with …, or, with `whole`, goes on below in its column.
    """
    texts = [["" if cell is None else safe_text(cell) for cell in row] for row in rows]
    count = max((len(row) for row in [*texts, headers]), default=0)
    texts = [row + [""] * (count - len(row)) for row in texts]
    room = width - display_width(indent) - GAP * max(0, count - 1)
    columns = [[row[column] for row in texts] for column in range(count)]
    # Numbers to the right: a column with anything in it, and nothing else.
    right = [any(cells) and all(_NUMBER.match(cell) for cell in cells if cell) for cells in columns]
    heads = [*headers, *[""] * (count - len(headers))]
    natural = [max(map(display_width, [head, *cells])) for head, cells in zip(heads, columns, strict=True)]
    widths = _fitted(natural, right, room)
    if widths is None:
        return "\n".join(_cards(texts, headers, width, indent))
    lines = [_line(headers, widths, right)] if headers else []
    if not whole:
        columns = [cut_apart(cells, width) for cells, width in zip(columns, widths, strict=True)]
        texts = [list(row) for row in zip(*columns, strict=True)]
    for number, row in enumerate(texts):
        painters = [paint(number, column) if paint else None for column in range(count)]
        wrapped = [wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)] if whole else []
        parts = zip_longest(*wrapped, fillvalue="") if whole else [row]
        lines += [_line(cells, widths, right, painters) for cells in parts]
    return "\n".join(indent + line for line in lines)


def _line(
    cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], painters: Sequence[Paint | None] = ()
) -> str:
    shown = [
        pad(cut(cell, width), width, right=at_right)
        for cell, width, at_right in zip(cells, widths, right, strict=False)
    ]
    if shown:
        shown[-1] = shown[-1].rstrip()
    painted = [paint(text) if paint and text.strip() else text for text, paint in zip(shown, painters, strict=False)]
    return (" " * GAP).join(painted or shown).rstrip()


def _fitted(natural: Sequence[int], numeric: Sequence[bool], room: int) -> list[int] | None:
    """Column widths that fit into `room`, the widest text cut first, a number never; None where that says nothing."""
    widths = list(natural)
    texts = [column for column, is_number in enumerate(numeric) if not is_number]
    while sum(widths) > room:
        widest = max(texts, key=lambda column: widths[column], default=None)
        if widest is None or widths[widest] <= NARROWEST_COLUMN:
            return None
        widths[widest] -= 1
    return widths


def _cards(rows: Sequence[Sequence[str]], headers: Sequence[str], width: int, indent: str) -> list[str]:
    """One line for each cell, with its header before it: for terminals that no table fits into."""
    lines: list[str] = []
    for row in rows:
        named = [
            f"{headers[column]}: {cell}" if column < len(headers) and headers[column] else cell
            for column, cell in enumerate(row)
            if cell
        ]
        for place, text in enumerate(named):
            start = indent if place == 0 else indent + "  "
            room = width - display_width(start)
            lines += [start + line for line in wrap(text, max(1, room), indent="  ")]
    return lines
