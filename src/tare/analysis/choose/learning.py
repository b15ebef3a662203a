"""What workloads that were measured before say about the next one, and which modes of it to measure.

Two things carry over: where the constants of the law lie on this device (the prior moves there and narrows), and
where the device itself departs from the law (a clock at which every workload draws more than it should).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tare.analysis.choose.law import (
    NOISE_POWER,
    NOISE_TIME,
    Array,
    Constant,
    Fit,
    Law,
    Surface,
    coordinates,
    fit,
    joint_covariance,
    local_centre,
    surface,
    with_energy,
)
from tare.analysis.choose.modes import Workload

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


FIRST = 4  # modes chosen before anything is known; from then on each choice learns from those before
_DRAWS = 512  # of the law's constants, to know what is uncertain before anything is measured
_ANY_SCALE = 1.0  # how uncertain the workload's size is then, as a logarithm
_MOST_CANDIDATES = 400


@dataclass(frozen=True)
class Choice:
    """A mode worth measuring, and the share of the variance of all predictions that measuring it removes."""

    mode: tuple[float, ...]
    removes: float


def first_modes(law: Law, modes: Array, count: int) -> list[int]:
    """The first modes (rows) to measure of a workload of which nothing is known.

    By the covariances (1 or 2, modes, modes) of log time, and of log energy if known, over what the constants may be.
    """
    rng = np.random.default_rng(0)  # the same draws for everybody: a design is not a matter of luck
    means = np.array([each.mean for each in law.constants])
    draws = means + law.deviations * rng.standard_normal((_DRAWS, len(means)))
    time, *power = law.log_figures(draws, coordinates(law.resources, modes))
    figures = [time, *(time + each for each in power)]
    cov = np.stack([np.cov(each, rowvar=False) for each in figures]) + _ANY_SCALE
    noise = np.array([NOISE_TIME**2, NOISE_TIME**2 + NOISE_POWER**2])[: len(figures)]
    return [place for place, _ in _greedy(cov, noise, count)]


def next_modes(fitted: Fit, modes: Array, count: int) -> list[Choice]:
    """The modes (rows of `modes`) to measure next, best first, each as if those before it had been measured."""
    step = -(-len(modes) // _MOST_CANDIDATES)
    pool = modes[::step]
    cov, noise = joint_covariance(fitted, coordinates(fitted.law.resources, pool))
    found = _greedy(cov[::2], noise[::2], min(count, len(pool)))  # time, and energy where it is known
    return [Choice(tuple(pool[place].tolist()), share) for place, share in found]


def adaptive_choice(law: Law, workload: Workload, count: int) -> list[int]:
    """`count` of a workload's modes in the order in which we would measure them; each sees the results before it."""
    chosen = first_modes(law, workload.modes, min(FIRST, count))
    while len(chosen) < count:
        known = coordinates(law.resources, workload.modes[chosen])[None]
        fitted = fit(law, known, workload.logs[:, chosen][None])
        left = [place for place in range(len(workload.modes)) if place not in chosen]
        best = next_modes(fitted, workload.modes[left], 1)[0].mode
        chosen.append(next(place for place in left if tuple(workload.modes[place].tolist()) == best))
    return chosen


def _greedy(covariance: Array, noise: Array, count: int) -> list[tuple[int, float]]:
    """One after another the mode that removes most, with the share of the variance then left that it removes."""
    cov = covariance.copy()
    found: list[tuple[int, float]] = []
    for _ in range(count):
        total = np.trace(cov, axis1=1, axis2=2)
        variance = np.diagonal(cov, axis1=1, axis2=2) + noise[:, None]
        removed = ((cov**2).sum(axis=1) / variance / np.maximum(total, 1e-300)[:, None]).mean(axis=0)
        removed[[place for place, _ in found]] = -1.0
        best = int(np.argmax(removed))
        found.append((best, float(removed[best])))
        column = cov[:, :, best]
        cov = cov - column[:, :, None] * column[:, None, :] / variance[:, best][:, None, None]
    return found


def teachers(workloads: Sequence[Workload], law: Law) -> list[tuple[Array, Array]]:
    """The workloads that have enough modes to teach: coordinates, and logarithms of the figures."""
    enough = [thinned(each) for each in workloads if len(each.modes) >= FEWEST_MODES]
    return [(coordinates(law.resources, each.modes), each.logs) for each in enough]


def thinned(workload: Workload) -> Workload:
    """No more modes than a fit can use; those of a finer table are left out evenly."""
    if len(workload.modes) <= MOST_FITTED:
        return workload
    return workload.take(np.unique(np.linspace(0, len(workload.modes) - 1, MOST_FITTED).astype(int)).tolist())
