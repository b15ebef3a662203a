"""Two groups of trials that share no block: devices, or versions of the software, cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from tare.analysis.claims.checks import labels
from tare.analysis.claims.evidence import Evidence, Trial
from tare.analysis.claims.factors import Cell
from tare.analysis.claims.metrics import STEP
from tare.analysis.claims.model import Check, Wants
from tare.analysis.model import Measurement

Key = TypeVar("Key", bound=Hashable)


def grouped(trials: Iterable[Trial], key: Callable[[Trial], Key | None]) -> dict[Key, list[Trial]]:
    """Trials by their key; one without is left out."""
    found: dict[Key, list[Trial]] = {}
    for trial in trials:
        if (mine := key(trial)) is not None:
            found.setdefault(mine, []).append(trial)
    return found


def two_samples(
    about: str, evidence: Evidence, ours: Sequence[Trial], theirs: Sequence[Trial], wants: Wants, margin: float
) -> list[Check]:
    """End-to-end time of one group against another, cell by cell: over all, two opposite changes would be none."""
    name = evidence.first(STEP)
    sides = [_by_cell(side, name or "") for side in (ours, theirs)]
    both = [cell for cell in sides[0] if cell in sides[1]]
    made = []
    for cell, label in zip(both, labels(both), strict=True):
        words = f"{about}, {label}" if label else about
        ours_here, theirs_here = (tuple(Measurement(words, value) for value in side[cell].values()) for side in sides)
        used = frozenset(trial for side in sides for trial in side[cell])
        made.append(Check(words, wants, ours_here, theirs_here, margin, trials=used))
    return made


def _by_cell(trials: Sequence[Trial], name: str) -> dict[Cell, dict[str, float]]:
    found: dict[Cell, dict[str, float]] = {}
    for trial in trials:
        value = trial.record.compared.get(name, 0.0)
        if value > 0:
            found.setdefault(trial.cell, {})[f"{trial.block} {trial.record.trial}"] = value
    return found
