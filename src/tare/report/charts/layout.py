"""Lanes: a row of a chart with its label above it, so that long labels and narrow pages get on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tare.base.units import METER_W
from tare.report.figure import ABOVE

if TYPE_CHECKING:
    import numpy.typing as npt


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


def zero_mark(across: dict[str, Any]) -> dict[str, Any]:
    """No difference, in every lane: as tall as the bands, so that it crosses no text."""
    return {
        "mark": {"type": "tick", "orient": "vertical", "color": "@ink", "size": 24, "thickness": 1.5},
        "encoding": {"x": {"datum": 0, **across}},
    }


POWER = (METER_W, "power_rails.total_w", "gpu.power_w")  # read in watts
# With the counters whose growth is power: for figures that take rates.
POWER_OR_ENERGY = (METER_W, "power_rails.total_w", "power_rapl.total_j", "gpu.power_w")
CLOCK = ("gpu.clock_hz", "frequency.gpu_hz", "frequency.cpu0_hz")


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
