from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from knobs import DEAD, DEVICE, EarlyKnob, FileKnob, LastingKnob, journal_in, knob_host, lines, make_findable, stand
from tare.base.errors import BusyError, TareError
from tare.base.host import Host, LocalHost, Site
from tare.base.processes import Owner
from tare.parts.controls.power import Cpu
from tare.parts.probes.cpu import Cpu as CpuProbe
from tare.parts.protocols import Platform, Probe
from tare.testing import FakeHost
from tare.trial.device import restore_command
from tare.trial.undo import restoration
from tare.trial.undo.journal import Journal, seal
from tare.trial.undo.restoration import Restoration, find_remains, remove, restore, status

A, B, C = (FileKnob(file=name) for name in "abc")
FOUND = {"a": "old", "b": "old", "c": "old"}


class Shed(Platform):
    """A platform whose leftovers are a list."""

    left: ClassVar[list[str]] = []
    swept: ClassVar[list[str]] = []
    stuck: ClassVar[bool] = False

    def obstacles(self, host: Host) -> list[str]:
        return []

    def open(self, host: Host, site: Site) -> Host:
        return host

    @classmethod
    def sweep(cls, host: Host, name: str) -> None:
        if cls.stuck:
            raise TareError("the engine does not answer.")
        cls.swept.append(name)
        if isinstance(host, FakeHost):
            host.log.append(f"sweep {name}")


@pytest.fixture(autouse=True)
def _findable(monkeypatch: pytest.MonkeyPatch) -> None:
    make_findable(monkeypatch, shed=Shed)
    monkeypatch.setattr(Shed, "swept", [])
    monkeypatch.setattr(Shed, "stuck", False)


def crashed(tmp_path: Path, *knobs: FileKnob, boot: str = "boot-1", run: str = "7f3") -> Journal:
    """The journal of a run that was killed after it had noted these knobs."""
    journal = journal_in(tmp_path, boot=boot, owner=DEAD, run=run)
    for knob in knobs:
        journal.note_knob(knob, "old", knob.value)
    return journal_in(tmp_path)


# Knobs


def test_a_crash_between_the_second_knob_and_the_third_is_put_back(tmp_path: Path):
    host, journal = knob_host(a="new", b="new", c="old"), crashed(tmp_path, A, B)
    report = restore(host, journal)
    assert stand(host) == FOUND
    assert len(report.restored) == 2
    assert report.clean
    assert "restored to old (it stood at new)" in report.restored[0]
    assert not journal.path.exists()


def test_a_knob_that_was_noted_and_not_yet_touched_is_only_retired(tmp_path: Path):
    host, journal = knob_host(), crashed(tmp_path, A)
    report = restore(host, journal)
    assert host.log == []
    assert report.restored == ("file_knob: it is as it was found, old.",)
    assert journal.pending() == []


def test_restoring_twice_is_restoring_once(tmp_path: Path):
    host, journal = knob_host(a="new", b="old", c="old"), crashed(tmp_path, A)
    restore(host, journal)
    host.log.clear()
    assert restore(host, journal) == Restoration()
    assert host.log == []


def test_nothing_pending_is_nothing_to_say(tmp_path: Path):
    report = restore(knob_host(), journal_in(tmp_path))
    assert report.sentences() == []
    assert report.clean


def test_the_run_that_died_is_named(tmp_path: Path):
    report = restore(knob_host(a="new"), crashed(tmp_path, A))
    assert any("pid 4194304 (run '7f3') changed this device at 1970-01-01" in note for note in report.notes)
    assert any("ended without restoring it" in note for note in report.notes)


def test_restore_follows_the_ranks_and_then_the_last_first(tmp_path: Path):
    host = knob_host(a="new", b="new", c="new")
    restore(host, crashed(tmp_path, A, EarlyKnob(file="b"), C))
    assert [line.split("/")[-1] for line in host.log] == ["b old", "c old", "a old"]


