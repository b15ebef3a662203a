"""Text in columns: widths as a terminal shows them, lines that wrap, tables that fit."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from os.path import commonprefix

from tare.base.text import NUMBER_AND_UNIT, safe_text
from tare.records.trials import grouped

Paint = Callable[[str], str]  # puts colour around a text that is already cut and padded

GAP = 2  # blanks between columns
NARROWEST_COLUMN = 8  # a column cut shorter than this says nothing any more
_NUMBER = re.compile(r"^[\[(]?[+-]?\d[\d.,]*+([ ,+-]*[+-]?\d[\d.,]*)?[\])]?( ?[%\w°/µ]{1,4})?$")

_HOLD = "\0"  # cannot be in a text that is safe to show


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a line that is not torn while a line is wide enough for it."""

    text: str
    before: str = "  "  # what parts it from the piece before it on the same line
    paint: Paint | None = None


def display_width(text: str) -> int:
    """How many cells of a terminal `text` takes: two for wide signs, none for combining ones."""
    return len(text) if text.isascii() else sum(_sign_width(sign) for sign in text)


def cut(text: str, width: int) -> str:
    """`text` in at most `width` cells, with … where something was cut off."""
    if display_width(text) <= width:
        return text
    return _head(text, width - 1) + "…" if width > 0 else ""


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


def pad(text: str, width: int, *, right: bool = False) -> str:
    """`text` filled up with blanks to `width` cells."""
    blanks = " " * max(0, width - display_width(text))
    return blanks + text if right else text + blanks


def wrap(text: str, width: int, *, indent: str = "") -> list[str]:
    """`text` broken between words into lines of at most `width` cells; later lines start with `indent`."""
    lines: list[str] = []
    line = ""
    for word in _words(text):
        room = max(1, width - (display_width(indent) if lines else 0))
        if line and display_width(line) + 1 + display_width(word) <= room:
            line += f" {word}"
            continue
        lines += [line] if line else []
        while len(head := _head(word, max(1, width - (display_width(indent) if lines else 0)))) < len(word):
            head = head or word[0]  # a word longer than a line is torn
            lines.append(head)
            word = word[len(head) :]
        line = word
    lines += [line] if line else []
    return [*lines[:1], *(indent + later for later in lines[1:])]


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
    right = [_is_numeric(row[column] for row in texts) for column in range(count)]
    widths = _fitted([_widest(column, [headers, *texts]) for column in range(count)], right, room)
    if widths is None:
        return "\n".join(_cards(texts, headers, width, indent))
    lines = [_line(headers, widths, right)] if headers else []
    if not whole:
        columns = [cut_apart([row[column] for row in texts], widths[column]) for column in range(count)]
        texts = [list(row) for row in zip(*columns, strict=True)]
    for number, row in enumerate(texts):
        painters = [paint(number, column) if paint else None for column in range(count)]
        lines += [_line(cells, widths, right, painters) for cells in (_wrapped_lines(row, widths) if whole else [row])]
    return "\n".join(indent + line for line in lines)


def _wrapped_lines(row: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    """The lines that a row takes where no cell is cut."""
    wrapped = [wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)]
    return [
        [lines[place] if place < len(lines) else "" for lines in wrapped] for place in range(max(map(len, wrapped)))
    ]


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


def _words(text: str) -> list[str]:
    """The words of a text; a number keeps its unit."""
    held = NUMBER_AND_UNIT.sub(_HOLD, text)
    return [word.replace(_HOLD, " ") for word in held.split(" ") if word]


def _widest(column: int, rows: Sequence[Sequence[str]]) -> int:
    return max((display_width(row[column]) for row in rows if column < len(row)), default=0)


def _is_numeric(cells: Iterable[str]) -> bool:
    shown = [cell for cell in cells if cell]
    return bool(shown) and all(_NUMBER.match(cell) for cell in shown)


def _sign_width(sign: str) -> int:
    if unicodedata.combining(sign) or unicodedata.category(sign) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in ("W", "F") else 1


def _head(text: str, width: int) -> str:
    used = 0
    for place, sign in enumerate(text):
        used += _sign_width(sign)
        if used > width:
            return text[:place]
    return text
