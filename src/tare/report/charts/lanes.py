"""Lanes: a row of a chart with its label above it, so that long labels and narrow pages get on."""

from __future__ import annotations

from typing import Any

LANE = 52  # pixels: the label, and what it is about below it
FIGURES = 150  # pixels at the right that figures above a lane may take


def label_above(field: str, beside: int = FIGURES) -> dict[str, Any]:
    """The label of each lane, at its left edge, above its middle; `beside` pixels are left for what is at its right."""
    limit = {"expr": f"width - {beside}"}
    return {
        "mark": {"type": "text", "align": "left", "dy": -17, "fontWeight": 600, "limit": limit},
        "encoding": {"x": {"value": 0}, "text": {"field": field}},
    }


def figures_above(field: str) -> dict[str, Any]:
    """What a lane comes to, at its right edge, above its middle."""
    return {
        "mark": {"type": "text", "align": "right", "dy": -17, "color": "@quiet"},
        "encoding": {"x": {"value": "width"}, "text": {"field": field}},
    }


def tooltip(**titles: str) -> list[dict[str, Any]]:
    """What the pointer brings up: field=title."""
    return [{"field": field, "title": title} for field, title in titles.items()]
