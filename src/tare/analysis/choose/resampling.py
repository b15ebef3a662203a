"""The medians of configurations when their trials are drawn again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tare.analysis.choose.configurations import Configuration
from tare.analysis.numeric.medians import Floats

RESAMPLES = 2_000
FEWEST = 199
BUDGET = 20_000_000  # resampled values in all: many configurations get fewer resamples, and the result says how many
_SEED = 20_240_229  # fixed: the same figures give the same answer, on every machine


def resampled_centres(found: Sequence[Configuration], figures: Sequence[str], count: int = RESAMPLES) -> Floats:
    """Resamples x configurations x figures: medians over trials drawn with replacement.

    A trial keeps its figures together: time and energy come from the same run. Where every trial
    has a block, the same blocks are drawn for all configurations, so that what moved a whole block moves them all.
    """
    generator = np.random.default_rng(_SEED)
    blocks = _blocks(found)
    widest = max((each.n for each in found), default=1)
    picked = generator.integers(0, len(blocks), (count, len(blocks))) if blocks else None
    drawn = np.empty((count, len(found), len(figures)))
    for place, each in enumerate(found):
        values = np.stack([each.values(figure) for figure in figures], axis=1)
        if picked is not None:
            drawn[:, place] = _by_block(each, values, blocks, picked, generator)
        else:
            own = generator.integers(0, each.n, (count, each.n)) if widest > 1 else np.zeros((count, 1), dtype=int)
            drawn[:, place] = np.median(values[own], axis=1)
    return drawn


def affordable(found: Sequence[Configuration], figures: Sequence[str]) -> int:
    """How many resamples so many trials allow."""
    values = sum(each.n for each in found) * max(1, len(figures))
    return max(FEWEST, min(RESAMPLES, BUDGET // max(1, values)))


def _blocks(found: Sequence[Configuration]) -> list[str]:
    """The blocks in which the trials were run; none where a trial has none, or where there is only one."""
    names = [trial.block_id for each in found for trial in each.trials]
    known = sorted({name for name in names if name is not None})
    return known if len(known) > 1 and None not in names else []


def _by_block(
    each: Configuration, values: Floats, blocks: Sequence[str], picked: np.ndarray, generator: np.random.Generator
) -> Floats:
    """Medians over the blocks that were drawn and that this configuration was run in."""
    per_block = np.full((len(blocks), values.shape[1]), np.nan)
    of_trial = np.array([blocks.index(trial.block_id) for trial in each.trials if trial.block_id is not None])
    for block in np.unique(of_trial):
        per_block[block] = values[of_trial == block].mean(axis=0)
    drawn = per_block[picked]
    empty = np.isnan(drawn[:, :, 0]).all(axis=1)
    if empty.any():  # none of the drawn blocks has it: its own blocks are drawn instead
        present = np.unique(of_trial)
        drawn[empty] = per_block[generator.choice(present, (int(empty.sum()), len(blocks)))]
    return np.asarray(np.nanmedian(drawn, axis=1))
