from __future__ import annotations

import io
import re
import sys
import threading

import pytest

from tare.report.progress import REFRESH_HZ, BarProgress, Pace, PlainProgress, progress_on
from tare.testing import FakeClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class GoneTerminal(Terminal):
    def write(self, text: str) -> int:
        raise OSError(5, "the terminal went away")


def seconds_of(clock: FakeClock):  # type: ignore[no-untyped-def]
    return lambda: clock.ns / 1e9


def test_without_a_terminal_there_is_one_line_a_block_with_the_time_left() -> None:
    stream, clock = io.StringIO(), FakeClock()
    progress = PlainProgress(stream, seconds_of(clock))
    progress.started(12)
    ran = (("block 1: bare", "ok", 57), ("block 1: docker", "suspect", 56), ("block 2: bare", "ok", 0.2))
    for label, state, left_s in ran:
        progress.trial_began(label)
        clock.ns += 5 * 10**9
        progress.expects(left_s)
        progress.trial_ended(state, 5)
        if label == "block 1: bare":
            progress.note("the board is warm")
    progress.finished()
    assert stream.getvalue().splitlines() == [
        "12 trials to run",
        "the board is warm",
        "[ 2/12] block 1: 1 ok, 1 suspect, 10.0 s, about 56 s left",
        "[ 3/12] block 2: 1 ok, 5.00 s",  # no `about 0 s left`
        "3 of 12 trials done",
    ]


def test_a_trial_that_is_run_again_is_one_of_those_that_were_planned() -> None:
    stream, clock = io.StringIO(), FakeClock()
    progress = PlainProgress(stream, seconds_of(clock))
    progress.started(2)
    for state in ("invalid", "invalid", "ok"):
        progress.trial_began("block 0: bare")
        clock.ns += 5 * 10**9
        progress.trial_ended(state, 5)
        if state == "invalid":
            progress.trial_again()
    progress.trial_began("block 0: docker")
    progress.trial_ended("ok", 5)
    progress.finished()
    assert stream.getvalue().splitlines() == [
        "2 trials to run",
        "[2/2, 2 again] block 0: 2 invalid, 2 ok, 15.0 s",
        "2 of 2 trials done, 2 attempts again",
    ]


def test_the_bar_counts_trials_too_and_says_how_many_were_run_again() -> None:
    stream = Terminal()
    progress = BarProgress(stream)
    progress.started(2)
    progress.trial_began("block 0: bare")
    progress.trial_ended("invalid", 5)
    progress.trial_again()
    progress.trial_began("block 0: bare")
    progress.trial_ended("ok", 5)
    progress.finished()
    assert "1/2, 1 again" in stream.getvalue()


def test_a_note_of_several_lines_keeps_them_and_steers_nothing() -> None:
    stream = io.StringIO()
    PlainProgress(stream).note("the knob was left alone.\nMake room \x1b[2Jand try again.")
    first, second = stream.getvalue().splitlines()
    assert first == "the knob was left alone."
    assert second.startswith("Make room ")
    assert "\x1b" not in second


def test_the_time_left_is_what_the_runner_expects_and_runs_down() -> None:
    clock = FakeClock()
    pace = Pace(7, seconds_of(clock))
    assert pace.left_s() is None
    pace.expect(35.0)
    assert pace.left_s() == 35.0
    clock.advance(2)
    assert pace.left_s() == 33.0
    clock.advance(100)  # longer than a typical one: the rest is still to come
    assert pace.left_s() == 30.0


@pytest.mark.parametrize(
    ("environ", "kind"),
    [
        ({"TERM": "xterm"}, BarProgress),
        ({"TERM": "xterm", "NO_COLOR": "1"}, PlainProgress),
        ({"TERM": "xterm", "NO_COLOR": ""}, BarProgress),
        ({"TERM": "dumb"}, PlainProgress),
        ({}, PlainProgress),
    ],
)
def test_a_bar_is_drawn_only_on_a_terminal_that_can_show_it(environ: dict[str, str], kind: type) -> None:
    assert type(progress_on(Terminal(), environ)) is kind
    assert type(progress_on(io.StringIO(), environ)) is PlainProgress


def test_a_terminal_too_narrow_for_a_bar_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tare.report.progress._columns", lambda stream: 30)
    assert type(progress_on(Terminal(), {"TERM": "xterm"})) is PlainProgress


def test_the_bar_shows_the_trial_the_count_and_the_time_left() -> None:
    stream = Terminal()
    progress = BarProgress(stream)
    progress.started(4)
    progress.expects(20.0)
    progress.trial_began("block 1: [red]docker[/red] \x1b[2J")
    progress.trial_ended("ok", 5.0)
    progress.trial_began("block 1: bare")
    progress.note("[bold]kept as it is[/bold]")
    progress.finished()
    shown = stream.getvalue()
    assert "1/4" in shown
    assert "block 1: bare" in shown
    assert "left" in shown
    assert "[bold]kept as it is[/bold]" in shown
    assert "\x1b[2J" not in shown


def test_the_bar_is_drawn_at_most_twice_a_second() -> None:
    progress = BarProgress(Terminal())
    progress.started(2)
    refreshers = [thread for thread in threading.enumerate() if hasattr(thread, "refresh_per_second")]
    progress.finished()
    assert [thread.refresh_per_second for thread in refreshers] == [REFRESH_HZ]  # type: ignore[attr-defined]
    assert REFRESH_HZ <= 2


@pytest.mark.parametrize("kind", [PlainProgress, BarProgress])
def test_a_terminal_that_went_away_does_not_end_the_run(kind: type) -> None:
    progress = kind(GoneTerminal())
    progress.started(2)
    progress.trial_began("bare")
    progress.trial_ended("ok", 1.0)
    progress.note("still here")
    progress.finished()


def test_rich_is_loaded_only_when_a_bar_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    plain = PlainProgress(io.StringIO())
    plain.started(1)
    assert "rich" not in sys.modules


def test_a_long_label_is_cut_and_the_count_and_the_time_left_stay_on_its_line() -> None:
    stream = Terminal()
    progress = BarProgress(stream)
    progress.started(24)
    progress.trial_began("block 0: tiny, batch 512 in runc and tiny, batch 512 on bare metal and its A/A repeat")
    progress.expects(69.0)
    progress.trial_ended("ok", 3.0)
    progress.finished()
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).replace("\r", "\n").splitlines()
    assert any(line.startswith("block 0: tiny") and " 1/24" in line and "1 min 09 s left" in line for line in drawn)
