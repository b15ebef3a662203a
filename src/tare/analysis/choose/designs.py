"""Which modes of a workload to measure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tare.analysis.choose.fit import NOISE_POWER, NOISE_TIME, Fit, fit
from tare.analysis.choose.law import Array, Law, coordinates
from tare.analysis.choose.modes import Workload
from tare.analysis.choose.surface import joint_covariance

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
