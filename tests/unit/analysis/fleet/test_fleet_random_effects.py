"""Devices as a random effect, against statsmodels, against formulas by hand, and where there is nothing to know."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tare.analysis.fleet.outliers import Twins, could_see, levels, outlying, set_aside, twins_in_effect
from tare.analysis.fleet.random_effects import Centre, between, centre_of, error_variances, pooled, shrunk

VALUES = np.array([0.021, 0.034, 0.005, 0.048, 0.017, 0.029])
VARIANCES = np.array([4e-5, 9e-5, 2e-5, 1.5e-4, 6e-5, 3e-5])


def test_it_is_what_statsmodels_says_of_the_same_figures() -> None:
    # statsmodels 0.15: combine_effects(VALUES, VARIANCES, method_re="iterated", use_t=True)
    found = pooled(VALUES, VARIANCES)

    assert found.tau**2 == pytest.approx(0.00014461049564966247, rel=1e-5)
    assert found.mean == pytest.approx(0.02355772780144374, rel=1e-6)
    assert found.error == pytest.approx(0.0057964631380313675, rel=1e-6)
    assert found.mean - found.reach() == pytest.approx(0.008657, abs=5e-7)
    assert found.mean + found.reach() == pytest.approx(0.038458, abs=5e-7)


def test_it_is_what_a_mixed_model_says_of_a_balanced_fleet() -> None:
    # statsmodels 0.15: MixedLM(x, ones, groups=device).fit(reml=True), six devices of five trials each
    rng = np.random.default_rng(3)
    trials = (np.repeat(rng.normal(0, 0.02, 6), 5) + rng.normal(0, 0.01, 30) + 1).reshape(6, 5)
    errors = np.full(6, trials.var(axis=1, ddof=1).mean() / 5)
    found = pooled(trials.mean(axis=1), errors)
    own = shrunk(trials.mean(axis=1), errors, found) - found.mean

    assert found.tau**2 == pytest.approx(0.00099531, rel=1e-3)
    assert found.mean == pytest.approx(0.99693222, rel=1e-7)
    assert found.error == pytest.approx(0.01301905, rel=1e-3)
    assert own == pytest.approx([0.043796, -0.052401, 0.013194, -0.004307, -0.002848, 0.002566], abs=2e-6)


def test_with_equal_errors_it_is_students_t_over_the_devices() -> None:
    found = pooled(VALUES, np.full(6, 1e-6))
    low, high = stats.t.interval(0.95, 5, VALUES.mean(), stats.sem(VALUES))

    assert (found.mean - found.reach(), found.mean + found.reach()) == pytest.approx((low, high))
    assert found.tau**2 == pytest.approx(VALUES.var(ddof=1) - 1e-6)


def test_the_interval_of_tau_holds_where_the_weighted_squares_are_the_quantiles() -> None:
    found = pooled(VALUES, VARIANCES)

    for tau, tail in ((found.tau_low, 0.975), (found.tau_high, 0.025)):
        weights = 1 / (VARIANCES + tau**2)
        mean = (weights * VALUES).sum() / weights.sum()
        assert (weights * (VALUES - mean) ** 2).sum() == pytest.approx(stats.chi2.ppf(tail, 5), rel=1e-6)


def test_devices_that_differ_by_no_more_than_noise_have_no_scatter_of_their_own() -> None:
    found = pooled(np.array([0.02, 0.021, 0.019]), np.full(3, 1e-4))

    assert (found.tau, found.tau_low) == (0, 0)
    assert found.error == pytest.approx(math.sqrt(1e-4 / 3))
    assert shrunk(np.array([0.02, 0.021, 0.019]), np.full(3, 1e-4), found) == pytest.approx([0.02] * 3)


def test_devices_without_noise_are_their_own_scatter() -> None:
    found = pooled(np.array([0.01, 0.02, 0.03, 0.06]), np.zeros(4))

    assert found.tau == pytest.approx(np.std([0.01, 0.02, 0.03, 0.06], ddof=1))
    assert found.next_low < 0.01
    assert found.next_high > 0.06


def test_devices_that_are_the_same_to_the_last_digit_are_no_trouble() -> None:
    found = pooled(np.full(5, 0.02), np.zeros(5))

    assert (found.mean, found.tau) == (pytest.approx(0.02), 0)
    assert found.reach() < 1e-5
    assert outlying(set_aside(np.full(5, 0.02), np.zeros(5))) == []


def test_two_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="2 devices are too few"):
        pooled(np.array([0.1, 0.2]), np.zeros(2))


def test_more_squares_leave_less_scatter() -> None:
    found = [between(VALUES, VARIANCES, squares) for squares in (0.5, 5.0, 12.0, 1e6)]

    assert found == sorted(found, reverse=True)
    assert found[-1] == 0


def test_the_noise_of_one_trial_is_pooled_over_devices() -> None:
    centres = [Centre(0.0, 6, 1e-4), Centre(0.0, 3, 4e-4), Centre(0.0, 1, None)]

    unit = (5 * 1e-4 + 2 * 4e-4) / 7
    assert error_variances(centres) == pytest.approx([unit / 6, unit / 3, unit])


def test_a_centre_has_an_interval_from_six_trials_on() -> None:
    logs = np.log(np.array([1.0, 1.01, 1.02, 0.99, 1.03, 1.0]))

    assert centre_of(logs).low == pytest.approx(logs.min())
    assert centre_of(logs[:5]).low is None
    assert centre_of(logs[:5]).unit_variance == pytest.approx(logs[:5].var(ddof=1))
    assert centre_of(logs[:1]).unit_variance is None


def test_the_test_of_one_device_is_the_deletion_t_of_the_textbooks() -> None:
    values = np.array([0.0, 0.01, -0.01, 0.005, 0.2])
    (test,) = set_aside(values, np.zeros(5))
    others = values[:4]
    t = (0.2 - others.mean()) / (others.std(ddof=1) * math.sqrt(1 + 1 / 4))

    assert test.place == 4
    assert test.p == pytest.approx(5 * 2 * stats.t.sf(t, 3), rel=1e-6)
    assert [found.place for found in outlying([test])] == [4]


def test_two_odd_devices_do_not_hide_behind_each_other() -> None:
    values = np.array([0.0, 0.01, -0.01, 0.005, -0.004, 0.007, 0.2, 0.21])
    found = set_aside(values, np.full(8, 1e-6))

    assert found[0].p > 0.05  # alone, the other one makes the scatter that hides it
    assert sorted(test.place for test in outlying(found)) == [6, 7]


def test_a_device_that_is_noisy_itself_is_not_called_odd_for_it() -> None:
    values = np.array([0.0, 0.01, -0.01, 0.005, -0.004, 0.1])
    noisy = np.array([1e-6] * 5 + [0.01])

    assert [test.place for test in outlying(set_aside(values, np.full(6, 1e-6)))] == [5]
    assert outlying(set_aside(values, np.full(6, 1e-6), noisy)) == []


def test_a_question_pays_for_those_that_are_asked_beside_it() -> None:
    odd = set_aside(np.array([0.0, 0.01, -0.01, 0.005, 0.2]), np.zeros(5))
    plain = set_aside(np.array([0.0, 0.01, -0.01, 0.005, 0.02]), np.zeros(5))

    assert levels([odd, plain]) == pytest.approx([0.025, 0.05])
    assert levels([plain, plain]) == pytest.approx([0.025, 0.025])


def test_what_would_just_have_been_seen_is_just_seen() -> None:
    others = np.array([0.0, 0.01, -0.01, 0.005])
    distance = could_see(set_aside(np.append(others, 0.2), np.zeros(5)), 5)
    assert distance is not None
    far = others.mean() + distance

    assert outlying(set_aside(np.append(others, far * 1.01), np.zeros(5)))
    assert not outlying(set_aside(np.append(others, far * 0.99), np.zeros(5)))
    assert could_see([], 2) is None


def test_the_interval_of_a_deviation_has_the_error_of_the_twins_in_it() -> None:
    twins = Twins("orin", ("a", "b", "c"), (6, 6, 6), np.zeros(3), np.full(3, 4e-4), np.full(3, 1e-4), 15)
    for told in twins.standings([], []):
        assert told.high == pytest.approx(math.expm1(stats.t.ppf(0.975, 15) * math.sqrt(4e-4 + 4e-4 / 2)))
    odd = twins.standings([], [2])
    assert odd[0].high == pytest.approx(math.expm1(stats.t.ppf(0.975, 15) * math.sqrt(4e-4 + 4e-4)))


def test_the_interval_of_a_deviation_holds_the_truth_as_often_as_it_says() -> None:
    rng, held = np.random.default_rng(1), 0
    for _ in range(300):
        true = rng.normal(0, 0.01, 2)
        made = {str(n): centre_of(each + rng.normal(0, 0.02, 6)) for n, each in enumerate(true)}
        first = twins_in_effect("", made).standings([], [])[0]
        assert first.low is not None
        assert first.high is not None
        held += first.low <= math.expm1(true[0] - true[1]) <= first.high
    assert held / 300 > 0.92  # without the error of its twin it is 0.85
