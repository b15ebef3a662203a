"""The two sides of a comparison, lined up: block by block where there are blocks, else as two samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

import numpy as np

from tare.analysis import sentences
from tare.analysis.model import Measurement
from tare.analysis.ranks import Floats
from tare.analysis.shift import Shift, mann_whitney, paired_t, signed_rank, welch_t, wider
from tare.analysis.stats import floats, median_deviation
from tare.errors import StudyError

UNLIKE_SPREADS = 2.0  # two samples whose spreads, or sizes, differ by this much: ranks alone would claim too much
UNLIKE_SIZES = 1.2
WIDEST_RATIO = 1e30  # between the least and the greatest value: beyond this no unit can be right


@dataclass(frozen=True)
class Sides:
    """Values of both sides; paired sides have one value a block, in the same order."""

    ours: Floats
    theirs: Floats
    paired: bool
    n: int  # blocks that hold both sides, or the smaller side
    notes: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return len(self.ours) == 0 or len(self.theirs) == 0

    @cached_property
    def by_ranks(self) -> Shift:
        ours, theirs = np.log(self.ours), np.log(self.theirs)
        return signed_rank(ours - theirs) if self.paired else mann_whitney(ours, theirs)

    def by_t(self) -> Shift:
        ours, theirs = np.log(self.ours), np.log(self.theirs)
        return paired_t(ours - theirs) if self.paired else welch_t(ours, theirs)

    def shift(self, confidence: float) -> Shift:
        """By ranks, with Welch's t beside them where the sides are unlike; by t alone where ranks cannot reach."""
        if not self.by_ranks.can_reach(confidence):
            return self.by_t()
        return wider(np.log(self.ours), np.log(self.theirs)) if self.unlike else self.by_ranks

    @cached_property
    def unlike(self) -> bool:
        """Whether these are two samples that differ in spread or in size, which a rank test takes for a shift."""
        if self.paired:
            return False
        few, many = sorted((len(self.ours), len(self.theirs)))
        small, large = sorted(map(median_deviation, (np.log(self.ours), np.log(self.theirs))))
        return many >= UNLIKE_SIZES * few or round(large - UNLIKE_SPREADS * small, 9) > 0

    def deviation(self, standard_error: float) -> float:
        """Spread of block log-ratios, or of one side's log values, that a standard error of the shift speaks of."""
        if self.paired:
            return standard_error * math.sqrt(self.n)
        return standard_error / math.sqrt(1 / len(self.ours) + 1 / len(self.theirs))

    @property
    def effective_n(self) -> int:
        """Trials a side of an even design that would say as much as this one."""
        if self.paired:
            return self.n
        return int(2 * len(self.ours) * len(self.theirs) / (len(self.ours) + len(self.theirs)))


def line_up(ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> Sides:
    """Pair by block where every trial has one; blocks that miss a side are left out and said so."""
    check_span([m.value for m in (*ours, *theirs)], " and ".join({repr(m.level): None for m in (*ours, *theirs)}))
    if not all(m.block is not None for m in (*ours, *theirs)):
        some = any(m.block is not None for m in (*ours, *theirs))
        return _two_samples(ours, theirs, (sentences.SOME_WITHOUT_BLOCK,) if some else ())
    left, right = _by_block(ours), _by_block(theirs)
    both = [block for block in left if block in right]
    if not both and ours and theirs:
        samples = _two_samples(ours, theirs, (sentences.NO_COMMON_BLOCK,))
        return Sides(samples.ours, samples.theirs, paired=False, n=0, notes=samples.notes)
    return Sides(
        floats([median(left[block]) for block in both]),
        floats([median(right[block]) for block in both]),
        paired=True,
        n=len(both),
        notes=tuple(_pairing_notes(left, right, both)),
    )


def _two_samples(ours: Sequence[Measurement], theirs: Sequence[Measurement], notes: tuple[str, ...]) -> Sides:
    left, right = floats([m.value for m in ours]), floats([m.value for m in theirs])
    return Sides(left, right, paired=False, n=min(len(left), len(right)), notes=notes)


def _by_block(side: Iterable[Measurement]) -> dict[str, list[float]]:
    blocks: dict[str, list[float]] = {}
    for measurement in side:
        blocks.setdefault(str(measurement.block), []).append(measurement.value)
    return blocks


def _pairing_notes(
    left: Mapping[str, list[float]], right: Mapping[str, list[float]], both: Sequence[str]
) -> Iterable[str]:
    missed = len(left.keys() | right.keys()) - len(both)
    if missed:
        yield sentences.blocks_left_out(missed)
    if any(len(side[block]) > 1 for side in (left, right) for block in both):
        yield sentences.SEVERAL_IN_A_BLOCK


def check_span(values: Sequence[float], where: str) -> None:
    """Refuse values so far apart that no ratio of them means anything (and that no float could hold)."""
    if values and math.log(max(values)) - math.log(min(values)) > math.log(WIDEST_RATIO):
        span = f"the values run from {min(values):.3g} to {max(values):.3g}"
        raise StudyError(f"{where}: {span}, too far apart for a ratio. Check their units.")
