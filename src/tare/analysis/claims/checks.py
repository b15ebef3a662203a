"""Makers of checks: one figure over all cells, or cell by cell."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tare.analysis.cells import text
from tare.analysis.claims.contrasts import Cells, Series, pooled
from tare.analysis.claims.factors import Cell
from tare.analysis.claims.model import Check, Kind, Wants
from tare.analysis.model import Measurement
from tare.analysis.request import DEFAULT_MARGIN

NAMED = 4  # settings in the name of a cell
WIDEST = 60.0  # a log beyond this no unit can explain; exp must not overflow


def tendency(
    about: str,
    cells: Cells,
    wants: Wants,
    *,
    margin: float = DEFAULT_MARGIN,
    bound: float = 0.0,
    kind: Kind = "change",
    floor: float | None = None,
) -> list[Check]:
    """One check of the mean over all cells; the cells come with it, so that exceptions can be named."""
    whole = pooled(cells)
    if whole is None:
        return []
    parts = {}
    if len(cells) > 1:
        parts = {
            name: _check(name, series, wants, margin, bound, floor, kind)
            for (_, series), name in zip(cells.items(), _labels(list(cells)), strict=True)
        }
    return [_check(about, whole, wants, margin, bound, floor, kind, parts)]


def each(
    about: str,
    cells: Cells,
    wants: Wants,
    *,
    margin: float = DEFAULT_MARGIN,
    bound: float = 0.0,
    floor: float | None = None,
) -> list[Check]:
    """A check for each cell: where nothing may change, a mean could hide that two cells change in opposite ways."""
    names = _labels(list(cells))
    return [
        _check(f"{about}, {name}" if name else about, series, wants, margin, bound, floor)
        for (_, series), name in zip(cells.items(), names, strict=True)
    ]


def _check(
    about: str,
    series: Series,
    wants: Wants,
    margin: float,
    bound: float,
    floor: float | None,
    kind: Kind = "change",
    parts: Mapping[str, Check] | None = None,
) -> Check:
    offset = math.log1p(bound)
    values = {block: max(-WIDEST, min(WIDEST, value - offset)) for block, value in series.values.items()}
    return Check(
        about,
        wants,
        tuple(Measurement(about, math.exp(value), block) for block, value in values.items()),
        tuple(Measurement("no change", 1.0, block) for block in values),
        0.0 if bound else margin,
        bound,
        kind,
        None if bound else floor,
        series.trials,
        series.tainted,
        parts or {},
    )


def _labels(cells: list[Cell]) -> list[str]:
    """What tells each cell from the others, in a few words."""
    common = frozenset.intersection(*cells) if cells else frozenset()
    made = []
    for cell in cells:
        own = sorted((item for item in cell if item not in common), key=lambda item: (item[0].count("."), item[0]))
        made.append(", ".join(_short(name, value) for name, value in own[:NAMED]))
    return made


def _short(name: str, value: object) -> str:
    last = name.rpartition(".")[2]
    return text(value) if last in ("platform", "workload", "model", "data") else f"{last} {text(value)}"
