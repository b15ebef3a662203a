from itertools import islice, pairwise

from hypothesis import given
from hypothesis import strategies as st

from tare.testing import FakeClock
from tare.trial.sampler_report import ticks

PERIOD_NS = 100_000_000
works_ns = st.lists(st.integers(0, 20 * PERIOD_NS), min_size=1, max_size=50)  # how long each tick's work takes
oversleeps_ns = st.lists(st.integers(0, 5 * PERIOD_NS), min_size=51, max_size=51)


class SleepyClock(FakeClock):
    """Wakes later than asked, by a given amount each time."""

    def __init__(self, oversleeps_ns: list[int]) -> None:
        super().__init__()
        self._oversleeps_ns = iter(oversleeps_ns)

    def sleep_until(self, t_ns: int) -> None:
        super().sleep_until(t_ns)
        self.ns += next(self._oversleeps_ns)


def taken(clock: FakeClock, work_ns: list[int]):
    """The ticks that a loop gets whose work takes so long at each of them."""
    got = []
    for tick, spent_ns in zip(islice(ticks(clock, PERIOD_NS), len(work_ns) + 1), [*work_ns, 0], strict=True):
        got.append((tick, clock.now_ns()))
        clock.advance(spent_ns / 1e9)
    return got


@given(works_ns, oversleeps_ns)
def test_no_tick_ever_leaves_the_grid(work_ns, oversleep_ns):
    got = taken(SleepyClock(oversleep_ns), work_ns)
    start_ns = got[0][0].due_ns
    assert all((tick.due_ns - start_ns) % PERIOD_NS == 0 for tick, _ in got)


@given(works_ns, oversleeps_ns)
def test_ticks_taken_and_ticks_missed_are_all_the_points_of_the_grid(work_ns, oversleep_ns):
    got = [tick for tick, _ in taken(SleepyClock(oversleep_ns), work_ns)]
    for before, after in pairwise(got):
        assert after.due_ns - before.due_ns == PERIOD_NS * (1 + after.missed)
    assert len(got) + sum(tick.missed for tick in got) == (got[-1].due_ns - got[0].due_ns) // PERIOD_NS + 1


@given(works_ns, oversleeps_ns)
def test_lateness_is_what_the_clock_says_and_no_tick_comes_early(work_ns, oversleep_ns):
    for tick, now_ns in taken(SleepyClock(oversleep_ns), work_ns):
        assert tick.late_ns == now_ns - tick.due_ns >= 0


@given(st.lists(st.integers(0, PERIOD_NS - 1), min_size=1, max_size=50))
def test_work_that_fits_into_the_period_misses_nothing_and_never_adds_up(work_ns):
    got = taken(FakeClock(), work_ns)
    assert [tick.missed for tick, _ in got] == [0] * len(got)
    assert [tick.late_ns for tick, _ in got] == [0] * len(got)
