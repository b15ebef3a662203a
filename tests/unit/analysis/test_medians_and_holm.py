"""Medians, Holm's step-down and outliers."""

import numpy as np
import pytest
from scipy import stats as reference

from tare.analysis.statistics import (
    floats,
    holm_levels,
    median_estimate,
    median_ranks,
    outliers,
    ratio_of_medians,
    variation,
)


def test_the_interval_of_a_median_of_six_is_its_extremes_at_96_9_percent():
    found = median_estimate([5.0, 1.0, 4.0, 2.0, 6.0, 3.0])

    assert (found.value, found.low, found.high, found.n) == (3.5, 1.0, 6.0, 6)
    assert "96.9 %" in found.method


def test_the_interval_of_a_median_of_nine_is_second_to_eighth():
    found = median_estimate(list(range(1, 10)))

    assert (found.low, found.high) == (2, 8)
    assert "96.1 %" in found.method


def test_a_median_of_five_has_no_95_percent_interval():
    found = median_estimate([1.0, 2.0, 3.0, 4.0, 5.0])

    assert (found.value, found.low, found.high) == (3.0, None, None)
    assert "too few" in found.method


@pytest.mark.parametrize("n", [6, 7, 10, 31, 100, 1001, 100_000])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_an_order_statistic_interval_is_the_tightest_that_holds_its_level(n, level):
    cut = median_ranks(n, level)

    if cut is None:
        assert 1 - 2 * reference.binom.cdf(0, n, 0.5) < level
    else:
        assert 1 - 2 * reference.binom.cdf(cut, n, 0.5) >= level
        assert 1 - 2 * reference.binom.cdf(cut + 1, n, 0.5) < level


def test_the_ratio_of_medians_is_the_same_on_every_run():
    rng = np.random.default_rng(2)
    theirs = rng.lognormal(0, 0.1, 10)
    ours = theirs * 1.05

    first, again = (ratio_of_medians(ours, theirs, paired=True) for _ in range(2))

    assert first == again
    assert first.value == pytest.approx(1.05)
    assert first.low is not None and first.high is not None
    assert first.low <= first.value <= first.high
    assert "block bootstrap (9999 resamples)" in first.method


def test_blocks_are_resampled_whole_so_that_a_constant_ratio_has_no_spread_at_odd_n():
    theirs = np.random.default_rng(3).lognormal(0, 0.3, 9)

    found = ratio_of_medians(theirs * 1.1, theirs, paired=True)
    apart = ratio_of_medians(theirs * 1.1, theirs, paired=False)

    assert (found.low, found.high) == pytest.approx((1.1, 1.1))
    assert apart.low is not None and apart.low < 1.0
    assert "trial bootstrap" in apart.method


def test_the_bootstrap_agrees_with_the_reference():
    rng = np.random.default_rng(4)
    ours, theirs = rng.lognormal(0.1, 0.05, 15), rng.lognormal(0, 0.05, 15)
    found = ratio_of_medians(ours, theirs, paired=True)

    expected = reference.bootstrap(
        (ours, theirs),
        lambda x, y, axis: np.median(x, axis=axis) / np.median(y, axis=axis),
        paired=True,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval

    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=0.01)


def test_a_ratio_of_five_trials_has_no_interval():
    found = ratio_of_medians(floats([1.0] * 5), floats([2.0] * 5), paired=True)

    assert (found.value, found.low, found.high) == (0.5, None, None)


def test_a_long_table_gets_fewer_resamples_and_says_so():
    rng = np.random.default_rng(1)
    found = ratio_of_medians(rng.lognormal(0, 0.1, 20_000), rng.lognormal(0, 0.1, 20_000), paired=True)

    assert "(200 resamples)" in found.method


def test_holm_gives_each_smaller_p_a_stricter_level():
    assert holm_levels([0.001, 0.02, 0.04]) == pytest.approx([0.05 / 3, 0.05 / 2, 0.05])


def test_after_the_first_that_fails_no_level_is_relaxed():
    assert holm_levels([0.001, 0.03, 0.04]) == pytest.approx([0.05 / 3, 0.05 / 2, 0.05 / 2])
    assert holm_levels([0.9, 0.8, 0.7]) == pytest.approx([0.05 / 3] * 3)


def test_holm_does_not_depend_on_the_order_and_leaves_one_test_alone():
    assert holm_levels([0.04, 0.001, 0.02]) == pytest.approx([0.05, 0.05 / 3, 0.05 / 2])
    assert holm_levels([0.5]) == [0.05]
    assert holm_levels([]) == []


def test_an_outlier_is_ten_robust_deviations_away():
    steady = [100, 101, 99, 102, 98, 100, 101, 99]

    assert outliers([*steady, 150]) == [8]
    assert outliers([*steady, 112]) == []


def test_nothing_within_a_hundredth_of_the_median_stands_out():
    near = [61_800.0, 61_801.0, 61_802.0, 61_803.0, 61_804.0]
    assert outliers([*near, 62_300.0]) == []
    assert outliers([*near, 62_700.0]) == [5]


def test_equal_values_have_no_outlier_and_one_other_among_many_is_one():
    assert outliers([1.0] * 10) == []
    assert outliers([1.0] * 30 + [2.0]) == [30]
    assert outliers([1.0, 50.0]) == []


@pytest.mark.parametrize("n", [3, 6, 10, 12, 13])
def test_among_values_that_tie_one_more_than_a_tenth_off_is_an_outlier_at_any_size(n):
    assert outliers([2.0] * (n - 1) + [2.3]) == [n - 1]
    assert outliers([2.0] * (n - 1) + [1.7]) == [n - 1]
    assert outliers([2.0] * (n - 1) + [2.1]) == []


def test_variation_is_deviation_over_mean():
    assert variation([1.0, 3.0]) == pytest.approx(np.sqrt(2) / 2)
    assert variation([1.0]) is None
    assert variation([1e200, 3e200]) == pytest.approx(np.sqrt(2) / 2)
