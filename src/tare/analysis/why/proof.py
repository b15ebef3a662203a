"""Whether a difference is sure, after as few blocks as show it: one scatter of all trials, and a fixed set of looks.

All trials of a `why` are one table of blocks and sides. The logarithm of a time is what its block adds, plus what its
side adds, plus scatter: least squares takes out what a block has more than others (a core that changes its speed), a
trial that was lost is a hole in the table and no more, and every side helps to tell the scatter. A difference of two
sides has a t interval with that scatter; where the trials of these two scatter more than the rest, with theirs, and
where one of the two has far fewer trials and scatters more, with its own.

The blocks are looked at as often as `looks` says. The 2 % by which an interval may miss the truth at any look are
shared among the looks (Bonferroni), so that the run may stop at each of them. A cost that is not there is then claimed
in about 1 % of all runs (benchmarks/why_proof.py). The suspects share another 2 %, in the order in which they are
tried: the first has a half, the second a sixth, the third a twelfth: 1 / (k (k + 1)), which add up to one. A suspect
that scatters five times as much as the sides, in half as many blocks, is accused more often: in 3 % of such runs.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tare.analysis.compare import word
from tare.analysis.directions import direction_of
from tare.analysis.model import Comparison
from tare.analysis.numeric.distributions import t_quantile
from tare.analysis.numeric.medians import median_estimate
from tare.base.declare import STEP

WRONG = 0.02  # how often any of the intervals of one question may miss the truth
_FIRST_LOOKS = (2, 3, 4, 6, 8, 12)  # blocks
_GROWTH = 1.4  # from one later look to the next
_WIDEST = 700.0  # a logarithm whose exponential is still a float
_FEWER = 0.6  # of the trials of another side: whoever has less is hidden by it
_ROUNDING = 1e-9
_LEAST_SCATTER = 1e-4  # of a time: clocks and medians are no more exact, and no scatter at all would prove everything


def looks(most: int) -> tuple[int, ...]:
    """After how many blocks it is looked whether they are enough, where at most so many are run."""
    found = [each for each in _FIRST_LOOKS if each < most]
    while (more := math.ceil(found[-1] * _GROWTH) if found else most) < most and found[-1] >= _FIRST_LOOKS[-1]:
        found.append(more)
    return (*found, most)


def level_of(most: int, suspect: int = 0, share: float = 1.0) -> float:
    """How often one interval may be wrong; `suspect` is the place of a trial of a suspect in the order of all of them,
    from 1 on: one that is tried twice has two. `share`: of what may be wrong, where two figures are judged."""
    if suspect:
        share = 1 / (suspect * (suspect + 1))
    return WRONG * share / len(looks(most))


@dataclass(frozen=True, slots=True)
class Timed:
    """One trial: the block that it ran in, its side, and the logarithm of its time, or of one over its rate."""

    block: Hashable
    side: Hashable
    log: float


@dataclass(frozen=True, slots=True)
class Shift:
    """How much longer one side takes than another, in logarithms."""

    centre: float
    error: float  # its standard error
    freedom: int

    def interval(self, level: float) -> tuple[float, float] | None:
        """None where there is no scatter to be seen: a block each."""
        if self.freedom < 1:
            return None
        reach = -t_quantile(self.freedom, level / 2) * self.error
        return self.centre - reach, self.centre + reach


class Table:
    """All trials of a `why`: what each side adds, and how far trials scatter."""

    def __init__(self, trials: Iterable[Timed]) -> None:
        self._trials = list(trials)
        self._sides = {side: n for n, side in enumerate(dict.fromkeys(each.side for each in self._trials))}

    @cached_property
    def _design(self) -> np.ndarray:
        blocks = {block: n for n, block in enumerate(dict.fromkeys(each.block for each in self._trials))}
        found = np.zeros((len(self._trials), len(self._sides) + len(blocks)))
        for row, each in enumerate(self._trials):
            found[row, self._sides[each.side]] = found[row, len(self._sides) + blocks[each.block]] = 1.0
        return found

    @cached_property
    def _solved(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
        """What each column adds, the inverse of the normal matrix, the residuals, the share of each, freedom."""
        design = self._design
        inverse = np.linalg.pinv(design.T @ design)
        values = np.array([each.log for each in self._trials])
        effects = inverse @ design.T @ values
        kept = 1 - np.einsum("ij,jk,ik->i", design, inverse, design)
        freedom = len(values) - int(np.linalg.matrix_rank(design))
        return effects, inverse, values - design @ effects, kept, freedom

    def _variance(self, sides: Iterable[Hashable]) -> tuple[float, int]:
        """Of one trial, with its freedom: of all of them, or of these sides where they scatter more.

        A side of far fewer trials than another of these would be hidden by it: where it scatters more, it tells alone.
        """
        _, _, rest, kept, freedom = self._solved
        masks = [np.array([each.side == side for each in self._trials]) for side in sides]
        if not masks:  # a weighted sum in which every side cancels
            return max(float(rest @ rest) / freedom, _LEAST_SCATTER**2), freedom
        mine = np.logical_or.reduce(masks)
        both = float(rest[mine] @ rest[mine]) / max(float(kept[mine].sum()), 1.0)
        found = [(max(float(rest @ rest) / freedom, both), freedom)]
        most = max(int(mask.sum()) for mask in masks)
        for mask in masks:
            if mask.sum() < _FEWER * most:
                own = float(kept[mask].sum())
                if own < _ROUNDING:
                    return math.inf, 0  # a single trial: its scatter is not known
                found.append((float(rest[mask] @ rest[mask]) / own, max(1, math.floor(own + _ROUNDING))))
        variance, freedom = max(found, key=lambda each: each[0])
        return max(variance, _LEAST_SCATTER**2), freedom

    def _weights(self, sides: dict[Hashable, float]) -> np.ndarray | None:
        """A contrast of sides; None where no blocks connect them."""
        _, inverse, _, _, _ = self._solved
        weights = np.zeros(self._design.shape[1])
        for side, weight in sides.items():
            if side not in self._sides:
                return None
            weights[self._sides[side]] += weight
        gram = self._design.T @ self._design
        return weights if np.allclose(gram @ (inverse @ weights), weights, atol=1e-6) else None

    def shift(self, ours: Hashable, theirs: Hashable) -> Shift | None:
        """By how much ours takes longer; None where the two never ran, or nothing connects them."""
        return self._shift({ours: 1.0, theirs: -1.0}) if ours != theirs else None

    def _shift(self, sides: dict[Hashable, float]) -> Shift | None:
        if not self._trials or (weights := self._weights(sides)) is None:
            return None
        effects, inverse, _, _, freedom = self._solved
        centre = float(weights @ effects)
        if freedom < 1:
            return Shift(centre, math.inf, 0)
        variance, freedom = self._variance(sides)
        return Shift(centre, math.sqrt(float(weights @ inverse @ weights) * variance), freedom)

    def compared(
        self, ours: Hashable, theirs: Hashable, names: tuple[str, str], *, metric: str, margin: float, level: float,
        unit: str = STEP,
    ) -> Comparison:  # fmt: skip
        """One side against another, in one of four words."""
        shift = self.shift(ours, theirs)
        reach = None if shift is None else shift.interval(level)
        low, high = (None, None) if reach is None else (_share_of(reach[0]), _share_of(reach[1]))
        direction = direction_of(metric)
        sign = -1.0 if direction.rises else 1.0  # half the rate is twice the time
        blocks = [{each.block for each in self._trials if each.side == side} for side in (ours, theirs)]
        values = [[math.exp(sign * each.log) for each in self._trials if each.side == side] for side in (ours, theirs)]
        medians = [median_estimate(each) if each else None for each in values]
        found = Comparison(
            metric=metric,
            level=names[0],
            against=names[1],
            effect=None if shift is None else _share_of(shift.centre),
            low=low,
            high=high,
            verdict="cannot_tell" if low is None or high is None else word(low, high, margin, rises=False),
            margin=margin,
            n=len(blocks[0] & blocks[1]),
            mde=None,
            paired=True,
            method="t, blocks and sides by least squares, one scatter",
            confidence=1 - level,
            ours=medians[0],
            theirs=medians[1],
            direction=replace(direction, rises=False),
            unit=unit,
        )
        return found.inverse() if direction.rises else found

    def share(self, slow: Hashable, quick: Hashable, base: Hashable, without: Hashable, level: float) -> Share | None:
        """How much of what the slow side takes longer than the quick one goes from `base` without something."""
        whole, gone = self.shift(slow, quick), self.shift(base, without)
        if whole is None or gone is None or whole.centre <= 0:
            return None
        share = gone.centre / whole.centre
        # What goes, less this share of the whole, is nothing: its error is that of the share.
        about: dict[Hashable, float] = {}
        for side, weight in ((base, 1.0), (without, -1.0), (slow, -share), (quick, share)):
            about[side] = about.get(side, 0.0) + weight
        error = self._shift({side: weight for side, weight in about.items() if weight})
        reach = None if error is None else error.interval(level)
        if reach is None:
            return Share(share, None, None)
        return Share(share, share + reach[0] / whole.centre, share + reach[1] / whole.centre)


def _share_of(log: float) -> float:
    """Of the other side's time; an interval with little freedom may reach further than a float does."""
    return math.expm1(max(-_WIDEST, min(log, _WIDEST)))


@dataclass(frozen=True, slots=True)
class Share:
    """Of a cost, in logarithms, with its interval."""

    share: float | None
    low: float | None
    high: float | None
