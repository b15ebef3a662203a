from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from knobs import DEAD, EarlyKnob, FileKnob, journal_in, knob_host, make_findable, stand
from tare.base.errors import ControlNotHeld, NotRestoredError, TareError, TrialError
from tare.base.host import Host
from tare.parts.protocols import Control, Json, TenantPlace
from tare.testing import FakeHost
from tare.trial.undo.journal import Journal
from tare.trial.undo.knob import hold_controls, is_between, settle_controls
from tare.trial.undo.restoration import restore

KNOBS = tuple(FileKnob(file=name) for name in "abc")
FOUND = {"a": "old", "b": "old", "c": "old"}


class Forgetful(FileKnob):
    """What it does cannot be undone."""

    def read(self, host: Host) -> Json | None:
        return None


def hold(host: FakeHost, controls: Iterable[Control], journal: Journal, body: Callable[[], object] = lambda: None):
    with ExitStack() as stack:
        held = hold_controls(stack, host, controls, [Path("/data")], journal)
        body()
        return held


def refuse(host: FakeHost, name: str, *, value: str, error: Exception) -> None:
    """From now on the knob `name` does not take `value`."""
    real = host.write

    def write(path: object, text: str) -> None:
        if str(path).endswith(f"/{name}") and text.strip() == value:
            raise error
        real(path, text)

    host.write = write  # type: ignore[method-assign]


def test_the_knobs_stand_as_asked_in_the_trial_and_as_found_after_it(tmp_path: Path):
    host, journal = knob_host(), journal_in(tmp_path)
    during: dict[str, str] = {}
    held = hold(host, KNOBS, journal, lambda: during.update(stand(host)))
    assert during == {"a": "new", "b": "new", "c": "new"}
    assert held == {"file_knob": "new"}
    assert stand(host) == FOUND
    assert journal.pending() == []


def test_what_is_put_back_is_what_was_there_not_a_default(tmp_path: Path):
    host = knob_host(a="odd", b="strange", c="new")
    hold(host, KNOBS, journal_in(tmp_path))
    assert stand(host) == {"a": "odd", "b": "strange", "c": "new"}


def test_a_control_is_told_which_files_the_workload_reads(tmp_path: Path):
    class Told(FileKnob):
        def target(self, host: Host, inputs: Iterable[Path]) -> Json:
            return ",".join(map(str, inputs))

    held = hold(knob_host(), [Told(file="a")], journal_in(tmp_path))
    assert held == {"file_knob": "/data"}


def test_what_has_no_inverse_is_written_and_neither_journaled_nor_read_back(tmp_path: Path):
    host, journal = knob_host(), journal_in(tmp_path)
    hold(host, [Forgetful(file="a")], journal)
    assert stand(host)["a"] == "new"
    assert not journal.path.exists()


def test_a_knob_that_cannot_be_read_is_not_touched(tmp_path: Path):
    host, journal = knob_host(a="old"), journal_in(tmp_path)
    with pytest.raises(TrialError, match=r"cannot be read.*not held"):
        hold(host, KNOBS, journal)
    assert host.log == ["write /sys/knobs/a new", "write /sys/knobs/a old"]


def test_a_knob_that_cannot_be_journaled_is_not_touched(tmp_path: Path):
    host, journal = knob_host(), journal_in(tmp_path)
    journal.path.mkdir(parents=True)  # a folder cannot be appended to
    journal.folder.chmod(0o700)
    with pytest.raises(TareError, match="not trusted"):
        hold(host, KNOBS, journal)
    assert host.log == []


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EBUSY, errno.EPERM])
def test_a_knob_that_refuses_its_value_fails_the_trial_and_the_others_are_put_back(tmp_path: Path, number: int):
    host, journal = knob_host(), journal_in(tmp_path)
    refuse(host, "b", value="new", error=OSError(number, "refused by the kernel"))
    with pytest.raises(ControlNotHeld, match="requested new, the device reports refused by the kernel"):
        hold(host, KNOBS, journal)
    assert stand(host) == FOUND
    assert journal.pending() == []


