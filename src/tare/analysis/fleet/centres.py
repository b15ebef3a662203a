"""Where the logs of some values lie, and how sure that is: the errors that the devices' own scatter is told from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from tare.analysis.ranks import Floats
from tare.analysis.shift import Shift, paired_t, signed_rank
from tare.analysis.stats import FLOOR

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Centre:
    """A centre on the log scale; `n` is what it is made of, and `unit_variance` of one of these (None: not known)."""

    value: float
    n: int
    unit_variance: float | None
    low: float | None = None
    high: float | None = None
    method: str = ""


def centre_of(logs: Floats) -> Centre:
    """The centre of one sample."""
    if len(logs) == 1:
        return Centre(float(logs[0]), 1, None, method="one trial")
    shift = signed_rank(logs)
    return from_shift(shift if shift.can_reach(LEVEL) else paired_t(logs), len(logs))


def from_shift(shift: Shift, n: int) -> Centre:
    """A centre with the interval of its own test; no interval with fewer than six, though its variance is used."""
    unit = shift.standard_error(LEVEL) ** 2 * n if n > 1 else None
    if n < FLOOR:
        return Centre(shift.centre, n, unit, method=f"{n} are too few for an interval")
    low, high = shift.interval(LEVEL)
    return Centre(shift.centre, n, unit, low, high, shift.method)


def error_variances(centres: Sequence[Centre]) -> Floats:
    """The variance of each centre's error. The noise of one trial is pooled over the devices: of six it is a guess."""
    unit, _ = pooled_unit(centres)
    return np.array([unit / each.n for each in centres])


def own_variances(centres: Sequence[Centre]) -> Floats:
    """The same from each device's own noise; 0 where that is not known."""
    return np.array([(each.unit_variance or 0.0) / each.n for each in centres])


def pooled_unit(centres: Sequence[Centre]) -> tuple[float, int]:
    """The variance of one trial within a device, and its degrees of freedom; nothing known is no variance at all."""
    known = [(each.unit_variance, each.n - 1) for each in centres if each.unit_variance is not None]
    freedom = sum(weight for _, weight in known)
    if not freedom:
        return 0.0, 0
    return sum(variance * weight for variance, weight in known) / freedom, freedom


def reach(variance: float, freedom: int) -> float | None:
    """Half a centre's interval, from the pooled noise; None where nothing is known of it."""
    if freedom < 1:
        return None
    return -float(special.stdtrit(freedom, (1 - LEVEL) / 2)) * math.sqrt(variance)
