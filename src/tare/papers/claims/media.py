"""Storage media: which is the slowest, and whether a loader felt any difference between them.

Where nothing waits for the medium (an emulated one is a limit of requests and bytes a second, and a loader may ask for
less), a claim that the medium does not matter would hold by itself: nothing was measured there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

from tare.analysis.cells import CACHE, EVERY, FIRST, WORKERS, When, reads
from tare.papers.claims import metrics
from tare.papers.claims.checks import tendency
from tare.papers.claims.contrasts import Cells, against, at, levels, split, where
from tare.papers.claims.deciding import words_of
from tare.papers.claims.factors import Value, level, medium_rank
from tare.papers.claims.model import HOLDS, Check, Population
from tare.records.model import Record

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
