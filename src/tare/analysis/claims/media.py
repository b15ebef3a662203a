"""Storage media: which is the slowest, and whether they differed at all.

An emulated medium is a limit of requests and bytes a second. A loader that asks for less never feels it, and then a
claim that the medium does not matter would hold by itself: where nothing waits for it, nothing was measured.
"""

from __future__ import annotations

from statistics import median

from tare.analysis.claims import metrics
from tare.analysis.claims.checks import tendency
from tare.analysis.claims.contrasts import Cells, against, at, levels, where
from tare.analysis.claims.deciding import surely
from tare.analysis.claims.evidence import Evidence
from tare.analysis.claims.factors import Value, level, medium_rank
from tare.analysis.claims.model import Check
from tare.records.model import Record

WORKERS, CACHE = "workload.workers", "control.page_cache.state"
ALWAYS_COLD = "cold_every_epoch"
SAME = "the emulated media did not differ: the loader asked for less than their limits, so nothing was measured"
UNTOLD = "no trial without workers has an epoch from two media, so that nothing tells whether these differ"


def by_speed(cells: Cells, medium: str) -> list[Value]:
    """The media, the slowest first: by their names where all are known, else by their figures."""
    found = levels(cells, medium)
    ranks = {each: medium_rank(each) for each in found}
    if all(rank is not None for rank in ranks.values()):
        return sorted(found, key=lambda each: ranks[each] or 0.0)
    return sorted(found, key=lambda each: -_typical(at(cells, medium, each)))


def _typical(cells: Cells) -> float:
    return median(value for series in cells.values() for value in series.values.values())


def did_not_differ(evidence: Evidence, medium: str) -> tuple[str, ...]:
    """Why claims about these media would be empty: with no worker to hide it, the slowest is not surely slower.

    It is looked at where a medium cannot hide behind the page cache: in epoch 0, or where every epoch is cold. Too few
    blocks leave it open, as they do the claim itself.
    """
    always = evidence.cells(metrics.STALL, is_always_cold) or evidence.cells(metrics.MEAN_STEP, is_always_cold)
    checks = [*_slower(always, medium), *_slower(evidence.cells(metrics.EPOCH0, _is_not_warm), medium)]
    if not checks:
        return (UNTOLD,)
    return (SAME,) if surely(checks, evidence.alpha) is False else ()


def is_always_cold(record: Record) -> bool:
    return record.settings.get(CACHE) == ALWAYS_COLD


def _is_not_warm(record: Record) -> bool:
    return record.settings.get(CACHE) != "warm"


def _slower(cells: Cells, medium: str) -> list[Check]:
    """The slowest medium against the fastest, without workers."""
    alone = where(cells, lambda cell: not level(cell, WORKERS))
    speeds = by_speed(alone, medium)
    found = against(alone, medium, speeds[0], speeds[-1]) if len(speeds) > 1 else {}
    return tendency("fetch without workers, slowest medium against fastest", found, "rises")
