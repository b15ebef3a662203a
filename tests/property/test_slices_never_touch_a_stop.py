"""Whatever the slices and the steps: a step that is used lies in one slice, and times without stops never run back."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tare.figures.steps import SLICES, steps_in, windows_of
from tare.parts.protocols import Mark

lengths = st.lists(st.integers(1, 50), min_size=1, max_size=60)


slices_of = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=20)
spans = st.tuples(st.integers(0, 800), st.integers(0, 2000))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(slices=slices_of, steps=lengths, gaps=lengths, leave_out=st.integers(1, 4), paired=spans)
def test_a_used_step_overlaps_no_stop(slices, steps, gaps, leave_out, paired):
    windows, at = [], 0
    for stopped, running in slices:
        windows.append([at + stopped, at + stopped + running])
        at += stopped + running
    marks, at = [], 0
    for number, length in enumerate(steps):
        at += gaps[number % len(gaps)] - 1
        marks += [Mark(at, "step", "begin", number), Mark(at + length, "step", "end", number)]
        at += length
    told = {SLICES: {"windows_ns": windows, "paired_ns": list(paired), "leave_out": leave_out}}
    found = steps_in(marks, told)
    of_slice = {}
    for number in np.flatnonzero(~np.isnan(found.seconds["step"])).tolist():
        begin, end = marks[2 * number].t_ns, marks[2 * number + 1].t_ns
        within = [w for w in windows if w[0] <= begin and end <= w[1]]
        assert len(within) == 1
        assert paired[0] <= within[0][0] and within[0][1] <= paired[1]
        of_slice.setdefault(tuple(within[0]), []).append(number)
        assert found.seconds["step"][number] == (end - begin) / 1e9
        assert number < found.warm_up or 0 < found.weight[number] <= 1
    for (begin, _), numbers in of_slice.items():
        before = [n for n in range(len(steps)) if begin <= marks[2 * n].t_ns and n < numbers[0]]
        assert len(before) >= leave_out
    running = windows_of(told).running_ns(np.arange(0, 4000, 7))
    assert (np.diff(running) >= 0).all() and (np.diff(running) <= 7).all()
