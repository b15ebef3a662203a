"""Text in the columns of a terminal: how wide it is there, cut, filled up, and broken into lines."""

from __future__ import annotations

import re
import unicodedata

# The blank between a number and its unit, which no line break may take the place of.
NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=(?:%|[nµm]?s|min|h|[KMGT]?i?B|[mk]?W|[mkM]?J|[kMG]?Hz|°C)(?:\W|$))")
_HOLD = "\0"  # cannot be in a text that is safe to show


def display_width(text: str) -> int:
    """How many cells of a terminal `text` takes: two for wide signs, none for combining ones."""
    return len(text) if text.isascii() else sum(_sign_width(sign) for sign in text)


def _sign_width(sign: str) -> int:
    if unicodedata.combining(sign) or unicodedata.category(sign) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in ("W", "F") else 1


def _head(text: str, width: int) -> str:
    """As much of its beginning as fits."""
    used = 0
    for place, sign in enumerate(text):
        used += _sign_width(sign)
        if used > width:
            return text[:place]
    return text


def cut(text: str, width: int) -> str:
    """`text` in at most `width` cells, with … where something was cut off."""
    if display_width(text) <= width:
        return text
    return _head(text, width - 1) + "…" if width > 0 else ""


def pad(text: str, width: int, *, right: bool = False) -> str:
    """`text` filled up with blanks to `width` cells."""
    blanks = " " * max(0, width - display_width(text))
    return blanks + text if right else text + blanks


def wrap(text: str, width: int, *, indent: str = "", tear: bool = True) -> list[str]:
    """`text` broken between words into lines of at most `width` cells; later lines start with `indent`.

    A number keeps its unit. A word longer than a line is torn, unless it is to be copied whole; then blanks between
    words stay as they are, too.
    """
    lines: list[str] = []
    line = ""
    held = NUMBER_AND_UNIT.sub(_HOLD, text)
    for blanks, word in re.findall(r"( *)([^ ]+)", held):
        word, between = word.replace(_HOLD, " "), " " if tear else blanks
        room = max(1, width - (display_width(indent) if lines else 0))
        if line and display_width(line) + len(between) + display_width(word) <= room:
            line += f"{between}{word}"
            continue
        lines += [line] if line else []
        while tear and len(head := _head(word, max(1, width - (display_width(indent) if lines else 0)))) < len(word):
            head = head or word[0]
            lines.append(head)
            word = word[len(head) :]
        line = word
    lines += [line] if line else []
    return [*lines[:1], *(indent + later for later in lines[1:])]