def test_what_is_urgent_now_goes_before_every_rank_and_a_part_that_cannot_say_so_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def urgent(self: FileKnob, host: Host) -> bool:
        if self.file == "c":
            raise OSError("its sensor is gone")
        return self.file == "a"

    monkeypatch.setattr(FileKnob, "urgent", urgent)
    host = knob_host(a="new", b="new", c="new")
    restore(host, crashed(tmp_path, A, EarlyKnob(file="b"), C))
    assert [line.split("/")[-1] for line in host.log] == ["a old", "b old", "c old"]


def test_two_crashes_in_a_row_put_back_the_first_baseline(tmp_path: Path):
    crashed(tmp_path, A)
    second = journal_in(tmp_path, owner=DEAD)
    second.note_knob(FileKnob(file="a", value="newer"), "new", "newer")
    host = knob_host(a="newer")
    restore(host, journal_in(tmp_path))
    assert stand(host) == {"a": "old"}
    assert host.log == ["write /sys/knobs/a old"]


def test_a_change_that_was_cut_off_half_way_is_our_own(tmp_path: Path):
    cores = {f"/sys/devices/system/cpu/cpu{n}/online": "1" for n in (1, 2, 3)}
    host = FakeHost(files={"/sys/devices/system/cpu/online": "0-1,3", **cores})
    crash = journal_in(tmp_path, owner=DEAD)
    crash.note_knob(Cpu(online=(0,)), {"online": [0, 1, 2, 3]}, {"online": [0]})
    restore(host, journal_in(tmp_path))
    assert host.log == ["write /sys/devices/system/cpu/cpu2/online 1"]


# Someone else's change


def test_a_value_that_is_neither_found_nor_set_is_left_alone_with_all_three_named(tmp_path: Path):
    host, journal = knob_host(a="theirs", b="new", c="old"), crashed(tmp_path, A, B)
    report = restore(host, journal)
    assert stand(host) == {"a": "theirs", "b": "old", "c": "old"}
    (sentence,) = report.foreign
    assert "found old, set new, and now it is theirs" in sentence
    (planned,) = restore(host, journal, plan_only=True).foreign
    assert "--force` restores what tare found" in planned
    assert not report.clean
    assert [entry.seq for entry in journal.pending()] == [1]


def test_force_puts_back_what_someone_else_changed(tmp_path: Path):
    host, journal = knob_host(a="theirs"), crashed(tmp_path, A)
    report = restore(host, journal, force=True)
    assert stand(host) == {"a": "old"}
    assert report.clean


# Reboots


def test_a_reboot_heals_what_is_volatile_and_is_looked_at(tmp_path: Path):
    host, journal = knob_host(a="fresh"), crashed(tmp_path, A, boot="boot-0")
    report = restore(host, journal)
    assert host.log == []
    assert report.healed == ("file_knob: healed by the reboot since then (it was old, it is fresh now).",)
    assert journal.pending() == []


def test_a_reboot_does_not_heal_what_lasts(tmp_path: Path):
    host, journal = knob_host(b="new"), crashed(tmp_path, LastingKnob(file="b"), boot="boot-0")
    assert restore(host, journal).clean
    assert stand(host) == {"b": "old"}


def test_a_lasting_knob_that_was_held_before_and_after_a_reboot_has_one_baseline(tmp_path: Path):
    crashed(tmp_path, LastingKnob(file="b"), boot="boot-0")
    journal_in(tmp_path, owner=DEAD).note_knob(LastingKnob(file="b", value="newer"), "new", "newer")
    for standing in ("new", "newer"):
        host = knob_host(b=standing)
        assert restore(host, journal_in(tmp_path), plan_only=True).foreign == ()
    assert restore(host, journal_in(tmp_path)).clean
    assert stand(host) == {"b": "old"}


def test_a_volatile_knob_that_was_held_before_and_after_a_reboot_goes_back_to_what_the_boot_gave(tmp_path: Path):
    crashed(tmp_path, A, boot="boot-0")
    journal_in(tmp_path, owner=DEAD).note_knob(A, "fresh", "new")
    host = knob_host(a="new")
    report = restore(host, journal_in(tmp_path))
    assert stand(host) == {"a": "fresh"}
    assert len(report.healed) == len(report.restored) == 1
    assert report.clean


