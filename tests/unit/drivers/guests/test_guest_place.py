"""A guest as a host: commands, jobs, files and a workdir that is kept alike, with the real agent at the other end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from guest_without_a_machine import Guest
from old_pythons import id_of, interpreters
from tare.base.errors import TrialError
from tare.base.host import OUTPUT_LIMIT_BYTES, Job, Site
from tare.drivers.guests import place as guest_place
from tare.drivers.guests.channel import GuestGone
from tare.testing import FakeClock

ENV = {"PATH": "/usr/bin:/bin"}
OLD_PYTHONS = [str(path) for path in interpreters("3.[678].*")]


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    made = Guest(tmp_path)
    yield made
    made.close()


def job(script: str, **env: str) -> Job:
    return Job(("sh", "-c", script), env={**ENV, **env})


def test_a_command_runs_there_and_says_what_it_said(guest):
    done = guest.place().run(["sh", "-c", "cat; echo err >&2; exit 3"], stdin="what goes in")

    assert (done.code, done.out, done.err) == (3, "what goes in", "err\n")


def test_a_command_that_is_not_there_is_said_to_be_missing(guest):
    done = guest.place().run(["there-is-no-such-command"])

    assert done.code == 127
    assert "No such file" in done.err


def test_a_job_has_its_own_environment_and_folder_and_our_name(guest):
    ended = guest.place().spawn(Job(("sh", "-c", "pwd; env"), env={**ENV, "A": "one two"}, cwd="/usr")).wait(20)

    lines = ended.out.splitlines()
    assert lines[0] == "/usr"
    assert {"A=one two", "TARE_NAME=tare-guest"} <= set(lines)
    assert not [line for line in lines if line.startswith("HOME=")]


@pytest.mark.parametrize(("others", "code", "blamed"), [(False, 0, True), (True, 0, False), (True, 137, True)])
def test_memory_that_ran_out_meanwhile_ends_no_job_that_came_to_its_end_where_others_run_too(
    tmp_path, monkeypatch, others, code, blamed
):
    guest = Guest(tmp_path, first="import itertools; guest_jobs.oom_kills = itertools.count().__next__")
    monkeypatch.setattr(guest_place.GuestPlace, "runs_others", others)
    try:
        ended = guest.place().spawn(job(f"exit {code}")).wait(20)
    finally:
        guest.close()

    assert ended.oom_killed is blamed


def test_what_a_job_leaves_behind_does_not_hold_it(guest):
    ended = guest.place().spawn(job("sleep 60 & echo $!")).wait(20)

    assert ended.code == 0
    os.kill(int(ended.out), signal.SIGTERM)  # it still runs


def test_a_job_is_timed_on_the_device_to_its_end_without_what_it_leaves_behind(tmp_path, monkeypatch):
    guest = Guest(tmp_path, first="guest._LINGER_S = 3600")
    place, clock, heard = guest.place(), FakeClock(), guest.link.next
    monkeypatch.setattr(place, "clock", clock)

    def a_second_later(number: int, within_s: float):
        frame = heard(number, within_s)
        clock.advance(1)
        if "ended" in frame.header:  # not before: the news of the end must not wait for what is left behind
            (tmp_path / "go").touch()
        return frame

    monkeypatch.setattr(guest.link, "next", a_second_later)
    try:
        left = f"(until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo late) & exit 3"
        ended = place.spawn(job(left)).wait(20)
    finally:
        (tmp_path / "go").touch()
        guest.close()

    assert (ended.code, ended.out, ended.timed_out) == (3, "late\n", False)
    assert ended.seconds == 2  # it was begun, and it ended; its output and the end of that came later


def test_past_the_limit_a_job_is_killed(guest):
    for limit_s in (1.5, 15.0):
        ended = guest.place().spawn(job("echo begun; sleep 987")).wait(limit_s)
        if ended.out:  # else a busy machine had not begun it yet
            break

    assert ended.timed_out
    assert (ended.code, ended.out) == (-signal.SIGKILL, "begun\n")


def test_a_short_command_past_its_limit_is_ended(guest):
    done = guest.place().run(["sleep", "987"], limit_s=0.2)

    assert done.code == 124
    assert "ended by tare" in done.err


def test_output_beyond_what_is_kept_is_cut_and_told(guest):
    ended = guest.place().spawn(Job(("head", "-c", "3000000", "/dev/zero"), env=ENV)).wait(30)

    assert ended.truncated
    assert len(ended.out) == OUTPUT_LIMIT_BYTES


def test_two_jobs_run_at_once_and_keep_their_output_apart(guest):
    place = guest.place()
    first, second = place.spawn(job("sleep 0.2; echo one")), place.spawn(job("echo two"))

    assert second.wait(20).out == "two\n"
    assert first.wait(20).out == "one\n"


def test_files_are_read_and_written_whole_and_never_made(guest, tmp_path):
    place, file = guest.place(), tmp_path / "file"
    file.write_text("before")
    place.write(file, "after")

    assert place.read(file) == "after"
    for attempt in (lambda: place.read(tmp_path / "no"), lambda: place.write(tmp_path / "no", "text")):
        with pytest.raises(FileNotFoundError):
            attempt()
    assert not (tmp_path / "no").exists()


def test_an_error_of_the_guests_files_is_an_error_here(guest, tmp_path):
    with pytest.raises(OSError, match=r"directory"):
        guest.place().read(tmp_path)


@pytest.mark.parametrize("python", OLD_PYTHONS or [os.sys.executable], ids=id_of)
def test_the_agent_runs_on_old_interpreters(python, tmp_path):
    guest = Guest(tmp_path, python)
    try:
        place = guest.place()
        assert place.run(["echo", "heard"]).out == "heard\n"
        place.look_at_clock()
        assert abs(place.guest_clock.facts()["offset_ns"]) < 1_000_000_000  # one clock, asked through two doors
    finally:
        guest.close()


# The workdir


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    made = tmp_path / "workdir"
    made.mkdir()
    return made


class Apart:
    """A workdir whose two sides are two folders, as in a real guest."""

    def __init__(self, guest: Guest, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inside = workdir.parent / "inside"
        self.inside.mkdir()
        begin = guest.link.begin

        def elsewhere(do: str, data: bytes = b"", **fields: object):
            for name in ("workdir", "path"):
                if fields.get(name) == str(workdir):
                    fields[name] = str(self.inside)
            return begin(do, data, **fields)

        monkeypatch.setattr(guest.link, "begin", elsewhere)
        scratch = workdir.parent / "scratch"
        scratch.mkdir()
        self.place = guest.place(Site(name="tare-guest", scratch=scratch, writes=(workdir,)))


@pytest.fixture
def apart(guest: Guest, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Apart:
    (workdir / "inside").mkdir()
    (workdir / "inside" / "program").write_text("pushed when it is opened")
    (workdir / "inside" / "program").chmod(0o755)
    return Apart(guest, workdir, monkeypatch)


def test_what_lies_in_the_workdir_when_it_is_opened_is_there(apart):
    there = apart.inside / "inside" / "program"

    assert there.read_text() == "pushed when it is opened"
    assert there.stat().st_mode & 0o777 == 0o755


def test_what_is_put_in_the_workdir_later_is_there_when_a_job_starts(apart, workdir):
    (workdir / "later").write_text("x" * (5 << 20))  # more than one frame
    apart.place.run(["true"])

    assert (apart.inside / "later").stat().st_size == 5 << 20


def test_what_a_job_leaves_in_the_workdir_comes_home(apart, workdir):
    apart.place.run(["mkdir", str(apart.inside / "new")])
    big = f"head -c {5 << 20} /dev/zero > {apart.inside}/new/marks; rm {apart.inside}/inside/program"
    apart.place.spawn(job(big)).wait(20)

    assert (workdir / "new" / "marks").stat().st_size == 5 << 20
    assert not (workdir / "inside" / "program").exists()


def test_a_file_that_was_written_through_a_mapping_comes_home_although_its_time_is_old(apart, workdir):
    (workdir / "marks").write_bytes(bytes(4096))
    apart.place.run(["true"])
    there = apart.inside / "marks"
    before = there.stat()
    there.write_bytes(b"\1" * 4096)
    os.utime(there, ns=(before.st_atime_ns, before.st_mtime_ns))
    apart.place.run(["true"])

    assert (workdir / "marks").read_bytes() == b"\1" * 4096


def test_what_came_home_is_not_sent_back(apart, workdir, guest, monkeypatch):
    apart.place.spawn(job(f"echo made > {apart.inside}/made")).wait(20)
    asked = []
    begin = guest.link.begin

    def noting(do: str, data: bytes = b"", **fields: object):
        asked.append(do)
        return begin(do, data, **fields)

    monkeypatch.setattr(guest.link, "begin", noting)
    apart.place.run(["true"])

    assert (workdir / "made").read_text() == "made\n"
    assert "spawn" in asked
    assert "put" not in asked


def test_a_guest_cannot_write_outside_of_its_workdir(apart, guest, monkeypatch, tmp_path):
    inner = guest.link.ask

    def lying(do: str, data: bytes = b"", **fields: object):
        frame = inner(do, data, **fields)
        if do == "changes":
            frame.header["changed"] = [{"name": "../escaped", "mode": 0o644, "folder": False, "size": 4}]
        return frame

    monkeypatch.setattr(guest.link, "ask", lying)
    with pytest.raises(TrialError, match=r"'\.\./escaped' in .* leads out of the folder"):
        apart.place.run(["true"])
    assert not (tmp_path / "escaped").exists()


def test_a_job_that_leaves_more_than_the_device_can_hold_is_told(apart, guest, monkeypatch):
    inner = guest.link.ask

    def heavy(do: str, data: bytes = b"", **fields: object):
        frame = inner(do, data, **fields)
        if do == "changes":
            frame.header["changed"] = [{"name": "big", "mode": 0o644, "folder": False, "size": 1 << 40}]
        return frame

    monkeypatch.setattr(guest.link, "ask", heavy)
    with pytest.raises(TrialError, match="left 1099511627776 bytes in its workdir"):
        apart.place.run(["true"])


# A guest that goes away


def test_a_guest_that_dies_during_a_job_is_an_error_with_its_last_words_and_not_a_hang(guest):
    process = guest.place().spawn(job("sleep 987"))
    guest.process.kill()

    with pytest.raises(TrialError, match=r"tare-guest has ended and could not finish the job\.\nits last words"):
        process.wait(600)


def test_a_dead_guest_is_said_to_be_dead_whatever_is_asked(guest):
    place = guest.place()
    guest.process.kill()
    guest.process.wait()

    for ask in (lambda: place.read("/etc/hostname"), lambda: place.run(["true"]), place.look_at_clock):
        with pytest.raises(TrialError, match="has ended"):
            ask()


def test_a_guest_that_hangs_is_given_up_at_the_deadline(guest, monkeypatch):
    monkeypatch.setattr(guest_place, "_DIES_WITHIN_S", 0.3)
    place = guest.place()
    process = place.spawn(job("sleep 987"))
    guest.process.send_signal(signal.SIGSTOP)

    with pytest.raises(TrialError, match="does not answer"):
        process.wait(0.2)


def test_a_line_that_sends_rubbish_is_a_dead_line(guest):
    guest.process.kill()
    with pytest.raises(GuestGone):
        guest.link.ask("clock")
