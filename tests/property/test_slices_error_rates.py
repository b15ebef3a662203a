"""Two equal programs on a machine with a neighbour that bursts: how often a design calls them different.

    pytest tests/property/test_slices_error_rates.py

All seeds are fixed; a share p that is counted over N sets scatters by sqrt(p (1 - p) / N). The machine is cut into
moments of 10 ms, in each of which a program gets all of a core or, during a burst, half of it.
"""

import numpy as np
import pytest

from tare.analysis.estimators import signed_rank

SETS, PAIRS = 1500, 8
MOMENTS_A_SIDE = 400  # 4 s of running
A_PROCESS = 0.004  # what two runs of one program differ by, quiet or not: where its memory lies
BURST, PAUSE = 150, 150  # moments, in the mean


def speeds(rng, rows, moments):
    """The share of the core that a program gets, over time: half of it in bursts of 1.5 s at random times."""
    at = np.full((rows, moments), 1.0)
    for row in at:
        now = -int(rng.integers(0, BURST + PAUSE))
        while now < moments:
            row[max(now, 0) : max(now + BURST, 0)] = 0.5
            now += BURST + 1 + int(rng.exponential(PAUSE))
    return at


def own_moments(rng, rows, slice_moments):
    """Which moments are the first side's: all of the first half, or slices whose order is drawn in each round."""
    half = MOMENTS_A_SIDE
    if slice_moments is None:
        return np.tile(np.arange(2 * half) < half, (rows, 1))
    rounds = half // slice_moments
    first = rng.random((rows, rounds)) < 0.5
    pattern = np.stack([first, ~first], axis=2).reshape(rows, -1)
    return np.repeat(pattern, slice_moments, axis=1)


def log_ratios(rng, rows, slice_moments, effect=0.0, quiet=False):
    """Of each pair the log ratio of the mean steps."""
    mine = own_moments(rng, rows, slice_moments)
    speed = speeds(rng, rows, mine.shape[1])
    used = np.ones_like(mine)
    if quiet:
        loud = (speed < 1).reshape(rows, -1, 2 * slice_moments).mean(axis=2) > 0.2
        used = ~np.repeat(loud, 2 * slice_moments, axis=1)
        used[used.sum(axis=1) == 0] = True
    jitter = rng.normal(0, 0.05 / np.sqrt(MOMENTS_A_SIDE), (rows, 2)) + rng.normal(0, A_PROCESS, (rows, 2))
    means = [(used & side).sum(axis=1) / (speed * (used & side)).sum(axis=1) for side in (mine, ~mine)]
    return np.log(means[1] / means[0]) + effect + jitter[:, 1] - jitter[:, 0]


def rates(slice_moments, effect=0.0, quiet=False, sets=SETS, seed=7):
    """How often a 95 % interval leaves zero out, how often it holds the effect, and half its width in the median."""
    rng = np.random.default_rng(seed)
    logs = log_ratios(rng, sets * PAIRS, slice_moments, effect, quiet).reshape(sets, PAIRS)
    spans = np.array([signed_rank(row).interval(0.95) for row in logs])
    alarms = np.mean((spans[:, 0] > 0) | (spans[:, 1] < 0))
    covered = np.mean((spans[:, 0] <= effect) & (effect <= spans[:, 1]))
    return float(alarms), float(covered), float(np.median(spans[:, 1] - spans[:, 0]) / 2)


@pytest.mark.parametrize(("slice_moments", "quiet"), [(None, False), (40, False), (10, False), (10, True)])
def test_equal_programs_are_called_different_in_at_most_one_of_twenty_sets(slice_moments, quiet):
    alarms, covered, _ = rates(slice_moments, quiet=quiet)
    assert alarms <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / SETS)
    assert covered >= 0.95 - 2 * np.sqrt(0.05 * 0.95 / SETS)


def test_slices_tell_three_percent_that_blocks_cannot():
    blocks, slices, quiet = (
        rates(length, 0.03, is_quiet, 300) for length, is_quiet in ((None, False), (10, False), (10, True))
    )
    assert blocks[0] < 0.2 < 0.7 < slices[0] <= quiet[0]
    assert all(covered >= 0.92 for _, covered, _ in (blocks, slices, quiet))
    assert slices[2] < blocks[2] / 5
