"""Ratios, interactions, trends and tendencies, block by block, on the log scale.

Everything that a claim says comes down to one log value a block: the difference of two cells (a ratio), the difference
of two such differences (an interaction), or a trend over ordered levels. A trend is the least-squares slope over the
ranks of the levels, times the number of steps: by how much the last level differs from the first. Blocks are then what
is tested, by signed ranks (docs/decisions/0002-statistics.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import TypeAlias

from tare.papers.claims.factors import Cell, Value, factor_named, level
from tare.records.trials import collected, grouped

FEW = 0.5  # a cell with less than this share of the blocks says too little to be pooled


@dataclass(frozen=True)
class Series:
    """One log value a block, and the trials that it comes from."""

    values: Mapping[str, float]  # block ("0/3": of the first store, the fourth) -> log
    trials: frozenset[str]
    tainted: tuple[str, ...] = ()

    def minus(self, other: Series) -> Series:
        return joined([self, other], lambda ours, theirs: ours - theirs)

    def of_store(self, store: str) -> Series:
        return replace(self, values={block: log for block, log in self.values.items() if store_of(block) == store})


Cells: TypeAlias = Mapping[Cell, Series]


def joined(series: Iterable[Series], how: Callable[..., float]) -> Series:
    """Several series as one, in the blocks that all of them have."""
    all_of_them = list(series)
    blocks = [block for block in all_of_them[0].values if all(block in each.values for each in all_of_them)]
    return Series(
        {block: how(*(each.values[block] for each in all_of_them)) for block in blocks},
        frozenset().union(*(each.trials for each in all_of_them)),
        tuple(dict.fromkeys(sentence for each in all_of_them for sentence in each.tainted)),
    )


def without(cell: Cell, *names: str) -> Cell:
    return frozenset(item for item in cell if item[0] not in names)


def where(cells: Cells, keep: Callable[[Cell], bool]) -> Cells:
    return {cell: series for cell, series in cells.items() if keep(cell)}


def at(cells: Cells, factor: str, value: Value) -> Cells:
    """The cells that have this level."""
    return where(cells, lambda cell: level(cell, factor) == value)


def minus(ours: Cells, theirs: Cells) -> Cells:
    """Two figures of the same cells, one less the other."""
    return _filled({cell: series.minus(theirs[cell]) for cell, series in ours.items() if cell in theirs})


def by_level(cells: Cells, factor: str) -> dict[Cell, dict[Value, Series]]:
    """The cells that are equal in all but one factor, together, by its levels."""
    having = ((cell, value) for cell in cells if (value := level(cell, factor)) is not None)
    pairs = collected((without(cell, factor), (value, cells[cell])) for cell, value in having)
    return {rest: dict(found) for rest, found in pairs.items()}


def by_level_of_store(cells: Cells, factor: str) -> Iterator[tuple[Cell, dict[Value, Series]]]:
    """The same, store by store: a level that only another store has shares no block with these."""
    for rest, found in by_level(cells, factor).items():
        for store in dict.fromkeys(store_of(block) for series in found.values() for block in series.values):
            parts = {value: series.of_store(store) for value, series in found.items()}
            yield rest, {value: part for value, part in parts.items() if part.values}


def gathered(pairs: Iterable[tuple[Cell, Series]]) -> Cells:
    """What several stores have of a cell, as one series."""
    made: dict[Cell, Series] = {}
    for cell, series in pairs:
        before = made.get(cell, Series({}, frozenset()))
        tainted = tuple(dict.fromkeys((*before.tainted, *series.tainted)))
        made[cell] = Series({**before.values, **series.values}, before.trials | series.trials, tainted)
    return _filled(made)


def levels(cells: Cells, factor: str) -> list[Value]:
    return list(dict.fromkeys(value for cell in cells if (value := level(cell, factor)) is not None))


def split(cells: Cells, factor: str) -> dict[Value | None, Cells]:
    """Level -> the cells that have it; None: those that have none."""
    return {
        value: {cell: cells[cell] for cell in its}
        for value, its in grouped(cells, lambda cell: level(cell, factor)).items()
    }


def each_model(cells: Cells) -> dict[str, Cells]:
    """`, lenet5` -> its cells; all of them under no name where no setting is the model."""
    name = factor_named(cells, "model")
    if name is None:
        return {"": cells} if cells else {}
    return {f", {model}": mine for model, mine in split(cells, name).items() if model is not None}


def against(cells: Cells, factor: str, one: Value, other: Value) -> Cells:
    """The cells with level `one`, each less the same with level `other`."""
    return _filled(
        {
            rest: found[one].minus(found[other])
            for rest, found in by_level(cells, factor).items()
            if one in found and other in found
        }
    )


def ends(cells: Cells, factor: str, order: Callable[[Value], float | None]) -> Cells:
    """The last level in this order, less the first, of every set of cells that has two or more."""
    return gathered(
        (rest, ordered[-1].minus(ordered[0]))
        for rest, found in by_level_of_store(cells, factor)
        if len(ordered := _ordered(found, order)) > 1
    )


def trend(cells: Cells, factor: str, order: Callable[[Value], float | None]) -> Cells:
    """By how much the last level differs from the first, by a line through all of them."""
    return gathered(
        (rest, joined(ordered, _rise))
        for rest, found in by_level_of_store(cells, factor)
        if len(ordered := _ordered(found, order)) > 1
    )


def last_doubling(cells: Cells, factor: str) -> Cells:
    """What a doubling changes between the two largest levels; where there are three or more."""
    made = []
    for rest, found in by_level_of_store(cells, factor):
        numbered = {number: series for value, series in found.items() if (number := rising(value) or 0.0) > 0}
        if len(numbered) < 3:
            continue
        (below, before), (above, last) = sorted(numbered.items(), key=lambda each: each[0])[-2:]

        def change(late: float, early: float, doublings: float = math.log2(above / below)) -> float:
            return (late - early) / doublings

        made.append((rest, joined([last, before], change)))
    return gathered(made)


def largest_levels(cells: Cells, factor: str) -> list[str]:
    """Between which two levels the last doubling lies: `["16 to 64"]`, one for each pair where cells have others."""
    found = []
    for _, of_one in by_level_of_store(cells, factor):
        numbers = sorted(number for value in of_one if (number := rising(value) or 0.0) > 0)
        if len(numbers) >= 3:
            found.append(f"{numbers[-2]:g} to {numbers[-1]:g}")
    return list(dict.fromkeys(found))


def pooled(cells: Cells) -> Series | None:
    """The mean over all cells, block by block; a block that misses a cell is adjusted by that cell's own median.

    Only cells of the same store share blocks; a cell with less than half of the store's blocks is left out.
    """
    values: dict[str, float] = {}
    used: list[Series] = []
    for store in dict.fromkeys(store_of(block) for series in cells.values() for block in series.values):
        parts = [
            {block: value for block, value in each.values.items() if store_of(block) == store}
            for each in cells.values()
        ]
        most = max(map(len, parts))
        kept = [(part, each) for part, each in zip(parts, cells.values(), strict=True) if len(part) >= FEW * most]
        values |= _adjusted([part for part, _ in kept])
        used += [each for _, each in kept]
    if not values:
        return None
    whole = joined(used, lambda *_: 0.0)
    return Series(values, whole.trials, whole.tainted)


def _adjusted(parts: list[dict[str, float]]) -> dict[str, float]:
    centres = [median(part.values()) for part in parts]
    whole = fmean(centres)
    made = {}
    for block in dict.fromkeys(block for part in parts for block in part):
        made[block] = whole + fmean(
            part[block] - centre for part, centre in zip(parts, centres, strict=True) if block in part
        )
    return made


def store_of(block: str) -> str:
    """`0` of `0/3`."""
    return block.partition("/")[0]


def _ordered(found: Mapping[Value, Series], order: Callable[[Value], float | None]) -> list[Series]:
    ranked = [(rank, series) for value, series in found.items() if (rank := order(value)) is not None]
    return [series for _, series in sorted(ranked, key=lambda pair: pair[0])]


def _rise(*values: float) -> float:
    middle = (len(values) - 1) / 2
    weights = [place - middle for place in range(len(values))]
    slope = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(w * w for w in weights)
    return slope * (len(values) - 1)


def _filled(cells: dict[Cell, Series]) -> Cells:
    return {cell: series for cell, series in cells.items() if series.values}


def rising(value: Value) -> float | None:
    """The order of numbers; a level that is none has no place in it."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def falling(value: Value) -> float | None:
    number = rising(value)
    return None if number is None else -number
