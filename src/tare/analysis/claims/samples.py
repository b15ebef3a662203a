"""Two groups of trials that share no block: devices, or versions of the software, cell by cell."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from statistics import median

from tare.analysis.claims.evidence import Evidence, Trial
from tare.analysis.claims.factors import Cell
from tare.analysis.claims.metrics import STEP
from tare.analysis.claims.model import Check, Wants
from tare.analysis.model import Measurement


def grouped(trials: Sequence[Trial], key: Mapping[int, Hashable]) -> dict[Hashable, list[Trial]]:
    """Trials by the key of their place; a place without a key is left out."""
    found: dict[Hashable, list[Trial]] = {}
    for place, trial in enumerate(trials):
        if place in key:
            found.setdefault(key[place], []).append(trial)
    return found


def two_samples(
    about: str, evidence: Evidence, ours: Sequence[Trial], theirs: Sequence[Trial], wants: Wants, margin: float
) -> list[Check]:
    """End-to-end time of one group against another, in the cells that both have, each beside its cell's centre."""
    name = evidence.first(STEP)
    sides = [_by_cell(side, name or "") for side in (ours, theirs)]
    both = [cell for cell in sides[0] if cell in sides[1]]
    if not both:
        return []
    centres = {cell: (median(_logs(sides[0][cell])) + median(_logs(sides[1][cell]))) / 2 for cell in both}
    made = [
        tuple(
            Measurement(about, math.exp(math.log(value) - centres[cell]))
            for cell in both
            for value in side[cell].values()
        )
        for side in sides
    ]
    used = frozenset(trial for side in sides for cell in both for trial in side[cell])
    return [Check(about, wants, made[0], made[1], margin, trials=used)]


def _by_cell(trials: Sequence[Trial], name: str) -> dict[Cell, dict[str, float]]:
    found: dict[Cell, dict[str, float]] = {}
    for trial in trials:
        value = trial.record.compared.get(name, 0.0)
        if value > 0:
            found.setdefault(trial.cell, {})[f"{trial.block} {trial.record.trial}"] = value
    return found


def _logs(values: Mapping[str, float]) -> list[float]:
    return [math.log(value) for value in values.values()]
