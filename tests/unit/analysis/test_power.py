"""The smallest effect that a run can see, and how many trials a verdict takes."""

import math

import numpy as np
import pytest

from tare.analysis import estimators
from tare.analysis.compare import detectable, expected_mde, mde, t_detectable, trials_for
from tare.analysis.estimators import DRAWS, Sides, resampled_shift
from tare.analysis.statistics import mann_whitney_null, signed_rank_null

# validity.md M6: two samples, two-sided 5 %, power 80 %, in units of the variation between trials.
M6 = {3: 3.07, 5: 2.02, 6: 1.80, 8: 1.51, 10: 1.32, 15: 1.06, 20: 0.91, 30: 0.74}


@pytest.mark.parametrize(("n", "expected"), M6.items())
def test_the_t_test_of_two_samples_reproduces_the_published_table(n, expected):
    assert t_detectable(n, paired=False) == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize("n", [n for n in M6 if n >= 6])
def test_ranks_cost_little_against_the_published_table(n):
    assert M6[n] * 1.01 < detectable(n, paired=False) < M6[n] * 1.09


def test_a_variation_of_two_percent_and_six_trials_a_side_see_about_four_percent():
    assert expected_mde(0.02, 6, paired=False) == pytest.approx(0.039, abs=0.002)


def test_a_two_percent_overhead_at_two_percent_variation_needs_about_seventeen_trials():
    needed = trials_for(0.02, 0.02, paired=False)

    assert needed is not None and 17 <= needed <= 19


def test_more_blocks_see_smaller_effects():
    seen = [expected_mde(0.02, n) for n in range(6, 60)]

    assert seen[0] is not None and seen[-1] is not None
    assert seen[-1] < seen[0] / 3
    # The exact levels come in steps, so one more block may cost a little; two more never do.
    assert all(later < earlier for earlier, later in zip(seen, seen[2:], strict=False))


def test_below_six_there_is_no_claim_and_so_no_smallest_effect():
    assert expected_mde(0.02, 5) is None
    assert mde(0.02, 5, paired=True) is None


def test_trials_that_do_not_vary_see_everything():
    assert mde(0.0, 6, paired=True) == 0.0
    assert trials_for(0.01, 0.0, paired=True) == 6


def test_the_number_of_trials_is_the_first_that_sees_the_effect():
    needed = trials_for(0.02, 0.03, paired=True)

    assert needed is not None
    assert detectable(needed, paired=True) * 0.03 <= math.log1p(0.02) < detectable(needed - 2, paired=True) * 0.03


def test_an_effect_of_nothing_cannot_be_planned_for():
    assert trials_for(0.0, 0.02, paired=True) is None
    assert trials_for(1e-6, 0.02, paired=True) is None


def test_where_ranks_cannot_reach_the_level_the_t_test_is_what_is_planned_with():
    assert detectable(6, 0.05 / 3, paired=True) == t_detectable(6, 0.05 / 3, paired=True)


@pytest.mark.parametrize("paired", [True, False])
def test_the_shift_that_is_seen_is_that_of_plain_drawing(paired):
    """As its docstring says it, one draw after the other; twice, since what is drawn is kept between calls."""
    values = np.random.default_rng(2)
    ours, theirs = np.exp(values.normal(0, 0.02, 9)), np.exp(values.normal(0, 0.03, 9 if paired else 7))
    sides = Sides(ours, theirs, paired, min(len(ours), len(theirs)))
    draw = np.random.default_rng(estimators._SEED)

    def drawn(residuals):
        n = len(residuals)
        picked = residuals[draw.integers(0, n, (DRAWS, n))] * (n / (n - 1)) ** estimators._WIDEN
        return picked * draw.choice([-1.0, 1.0], (DRAWS, n))

    if paired:
        k, logs = signed_rank_null(9).critical(0.025), np.log(ours) - np.log(theirs)
        rows = [
            [(one + other) / 2 for at, one in enumerate(row) for other in row[at:]]
            for row in drawn(logs - estimators.signed_rank(logs).centre)
        ]
    else:
        k, logs = mann_whitney_null(9, 7).critical(0.025), (np.log(ours), np.log(theirs))
        pairs = zip(*(drawn(each - np.median(each)) for each in logs), strict=True)
        rows = [[one - other for one in left for other in right] for left, right in pairs]
    expected = np.quantile([-sorted(row)[k] for row in rows], 0.8)

    for _ in range(2):
        assert resampled_shift(sides, 0.05, 0.8) == pytest.approx(expected, abs=1e-9)
