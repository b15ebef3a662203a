"""What a suspended device drew, from the counter of a meter whose power is known by construction."""

from __future__ import annotations

import numpy as np
import pytest

from tare.figures.power_series import STALE_S, drawn

NS = 1_000_000_000
AWAKE_W, SETTLE_S, STOPPING_S = 8.0, 120, 2.0


def meter(
    sleep_w: float, slept_s: float = 1800, *, step_j: float = 0.001, renewed_s: float = 1.0, shift_s: float = 0.0
):
    """Readings once a second while awake; the counter goes in steps, and is renewed every so often."""
    begin_s, end_s = 1000.0 + SETTLE_S, 1000.0 + SETTLE_S + STOPPING_S
    at_s = np.concatenate([np.arange(1000.0, begin_s, 1.0), np.arange(end_s + 0.3, end_s + SETTLE_S, 1.0)])
    real_s = at_s + np.where(at_s > begin_s, slept_s, 0.0)  # as a clock has it that goes on
    told_s = np.floor((real_s + shift_s) / renewed_s) * renewed_s - shift_s
    asleep_s = np.clip(told_s - begin_s - STOPPING_S / 2, 0, slept_s)
    true_j = AWAKE_W * (told_s - 900 - asleep_s) + sleep_w * asleep_s
    t_ns = (at_s * NS).astype(np.int64)
    series = {
        "external.power_w": (t_ns, np.full(len(t_ns), AWAKE_W)),
        "external.counter_j": (t_ns, np.floor(true_j / step_j) * step_j),
    }
    return series, (round(begin_s * NS), round(end_s * NS)), slept_s


@pytest.mark.parametrize("sleep_w", [0.5, 1.0, 3.5])
@pytest.mark.parametrize("how", [{}, {"step_j": 360.0}, {"renewed_s": 60.0}, {"renewed_s": 60.0, "shift_s": 37.0}])
def test_a_counter_that_is_coarse_or_renewed_seldom_gives_the_power_within_its_bound(sleep_w, how):
    found = drawn(*meter(sleep_w, **how))
    assert not isinstance(found, str), found
    joules, bound_j = found
    assert joules == pytest.approx(sleep_w * 1800, abs=bound_j)
    assert joules / 1800 == pytest.approx(sleep_w, rel=0.04)
    assert bound_j <= AWAKE_W * (2 + STOPPING_S + STALE_S + 2)


def test_what_is_drawn_while_waking_up_lies_within_the_bound():
    series, window, slept_s = meter(1.0)
    t_ns, joules = series["external.counter_j"]
    since_s = np.clip((t_ns - window[1]) / NS, 0, 5)
    watts = np.where((since_s > 0) & (since_s < 5), 33.0, AWAKE_W)
    found = drawn(
        {"external.power_w": (t_ns, watts), "external.counter_j": (t_ns, joules + 25 * since_s)}, window, slept_s
    )
    assert not isinstance(found, str), found
    assert found[0] == pytest.approx(1800, abs=found[1])


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"step_j": 3600.0}, "did not move before the sleep: make `settle` longer"),
        ({"slept_s": 60.0}, "too short"),
        ({"slept_s": 0.0}, "did not sleep"),
    ],
)
def test_what_such_a_counter_cannot_tell_is_not_claimed(how, says):
    assert says in str(drawn(*meter(1.0, **how)))


def test_a_meter_without_a_counter_one_that_was_reset_and_one_that_tells_old_values_are_refused():
    series, window, slept_s = meter(1.0)
    t_ns, joules = series["external.counter_j"]
    assert "no meter at the socket" in str(drawn({"external.power_w": series["external.power_w"]}, window, slept_s))
    assert "did not sleep" in str(drawn(series, None, slept_s))
    fell = np.where(t_ns > window[1], joules - 1e6, joules)
    assert "fell back" in str(drawn({**series, "external.counter_j": (t_ns, fell)}, window, slept_s))
    late = t_ns > window[1] + 60 * NS  # what came in meanwhile is handed over a minute after waking
    old = np.where((t_ns > window[1]) & ~late, joules - 1500.0, joules)
    assert "old values" in str(drawn({**series, "external.counter_j": (t_ns, old)}, window, slept_s))
