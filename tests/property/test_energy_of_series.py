"""Energy of a power series, whatever the grid that it was sampled on."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from tare.figures.evidence import THRESHOLDS
from tare.figures.power_series import counted, integral

NS = 1_000_000_000
POWERS = st.floats(0.1, 1000.0)
# Intervals between two samples, of which none is more than three times the median: no grid like this has a gap.
STEADY = st.lists(st.integers(80_000_000, 120_000_000), min_size=20, max_size=200)


def times(spans: list[int], start_ns: int = 5 * NS) -> np.ndarray:
    return start_ns + np.concatenate([[0], np.cumsum(spans)]).astype(np.int64)


def inner(t_ns: np.ndarray, cut: tuple[float, float]) -> tuple[int, int]:
    """A window inside the series, of at least one interval."""
    length = int(t_ns[-1] - t_ns[0])
    begin, end = (int(t_ns[0] + share * length) for share in sorted(cut))
    assume(end - begin > 100_000_000)
    return begin, end


CUTS = st.tuples(st.floats(0, 1), st.floats(0, 1))


@given(POWERS, STEADY, CUTS)
def test_a_constant_power_takes_power_times_time_on_every_grid(power, spans, cut):
    t_ns = times(spans)
    window = inner(t_ns, cut)
    found = integral(t_ns, np.full(len(t_ns), power), window)
    assert found.problems == ()
    assert np.isclose(found.joules, power * (window[1] - window[0]) / NS, rtol=1e-9)
    assert np.isclose(found.covered_share, 1.0)
    assert np.isclose(found.power_w, power)


@given(POWERS, STEADY, CUTS, st.randoms(use_true_random=False))
def test_readings_that_come_late_or_twice_change_nothing(power, spans, cut, random):
    t_ns = times(spans)
    watts = power * (1 + 0.5 * np.sin(t_ns / NS))
    window = inner(t_ns, cut)
    order = [*range(len(t_ns)), 0, len(t_ns) - 1]
    random.shuffle(order)
    assert np.isclose(integral(t_ns[order], watts[order], window).joules, integral(t_ns, watts, window).joules)


@given(st.lists(st.floats(1.0, 400.0), min_size=60, max_size=120), CUTS)
def test_counter_and_integral_agree_where_the_counter_is_the_integral(watts, cut):
    """A counter that adds up the same piecewise linear power, read at the same moments."""
    t_ns = times([100_000_000] * (len(watts) - 1))
    power = np.array(watts)
    steps = (power[:-1] + power[1:]) / 2 * 0.1
    joules = np.concatenate([[0.0], np.cumsum(steps)])
    window = inner(t_ns, cut)
    assume(window[1] - window[0] > 3 * NS)
    by_sum, by_counter = integral(t_ns, power, window), counted(t_ns, joules, window)
    assert by_counter.problems == ()
    # Between two samples the counter is taken as straight, and the power as straight: a little apart at each edge.
    edges = 2 * 0.1 * float(np.ptp(power))
    assert abs(by_sum.joules - by_counter.joules) <= edges + 1e-6


@given(POWERS, st.integers(30, 90), st.integers(5, 60), st.floats(0.5, 30.0))
def test_a_gap_is_never_bridged(power, before, after, gap_s):
    """What is known of the window is what was sampled, and the gap is said."""
    spans = [100_000_000] * before + [round(gap_s * NS)] + [100_000_000] * after
    t_ns = times(spans)
    window = (int(t_ns[0]), int(t_ns[-1]))
    found = integral(t_ns, np.full(len(t_ns), power), window)
    assert np.isclose(found.joules, power * (before + after) * 0.1)
    assert np.isclose(found.longest_gap_s, gap_s, rtol=1e-6)
    assert any("gap" in str(sentence) for sentence in found.problems)
    assert (found.covered_share < THRESHOLDS.coverage_share) == any(
        "of the time only" in str(s) for s in found.problems
    )


@given(POWERS, st.integers(30, 90), st.floats(0.5, 50.0))
def test_a_counter_counts_on_through_a_gap(power, samples, gap_s):
    spans = [100_000_000] * samples + [round(gap_s * NS)] + [100_000_000] * samples
    t_ns = times(spans)
    found = counted(t_ns, power * (t_ns - t_ns[0]) / NS, (int(t_ns[2]), int(t_ns[-2])))
    assert found.problems == ()
    assert np.isclose(found.joules, power * (t_ns[-2] - t_ns[2]) / NS)


@given(POWERS, st.integers(2, 57))
def test_a_counter_that_went_backwards_is_partial(power, place):
    t_ns = times([100_000_000] * 60)
    joules = power * (t_ns - t_ns[0]) / NS
    joules[place:] -= joules[place] + 1.0
    assert any("backwards" in str(s) for s in counted(t_ns, joules, (int(t_ns[1]), int(t_ns[-2]))).problems)


@given(POWERS, st.floats(1.0, 20.0))
def test_nothing_is_made_up_before_the_first_sample_and_after_the_last(power, unseen_s):
    t_ns = times([100_000_000] * 100)
    begin, end = int(t_ns[0] - unseen_s * NS), int(t_ns[-1] + unseen_s * NS)
    found = integral(t_ns, np.full(101, power), (begin, end))
    assert np.isclose(found.joules, power * 10.2)  # ten seconds, and one interval around each end
    assert found.problems
    assert counted(t_ns, power * (t_ns - t_ns[0]) / NS, (begin, end)).problems
