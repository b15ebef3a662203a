"""A figure as a value: a Vega-Lite chart, what to read in it, and its numbers as a table.

The chart names its colours by what they mean (`@ink`, `@level-0`); `theme` puts in those of the page, of the dark
page, or of paper. One chart serves the interactive page and the files of `tare figure`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Spec = Mapping[str, Any]  # Vega-Lite


@dataclass(frozen=True, slots=True)
class Cell:
    """A piece of a table; `href` leads to the trials behind it."""

    text: str
    href: str = ""
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the report."""

    name: str
    title: str
    reading: str  # one sentence: what to see here
    chart: Spec
    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def in_words(items: Sequence[str]) -> str:
    """`a, b and c`."""
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last
