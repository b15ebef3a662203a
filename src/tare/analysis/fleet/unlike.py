"""The device that is unlike its twins: each against what the others let one expect of the next.

The device that lies farthest out is held against the others' prediction: their mean, how they scatter, and its own
error. Then it is set aside and the rest are looked at again, so that two odd devices cannot hide behind each other; a
device is unlike if it, or one set aside after it, is too far out for as many devices as were left then (Rosner's
many-outlier procedure). One device in four may be set aside, at least one, and two others stay to compare it with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from tare.analysis.fleet.random_effects import FEWEST, scatter
from tare.analysis.ranks import Floats
from tare.analysis.stats import ALPHA, holm_levels

ONE_IN = 4  # devices may be set aside


@dataclass(frozen=True, slots=True)
class Aside:
    """One device against the others that were left when it was looked at."""

    place: int
    others: float  # their mean
    p: float  # two-sided, corrected for the devices that were left
    scale: float  # what its distance is counted in, and
    freedom: int  # the t distribution that it is held against


def set_aside(values: Floats, variances: Floats, own: Floats | None = None) -> list[Aside]:
    """The devices that were set aside, in that order; none with fewer than three.

    `variances` are of the errors, from the noise of all devices; `own` from each device's own, where that is larger.
    """
    left = list(range(len(values)))
    errors = variances if own is None else np.maximum(variances, own)
    made: list[Aside] = []
    for _ in range(max(1, len(left) // ONE_IN) if len(left) >= FEWEST else 0):
        made.append(_test(_farthest(left, values, variances), left, values, variances, errors))
        left.remove(made[-1].place)
    return made


def unlike(found: Sequence[Aside], alpha: float = ALPHA) -> list[Aside]:
    """Those that were set aside up to the last that is too far out."""
    last = max((number for number, test in enumerate(found) if test.p <= alpha), default=-1)
    return list(found[: last + 1])


def levels(questions: Sequence[Sequence[Aside]], alpha: float = ALPHA) -> list[float]:
    """The level of each question (a quantity, of the devices of one type), by Holm over all that were asked."""
    return holm_levels([min((test.p for test in found), default=1.0) for found in questions], alpha)


def could_see(found: Sequence[Aside], devices: int, alpha: float = ALPHA) -> float | None:
    """The distance from its twins at which a device would just have stood out; None where none was looked at."""
    if not found:
        return None
    last = found[-1]
    return last.scale * -float(special.stdtrit(last.freedom, alpha / 2 / devices))


def _farthest(left: Sequence[int], values: Floats, variances: Floats) -> int:
    """By its distance from the mean of all, in what it would scatter by."""
    mean, tau2, _ = scatter(values[left], variances[left])
    scales = np.sqrt(tau2 + np.maximum(variances[left], np.finfo(float).tiny))
    return left[int(np.argmax(np.abs(values[left] - mean) / scales))]


def _test(place: int, among: Sequence[int], values: Floats, variances: Floats, errors: Floats) -> Aside:
    others = [each for each in among if each != place]
    mean, tau2, error = scatter(values[others], variances[others])
    freedom = len(others) - 1
    scale = math.sqrt(tau2 + error**2 + float(errors[place]))
    p = 2 * float(special.stdtr(freedom, -abs(float(values[place]) - mean) / scale))
    return Aside(place, mean, min(1.0, p * len(among)), scale, freedom)
