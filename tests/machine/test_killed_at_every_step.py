"""The acceptance test of the whole tool (faults.md 1.3): killed at every step, every knob is back, byte for byte.

A study with two power modes, fixed clocks, vm.dirty_* values and a fan runs on a pretended AGX Xavier in a mount
namespace of its own. It is killed before each fsync and each write to a knob; then `tare device restore`, or the next
start, and every file of the board is compared with what it was. Every eighth step here, all of
them in `make deep`; for a device of three knobs test_restore.py takes every step every time.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pretended_board import PretendedBoard

pytestmark = [pytest.mark.machine("root", "strace")]
DEEP = pytest.mark.deep
EIGHTHS = 8


def first_step(every: int) -> int:
    """The middle of the first interval: nothing has been changed yet at the first steps of a run."""
    return 1 + every // 2


@pytest.fixture
def board(tmp_path: Path) -> PretendedBoard:
    return PretendedBoard.laid(tmp_path)


@pytest.mark.parametrize(("every", "deaths"), [(EIGHTHS, 10), pytest.param(1, 80, marks=DEEP)])
def test_killed_at_every_step_of_a_run_a_restore_puts_every_knob_back(board: PretendedBoard, every: int, deaths: int):
    report = board.sweep("step", "restore", every, first_step(every))
    assert report["wrong"] == []
    assert report["deaths"] > deaths
    assert board.moved() == {}


@pytest.mark.deep
@pytest.mark.parametrize("fault", ["fsync", "fdatasync", "knob"])
def test_killed_in_a_system_call_it_is_the_same(board: PretendedBoard, fault: str):
    report = board.sweep(fault, "restore", 2, first_step(2))
    assert report["wrong"] == []
    assert report["deaths"] >= 2
    assert board.moved() == {}


@pytest.mark.parametrize(
    ("every", "deaths"),
    [(3 * EIGHTHS, 3), pytest.param(EIGHTHS, 9, marks=DEEP)],
)
def test_killed_on_the_way_the_next_start_finds_the_true_baseline_and_finishes_the_study(
    board: PretendedBoard, every: int, deaths: int
):
    report = board.sweep("step", "again", every, first_step(every))
    assert report["wrong"] == []
    assert report["deaths"] >= deaths
    assert board.moved() == {}


@pytest.mark.parametrize(
    ("died_at", "every", "deaths"),
    [(32, EIGHTHS // 2, 2), *(pytest.param(step, 1, 5, marks=DEEP) for step in (32, 80))],
)
def test_a_restore_that_is_killed_too_is_finished_by_the_next(
    board: PretendedBoard, died_at: int, every: int, deaths: int
):
    report = board.sweep("step", str(died_at), every, first_step(every))
    assert report["left"] > 5, "the run died with nothing changed"
    assert report["wrong"] == []
    assert report["deaths"] >= deaths
    assert board.moved() == {}
