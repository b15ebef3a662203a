"""What levels are called in a chart: short enough for a legend and a narrow page, and still told apart."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from tare.analysis.labels import setting_words, shortened
from tare.base.text import safe_text

MOST_LANES = 24  # more would be a page of its own; the table has them all
MOST_NAMES = 16  # of a legend
LONGEST_NAME = 48  # characters, as wide as a legend is
MOST_TOLD = 3  # levels that a sentence can name
_SIGN, _SYMBOL = 6.5, 26  # pixels of a legend: of an average sign, and of the symbol before it
_NARROW = 300  # pixels that a chart has on a telephone


def level_names(levels: Iterable[str], by: str) -> dict[str, str]:
    """Level -> the same, short enough for a legend and unique; a number of a table is named with its column."""
    known = list(dict.fromkeys(levels))
    named = [safe_text(setting_words(by, number_of(level)) if _needs_its_factor(level) else level) for level in known]
    return dict(zip(known, shortened(named, LONGEST_NAME), strict=True))


def setting_name(factor: str, value: object) -> str:
    """`GPU 540 MHz` for control.power_mode.gpu_mhz at 540.0."""
    return safe_text(setting_words(factor, number_of(value)))


def number_of(value: object) -> object:
    return float(value) if isinstance(value, str) and _is_number(value) else value


def last_part(factor: str) -> str:
    """`workers` of `workload.workers`."""
    return safe_text(factor.rpartition(".")[2])


def _needs_its_factor(value: str) -> bool:
    """Whether a value says nothing by itself: 4, true, none."""
    return value in ("true", "false", "none") or _is_number(value)


def _is_number(value: str) -> bool:
    return value.replace(".", "", 1).isascii() and value.replace(".", "", 1).isdigit()


def legend(names: Collection[str]) -> dict[str, Any] | None:
    """As many columns as fit a telephone: long names stand below each other. None where it would be longer than that:
    then the pointer says what is what."""
    if len(names) > MOST_NAMES:
        return None
    widest = max(map(len, names), default=1) * _SIGN + _SYMBOL
    return {"columns": max(1, min(4, int(_NARROW / widest))), "labelLimit": 320, "symbolOpacity": 1}


def some_of(told: Sequence[str]) -> str:
    """`a, b and 7 more`: what a sentence can hold of a list; with semicolons where commas would mislead."""
    between = "; " if any("," in each for each in told) else ", "
    left = len(told) - MOST_TOLD
    return between.join(told) if left <= 0 else f"{between.join(told[:MOST_TOLD])} and {left} more"


def not_all_drawn(count: int) -> str:
    """A sentence where the chart has fewer lanes than the table has rows."""
    return f" The first {MOST_LANES} of {count} are drawn; the table has all." if count > MOST_LANES else ""
