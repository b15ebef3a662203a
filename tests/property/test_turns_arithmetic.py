"""Whatever the turns: the mean step is the side's own time in them over its steps, and no step holds a wait."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.figures.steps import facts_of_steps, step_metrics, steps_in, windows_of, without_stops
from tare.parts.protocols import Mark

lengths = st.lists(st.integers(1, 10**9), min_size=1, max_size=40)


@given(
    lengths=lengths, rests=lengths, waits=lengths, steps=st.integers(1, 7), count=st.integers(1, 6),
    warm=st.integers(1, 5), left=st.integers(0, 4), before=st.booleans(),
)  # fmt: skip
def test_the_mean_is_own_time_over_steps(lengths, rests, waits, steps, count, warm, left, before):
    """`before`: the step begins where the one before it ended, before the wait, as in loops without a DataLoader."""
    marks, windows, own_ns, at, number, follows = [], [], [], 0, 0, 0
    for place, size in enumerate([1, warm, *[steps] * count, left]):
        at += waits[place % len(waits)]
        begin = at
        for _ in range(size):
            length, rest = lengths[number % len(lengths)], rests[number % len(rests)]
            marks += [
                Mark(follows if before else at, "step", "begin", number),
                Mark(at + length, "step", "end", number),
            ]
            at, number = at + length, number + 1
            follows = at
            at += rest
        windows.append([begin, at])
        own_ns.append(at - begin)
    marks.sort(key=lambda mark: mark.t_ns)
    told = {"windows_ns": windows, "steps": steps, "count": count, "warm": warm, "before": 1 + warm}
    told |= {"done": count, "synchronous": True}
    facts = {"turns": told}
    found = steps_in(marks, facts)
    metrics = step_metrics(found)
    assert metrics["step_mean_s"] == pytest.approx(sum(own_ns[2 : 2 + count]) / 1e9 / (steps * count))
    used = np.flatnonzero(~np.isnan(found.seconds["step"]))
    assert used.tolist() == list(range(1 + warm, 1 + warm + steps * count))
    seconds = found.seconds["step"][used]
    assert (seconds * 1e9 <= max(lengths) + max(rests) + 1).all()
    if not before:
        assert seconds * 1e9 == pytest.approx([lengths[n % len(lengths)] for n in used.tolist()])
    moved, _ = without_stops(marks, {}, facts)
    assert moved[-1].t_ns <= sum(own_ns)
    assert windows_of(facts).running_ns(windows[-1][1]) == sum(own_ns)


def test_the_longest_steps_and_those_after_the_first_of_each_turn_are_facts():
    lengths = [
        99,
        5,
        *[30, 20, 20, 10, 10],
        *[40, 20, 20, 10, 12],
        99,
    ]  # a start, a warm-up, two turns of five, the rest
    ends = np.cumsum(lengths) * 10**6
    begins = ends - np.array(lengths) * 10**6
    spans = zip(begins.tolist(), ends.tolist(), strict=True)
    marks = [
        Mark(t, "step", edge, n) for n, span in enumerate(spans) for t, edge in zip(span, ("begin", "end"), strict=True)
    ]
    bounds = [0, *ends[[0, 1, 6, 11, 12]].tolist()]
    told = {"windows_ns": [list(each) for each in pairwise(bounds)], "steps": 5, "count": 2, "warm": 1, "before": 2}
    told |= {"done": 2, "synchronous": True}
    found = facts_of_steps(steps_in(marks, {"turns": told}), {"turns": told})
    assert found["longest_steps_s"] == pytest.approx([0.02, 0.02, 0.02, 0.03, 0.04])
    assert found["later_steps_s"] == pytest.approx((10 + 10 + 10 + 12) / 4e3)
    told["synchronous"] = False
    assert facts_of_steps(steps_in(marks, {"turns": told}), {"turns": told}) == {}


def test_evaluations_lie_in_no_step_and_a_gpu_has_no_percentiles():
    windows = [[0, 10], [10, 20], [30, 80], [90, 140], [140, 150]]
    begins = [0, 10, 30, 60, 90, 120]
    marks = [Mark(t, "step", edge, n) for n, b in enumerate(begins) for t, edge in ((b, "begin"), (b + 10, "end"))]
    marks += [Mark(45, "evaluate", "begin", -1), Mark(55, "evaluate", "end", -1)]
    told = {"windows_ns": windows, "steps": 2, "count": 2, "warm": 1, "before": 2, "done": 2, "synchronous": False}
    marks.sort(key=lambda mark: mark.t_ns)
    found = step_metrics(steps_in(marks, {"turns": told}))
    assert found["step_mean_s"] == pytest.approx((50 + 50 - 10) / 4 / 1e9)
    assert "step_s" not in found
    told["synchronous"] = True
    assert step_metrics(steps_in(marks, {"turns": told}))["step_s"] == pytest.approx(10e-9)
