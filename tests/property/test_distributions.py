"""Tails and quantiles that tare computes itself, against scipy's."""

from __future__ import annotations

import math

import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from tare.analysis.numeric.distributions import (
    heads_at_most,
    noncentrality,
    normal_cdf,
    normal_quantile,
    t_cdf,
    t_quantile,
)

FREEDOM = st.one_of(st.integers(1, 200), st.floats(1, 1e4))
SHARE = st.one_of(st.floats(1e-9, 0.5), st.floats(0.001, 0.999))


@pytest.fixture(scope="module", autouse=True)
def _its_parts() -> None:
    """Not when tests are collected, which every worker does, nor in a test, whose time is limited."""
    import scipy.integrate
    import scipy.special
    import scipy.stats  # noqa: F401


def close(value: float) -> object:
    return pytest.approx(value, rel=1e-9, abs=1e-300)


@given(st.floats(-37, 37), SHARE)
def test_the_normal_distribution(x, p):
    assert normal_cdf(x) == close(scipy.special.ndtr(x))
    assert normal_quantile(p) == pytest.approx(scipy.special.ndtri(p), rel=1e-12, abs=1e-15)


@given(FREEDOM, st.floats(-60, 60))
def test_the_tail_of_t(freedom, x):
    assert t_cdf(freedom, x) == close(scipy.special.stdtr(freedom, x))


@given(FREEDOM, SHARE)
def test_the_quantile_of_t(freedom, p):
    assert t_quantile(freedom, p) == pytest.approx(scipy.special.stdtrit(freedom, p), rel=1e-9, abs=1e-12)


@given(st.integers(0, 1200), st.integers(-1, 1200))
def test_heads_of_a_fair_coin(tosses, count):
    at_most = scipy.special.bdtr(count, tosses, 0.5) if 0 <= count < tosses else float(count >= 0)
    assert heads_at_most(count, tosses) == close(at_most)


@pytest.mark.parametrize("tosses", [5_000, 123_457, 1_000_000])
@pytest.mark.parametrize("deviations", [-8, -1.96, -0.5, 0, 0.5, 3])
def test_heads_of_more_tosses_than_are_counted(tosses, deviations):
    count = round(tosses / 2 + deviations * math.sqrt(tosses) / 2)
    assert heads_at_most(count, tosses) == pytest.approx(scipy.special.bdtr(count, tosses, 0.5), rel=1e-6)


@pytest.mark.parametrize("freedom", [1, 1.5, 2])
@pytest.mark.parametrize("x", [100.5, 150, 1000, 1e5])
def test_a_far_threshold_of_few_blocks(freedom, x):
    found = noncentrality(freedom, 0.2, x)
    scale = x / math.sqrt(freedom)

    def density(z: float) -> float:  # over the numerator, since the denominator has a step there
        above = scipy.stats.chi.sf(max(0.0, z + found) / scale, freedom)
        return float(above * scipy.stats.norm.pdf(z))

    assert scipy.integrate.quad(density, -10, 10, epsabs=1e-11)[0] == pytest.approx(0.2, abs=1e-6)


@pytest.mark.parametrize("alpha", [0.05, 0.0035, 1e-4])
@pytest.mark.parametrize("freedom", [2, 5, 7.5, 14, 60, 1000])
def test_the_noncentral_t_that_a_power_needs(freedom, alpha):
    """scipy's own inverse is exact to 8 digits only: what lies below the threshold is integrated instead."""
    threshold = -t_quantile(freedom, alpha / 2)
    found = noncentrality(freedom, 0.2, threshold)
    scale = math.sqrt(freedom)
    turn = found * scale / threshold  # where the integrand falls

    def density(chi: float) -> float:
        return float(scipy.special.ndtr(threshold * chi / scale - found) * scipy.stats.chi.pdf(chi, freedom))

    below = scipy.integrate.quad(density, 0, turn)[0] + scipy.integrate.quad(density, turn, math.inf)[0]
    assert below == pytest.approx(0.2, abs=1e-8)
    assert found == pytest.approx(scipy.special.nctdtrinc(freedom, 0.2, threshold), rel=1e-5)


def test_where_there_is_no_number():
    assert math.isnan(t_cdf(0, 1.0))
    assert math.isnan(t_cdf(5, math.nan))
    assert math.isnan(t_quantile(0, 0.5))
    assert [normal_quantile(0.0), normal_quantile(1.0)] == [-math.inf, math.inf]
    assert [t_quantile(5, 0.0), t_quantile(5, 1.0)] == [-math.inf, math.inf]
    assert [t_cdf(5, -math.inf), t_cdf(5, math.inf)] == [0.0, 1.0]
    assert t_cdf(math.inf, -1.96) == normal_cdf(-1.96)
    assert noncentrality(1, 0.2, 1000.0) == pytest.approx(1000 * normal_quantile(0.9), rel=1e-6)  # its limit
