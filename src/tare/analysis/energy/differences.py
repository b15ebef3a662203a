"""Why one cell takes more energy than another: it ran longer, the idle device draws more there, or it did more work.

With idle power P, time t and energy E = P t + W, of the cell (1) and of what it is held against (0):

    ran longer          P0 (t1 - t0)      the longer time, at the idle power of what it is held against
    idle power differs  (P1 - P0) t1      the other idle power, over the whole of the cell's own time
    more work           W1 - W0           the rest, so that the three add up to E1 - E0 exactly

Means over trials are used throughout, since medians do not add up; intervals are of the mean difference, over blocks
where both sides have them. Idle power is of other trials: its own scatter is in the second part's interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tare.analysis.energy.baseload import ENERGY, WINDOW
from tare.analysis.energy.idle import IdlePower, Key, energy_facts, key_of
from tare.analysis.model import Estimate
from tare.analysis.ranks import Floats
from tare.analysis.shift import Shift, mann_whitney, paired_t, welch_t
from tare.analysis.stats import ALPHA, FLOOR, floats
from tare.records.model import Record

STEP, RUN = "step", "run"
_PER_STEP = "energy_step_j"


@dataclass(frozen=True, slots=True)
class EnergyDifference:
    """One cell against another, in joules a step (or a run): the whole difference, and its three parts."""

    level: str
    against: str
    unit: str  # "step", or "run" where steps are not marked
    theirs_j: float  # mean of what it is held against
    total: Estimate
    longer: Estimate | None  # None where the idle power of a side is not known
    idle: Estimate | None
    work: Estimate | None
    trials: tuple[str, ...]

    @property
    def share(self) -> float:
        """The whole difference, as a share of what it is held against."""
        return self.total.value / self.theirs_j


def difference(
    level: str, against: str, ours: Sequence[Record], theirs: Sequence[Record], idle: Mapping[Key, IdlePower]
) -> EnergyDifference | None:
    """The difference in energy, and what it is made of; None where a side has no energy."""
    ours, theirs = _with_energy(ours), _with_energy(theirs)
    if not (ours and theirs):
        return None
    if _source(ours) != _source(theirs):
        return None  # a GPU's joules and a wall meter's are not of the same thing
    unit = STEP if all(_PER_STEP in record.compared for record in (*ours, *theirs)) else RUN
    total = _mean_difference(ours, theirs, lambda record: _energy(record, unit))
    longer, idling, work = _parts(ours, theirs, unit, total, idle) or (None, None, None)
    return EnergyDifference(
        level=level,
        against=against,
        unit=unit,
        theirs_j=float(np.mean([_energy(record, unit) for record in theirs])),
        total=total,
        longer=longer,
        idle=idling,
        work=work,
        trials=tuple(record.trial for record in (*ours, *theirs)),
    )


def _source(records: Iterable[Record]) -> set[str]:
    return {str(energy_facts(record).get("source")) for record in records}


def _with_energy(records: Iterable[Record]) -> list[Record]:
    return [record for record in records if ENERGY in record.compared and WINDOW in record.compared]


def _parts(
    ours: Sequence[Record], theirs: Sequence[Record], unit: str, total: Estimate, idle: Mapping[Key, IdlePower]
) -> tuple[Estimate, Estimate, Estimate] | None:
    """The three parts; None where the idle power of a side is not known, or where a side is of several devices."""
    keys = [{key_of(record) for record in side} for side in (ours, theirs)]
    if any(len(of_side) > 1 or not of_side <= idle.keys() for of_side in keys):
        return None
    mine, base = (idle[of_side.pop()] for of_side in keys)
    longer = _mean_difference(ours, theirs, lambda record: base.power_w.value * _time(record, unit))
    mean_s = float(np.mean(_lined_up(ours, theirs, lambda record: _time(record, unit))[0]))
    idling = _idle_part((mine.power_w.value - base.power_w.value) * mean_s, mean_s, mine, base)
    work = _mean_difference(
        ours, theirs, lambda record: _energy(record, unit) - idle[key_of(record)].power_w.value * _time(record, unit)
    )
    rest = total.value - longer.value - idling.value  # but for rounding the same as `work.value`
    return longer, idling, replace(work, value=rest)


def _idle_part(value: float, mean_s: float, mine: IdlePower, base: IdlePower) -> Estimate:
    """The second part; its interval is that of the difference in idle power, from the idle trials."""
    if mine.key == base.key:
        return Estimate(0.0, 0.0, 0.0, len(mine.values_w), "the same idle power on both sides", 1 - ALPHA)
    n = min(len(mine.values_w), len(base.values_w))
    if n < FLOOR:
        return Estimate(value, None, None, n, f"{n} idle trials are too few for an interval", 1 - ALPHA)
    shift = mann_whitney(floats(mine.values_w), floats(base.values_w))
    low, high = (edge * mean_s for edge in shift.interval(1 - ALPHA))
    method = "difference of the medians of idle power, Mann-Whitney interval"
    return Estimate(value, min(low, value), max(high, value), n, method, 1 - ALPHA)


def _mean_difference(ours: Sequence[Record], theirs: Sequence[Record], figure: Callable[[Record], float]) -> Estimate:
    """The difference of the means with its t interval, paired by block where both sides share blocks."""
    left, right, paired = _lined_up(ours, theirs, figure)
    value, n = float(np.mean(left) - np.mean(right)), min(len(left), len(right))
    how = "mean difference of blocks" if paired else "difference of means"
    if n < FLOOR:
        return Estimate(value, None, None, n, f"{how}; {n} trials are too few for an interval", 1 - ALPHA)
    shift: Shift = paired_t(left - right) if paired else welch_t(left, right)
    low, high = shift.interval(1 - ALPHA)
    return Estimate(value, low, high, n, f"{how}, t interval", 1 - ALPHA)


def _lined_up(
    ours: Sequence[Record], theirs: Sequence[Record], figure: Callable[[Record], float]
) -> tuple[Floats, Floats, bool]:
    left, right = (_by_block(side, figure) for side in (ours, theirs))
    both = sorted(left.keys() & right.keys())
    if both:
        return floats([left[block] for block in both]), floats([right[block] for block in both]), True
    return floats([figure(each) for each in ours]), floats([figure(each) for each in theirs]), False


def _by_block(side: Sequence[Record], figure: Callable[[Record], float]) -> dict[int, float]:
    blocks: dict[int, list[float]] = {}
    for record in side:
        blocks.setdefault(record.block, []).append(figure(record))
    return {block: float(np.mean(values)) for block, values in blocks.items()}


def _energy(record: Record, unit: str) -> float:
    return record.compared[_PER_STEP if unit == STEP else ENERGY]


def _time(record: Record, unit: str) -> float:
    """Seconds that the energy of one unit was taken over."""
    return record.compared[WINDOW] * _energy(record, unit) / record.compared[ENERGY]
