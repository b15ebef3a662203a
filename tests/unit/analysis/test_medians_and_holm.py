"""Medians, Holm's step-down and outliers.

Exact distributions against enumeration, and long lists against the same lists written out.

Estimates on the log scale: an interval and its test must never disagree.
"""

import math
from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from scipy import stats as reference

from tare.analysis.estimators import mann_whitney, paired_t, signed_rank, welch_t, wider
from tare.analysis.numeric import ranks
from tare.analysis.numeric.medians import (
    floats,
    holm_levels,
    median_estimate,
    median_ranks,
    outliers,
    ratio_of_medians,
    variation,
)
from tare.analysis.numeric.ranks import NormalNull, PairDifferences, WalshAverages, mann_whitney_null, signed_rank_null


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


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_the_signed_rank_distribution_counts_every_choice_of_signs(n):
    sums = [sum(rank for rank, taken in enumerate(signs, start=1) if taken) for signs in product([0, 1], repeat=n)]

    for bound in range(n * (n + 1) // 2 + 1):
        assert signed_rank_null(n).at_most(bound) == pytest.approx(sum(s <= bound for s in sums) / 2**n)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 3), (4, 4), (5, 3)])
def test_the_mann_whitney_distribution_counts_every_choice_of_ranks(n, m):
    least = n * (n + 1) // 2
    counts = [sum(chosen) - least for chosen in combinations(range(1, n + m + 1), n)]

    for bound in range(n * m + 1):
        expected = sum(count <= bound for count in counts) / comb(n + m, n)
        assert mann_whitney_null(n, m).at_most(bound) == pytest.approx(expected)


def test_six_blocks_reach_96_9_percent_and_five_do_not_reach_95():
    assert signed_rank_null(6).critical(0.025) == 0
    assert 1 - 2 * signed_rank_null(6).at_most(0) == pytest.approx(0.96875)
    assert signed_rank_null(5).critical(0.025) == -1


@pytest.mark.parametrize(("exact", "n"), [(signed_rank_null, (200,)), (mann_whitney_null, (100, 100))])
def test_the_normal_approximation_takes_over_where_it_agrees_with_the_exact_counts(exact, n):
    just_exact, just_beyond = exact(*n), exact(*(size + 1 for size in n))

    assert not isinstance(just_exact, NormalNull)
    assert isinstance(just_beyond, NormalNull)
    exact_share = just_exact.critical(0.025) / len(just_exact.cdf)
    assert just_beyond.critical(0.025) / (2 * just_beyond.mean + 1) == pytest.approx(exact_share, rel=0.005)


def test_below_nothing_lies_nothing():
    assert signed_rank_null(6).at_most(-1) == 0
    assert signed_rank_null(6).at_most(1000) == pytest.approx(1)


VALUES = np.array([0.3, -0.1, 0.0, 0.2, 0.2, -0.4, 0.1])
OTHERS = np.array([0.1, 0.0, 0.2, -0.3, 0.2])
LISTS = {"averages": lambda: WalshAverages(VALUES), "differences": lambda: PairDifferences(VALUES, OTHERS)}


@pytest.mark.parametrize("make", LISTS.values(), ids=LISTS.keys())
def test_a_list_that_is_too_long_to_write_out_has_the_same_entries(make, monkeypatch):
    written = make()
    monkeypatch.setattr(ranks, "WRITTEN_OUT", 0)
    searched = make()

    for k in range(written.size):
        assert searched.kth(k) == written.kth(k)
    for bound in (-1.0, -0.1, 0.0, 0.15, 0.3, 1.0):
        assert searched.at_most(bound) == written.at_most(bound)
        assert searched.at_least(bound) == written.at_least(bound)
    assert searched.median() == written.median()


def test_a_tie_at_zero_stays_exactly_zero_in_a_long_list(monkeypatch):
    monkeypatch.setattr(ranks, "WRITTEN_OUT", 0)

    assert WalshAverages(np.array([-0.25, 0.0, 0.0, 0.0, 0.25])).kth(7) == 0.0


def test_a_list_of_equal_values_has_that_value_everywhere(monkeypatch):
    monkeypatch.setattr(ranks, "WRITTEN_OUT", 0)

    assert {WalshAverages(np.full(5, 0.5)).kth(k) for k in range(15)} == {0.5}


