"""A figure as a value: two drawings (for a wide page and for a narrow one), what to read in it, and its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tare.report.svg import picture

WIDE = 720.0
NARROW = 336.0  # what a telephone of 360 pixels leaves; text keeps its size, so that it stays readable


@dataclass(frozen=True, slots=True)
class Cell:
    """A piece of a table; `href` leads to the trials behind it."""

    text: str
    href: str = ""
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """A line of a legend."""

    drawing: Markup
    text: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """What one width of a figure holds."""

    content: tuple[Markup, ...]
    height: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the report."""

    name: str
    title: str
    reading: str  # one sentence: what to see here
    wide: Markup
    narrow: Markup
    legend: tuple[Key, ...]
    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def drawn(name: str, title: str, reading: str, wide: Drawing, narrow: Drawing) -> tuple[Markup, Markup]:
    """Both drawings of a figure, each under a name of its own."""
    return (
        picture(f"{name}-wide", WIDE, wide.height, title, reading, wide.content),
        picture(f"{name}-narrow", NARROW, narrow.height, title, reading, narrow.content),
    )


def in_words(items: Sequence[str]) -> str:
    """`a, b and c`."""
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last
