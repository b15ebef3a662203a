"""Makers of checks: one figure over all cells, or cell by cell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tare.analysis.labels import setting_words, text, title_of
from tare.analysis.model import Measurement
from tare.analysis.selection import DEFAULT_MARGIN
from tare.papers.claims.contrasts import Cells, Series, pooled
from tare.papers.claims.factors import Cell
from tare.papers.claims.model import Check, Kind, Wants

THE_REST = "default settings"  # the name of a cell that has none of the settings that tell the others apart
_KNOWN_BY = ("platform", "workload", "workload.model", "workload.name")
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
    parts = [
        _check(name, series, wants, margin, bound, floor, kind)
        for series, name in zip(cells.values(), labels(list(cells)), strict=True)
        if len(cells) > 1
    ]
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
    return [
        _check(f"{about}, {name}" if name else about, series, wants, margin, bound, floor)
        for series, name in zip(cells.values(), labels(list(cells)), strict=True)
    ]


def excused(checks: Iterable[Check], why: str) -> list[Check]:
    """The same, as no evidence against the claim where they fail, on the whole or in a cell."""
    return [replace(one, no_evidence=why, parts=tuple(excused(one.parts, why))) for one in checks]


def conditions(checks: Iterable[Check]) -> list[Check]:
    """The same, as what must be so for there to be anything to see."""
    return [replace(one, is_condition=True) for one in checks]


def _check(
    about: str,
    series: Series,
    wants: Wants,
    margin: float,
    bound: float,
    floor: float | None,
    kind: Kind = "change",
    parts: Sequence[Check] = (),
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
        tuple(parts),
    )


def labels(cells: Sequence[Cell]) -> list[str]:
    """What tells each cell from the others, in as few words as do; one alone needs none."""
    common = frozenset.intersection(*cells) if cells else frozenset()
    names = sorted({name for cell in cells for name, _ in cell - common}, key=_familiar_first)
    held = [dict(cell) for cell in cells]
    chosen: list[str] = []
    apart = 1
    for name in names:
        if (now := len({tuple(each.get(one) for one in (*chosen, name)) for each in held})) > apart:
            chosen, apart = [*chosen, name], now
    made = [", ".join(_short(name, each[name]) for name in chosen if name in each) for each in held]
    return [name or THE_REST for name in made] if len(cells) > 1 else made


def _familiar_first(name: str) -> tuple[bool, int, str]:
    """What people know a cell by comes first."""
    return name not in _KNOWN_BY, name.count("."), name


def _short(name: str, value: object) -> str:
    return title_of("applications", text(value)) if name == "workload.name" else setting_words(name, value)
