"""What workloads that were measured before on the same device say about the next one.

Two things carry over: where the constants of the law lie on this device (the prior moves there and narrows), and where
the device itself departs from the law (a clock at which every workload draws more than it should).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tare.analysis.predict.fit import Fit, fit
from tare.analysis.predict.law import Constant, Law
from tare.analysis.predict.resources import Array
from tare.analysis.predict.surface import local_centre

FEWEST_MODES = 12  # a workload with fewer has too little to teach
_PRIOR_WORKLOADS = 2.0  # how many workloads the prior of the law is worth
_FLOOR = 0.5  # of the deviation before: another workload may always be unlike those known


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


def lesson(law: Law, others: Sequence[tuple[Array, Array]]) -> Lesson:
    """What other workloads teach; of each its coordinates (modes, features) and its log figures (figures, modes)."""
    fits = tuple(fit(law, modes[None], logs[None]) for modes, logs in others)
    seen = np.stack(
        [
            np.einsum("s,sc->c", fitted.weights[0], fitted.constants[0]) - law.means(logs)
            for fitted, (_, logs) in zip(fits, others, strict=True)
        ]
    )
    return Lesson(replace(law, taught=tuple(_taught(law, seen))), fits)


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
