"""A trial's controls as a log of lines, whole and broken at each step: the device is as found, or someone is told."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from knobs import DEAD, FileKnob, journal_in, knob_host, make_findable, stand
from tare.base.errors import ControlNotHeld, NotRestoredError
from tare.base.host import Host
from tare.parts.protocols import Control, Json
from tare.testing import FakeHost
from tare.trial.undo.journal import Journal
from tare.trial.undo.knob import hold_controls
from tare.trial.undo.restoration import restore

FOUND = {"a": "old", "b": "old"}


class Logged(FileKnob):
    """A knob that also logs when it is read."""

    def read(self, host: Host) -> Json | None:
        assert isinstance(host, FakeHost)
        host.log.append(f"read {self.file}")
        return super().read(host)


class LoggedJournal(Journal):
    """A journal that also logs when a line is on disk."""

    log: list[str]

    def _append(self, line: bytes, reserve_bytes: int) -> None:
        super()._append(line, reserve_bytes)
        self.log.append("journaled")


class Steps:
    """The log of one trial's controls, which can be made to break at any line."""

    def __init__(self, tmp_path: Path, break_at: int | None = None) -> None:
        self.host = knob_host(**FOUND)
        self.journal = LoggedJournal(journal_in(tmp_path).folder, boot="boot-1", owner=DEAD)
        self.log = self.host.log = self.journal.log = BreakingLog(break_at)

    def run(self, body: Callable[[], object] = lambda: None) -> None:
        controls: list[Control] = [Logged(file="a"), Logged(file="b")]
        with ExitStack() as stack:
            hold_controls(stack, self.host, controls, [], self.journal)
            self.log.append("body")
            body()


class BreakingLog(list[str]):
    """Raises once, at the line with the number `at`; the line itself has happened."""

    def __init__(self, at: int | None) -> None:
        super().__init__()
        self.at = at

    def append(self, line: str) -> None:
        super().append(line)
        if len(self) - 1 == self.at:
            raise OSError(errno.EIO, "broken here")


WHOLE = [
    "read a", "journaled", "write /sys/knobs/a new", "read a",
    "read b", "journaled", "write /sys/knobs/b new", "read b",
    "body",
    "read b", "write /sys/knobs/b old", "read b", "journaled",
    "read a", "write /sys/knobs/a old", "read a", "journaled",
]  # fmt: skip


def test_each_knob_is_read_journaled_written_and_read_back_and_put_back_in_reverse(tmp_path: Path):
    steps = Steps(tmp_path)
    steps.run()
    assert steps.log == WHOLE
    assert stand(steps.host) == FOUND


@pytest.mark.parametrize("at", range(len(WHOLE)), ids=[f"{number}-{line}" for number, line in enumerate(WHOLE)])
def test_broken_at_each_step_the_device_is_as_found_or_it_is_said_and_a_restore_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
):
    steps = Steps(tmp_path, break_at=at)
    with pytest.raises(Exception) as caught:
        steps.run()
    if stand(steps.host) != FOUND:
        assert isinstance(caught.value, NotRestoredError)
    make_findable(monkeypatch)
    report = restore(steps.host, journal_in(tmp_path))
    assert report.clean
    assert stand(steps.host) == FOUND
    assert journal_in(tmp_path).pending() == []


def test_a_write_that_fails_is_followed_by_nothing_but_the_way_back(tmp_path: Path):
    steps = Steps(tmp_path)
    real = steps.host.write

    def write(path: object, text: str) -> None:
        if str(path).endswith("/b") and text == "new\n":
            steps.log.append("write b refused")
            raise OSError(errno.EBUSY, "Device or resource busy")
        real(path, text)

    steps.host.write = write  # type: ignore[method-assign]
    with pytest.raises(ControlNotHeld, match="Device or resource busy"):
        steps.run()
    assert steps.log[4:] == [
        "read b", "journaled", "write b refused", "read b",  # what the refused write left is looked at
        "read b", "journaled",
        "read a", "write /sys/knobs/a old", "read a", "journaled",
    ]  # fmt: skip
    assert stand(steps.host) == FOUND


def test_a_value_that_does_not_stick_ends_the_trial_before_its_body(tmp_path: Path):
    steps = Steps(tmp_path)
    real = steps.host.write

    def write(path: object, text: str) -> None:
        real(path, "rounded\n" if str(path).endswith("/a") and text == "new\n" else text)

    steps.host.write = write  # type: ignore[method-assign]
    with pytest.raises(ControlNotHeld, match="requested new, the device reports rounded"):
        steps.run()
    assert "body" not in steps.log
    assert "read b" not in steps.log
    assert stand(steps.host) == FOUND


def test_a_body_that_fails_is_followed_by_the_whole_way_back(tmp_path: Path):
    steps = Steps(tmp_path)
    with pytest.raises(ZeroDivisionError):
        steps.run(lambda: 1 / 0)
    assert steps.log == WHOLE


def test_a_knob_that_does_not_go_back_is_said_last_and_the_next_one_is_put_back_all_the_same(tmp_path: Path):
    steps = Steps(tmp_path)
    real = steps.host.write

    def write(path: object, text: str) -> None:
        if str(path).endswith("/b") and text == "old\n":
            raise OSError(errno.EBUSY, "Device or resource busy")
        real(path, text)

    steps.host.write = write  # type: ignore[method-assign]
    with pytest.raises(NotRestoredError):
        steps.run()
    assert steps.log[8:] == ["body", "read b", "read a", "write /sys/knobs/a old", "read a", "journaled"]
    assert stand(steps.host) == {"a": "old", "b": "new"}