def test_a_knob_that_rounds_its_value_fails_the_trial_with_both_values(tmp_path: Path):
    class Rounding(FileKnob):
        def write(self, host: Host, state: Json) -> None:
            super().write(host, "1113600" if state == "1190400" else state)

    host, journal = knob_host(), journal_in(tmp_path)
    with pytest.raises(ControlNotHeld, match="requested 1190400, the device reports 1113600"):
        hold(host, [KNOBS[0], Rounding(file="b", value="1190400")], journal)
    assert stand(host) == FOUND  # the neighbour's value was never asked for, but it is of our making
    assert journal.pending() == []


def test_a_knob_that_rounds_its_value_is_known_as_ours_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Rounding(FileKnob):
        def write(self, host: Host, state: Json) -> None:
            super().write(host, "1113600" if state == "1190400" else state)

    make_findable(monkeypatch)
    host = knob_host()
    with pytest.raises(ControlNotHeld):
        hold_controls(ExitStack(), host, [Rounding(file="b", value="1190400")], [], journal_in(tmp_path, owner=DEAD))
    assert stand(host)["b"] == "1113600"  # the stack was never unwound
    assert restore(host, journal_in(tmp_path)).clean
    assert stand(host) == FOUND


def test_a_knob_that_fails_and_moves_all_the_same_is_put_back(tmp_path: Path):
    class Clumsy(FileKnob):
        def write(self, host: Host, state: Json) -> None:
            if state == "new":
                super().write(host, "halfway")
                raise OSError(errno.EIO, "Input/output error")
            super().write(host, state)

    host = knob_host()
    with pytest.raises(ControlNotHeld, match="Input/output error"):
        hold(host, [*KNOBS, Clumsy(file="b")], journal_in(tmp_path))
    assert stand(host) == FOUND


def test_ranks_are_put_back_in_order_and_within_one_the_last_first(tmp_path: Path):
    host = knob_host()
    hold(host, [FileKnob(file="a"), FileKnob(file="b"), EarlyKnob(file="c")], journal_in(tmp_path))
    assert [line.split("/")[-1] for line in host.log] == ["a new", "b new", "c new", "c old", "b old", "a old"]
    host = knob_host()
    hold(host, [EarlyKnob(file="a"), FileKnob(file="b"), FileKnob(file="c")], journal_in(tmp_path / "2"))
    assert [line.split("/")[-1] for line in host.log[3:]] == ["a old", "c old", "b old"]


def test_one_knob_that_does_not_go_back_keeps_no_other_from_it(tmp_path: Path):
    host, journal = knob_host(), journal_in(tmp_path)
    refuse(host, "b", value="old", error=OSError(errno.EBUSY, "Device or resource busy"))
    with pytest.raises(NotRestoredError) as caught:
        hold(host, KNOBS, journal)
    assert stand(host) == {"a": "old", "b": "new", "c": "old"}
    assert caught.value.exit_code == 70
    assert "file_knob: NOT restored to old: Device or resource busy." in str(caught.value)
    assert "tare device restore" in str(caught.value).splitlines()[-1]
    assert [entry.seq for entry in journal.pending()] == [2]


def test_a_part_that_breaks_while_it_is_put_back_keeps_no_other_from_it(tmp_path: Path):
    host, journal = knob_host(), journal_in(tmp_path)
    refuse(host, "b", value="old", error=KeyError("a bug"))
    with pytest.raises(NotRestoredError, match="KeyError"):
        hold(host, KNOBS, journal)
    assert stand(host) == {"a": "old", "b": "new", "c": "old"}


def test_a_body_that_fails_keeps_its_error_when_the_device_is_put_back(tmp_path: Path):
    host = knob_host()
    with pytest.raises(ZeroDivisionError):
        hold(host, KNOBS, journal_in(tmp_path), lambda: 1 / 0)
    assert stand(host) == FOUND


def test_what_someone_else_changed_during_the_trial_is_left_alone_and_said(tmp_path: Path):
    host, journal = knob_host(), journal_in(tmp_path)
    with pytest.raises(NotRestoredError, match="found old, set new, and now it is theirs") as caught:
        hold(host, KNOBS, journal, lambda: host.files.update({"/sys/knobs/b": "theirs\n"}))
    assert stand(host) == {"a": "old", "b": "theirs", "c": "old"}
    assert "--force" in str(caught.value)


