"""What levels are called in a chart: short enough for a legend and a narrow page, and still told apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from tare.report.listing import plain_text
from tare.report.words import safe_text

MOST_LANES = 24  # more would be a page of its own; the table has them all
MOST_NAMES = 16  # of a legend
MOST_TOLD = 3  # levels that a sentence can name
_SIGN, _SYMBOL = 6.5, 26  # pixels of a legend: of an average sign, and of the symbol before it
_NARROW = 300  # pixels that a chart has on a telephone


def level_names(levels: Iterable[str], by: str) -> dict[str, str]:
    """Level -> `resnet18, data cifar10` for `resnet18, workload.data=cifar10`; in full where that is not unique."""
    known = list(dict.fromkeys(levels))
    short = {level: _spoken(level, by) for level in known}
    times = Counter(short.values())
    return {level: name if times[name] == 1 else safe_text(level) for level, name in short.items()}


def _spoken(level: str, by: str) -> str:
    first, *others = level.split(", ")
    named = [setting_name(by, first) if _needs_its_factor(first) else first, *map(_setting, others)]
    return safe_text(", ".join(named))


def setting_name(factor: str, value: object) -> str:
    """`gpu_mhz 540` for control.power_mode.gpu_mhz at 540.0."""
    return f"{last_part(factor)} {safe_text(_plain(plain_text(value)))}"


def _setting(written: str) -> str:
    name, equals, value = written.partition("=")
    return setting_name(name, value) if equals and " " not in name else written


def last_part(factor: str) -> str:
    """`workers` of `workload.workers`."""
    return safe_text(factor.rpartition(".")[2])


def _needs_its_factor(value: str) -> bool:
    """Whether a value says nothing by itself: 4, true, none."""
    return value in ("true", "false", "none") or _is_number(value)


def _plain(value: str) -> str:
    return f"{float(value):.12g}" if _is_number(value) else value


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