# Failures


def test_a_knob_that_cannot_be_put_back_is_reported_and_tried_again_next_time(tmp_path: Path):
    host, journal = knob_host(a="new", b="new"), crashed(tmp_path, A, B)
    broken = FakeHost(files={"/sys/knobs/b": "new\n"})
    report = restore(broken, journal)
    assert "file_knob: NOT restored to old: /sys/knobs/a." in report.failed
    assert not report.clean
    assert restore(host, journal).clean
    assert stand(host) == {"a": "old", "b": "new"}  # b was put back on the first try, and retired


def test_a_knob_that_keeps_its_value_is_not_retired(tmp_path: Path):
    host, journal = knob_host(a="new"), crashed(tmp_path, A)
    host.write = lambda path, text: None  # type: ignore[method-assign]
    report = restore(host, journal)
    assert report.failed == ("file_knob: NOT restored to old: it was written, but the device still says new.",)
    assert len(journal.pending()) == 1


def test_without_root_it_says_what_it_would_do_and_that_root_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    host, journal = knob_host(a="new"), crashed(tmp_path, A)

    def denied(path: object, text: str) -> None:
        raise PermissionError(13, "Permission denied")

    host.write = denied  # type: ignore[method-assign]
    monkeypatch.delenv("TARE_STATE")
    monkeypatch.setattr(os, "geteuid", lambda: journal.path.stat().st_uid or 1000)
    os.chown(journal.path, os.geteuid(), -1)
    report = restore(host, journal)
    needed = f"`{restore_command(as_root=True)}`"
    assert report.failed == (f"file_knob: would be restored to old, but root is needed: {needed}.",)
    assert needed.startswith("`sudo env TARE_STATE=")  # root has a journal of its own
    assert not report.clean


def test_a_plan_changes_nothing(tmp_path: Path):
    host, journal = knob_host(a="new", b="old", c="theirs"), crashed(tmp_path, A, B, C)
    journal_in(tmp_path, owner=DEAD).note_site("shed", "tare-1")
    before = journal.path.read_bytes()
    report = restore(host, journal, plan_only=True)
    assert report.planned == (
        "tare-1: what shed left there would be removed.",
        "file_knob: nothing to do, it is as it was found (old).",
        "file_knob: would be restored to old (it stands at new).",
    )
    assert len(report.foreign) == 1
    assert (host.log, Shed.swept, journal.path.read_bytes()) == ([], [], before)