def test_what_someone_else_put_back_already_is_fine(tmp_path: Path):
    host, journal = knob_host(), journal_in(tmp_path)
    hold(host, KNOBS, journal, lambda: host.files.update({"/sys/knobs/b": "old\n"}))
    assert stand(host) == FOUND
    assert journal.pending() == []


def test_an_impatient_ctrl_c_does_not_leave_the_device_changed(tmp_path: Path):
    host, journal = knob_host(), journal_in(tmp_path)
    presses = iter([KeyboardInterrupt(), SystemExit(1), KeyboardInterrupt()])
    real = host.write

    def write(path: object, text: str) -> None:
        if text.strip() == "old" and (press := next(presses, None)):
            raise press
        real(path, text)

    host.write = write  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        hold(host, KNOBS, journal)
    assert stand(host) == FOUND
    assert journal.pending() == []


def test_a_second_hold_after_a_crash_puts_back_the_first_baseline(tmp_path: Path):
    crashed = journal_in(tmp_path, owner=DEAD)
    crashed.note_knob(KNOBS[0], "old", "new")
    crashed.note_knob(KNOBS[0], "new", "newer")
    host, journal = knob_host(a="newer", b="old", c="old"), journal_in(tmp_path)
    hold(host, [FileKnob(file="a", value="newest")], journal)
    assert stand(host) == FOUND
    assert journal.pending() == []


def test_a_journal_that_fails_after_the_device_was_put_back_is_a_warning_not_an_alarm(tmp_path: Path):
    host, journal = knob_host(), journal_in(tmp_path)

    def no_room(seq: int, how: str) -> None:
        raise TareError("the undo journal cannot be written")

    journal.retire = no_room  # type: ignore[method-assign]
    with pytest.raises(TareError, match="the device is as it was found, but") as caught:
        hold(host, KNOBS, journal)
    assert not isinstance(caught.value, NotRestoredError)
    assert stand(host) == FOUND


def test_a_long_study_does_not_make_a_long_journal(tmp_path: Path):
    journal = journal_in(tmp_path)
    sizes = []
    for number in range(30):
        site = journal.note_site("bare", f"tare-{number}")
        hold(knob_host(), KNOBS, journal)
        sizes.append(journal.path.stat().st_size)
        journal.retire(site, "removed")
    assert max(sizes) < 20_000
    assert journal.pending() == []


@pytest.mark.parametrize(
    ("now", "between"),
    [
        ({"online": [0, 1, 2, 3]}, True),
        ({"online": [0]}, True),
        ({"online": [0, 2, 3]}, True),  # core 1 had gone, cores 2 and 3 had not
        ({"online": [2, 3]}, False),  # core 0 was never to be touched
        ({"online": [0, 4]}, False),  # core 4 is not of our doing
        ({"online": [0], "more": 1}, False),
        ("0", False),
        (None, False),
    ],
)
def test_a_change_of_several_files_that_was_cut_off_is_told_from_someone_elses(now: object, between: bool):
    assert is_between({"online": [0, 1, 2, 3]}, {"online": [0]}, now) is between


class Medium(FileKnob):
    hold_rank = 10


class Cache(FileKnob):
    hold_rank = 90

    def settle(self, host: Host, tenants: Sequence[TenantPlace]) -> Json | None:
        return {"rooms": len(tenants)}


def test_what_others_build_upon_is_held_first_whatever_the_study_names_first(tmp_path: Path):
    host, journal = knob_host(), journal_in(tmp_path)
    hold(host, [Cache(file="a"), FileKnob(file="b"), Medium(file="c")], journal)
    written = [line.split("/")[-1] for line in host.log if line.endswith(" new")]
    assert written == ["c new", "b new", "a new"]


def test_only_controls_that_have_something_to_say_of_the_places_are_in_the_record(tmp_path: Path):
    tenants = [TenantPlace(FakeHost(), tmp_path, ())] * 2
    controls = [Cache(file="a"), FileKnob(file="b")]
    assert settle_controls(FakeHost(), controls, tenants) == {Cache.part_name(): {"rooms": 2}}
    assert settle_controls(FakeHost(), [FileKnob(file="b")], tenants) == {}
