from __future__ import annotations

import os
from pathlib import Path

import pytest

from tare.trial.conditions import Glance, advice, glance

ME, OTHER, THIRD = (os.getpid(), "tare"), (4_000_001, "cc1plus"), (4_000_002, "cc1plus")
BEFORE = Glance(1000, 500, 50, {ME: 50, OTHER: 100})


def later(foreign: int, ours: int = 0, capacity: int = 200) -> Glance:
    return Glance(1000 + capacity, 500 + foreign + ours, 50 + ours, {ME: 50 + ours, OTHER: 100 + foreign, THIRD: 7})


def test_who_uses_the_cores_is_named_before_the_first_trial():
    said = str(advice(BEFORE, later(120)))
    assert "other processes use 60%" in said
    assert "(cc1plus)" in said
    assert "above 25% a trial is invalid" in said
    assert "`--design slices`" in said
    assert "slices" not in str(advice(BEFORE, later(120), sliced=True))


def test_less_than_that_makes_trials_suspect():
    assert "above 2% a trial is suspect" in str(advice(BEFORE, later(20)))


@pytest.mark.parametrize("after", [later(0), later(3), later(9), later(0, ours=190), later(10, capacity=1000)])
def test_a_quiet_device_and_our_own_work_are_nothing_to_say(after: Glance):
    assert advice(BEFORE, after) is None


def test_two_glances_in_the_same_tick_say_nothing():
    assert advice(BEFORE, BEFORE) is None


def test_a_glance_reads_what_the_kernel_says(tmp_path: Path):
    (tmp_path / "stat").write_text("cpu  10 1 20 300 5 2 3 4 0 0\ncpu0 1 2\n")
    for pid, name, ticks in ((7, "a (b) c", "40 2 0 0"), (os.getpid(), "me", "1 2 3 4")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 20 0 1 0 99")
    (tmp_path / "8").mkdir()  # gone since
    assert glance(tmp_path) == Glance(345, 36, 10, {(7, "a (b) c"): 42, (os.getpid(), "me"): 3})
    assert glance().capacity > 0
