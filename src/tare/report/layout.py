"""What charts share: lanes with their labels above them, and names short enough for a legend and a narrow page."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tare.analysis.labels import setting_words, shortened
from tare.base.declare import before
from tare.base.text import safe_text
from tare.base.units import Channel

if TYPE_CHECKING:
    import numpy.typing as npt

ABOVE = -17  # pixels from the middle of a lane to the text above it
LANE = 52  # pixels: the label, and what it is about below it
FIGURES = 150  # pixels at the right that figures above a lane may take


def label_above(field: str, beside: int = FIGURES) -> dict[str, Any]:
    """The label of each lane, at its left edge, above its middle; `beside` pixels are left for what is at its right."""
    limit = {"expr": f"width - {beside}"}
    return {
        "mark": {"type": "text", "align": "left", "dy": ABOVE, "fontWeight": 600, "limit": limit},
        "encoding": {"x": {"value": 0}, "text": {"field": field}},
    }


def figures_above(field: str) -> dict[str, Any]:
    """What a lane comes to, at its right edge, above its middle."""
    return {
        "mark": {"type": "text", "align": "right", "dy": ABOVE, "color": "@quiet"},
        "encoding": {"x": {"value": "width"}, "text": {"field": field}},
    }


def tooltip(**titles: str) -> list[dict[str, Any]]:
    """What the pointer brings up: field=title."""
    return [{"field": field, "title": title} for field, title in titles.items()]


def axis_title(text: str, unit: str = "") -> str:
    """A name and its unit. The library writes titles into expressions as they are: no quote or backslash goes there."""
    plain = text.replace("\\", "\N{REVERSE SOLIDUS OPERATOR}").replace('"', "\N{DOUBLE PRIME}")
    return f"{plain}, {unit}" if unit else plain


def share_axis(title: str) -> dict[str, Any]:
    """An axis of differences, in per cent as they are written elsewhere; zero has no sign."""
    written = "replace(format(datum.value, '+.1~%'), '%', ' %')"
    return {"labelExpr": f"datum.value === 0 ? '0' : {written}", "title": axis_title(title), "tickCount": 5}


def with_room(values: Collection[float]) -> list[float]:
    """The domain of an axis that holds them all, with some room at both ends."""
    room = 0.08 * (max(values) - min(values) or 0.01)
    return [min(values) - room, max(values) + room]


def zero_mark(across: dict[str, Any]) -> dict[str, Any]:
    """No difference, in every lane: as tall as the bands, so that it crosses no text."""
    return {
        "mark": {"type": "tick", "orient": "vertical", "color": "@ink", "size": 24, "thickness": 1.5},
        "encoding": {"x": {"datum": 0, **across}},
    }


MOST_GROUPS = 40  # of channels that are drawn: a store may come from anybody


def drawn_channels(trials: Iterable[Iterable[Mapping[str, Any]]]) -> list[Channel]:
    """Of each group the channel that stands for it, of those that the trials have, in the order of their ranks."""
    known: dict[str, Channel] = {}
    for sealed in chain.from_iterable(trials):
        if (name := str(sealed.get("name"))) not in known:
            known[name] = before().channel(sealed)
    best: dict[str, Channel] = {}
    for channel in sorted(known.values(), key=attrgetter("rank")):
        if channel.group:
            best.setdefault(channel.group, channel)
    return list(best.values())[:MOST_GROUPS]


def metric_of(channel: Channel) -> str:
    """The name of a figure that reads as the drawn values of this channel do: it ends in their unit."""
    return f"value_{channel.drawn_unit}"


def per_second(t_ns: npt.NDArray[Any], values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """How fast a counter grew between two readings, at the second of them."""
    import numpy as np

    spans_s = np.diff(t_ns) / 1e9
    later = spans_s > 0
    return t_ns[1:][later], np.diff(values)[later] / spans_s[later]


def thinned(times: npt.NDArray[Any], values: npt.NDArray[Any], most: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """At most about `most` points: of each stretch the smallest and the largest, where they lie."""
    import numpy as np

    if len(values) <= most:
        return times, values
    stretches = max(1, most // 2)
    length = -(-len(values) // stretches)
    padded = np.full(stretches * length, np.nan)
    padded[: len(values)] = values
    table = padded.reshape(stretches, length)
    begins = np.arange(stretches) * length
    whole = begins < len(values)  # the last stretches may be empty
    low = np.nanargmin(table[whole], axis=1) + begins[whole]
    high = np.nanargmax(table[whole], axis=1) + begins[whole]
    chosen = np.unique(np.concatenate([low, high]))
    return times[chosen], values[chosen]


MOST_LANES = 24  # more would be a page of its own; the table has them all
MOST_NAMES = 16  # of a legend
LONGEST_NAME = 48  # characters, as wide as a legend is
MOST_TOLD = 3  # levels that a sentence can name
_SIGN, _SYMBOL = 6.5, 26  # pixels of a legend: of an average sign, and of the symbol before it
_NARROW = 300  # pixels that a chart has on a telephone


def level_names(levels: Iterable[str], by: str) -> dict[str, str]:
    """Level -> the same, short enough for a legend and unique; a number of a table is named with its column."""
    named = whole_names(levels, by)
    return dict(zip(named, shortened(list(named.values()), LONGEST_NAME), strict=True))


def varying_names(levels: Iterable[str], by: str) -> dict[str, str]:
    """The same without what all of them have, and uncut: for a sentence."""
    parts = {level: name.split(", ") for level, name in whole_names(levels, by).items()}
    alike = set.intersection(*map(set, parts.values())) if parts else set()
    return {level: ", ".join([one for one in its if one not in alike] or its) for level, its in parts.items()}


def whole_names(levels: Iterable[str], by: str) -> dict[str, str]:
    """A value that says nothing by itself (4, true, none) is named with its factor."""
    return {
        each: safe_text(
            setting_words(by, number_of(each)) if each in ("true", "false", "none") or _is_number(each) else each
        )
        for each in dict.fromkeys(levels)
    }


def number_of(value: object) -> object:
    return float(value) if isinstance(value, str) and _is_number(value) else value


def last_part(factor: str) -> str:
    """`workers` of `workload.workers`."""
    return safe_text(factor.rpartition(".")[2])


def _is_number(value: str) -> bool:
    return value.replace(".", "", 1).isascii() and value.replace(".", "", 1).isdigit()


def legend(names: Collection[str]) -> dict[str, Any] | None:
    """As many columns as fit a telephone: long names stand below each other. None where it would be longer than that:
    then the pointer says what is what."""
    if len(names) > MOST_NAMES:
        return None
    widest = max(map(len, names), default=1) * _SIGN + _SYMBOL
    return {"columns": max(1, min(4, int(_NARROW / widest))), "labelLimit": 320, "symbolOpacity": 1}


def in_words(items: Sequence[str]) -> str:
    """`a, b and c`."""
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last


def some_of(told: Sequence[str]) -> str:
    """`a, b and 7 more`: what a sentence can hold of a list; with semicolons where commas would mislead."""
    between = "; " if any("," in each for each in told) else ", "
    left = len(told) - MOST_TOLD
    return between.join(told) if left <= 0 else f"{between.join(told[:MOST_TOLD])} and {left} more"


def not_all_drawn(count: int, most: int = MOST_LANES) -> str:
    """A sentence where the chart has fewer lanes than the table has rows."""
    return f" The first {most} of {count} are drawn; the table has all." if count > most else ""