def test_the_approximation_counts_half_a_step_further_as_the_exact_distribution_does():
    n = ranks.EXACT_BLOCKS
    approximate = NormalNull(n * (n + 1) / 4, (n * (n + 1) * (2 * n + 1) / 24) ** 0.5)

    assert approximate.at_most(n * (n + 1) // 4) == pytest.approx(
        signed_rank_null(n).at_most(n * (n + 1) // 4), abs=1e-5
    )


RNG = np.random.default_rng(5)
D = RNG.normal(0.05, 0.04, 9)
A, B = RNG.normal(0.0, 0.1, 7), RNG.normal(0.08, 0.2, 9)
ALL = {"signed rank": signed_rank(D), "Mann-Whitney": mann_whitney(B, A), "t": paired_t(D), "Welch": welch_t(B, A)} | {
    "wider": wider(B, A)
}


def test_the_signed_rank_test_agrees_with_the_reference():
    assert signed_rank(D).p() == pytest.approx(reference.wilcoxon(D, method="exact").pvalue)


def test_the_mann_whitney_test_agrees_with_the_reference():
    assert mann_whitney(B, A).p() == pytest.approx(reference.mannwhitneyu(B, A, method="exact").pvalue)


def test_the_t_tests_agree_with_the_reference():
    assert paired_t(D).p() == pytest.approx(reference.ttest_1samp(D, 0).pvalue)
    assert welch_t(B, A).p() == pytest.approx(reference.ttest_ind(B, A, equal_var=False).pvalue)
    low, high = reference.ttest_ind(B, A, equal_var=False).confidence_interval(0.95)
    assert welch_t(B, A).interval(0.95) == pytest.approx((low, high))


def test_the_hodges_lehmann_estimate_is_the_median_of_pairwise_averages():
    assert signed_rank(np.array([1.0, 2.0, 9.0])).centre == np.median([1, 1.5, 5, 2, 5.5, 9])
    assert mann_whitney(np.array([5.0, 7.0]), np.array([1.0, 2.0])).centre == np.median([4, 3, 6, 5])


@pytest.mark.parametrize("shift", ALL.values(), ids=ALL.keys())
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.98])
def test_an_interval_leaves_out_just_what_its_test_rejects(shift, confidence):
    low, high = shift.interval(confidence)
    tail = (1 - confidence) / 2

    assert shift.p_above(low - 1e-9) <= tail < shift.p_above(low + 1e-9)
    assert shift.p_below(high + 1e-9) <= tail < shift.p_below(high - 1e-9)
    assert low <= shift.centre <= high


@pytest.mark.parametrize("shift", ALL.values(), ids=ALL.keys())
def test_equivalence_by_two_one_sided_tests_is_the_interval_inside_the_margin(shift):
    low, high = shift.interval(0.95)
    widest = max(abs(math.expm1(low)), abs(math.expm1(high)))

    assert shift.p_equivalence(widest + 1e-6) <= 0.025
    assert shift.p_equivalence(widest - 1e-6) > 0.025


def test_a_margin_of_all_leaves_no_lower_bound():
    assert signed_rank(D).p_equivalence(1.5) == signed_rank(D).p_below(math.log(2.5))
    assert 0 <= paired_t(D).p_equivalence(1.0) <= 1


def test_six_blocks_can_reach_95_percent_but_not_97_5():
    shift = signed_rank(D[:6])

    assert shift.can_reach(0.95)
    assert not shift.can_reach(0.975)
    assert shift.attained(0.95) == pytest.approx(0.96875)


@pytest.mark.parametrize("shift", [signed_rank(np.zeros(6)), paired_t(np.zeros(6)), welch_t(np.zeros(6), np.zeros(7))])
def test_no_spread_and_no_difference_is_an_interval_of_nothing_at_zero(shift):
    assert shift.interval(0.95) == (0.0, 0.0)
    assert shift.p() == 1.0


@pytest.mark.parametrize("make", [signed_rank, paired_t])
def test_no_spread_and_a_difference_is_an_interval_of_nothing_at_the_difference(make):
    shift = make(np.full(6, 0.07))

    assert shift.interval(0.95) == pytest.approx((0.07, 0.07), abs=1e-12)
    assert shift.p() <= 0.05


def test_the_wider_interval_holds_both():
    both, parts = wider(B, A).interval(0.95), [mann_whitney(B, A).interval(0.95), welch_t(B, A).interval(0.95)]

    assert both == (min(low for low, _ in parts), max(high for _, high in parts))
    assert wider(B, A).p() == max(mann_whitney(B, A).p(), welch_t(B, A).p())


@pytest.mark.parametrize("shift", [paired_t(D), welch_t(B, A)])
def test_the_standard_error_of_a_t_interval_is_its_own(shift):
    assert shift.standard_error(0.95) == pytest.approx(shift.error)


def test_the_standard_error_by_ranks_is_near_the_usual_one_and_blind_to_a_spike():
    values = np.random.default_rng(8).normal(0, 0.01, 20)
    spiked = np.where(np.arange(20) == 3, values + 2.0, values)

    usual = paired_t(values).error
    assert signed_rank(values).standard_error(0.95) == pytest.approx(usual, rel=0.15)
    assert signed_rank(spiked).standard_error(0.95) < 1.5 * usual < paired_t(spiked).error / 10
