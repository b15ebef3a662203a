"""Blocks of several stores: the stores are the sample, and each has an effect of its own.

A block is a replicate within its store only. Blocks of one store share what was run there: its cells, the state of the
machine that day. Pooled as if they were replicates of each other, stores that differ by 10 % with blocks that differ by
1 % would have an interval of 1 %. So each store has its estimate, and they are joined as devices are:

- three stores or more: their mean as a random effect (Paule and Mandel, Hartung and Knapp; docs/decisions/0016);
- two: how stores scatter cannot be known, so the interval reaches from the lower end of one to the upper end of the
  other: only what is true of both is claimed.

A store with fewer than six blocks has no interval of its own and is left out where there are others. Where no store has
six, each counts once, by its own estimate: six stores and more have an interval, fewer have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tare.analysis.estimators import Shift, Sides, StudentShift, paired_shift, signed_rank
from tare.analysis.fleet.random_effects import FEWEST, LEVEL, error_variances, from_shift, scatter
from tare.analysis.numeric.medians import FLOOR, Floats
from tare.records.model import collected


@dataclass(frozen=True)
class EachStoreShift(Shift):
    """Two stores: what both of their tests reject."""

    ranks: ClassVar[bool] = False
    centre: float
    freedom: float
    stores: tuple[Shift, ...]
    method: str = "Hodges-Lehmann in each of two stores, from the lower end of one to the upper end of the other"

    def interval(self, confidence: float) -> tuple[float, float]:
        ends = [each.interval(confidence) for each in self.stores]
        return min(low for low, _ in ends), max(high for _, high in ends)

    def attained(self, confidence: float) -> float:
        return confidence

    def p_above(self, bound: float) -> float:
        return max(each.p_above(bound) for each in self.stores)

    def p_below(self, bound: float) -> float:
        return max(each.p_below(bound) for each in self.stores)


@dataclass(frozen=True)
class StoreSides(Sides):
    """Blocks of two stores or more, each with enough of them."""

    stores: tuple[Floats, ...] = ()  # log differences of the blocks of each

    def shift(self, confidence: float) -> Shift:
        found = [paired_shift(each, confidence) for each in self.stores]
        if len(found) < FEWEST:
            centre = float(np.mean([each.centre for each in found]))
            return EachStoreShift(centre, min(each.freedom for each in found), tuple(found))
        centres = [from_shift(paired_shift(each, LEVEL), len(each)) for each in self.stores]
        mean, _, error = scatter(np.array([each.value for each in centres]), error_variances(centres))
        return StudentShift(mean, error, len(centres) - 1, f"Hodges-Lehmann in each of {len(centres)} stores, "
                            "then their mean as a random effect, Hartung-Knapp interval")  # fmt: skip


def sides_of_stores(blocks: Sequence[tuple[str, float]]) -> Sides | None:
    """The log ratios of `(store, log ratio)`; None where all are of one store, whose blocks are its replicates."""
    found = {store: np.array(values) for store, values in collected(blocks).items()}
    if len(found) < 2:
        return None
    enough = tuple(values for values in found.values() if len(values) >= FLOOR)
    logs = np.concatenate(enough) if enough else np.array([signed_rank(values).centre for values in found.values()])
    ours, ones = np.exp(logs), np.ones(len(logs))
    if len(enough) < 2:  # one store with enough blocks stands for itself
        return Sides(ours, ones, paired=True, n=len(logs))
    return StoreSides(ours, ones, paired=True, n=len(logs), stores=enough)
