"""How often a claim gets a word that is wrong, counted on simulated stores. All seeds are fixed."""

import math

import numpy as np
import pytest

from tare.analysis.model import Measurement
from tare.papers.claims.deciding import words_of
from tare.papers.claims.model import FAILS, HOLDS, UNDECIDED, Check

STUDIES = 1_000


def check(stores, wants="rises", margin=0.05):
    """A check of log ratios, one list a store."""
    values = {f"{store}/{block}": log for store, logs in enumerate(stores) for block, log in enumerate(logs)}
    ours = tuple(Measurement("x", math.exp(log), block) for block, log in values.items())
    return Check("x", wants, ours, tuple(Measurement("no change", 1.0, block) for block in values), margin)


def word(stores, wants="rises"):
    return words_of([check(stores, wants)], 0.05)[0]


def of_interval(low, high, wants="rises"):
    """The word for six blocks whose interval, their range, is this (shares)."""
    return word([np.log1p(np.linspace(low, high, 6))], wants)


STRADDLES = {  # the interval of a rise, with a margin of 5 % -> the word
    (0.043, 0.051): UNDECIDED,
    (0.043, 0.049): FAILS,
    (0.051, 0.08): HOLDS,
    (-0.2, 0.02): FAILS,
    (-0.2, 0.2): UNDECIDED,
}


def test_a_claim_is_undecided_where_its_interval_straddles_the_margin():
    assert {ends: of_interval(*ends) for ends in STRADDLES} == STRADDLES
    assert {(low, high): of_interval(-high, -low, "falls") for low, high in STRADDLES} == STRADDLES


def share(rise, wanted, blocks=8, noise=0.02):
    rng = np.random.default_rng(20)
    made = [word([rng.normal(math.log1p(rise), noise, blocks)]) for _ in range(STUDIES)]
    return made.count(wanted) / STUDIES


def test_a_rise_of_4_percent_is_said_to_pass_5_percent_in_at_most_2_point_5_percent():
    assert share(0.04, HOLDS) <= 0.025  # 82 % before the margin had two sides


def test_a_rise_of_6_percent_is_said_not_to_pass_5_percent_in_at_most_2_point_5_percent():
    assert share(0.06, FAILS) <= 0.025


@pytest.mark.parametrize("wanted", [HOLDS, FAILS])
def test_a_rise_on_the_margin_itself_gets_each_sure_word_in_at_most_2_point_5_percent(wanted):
    assert share(0.05, wanted) <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / STUDIES)


def test_a_plain_rise_is_still_seen():
    assert share(0.10, HOLDS) >= 0.95
    assert share(0.0, FAILS) >= 0.95


@pytest.mark.parametrize(("count", "blocks"), [(2, 6), (3, 6), (4, 6), (3, 4), (8, 4)])
def test_stores_that_differ_are_no_replicates_of_each_other(count, blocks):
    """True mean 0, stores apart by 10 %, blocks by 1 %: as 18 replicates, most of them would be claims."""
    rng = np.random.default_rng(21)
    claims = 0
    for _ in range(STUDIES):
        stores = [rng.normal(rng.normal(0, 0.10), 0.01, blocks) for _ in range(count)]
        claims += words_of([check(stores, margin=0.0)], 0.05)[0] in (HOLDS, FAILS)

    # Of two stores nothing is known but that both say so: with stores this far apart, the signs agree in half of them.
    assert claims / STUDIES <= (0.05 + 3 * math.sqrt(0.05 * 0.95 / STUDIES) if count > 2 else 0.55)


def test_stores_that_agree_are_believed():
    rng = np.random.default_rng(22)
    for count in (2, 3):
        found = [word([rng.normal(math.log1p(0.15), 0.01, 6) for _ in range(count)]) for _ in range(100)]
        assert found.count(HOLDS) >= 95
