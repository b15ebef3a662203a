"""Who runs when in slices, with sides that only note it."""

import random
from types import SimpleNamespace

import pytest

from tare.studies.model import Slices
from tare.testing import FakeHost
from tare.trial.slices import LEAST_S, MOST_S, STEPS_A_SLICE, Turns, _Used

STAT = "cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\n"


class Noting:
    """A side with so many slices to do."""

    def __init__(self, name, log, slices, fails=False, step_s=None):
        self.name, self._log, self._left, self.late = name, log, slices, False
        self.process = SimpleNamespace(failed=fails)
        self.freezer = SimpleNamespace(cpu_s=lambda: 0.0, cores=lambda: frozenset({0}))
        self.run = SimpleNamespace(failed=lambda error: None)
        self._step_s = step_s

    @property
    def over(self):
        return self._left == 0

    def slice(self, seconds):
        self._left -= 1
        self._log.append((self.name, seconds))

    def run_out(self):
        self._log.append((self.name, "to its end"))
        self._left = 0

    def step_s(self):
        return self._step_s


def turns(*sides, length="100 ms", seed=1):
    host = FakeHost(files={"/proc/stat": STAT.format(busy=0, idle=100)})
    return Turns(sides, Slices.model_validate({} if length is None else {"length": length}), host, random.Random(seed))


def test_each_has_one_slice_a_round_and_the_last_runs_to_its_end():
    log = []
    turns(Noting("a", log, 30), Noting("b", log, 20))._alternate()
    rounds = [{log[2 * n][0], log[2 * n + 1][0]} for n in range(20)]
    assert rounds == [{"a", "b"}] * 20
    assert log[40:] == [("a", "to its end")]


def test_the_order_within_a_round_is_shuffled_and_repeatable():
    def orders(seed):
        log = []
        turns(Noting("a", log, 40), Noting("b", log, 40), seed=seed)._alternate()
        return [log[2 * n][0] for n in range(40)]

    assert 8 < orders(1).count("a") < 32
    assert orders(1) == orders(1) != orders(2)


def test_one_that_fails_ends_the_turns():
    log = []
    turns(Noting("a", log, 30), Noting("b", log, 3, fails=True))._alternate()
    assert len(log) == 6


@pytest.mark.parametrize(("step_s", "length_s"), [(0.001, LEAST_S), (0.02, STEPS_A_SLICE * 0.02), (2.0, MOST_S)])
def test_slices_are_as_short_as_the_steps_of_the_slowest_allow(step_s, length_s):
    log = []
    made = turns(Noting("a", log, 9, step_s=step_s), Noting("b", log, 9, step_s=step_s / 2), length=None)
    made._alternate()
    assert made.length_s == pytest.approx(length_s)
    assert log[-2][1] == made.length_s


def test_a_declared_length_is_kept_and_one_without_steps_stays():
    log = []
    made = turns(Noting("a", log, 9, step_s=0.5), Noting("b", log, 9, step_s=0.5))
    made._alternate()
    assert {seconds for _, seconds in log if seconds != "to its end"} == {0.1}
    unmarked = turns(Noting("a", [], 9), Noting("b", [], 9, step_s=0.5), length=None)
    unmarked._alternate()
    assert unmarked.length_s == 0.3


def test_what_others_took_is_what_is_neither_ours_nor_idle():
    before, after = _Used(100.0, 50.0, 20.0), _Used(110.0, 57.0, 24.0)
    assert after.others_share(before) == pytest.approx(0.3)
    assert _Used(110.0, 57.0, None).others_share(before) is None


def test_only_the_cores_that_the_sides_may_use_count():
    text = "cpu  30 0 0 170 0 0 0 0 0 0\ncpu0 10 0 0 90 0 0 0 0 0 0\ncpu1 20 0 0 80 0 0 0 0 0 0\nintr 5 6\n"
    host, side = FakeHost(files={"/proc/stat": text}), Noting("a", [], 1)
    nothing = _Used(0.0, 0.0, 0.0)
    assert _Used.now(host, [side], ()).others_share(nothing) == pytest.approx(0.15)
    assert _Used.now(host, [side], {1}).others_share(nothing) == pytest.approx(0.20)
