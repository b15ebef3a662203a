"""The stop rule that a runner asks after each block."""

import numpy as np
import pytest

from analysis_figures import noisy, side
from tare.analysis.compare import compare
from tare.analysis.noise import LOOKING_ALPHA, enough, half_width, reached


def test_a_tight_interval_is_enough_and_a_wide_one_is_not():
    assert enough(noisy(8, cv=0.002), against="bare", until=0.01)
    assert not enough(noisy(8, cv=0.05), against="bare", until=0.01)


def test_below_the_floor_nothing_is_enough():
    assert not enough(noisy(5, cv=0.0001), against="bare", until=0.5)
    assert not enough(noisy(8, cv=0.0001), against="bare", until=0.5, floor=9)


def test_every_level_must_be_tight():
    rng = np.random.default_rng(1)
    loud = side("runc", (0.002 * np.exp(rng.normal(0, 0.2, 8))).tolist())

    assert not enough([*noisy(8, cv=0.002), *loud], against="bare", until=0.01)


def test_one_level_or_none_is_never_enough():
    assert not enough([], against="bare", until=0.5)
    assert not enough(noisy(8)[:8], against="bare", until=0.5)
    assert not enough(noisy(8), against="elsewhere", until=0.5)


def test_looking_after_each_block_is_paid_for_with_a_wider_interval():
    (plain,) = compare(noisy(10, cv=0.02), against="bare", margin=0.05)
    (paid,) = compare(noisy(10, cv=0.02), against="bare", margin=0.05, alpha=LOOKING_ALPHA)

    assert half_width(paid) > half_width(plain)
    assert paid.confidence == pytest.approx(0.965)
    assert enough(noisy(10, cv=0.02), against="bare", until=half_width(paid))
    assert not enough(noisy(10, cv=0.02), against="bare", until=half_width(plain))


def test_no_comparison_meets_no_rule():
    assert not reached([], until=1.0)
