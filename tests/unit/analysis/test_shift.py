"""Estimates on the log scale: an interval and its test must never disagree."""

import math

import numpy as np
import pytest
from scipy import stats as reference

from tare.analysis.estimators import mann_whitney, paired_t, signed_rank, welch_t, wider

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
