"""What workloads that were measured before say about the next one.

Two things carry over: where the constants of the law lie on this device (the prior moves there and narrows), and
where the device itself departs from the law (a clock at which every workload draws more than it should).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tare.analysis.choose.fit import Fit, fit
from tare.analysis.choose.law import Array, Constant, Law, coordinates
from tare.analysis.choose.modes import Workload
from tare.analysis.choose.surface import Surface, local_centre, surface, with_energy

FEWEST_MODES = 12  # a workload with fewer has too little to teach
MOST_FITTED = 400  # modes of one workload that teach
_PRIOR_WORKLOADS = 1.0  # how many workloads the prior of the law is worth
_FLOOR = 0.3  # of the deviation before: another workload may always be unlike those known
_SPLITS = 6
_HELD_OUT = 60
_HELD_LEVEL = 0.91  # of what was held out, for 0.9 of what is to come: a few workloads do not tell all


@dataclass(frozen=True)
class Lesson:
    """The law as others have taught it, and the fits by which they did."""

    law: Law
    fits: tuple[Fit, ...]

    def departure(self, modes: Array) -> Array:
        """By how much the device departs from the law at these coordinates (modes, features): (figures, modes)."""
        each = [local_centre(fitted, modes[None])[0] for fitted in self.fits]
        total: Array = np.sum(each, axis=0) / (len(each) + 1)
        return total


def lesson(law: Law, others: Sequence[tuple[Array, Array]], fits: Sequence[Fit] | None = None) -> Lesson:
    """What other workloads teach; of each its coordinates (modes, features) and its log figures (figures, modes)."""
    fits = tuple(_fitted(law, each) for each in others) if fits is None else tuple(fits)
    seen = np.stack(
        [
            np.einsum("s,sc->c", fitted.weights[0], fitted.constants[0]) - law.means(logs)
            for fitted, (_, logs) in zip(fits, others, strict=True)
        ]
    )
    return Lesson(replace(law, taught=tuple(_taught(law, seen))), fits)


def predicted(law: Law, taught: Lesson | None, known: tuple[Array, Array], there: Array) -> tuple[Fit, Surface]:
    """The fit of one workload, of which coordinates and log figures are known, and what it says of other modes."""
    modes, logs = known
    off, off_there = (taught.departure(each) if taught else np.zeros((1, len(each))) for each in (modes, there))
    fitted = fit(taught.law if taught else law, modes[None], (logs - off[: len(logs)])[None])
    found = surface(fitted, there)
    return fitted, replace(found, centre=found.centre + off_there)


@dataclass(frozen=True)
class Calibration:
    """What happened to workloads that were held out: by what intervals must be wider, and the error, of each figure."""

    wider: Array
    errors: Array  # mean absolute error as a share: the median over workloads


def calibrate(law: Law, others: Sequence[tuple[Array, Array]], k: int) -> Calibration:
    """Each of the others as if `k` random modes of it were known and the rest of them had taught."""
    fits = [_fitted(law, each) for each in others]
    off, errors = [], []
    for place, (modes, logs) in enumerate(others):
        rest = [*range(place), *range(place + 1, len(others))]
        taught = lesson(law, [others[each] for each in rest], [fits[each] for each in rest]) if rest else None
        shares = []
        for split in range(_SPLITS):
            order = np.random.default_rng([split, len(modes)]).permutation(len(modes))
            count = min(k, len(modes) - FEWEST_MODES // 3)
            known, held = order[:count], order[count : count + _HELD_OUT]
            _, found = predicted(law, taught, (modes[known], logs[:, known]), modes[held])
            apart = with_energy(logs[:, held]) - found.centre
            shares.append(np.abs(np.expm1(-apart)).mean(axis=1))
            off.append(np.abs(apart) / found.reach(np.ones(len(apart))))
        errors.append(np.mean(shares, axis=0))
    beyond = np.quantile(np.concatenate(off, axis=1), _HELD_LEVEL, axis=1)
    return Calibration(np.asarray(beyond), np.median(errors, axis=0))


def _fitted(law: Law, known: tuple[Array, Array]) -> Fit:
    modes, logs = known
    return fit(law, modes[None], logs[None])


def _taught(law: Law, seen: Array) -> list[Constant]:
    """Each constant with the mean and the spread over workloads, of which the prior is a few."""
    weight = _PRIOR_WORKLOADS + len(seen)
    constants = []
    for place, before in enumerate(law.constants):
        moved = float(seen[:, place].sum() / weight)
        variance = (_PRIOR_WORKLOADS * before.deviation**2 + ((seen[:, place] - moved) ** 2).sum()) / weight
        deviation = max(float(np.sqrt(variance)), _FLOOR * before.deviation)
        constants.append(Constant(before.name, before.mean + moved, deviation))
    return constants


def teachers(workloads: Sequence[Workload], law: Law) -> list[tuple[Array, Array]]:
    """The workloads that have enough modes to teach: coordinates, and logarithms of the figures."""
    enough = [thinned(each) for each in workloads if len(each.modes) >= FEWEST_MODES]
    return [(coordinates(law.resources, each.modes), each.logs) for each in enough]


def thinned(workload: Workload) -> Workload:
    """No more modes than a fit can use; those of a finer table are left out evenly."""
    if len(workload.modes) <= MOST_FITTED:
        return workload
    return workload.take(np.unique(np.linspace(0, len(workload.modes) - 1, MOST_FITTED).astype(int)).tolist())
