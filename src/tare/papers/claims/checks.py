"""Makers of checks: one figure over all cells, or cell by cell.

Storage media: which is the slowest, and whether a loader felt any difference between them.

Where nothing waits for the medium (an emulated one is a limit of requests and bytes a second, and a loader may ask for
less), a claim that the medium does not matter would hold by itself: nothing was measured there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from tare.analysis.cells import CACHE, EVERY, FIRST, WORKERS, When, reads
from tare.analysis.labels import setting_words, text, title_of
from tare.analysis.model import Measurement
from tare.analysis.selection import DEFAULT_MARGIN
from tare.papers.claims import metrics
from tare.papers.claims.contrasts import Cells, Series, against, at, levels, pooled, split, where
from tare.papers.claims.deciding import words_of
from tare.papers.claims.factors import Cell, Value, level, medium_rank
from tare.papers.claims.model import HOLDS, Check, Kind, Population, Wants
from tare.records.model import Record

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


MODEL = "workload.model"
SAME = "the media did not differ in speed for this loader, so nothing was measured"
UNSURE = "it depends on whether the media differ in speed for this loader, which the trials do not show"


@dataclass(frozen=True)
class MediumEffect:
    """Of which models nothing can be told, since their loaders may not have felt the medium, and whether any has."""

    left_out: frozenset[Value | None]
    unsure: bool

    def of(self, cells: Cells) -> Cells:
        """The cells of the other models."""
        return where(cells, lambda cell: level(cell, MODEL) not in self.left_out)


def by_speed(cells: Cells, medium: str) -> list[Value]:
    """The media, the slowest first: by their names where all are known, else by their figures."""
    found = levels(cells, medium)
    ranks = {each: medium_rank(each) for each in found}
    if all(rank is not None for rank in ranks.values()):
        return sorted(found, key=lambda each: ranks[each] or 0.0)
    return sorted(found, key=lambda each: -_typical(at(cells, medium, each)))


def _typical(cells: Cells) -> float:
    return median(value for series in cells.values() for value in series.values.values())


def medium_effect(evidence: Population, medium: str) -> MediumEffect:
    """What each model's loader felt of the medium, told where it cannot hide behind the page cache.

    That is in epoch 0, or where every epoch is cold. Where some surely felt it, the others are left out; where none
    did, those to whom the slowest was surely as fast as the fastest. Of whom nothing can be compared stays.
    """
    fetches = {model: checks for model, checks in _fetches(evidence, medium).items() if checks}
    moved, unmoved = (
        frozenset(model for model, checks in fetches.items() if is_so(checks, evidence.alpha))
        for is_so in (_is_moved, _is_unmoved)
    )
    if moved:
        return MediumEffect(frozenset(fetches) - moved, unsure=False)
    return MediumEffect(unmoved, unsure=len(unmoved) < len(fetches))


def _is_moved(checks: list[Check], alpha: float) -> bool:
    return HOLDS in words_of([replace(check, wants="rises") for check in checks], alpha)


def _is_unmoved(checks: list[Check], alpha: float) -> bool:
    words = words_of(checks, alpha)
    return bool(words) and all(word == HOLDS for word in words)


def _reads(*when: When | None) -> Callable[[Record], bool]:
    return lambda record: reads(record.settings.get(CACHE)) in when


def _fetches(evidence: Population, medium: str) -> dict[Value | None, list[Check]]:
    """Model by model, that fetching takes as long from the slowest medium as from the fastest."""
    always = evidence.cells(metrics.STALL, _reads(EVERY)) or evidence.cells(metrics.MEAN_STEP, _reads(EVERY))
    found: dict[Value | None, list[Check]] = {}
    for cells in (always, evidence.cells(metrics.EPOCH0, _reads(EVERY, FIRST, None))):
        for model, mine in split(cells, MODEL).items():
            apart = _slowest_to_fastest(mine, medium)
            found.setdefault(model, []).extend(tendency("fetch, slowest medium against fastest", apart, "same"))
    return found


def _slowest_to_fastest(cells: Cells, medium: str) -> Cells:
    """The slowest medium against the fastest, without workers to hide it; only where there is no such trial, with."""
    alone = where(cells, lambda cell: not level(cell, WORKERS))
    return _between(alone, medium) or _between(cells, medium)


def _between(cells: Cells, medium: str) -> Cells:
    speeds = by_speed(cells, medium)
    return against(cells, medium, speeds[0], speeds[-1]) if len(speeds) > 1 else {}
