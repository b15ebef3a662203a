"""Equal programs beside others' work, every trial used: how often blocks call them different.

    pytest tests/property/test_disturbed_blocks_error_rates.py

The order within a block is drawn, whatever the others do. So the log ratio of a block has the same chance of either
sign under any load that does not depend on the side, also one that lasts longer than a trial, drifts or has the rhythm
of the blocks. All seeds are fixed; a share p that is counted over N sets scatters by sqrt(p (1 - p) / N).
"""

import numpy as np
import pytest

from tare.analysis.estimators import signed_rank

SETS = 1200
OWN = 0.01  # what two runs of one program differ by
SLOW = np.log(2)  # beside others a trial takes twice as long


def bursts(mean_trials):
    """Others work and rest by turns, each for so many trials in the mean: the share of each trial beside them."""

    def load(rng, sets, trials):
        flips = rng.random((sets, trials)) < 1 / mean_trials
        on = (np.cumsum(flips, axis=1) + rng.integers(0, 2, (sets, 1))) % 2
        return np.where(flips, rng.random((sets, trials)), on)  # it began or ended within the trial

    return load


def drift(rng, sets, trials):
    return np.tile(np.linspace(0, 1, trials), (sets, 1))


def rhythm(rng, sets, trials):
    """Every second trial, which is always at the same place in its block."""
    return np.tile(np.arange(trials) % 2, (sets, 1)).astype(float)


LOADS = {
    "bursts of 1": bursts(1),
    "bursts of 3": bursts(3),
    "bursts of 10": bursts(10),
    "drift": drift,
    "rhythm": rhythm,
}


def logs_of(load, blocks, effect):
    """Of each block the log ratio of its two trials, whose order was drawn."""
    rng = np.random.default_rng(blocks)
    took = SLOW * load(rng, SETS, 2 * blocks).reshape(SETS, blocks, 2) + rng.normal(0, OWN, (SETS, blocks, 2))
    ours_first = rng.random((SETS, blocks)) < 0.5
    first_minus_second = took[:, :, 0] - took[:, :, 1]
    return np.where(ours_first, first_minus_second, -first_minus_second) + effect


def intervals(load, blocks, effect=0.0):
    return np.array([signed_rank(row).interval(0.95) for row in logs_of(load, blocks, effect)])


@pytest.mark.parametrize("blocks", [7, 20])
@pytest.mark.parametrize("name", LOADS)
def test_equal_programs_are_called_different_in_at_most_one_of_twenty_sets(name, blocks):
    spans = intervals(LOADS[name], blocks)
    alarms = np.mean((spans[:, 0] > 0) | (spans[:, 1] < 0))
    assert alarms <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / SETS)


@pytest.mark.parametrize("blocks", [7, 20])
@pytest.mark.parametrize("name", LOADS)
def test_what_costs_more_than_the_margin_is_hardly_ever_called_equivalent(name, blocks):
    margin = np.log(1.05)
    spans = intervals(LOADS[name], blocks, effect=np.log(1.06))
    assert np.mean((spans[:, 0] > -margin) & (spans[:, 1] < margin)) <= 0.05
