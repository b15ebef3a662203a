"""Exact distributions against enumeration, and long lists against the same lists written out."""

from itertools import combinations, product
from math import comb

import numpy as np
import pytest

from tare.analysis import statistics
from tare.analysis.statistics import NormalNull, PairDifferences, WalshAverages, mann_whitney_null, signed_rank_null


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
    monkeypatch.setattr(statistics, "WRITTEN_OUT", 0)
    searched = make()

    for k in range(written.size):
        assert searched.kth(k) == written.kth(k)
    for bound in (-1.0, -0.1, 0.0, 0.15, 0.3, 1.0):
        assert searched.at_most(bound) == written.at_most(bound)
        assert searched.at_least(bound) == written.at_least(bound)
    assert searched.median() == written.median()


def test_a_tie_at_zero_stays_exactly_zero_in_a_long_list(monkeypatch):
    monkeypatch.setattr(statistics, "WRITTEN_OUT", 0)

    assert WalshAverages(np.array([-0.25, 0.0, 0.0, 0.0, 0.25])).kth(7) == 0.0


def test_a_list_of_equal_values_has_that_value_everywhere(monkeypatch):
    monkeypatch.setattr(statistics, "WRITTEN_OUT", 0)

    assert {WalshAverages(np.full(5, 0.5)).kth(k) for k in range(15)} == {0.5}


def test_the_approximation_counts_half_a_step_further_as_the_exact_distribution_does():
    n = statistics.EXACT_BLOCKS
    approximate = NormalNull(n * (n + 1) / 4, (n * (n + 1) * (2 * n + 1) / 24) ** 0.5)

    assert approximate.at_most(n * (n + 1) // 4) == pytest.approx(
        signed_rank_null(n).at_most(n * (n + 1) // 4), abs=1e-5
    )
