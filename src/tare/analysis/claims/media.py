"""Storage media: which is the slowest, and whether a loader felt any difference between them.

Where nothing waits for the medium (an emulated one is a limit of requests and bytes a second, and a loader may ask for
less), a claim that the medium does not matter would hold by itself: nothing was measured there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

from tare.analysis.claims import metrics
from tare.analysis.claims.checks import tendency
from tare.analysis.claims.contrasts import Cells, Series, against, at, levels, where
from tare.analysis.claims.deciding import words_of
from tare.analysis.claims.evidence import Evidence
from tare.analysis.claims.factors import Cell, Value, level, medium_rank
from tare.analysis.claims.model import HOLDS, Check
from tare.records.model import Record

MODEL, WORKERS, CACHE = "workload.model", "workload.workers", "control.page_cache.state"
ALWAYS_COLD = "cold_every_epoch"
SAME = "the media did not differ in speed for this loader, so nothing was measured"
UNSURE = "it depends on whether the media differ in speed for this loader, which the trials do not tell"


@dataclass(frozen=True)
class Felt:
    """Which models' loaders surely felt no difference between the media, and whether any of the others surely did."""

    unmoved: frozenset[Value | None]
    unsure: bool

    def of(self, cells: Cells) -> Cells:
        """The cells of models that may have felt the medium."""
        return where(cells, lambda cell: level(cell, MODEL) not in self.unmoved)


def by_speed(cells: Cells, medium: str) -> list[Value]:
    """The media, the slowest first: by their names where all are known, else by their figures."""
    found = levels(cells, medium)
    ranks = {each: medium_rank(each) for each in found}
    if all(rank is not None for rank in ranks.values()):
        return sorted(found, key=lambda each: ranks[each] or 0.0)
    return sorted(found, key=lambda each: -_typical(at(cells, medium, each)))


def _typical(cells: Cells) -> float:
    return median(value for series in cells.values() for value in series.values.values())


def felt(evidence: Evidence, medium: str) -> Felt:
    """What each model's loader felt of the medium: nothing, only where the slowest is surely as fast as the fastest.

    It is looked at where a medium cannot hide behind the page cache: in epoch 0, or where every epoch is cold. Where
    nothing can be compared, or not surely, the claim goes on and decides by itself.
    """
    fetches = _fetches(evidence, medium)
    unmoved = frozenset(model for model, checks in fetches.items() if _is_unmoved(checks, evidence.alpha))
    others = [check for model, checks in fetches.items() if model not in unmoved for check in checks]
    slower = words_of([replace(check, wants="rises") for check in others], evidence.alpha)
    return Felt(unmoved, bool(slower) and HOLDS not in slower)


def is_always_cold(record: Record) -> bool:
    return record.settings.get(CACHE) == ALWAYS_COLD


def _is_not_warm(record: Record) -> bool:
    return record.settings.get(CACHE) != "warm"


def _is_unmoved(checks: list[Check], alpha: float) -> bool:
    words = words_of(checks, alpha)
    return bool(words) and all(word == HOLDS for word in words)


def _fetches(evidence: Evidence, medium: str) -> dict[Value | None, list[Check]]:
    """Model by model, that fetching takes as long from the slowest medium as from the fastest."""
    always = evidence.cells(metrics.STALL, is_always_cold) or evidence.cells(metrics.MEAN_STEP, is_always_cold)
    found: dict[Value | None, list[Check]] = {}
    for cells in (always, evidence.cells(metrics.EPOCH0, _is_not_warm)):
        for model, mine in _by_model(cells).items():
            apart = _slowest_to_fastest(mine, medium)
            found.setdefault(model, []).extend(tendency("fetch, slowest medium against fastest", apart, "same"))
    return found


def _by_model(cells: Cells) -> Mapping[Value | None, Cells]:
    found: dict[Value | None, dict[Cell, Series]] = {}
    for cell, series in cells.items():
        found.setdefault(level(cell, MODEL), {})[cell] = series
    return found


def _slowest_to_fastest(cells: Cells, medium: str) -> Cells:
    """The slowest medium against the fastest, without workers to hide it; only where there is no such trial, with."""
    alone = where(cells, lambda cell: not level(cell, WORKERS))
    return _between(alone, medium) or _between(cells, medium)


def _between(cells: Cells, medium: str) -> Cells:
    speeds = by_speed(cells, medium)
    return against(cells, medium, speeds[0], speeds[-1]) if len(speeds) > 1 else {}