def test_a_plan_while_a_run_is_alive_says_whose_device_it_is_and_that_a_restore_is_refused(tmp_path: Path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as run:
        started = int(Path(f"/proc/{run.pid}/stat").read_text().rpartition(")")[2].split()[19])
        journal_in(tmp_path, owner=Owner(run.pid, started), run="out/modes").note_knob(A, "old", "new")
        host, journal = knob_host(a="new"), journal_in(tmp_path)
        (note,) = restore(host, journal, plan_only=True).notes
        with pytest.raises(BusyError, match=f"pid {run.pid}"):
            restore(host, journal)
    assert note.startswith(f"pid {run.pid} (run 'out/modes') changed this device at ")
    assert "owns it: it is still at work" in note
    assert "a restore is refused" in note
    assert "should that run die, what follows would be done" in note


# A journal that was tampered with


@pytest.mark.parametrize(
    ("knob", "reason"),
    [
        ({"control": "passwd", "fields": {}, "id": "passwd"}, "no control 'passwd'"),
        ({"control": "file_knob", "fields": {"file": "/etc/passwd"}, "id": "file_knob a"}, "file"),
        ({"control": "file_knob", "fields": {"file": "a", "path": "/etc"}, "id": "file_knob a"}, "path"),
        ({"control": "file_knob", "fields": {"file": "b"}, "id": "file_knob a"}, "not a setting"),
    ],
)
def test_a_record_that_no_control_would_have_written_is_refused(tmp_path: Path, knob: dict[str, object], reason: str):
    host, journal = knob_host(a="new", b="new", c="new"), crashed(tmp_path, A)
    forged = {**lines(journal)[0], "seq": 2, "knob": knob, "old": "evil"}
    forged.pop("crc")
    with journal.path.open("ab") as file:
        file.write(seal(forged))
    report = restore(host, journal)
    assert stand(host) == {"a": "old", "b": "new", "c": "new"}
    (sentence,) = report.failed
    assert "was refused, and nothing was written" in sentence
    assert reason in sentence


@pytest.mark.parametrize(
    "old", [{"online": ["../../x"]}, {"online": []}, {"online": [-1]}, "0-3", {"path": "/etc"}, None]
)
def test_a_state_that_is_not_one_of_the_controls_own_is_never_written(tmp_path: Path, old: object):
    host = FakeHost(files={"/sys/devices/system/cpu/online": "0", "/sys/devices/system/cpu/cpu1/online": "0"})
    journal_in(tmp_path, owner=DEAD).note_knob(Cpu(online=(0,)), old, {"online": [0]})
    report = restore(host, journal_in(tmp_path))
    assert host.log == []
    assert len(report.failed) == 1


def test_a_damaged_line_is_named_and_the_rest_is_put_back(tmp_path: Path):
    host, journal = knob_host(a="new", b="new", c="new"), crashed(tmp_path, A, B, C)
    first, _, third = journal.path.read_bytes().splitlines(keepends=True)
    journal.path.write_bytes(first + b"\x00garbage\n" + third)
    report = restore(host, journal)
    assert stand(host) == {"a": "old", "b": "new", "c": "old"}
    assert any("line 2 of" in note for note in report.notes)


def test_the_journal_of_another_device_is_ignored_with_a_warning(tmp_path: Path):
    other = Journal(tmp_path / "devices" / "another", boot="boot-1", owner=DEAD)
    other.note_knob(A, "old", "new")
    host = knob_host(a="new")
    report = restore(host, journal_in(tmp_path))
    assert host.log == []
    assert any("another" in note and "ignored" in note for note in report.notes)
    assert other.pending()


# Sites


def test_leftovers_are_removed_before_any_knob_is_turned(tmp_path: Path):
    crashed(tmp_path, A)
    crash = journal_in(tmp_path, owner=DEAD)
    for name in ("tare-1", "tare-2"):
        crash.note_site("shed", name)
    host = knob_host(a="new")
    report = restore(host, journal_in(tmp_path))
    assert [line for line in host.log if not line.startswith("run find")] == [  # what is stopped is looked for first
        "sweep tare-2",
        "sweep tare-1",
        "write /sys/knobs/a old",
    ]
    assert report.swept == ("tare-2: what shed left there is gone.", "tare-1: what shed left there is gone.")
    assert journal_in(tmp_path).pending() == []


def test_the_folders_of_a_site_go_after_what_was_made_in_them(tmp_path: Path):
    journal_in(tmp_path, owner=DEAD).note_site("shed", "tare-1")
    (tmp_path / "scratch" / "tare-1" / "rootfs").mkdir(parents=True)
    restore(knob_host(), journal_in(tmp_path), scratch=tmp_path / "scratch")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_leftovers_that_cannot_be_removed_do_not_keep_the_knobs_from_it(tmp_path: Path):
    crashed(tmp_path, A)
    journal_in(tmp_path, owner=DEAD).note_site("shed", "tare-1")
    Shed.stuck = True
    host, journal = knob_host(a="new"), journal_in(tmp_path)
    report = restore(host, journal)
    assert stand(host) == {"a": "old"}
    assert report.failed == ("tare-1: what shed left there could NOT be removed: the engine does not answer.",)
    assert len(journal.pending()) == 1


def test_a_probe_that_breaks_does_not_keep_a_device_from_being_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    class Breaking(CpuProbe):
        @classmethod
        def after_dead_run(cls, host: Host) -> list[str]:
            raise RuntimeError("of another package")

        leftovers = sweep = after_dead_run  # type: ignore[assignment]

    def found(kind: str, name: str) -> type[Probe]:
        if name == "unloadable":
            raise AttributeError("when it is imported")
        return Breaking

    crashed(tmp_path, A)
    monkeypatch.setattr(restoration, "names", lambda kind: ["breaking", "unloadable"] if kind == "probes" else [])
    monkeypatch.setattr(restoration, "find", found)
    monkeypatch.setattr(Breaking, "called", "breaking")
    host = knob_host(a="new")
    report = restore(host, journal_in(tmp_path))
    assert stand(host) == {"a": "old"}
    assert report.clean
    assert any(
        "what breaking left after a dead run could NOT be removed: RuntimeError" in each for each in report.notes
    )

    name = f"tare-probe-{os.getpid()}"
    folder = tmp_path / "scratch" / name
    folder.mkdir(parents=True)
    site = [each for each in find_remains(LocalHost(), folder.parent) if each.site == name]
    failures = remove(LocalHost(), site, folder.parent)
    assert [each.site for each in failures] == [name]
    assert "breaking: " in failures[0].why
    assert not folder.exists()


def test_a_site_of_a_platform_that_is_not_installed_is_a_failure_with_its_name(tmp_path: Path):
    journal_in(tmp_path, owner=DEAD).note_site("gone", "tare-1")
    report = restore(knob_host(), journal_in(tmp_path))
    assert "no platform 'gone'" in report.failed[0]


# An owner that lives


def test_nothing_is_restored_under_a_run_that_is_still_alive(tmp_path: Path):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        stat = Path(f"/proc/{child.pid}/stat").read_text()
        living = Owner(child.pid, int(stat.rpartition(")")[2].split()[19]))
        journal_in(tmp_path, owner=living, run="7f3").note_knob(A, "old", "new")
        host = knob_host(a="new")
        with pytest.raises(BusyError, match=rf"pid {child.pid}.*run '7f3'") as caught:
            restore(host, journal_in(tmp_path))
        assert caught.value.exit_code == 75
        assert host.log == []
        plan = restore(host, journal_in(tmp_path), plan_only=True)
        assert any("is still at work" in note for note in plan.notes)
    finally:
        child.communicate()
    assert restore(host, journal_in(tmp_path)).clean


def test_a_pid_of_an_earlier_boot_is_nobody(tmp_path: Path):
    journal_in(tmp_path, owner=Owner.me(), boot="boot-0").note_knob(LastingKnob(file="b"), "old", "new")
    host = knob_host(b="new")
    assert restore(host, journal_in(tmp_path, owner=DEAD)).clean


# Status


def test_the_status_shows_baseline_now_wanted_owner_and_age(tmp_path: Path):
    crashed(tmp_path, A)
    journal_in(tmp_path, owner=DEAD).note_site("shed", "tare-1")
    knob, site = status(knob_host(a="new"), journal_in(tmp_path, now_s=lambda: 1060.0))
    assert (knob.knob, knob.baseline, knob.now, knob.wanted) == ("file_knob", "old", "new", "new")
    assert (knob.owner, knob.run, knob.age_s) == ("4194304:1", "7f3", 60.0)
    assert (site.knob, site.now, site.age_s) == ("shed tare-1", None, 60.0)


def test_a_knob_that_cannot_be_read_is_in_the_status_with_the_reason(tmp_path: Path):
    (row,) = status(FakeHost(), crashed(tmp_path, A))
    assert row.now is None
    assert "/sys/knobs/a" in row.trouble


def test_the_report_as_data_says_whether_the_device_is_clean(tmp_path: Path):
    data = restore(knob_host(a="theirs"), crashed(tmp_path, A)).as_json()
    assert data["clean"] is False
    assert len(data["foreign"]) == 1
    assert DEVICE  # the id of the folder that the journal lies in
