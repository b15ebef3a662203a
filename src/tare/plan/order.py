"""The order of the trials: randomised complete blocks, so that a machine that drifts drifts for every cell alike."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tare.plan.matrix import twins
from tare.plan.model import Cell, Trial
from tare.study.model import Study


@dataclass(frozen=True)
class Changes:
    """How a plan differs from what a store was begun with."""

    new: tuple[Trial, ...]
    gone: tuple[str, ...]  # ids
    unchanged: tuple[Trial, ...]


def trials(study: Study, cells: Sequence[Cell]) -> list[Trial]:
    """Every block up to the last that the stop rule allows, in the order in which they would run."""
    members = [(cell, 0) for cell in cells] + [(cell, 1) for cell in twins(study, cells)]
    return [trial for block in range(study.repeat.max) for trial in _block(study, members, block)]


def changes(old_ids: Iterable[str], new_trials: Sequence[Trial]) -> Changes:
    """What a changed study adds and drops; what it keeps has kept its id."""
    old = list(dict.fromkeys(old_ids))
    known, wanted = set(old), {trial.id for trial in new_trials}
    return Changes(
        new=tuple(trial for trial in new_trials if trial.id not in known),
        gone=tuple(each for each in old if each not in wanted),
        unchanged=tuple(trial for trial in new_trials if trial.id in known),
    )


def _block(study: Study, members: Sequence[tuple[Cell, int]], block: int) -> list[Trial]:
    """Every member once, shuffled; the same seed for all of them, another for each block."""
    order = list(members)
    if study.order.shuffle:
        random.Random(f"{study.order.seed}:{block}").shuffle(order)
    # Consecutive from a random start: never the same in two blocks, which independent draws could be.
    seed = random.Random(f"{study.order.seed}").randrange(2**30) + block
    return [
        Trial(study=study.study, cell=cell, block=block, position=position, seed=seed, limit_s=study.limit_s, twin=twin)
        for position, (cell, twin) in enumerate(order)
    ]
