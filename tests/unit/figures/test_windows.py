"""Which steps of a trial in slices are used, and its times without the stops."""

import numpy as np
import pytest

from tare.figures.steps import SLICES, product_limit, step_metrics, steps_in, windows_of, without_stops
from tare.parts.protocols import Mark

MS = 1_000_000


def stepping(spans):
    """Marks of steps with these begins and ends in ms."""
    rows = [(b, n, "begin") for n, (b, _) in enumerate(spans)] + [(e, n, "end") for n, (_, e) in enumerate(spans)]
    return [Mark(round(t * MS), "step", edge, n) for t, n, edge in sorted(rows)]


def facts(windows, paired=(0, 10_000), leave_out=1, **more):
    spans = [[round(b * MS), round(e * MS)] for b, e in windows]
    return {SLICES: {"windows_ns": spans, "paired_ns": [t * MS for t in paired], "leave_out": leave_out, **more}}


def used(marks, told):
    seconds = steps_in(marks, told).seconds["step"]
    return [n for n, value in enumerate(seconds.tolist()) if not np.isnan(value)]


TEN = [(n * 10, n * 10 + 10) for n in range(20)]  # back to back, 10 ms each


def test_a_trial_that_ran_through_is_as_before():
    marks = stepping(TEN)
    assert windows_of({}) is None
    assert used(marks, {}) == list(range(20))
    assert without_stops(marks, {"wall_s": 2.0}, {}) == (marks, {"wall_s": 2.0})


def test_a_step_that_a_stop_cuts_and_the_first_of_a_slice_are_left_out():
    spans = [(0, 10), (10, 20), (20, 30), (30, 140), (140, 150), (150, 160)]  # stopped from 35 to 135
    assert used(stepping(spans), facts([(0, 35), (135, 200)])) == [1, 2, 5]


def test_more_may_be_left_out_after_a_stop():
    assert used(stepping(TEN), facts([(0, 100), (100, 200)], leave_out=4)) == [4, 5, 6, 7, 8, 9, 14, 15, 16, 17, 18, 19]


def test_a_first_token_that_a_stop_cuts_is_left_out_although_the_step_after_it_is_whole():
    spans = [(0, 10), (10, 20), (30, 40), (40, 50), (150, 160), (160, 170), (180, 190)]  # stopped from 55 to 105
    firsts = [(20, 30, 2), (50, 150, 4), (170, 180, 6), (200, 210, 9)]  # the last request was cut off before a step
    marks = [Mark(t * MS, "first_token", edge, n) for b, e, n in firsts for t, edge in ((b, "begin"), (e, "end"))]
    found = steps_in(stepping(spans) + marks, facts([(0, 55), (105, 250)])).seconds["first_token"]
    assert [None if np.isnan(each) else round(each, 3) for each in found] == [None, None, 0.01, None, None, None, 0.01]


def test_only_slices_in_which_all_sides_stepped_count():
    assert used(stepping(TEN), facts([(0, 50), (50, 100), (100, 200)], paired=(40, 150))) == [6, 7, 8, 9]


def test_a_loud_round_is_left_out():
    told = facts([(0, 50), (50, 100)], left_out_ns=[[49 * MS, 120 * MS]])
    assert used(stepping(TEN), told) == [1, 2, 3, 4]


def test_times_are_those_in_which_it_ran():
    windows = windows_of(facts([(10, 20), (50, 70)]))
    at_ms = [0, 10, 15, 20, 30, 50, 60, 70, 99]
    assert (windows.running_ns(np.array(at_ms) * MS) / MS).tolist() == [0, 0, 5, 10, 10, 10, 20, 30, 30]


def test_the_whole_run_is_without_the_stops():
    told = facts([(0, 40), (140, 200)])
    marks, result = without_stops(
        stepping([(10, 20), (150, 160)]), {"start_ns": 5 * MS, "end_ns": 190 * MS, "wall_s": 0.185, "exit": 0}, told
    )
    assert result == {"start_ns": 5 * MS, "end_ns": 90 * MS, "wall_s": 0.085, "exit": 0}
    assert [mark.t_ns // MS for mark in marks] == [10, 20, 50, 60]


def test_long_steps_weigh_more_since_stops_cut_them_more_often():
    """A tenth of the steps is 20 times as long: without weights their mean comes out too short."""
    rng = np.random.default_rng(3)
    lengths = np.where(rng.random(6000) < 0.1, 40.0, 2.0) * rng.uniform(0.9, 1.1, 6000)
    own_ends = np.cumsum(lengths)
    slices = [(n * 200, n * 200 + 100) for n in range(round(own_ends[-1] / 100) + 1)]  # 100 of every 200 ms

    def at(own):
        return own + 100 * (own // 100)

    spans = [(at(e - d), at(e)) for e, d in zip(own_ends, lengths, strict=True)]
    steps = steps_in(stepping(spans), facts(slices, paired=(0, 10**9)))
    found = step_metrics(steps)["step_mean_s"] * 1e3
    plain = float(np.mean(steps.measured("step"))) * 1e3
    assert plain < 0.9 * lengths.mean()
    assert found == pytest.approx(lengths.mean(), rel=0.05)


def test_shares_of_lengths_of_which_some_were_cut():
    seen, whole = np.array([1.0, 2.0, 2.0, 4.0]), np.array([True, False, True, True])
    # 1 has its quarter; of the three from 2 on one is whole at 2; what was cut there goes to the 4.
    assert product_limit(seen, whole).tolist() == pytest.approx([1 / 4, 0, 1 / 4, 1 / 2])
    assert product_limit(np.array([3.0, 5.0]), np.array([True, False])).tolist() == [1, 0]


def test_equal_steps_have_their_own_mean():
    steps = steps_in(stepping(TEN), facts([(0, 100), (100, 200)]))
    assert step_metrics(steps)["step_mean_s"] == pytest.approx(0.010)
