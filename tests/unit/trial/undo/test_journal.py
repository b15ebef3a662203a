from __future__ import annotations

import errno
import os
import stat
import zlib
from pathlib import Path

import pytest

from knobs import DEAD, DEVICE, FileKnob, LastingKnob, journal_in, lines
from tare.base.errors import TareError
from tare.trial.undo.journal import Journal, KnobEntry, SiteEntry, seal, unseal

A, B = FileKnob(file="a"), FileKnob(file="b")


def pending(journal: Journal) -> list[tuple[str, object]]:
    return [(e.knob, e.old) if isinstance(e, KnobEntry) else (e.site, None) for e in journal.pending()]


# What is written


def test_a_record_says_what_is_changed_from_what_to_what_and_by_whom(tmp_path: Path):
    journal = journal_in(tmp_path, run="7f3", owner=DEAD)
    journal.note_knob(A, "old", "new")
    (record,) = lines(journal)
    record.pop("crc")
    assert record == {
        "seq": 1,
        "kind": "knob",
        "knob": {"control": "file_knob", "fields": {"file": "a", "value": "new"}, "id": "file_knob a"},
        "old": "old",
        "new": "new",
        "persistence": "volatile",
        "restore_rank": 50,
        "device": DEVICE,
        "boot_id": "boot-1",
        "owner": "4194304:1",
        "run": "7f3",
        "time_s": 1000.0,
    }


def test_only_the_owner_can_read_or_write_the_journal(tmp_path: Path):
    journal = journal_in(tmp_path)
    journal.note_knob(A, "old", "new")
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(journal.folder.stat().st_mode) == 0o700


def test_a_note_is_on_disk_when_it_returns_and_so_is_the_name_of_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    journal = journal_in(tmp_path)
    journal.note_knob(A, "old", "new")
    assert synced == ["undo.jsonl", DEVICE]
    journal.note_knob(B, "old", "new")
    assert synced == ["undo.jsonl", DEVICE, "undo.jsonl"]


def test_what_is_retired_is_no_longer_pending(tmp_path: Path):
    journal = journal_in(tmp_path)
    first, second = journal.note_knob(A, "old", "new"), journal.note_site("docker", "tare-1")
    assert pending(journal) == [("file_knob a", "old"), ("tare-1", None)]
    journal.retire(first, "restored")
    assert pending(journal) == [("tare-1", None)]
    journal.retire(second, "swept")
    assert pending(journal) == []


def test_another_process_sees_the_same(tmp_path: Path):
    journal_in(tmp_path).note_knob(A, {"x": [1, 2.5, None, True]}, "new")
    assert pending(journal_in(tmp_path)) == [("file_knob a", {"x": [1, 2.5, None, True]})]


def test_a_journal_that_was_never_written_is_empty_and_makes_no_folder(tmp_path: Path):
    journal = journal_in(tmp_path)
    assert journal.pending() == []
    assert not journal.folder.exists()


@pytest.mark.parametrize("name", ["", "../etc", "a/b", "-rf", "x y", "n" * 129, "a\nb"])
def test_a_site_has_a_name_that_is_neither_path_nor_option(tmp_path: Path, name: str):
    with pytest.raises(ValueError, match="not a name"):
        journal_in(tmp_path).note_site("docker", name)


# The baseline


def test_the_first_one_to_change_a_knob_sets_its_baseline(tmp_path: Path):
    journal = journal_in(tmp_path)
    journal.note_knob(A, "old", "new")
    journal.note_knob(FileKnob(file="a", value="newer"), "new", "newer")  # after a crash: `new` is our own doing
    assert [record["old"] for record in lines(journal)] == ["old", "old"]


def test_a_knob_that_was_put_back_gets_a_new_baseline(tmp_path: Path):
    journal = journal_in(tmp_path)
    journal.retire(journal.note_knob(A, "old", "new"), "restored")
    journal.note_knob(A, "another", "new")
    assert pending(journal) == [("file_knob a", "another")]


def test_a_reboot_gives_a_volatile_knob_a_new_baseline_and_a_lasting_one_not(tmp_path: Path):
    before = journal_in(tmp_path)
    for knob in (A, LastingKnob(file="b")):
        before.note_knob(knob, "old", "new")
    after = journal_in(tmp_path, boot="boot-2")
    for knob in (A, LastingKnob(file="b")):
        after.note_knob(knob, "fresh", "new")
    assert [record["old"] for record in lines(after)] == ["old", "old", "fresh", "old"]


# A disk that fails


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("call", ["write", "fsync", "open"])
def test_if_the_journal_cannot_be_written_the_knob_is_to_be_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
):
    journal = journal_in(tmp_path)
    journal.note_knob(B, "old", "new")
    real = getattr(os, call)

    def refuse(target: object, *rest: object, **keywords: object) -> object:
        if call == "open" and not (isinstance(rest[0], int) and rest[0] & os.O_APPEND):
            return real(target, *rest, **keywords)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(TareError, match=f"{os.strerror(number)}.*file_knob was left alone"):
        journal.note_knob(A, "old", "new")


def test_a_line_that_did_not_fit_is_taken_out_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    journal = journal_in(tmp_path)
    journal.note_knob(A, "old", "new")
    whole = journal.path.read_bytes()
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:40]))
    with pytest.raises(TareError, match="No space left"):
        journal.note_knob(B, "old", "new")
    assert journal.path.read_bytes() == whole


def test_a_journal_whose_disk_has_failed_once_is_not_believed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    journal = journal_in(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
        with pytest.raises(TareError):
            journal.note_knob(A, "old", "new")
    with pytest.raises(TareError, match="an earlier fsync failed"):
        journal.note_knob(A, "old", "new")


# Lines that are not whole


def three(tmp_path: Path) -> tuple[Journal, bytes]:
    journal = journal_in(tmp_path)
    for name in "abc":
        journal.note_knob(FileKnob(file=name), f"old {name}", "new")
    return journal, journal.path.read_bytes()


def test_a_torn_last_line_is_ignored_with_a_sentence_at_every_length(tmp_path: Path):
    journal, whole = three(tmp_path)
    start_of_last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for length in range(start_of_last + 1, len(whole) - 1):
        journal.path.write_bytes(whole[:length])
        assert pending(journal) == [("file_knob a", "old a"), ("file_knob b", "old b")]
        assert journal.problems == [f"the last line of {journal.path} is torn; it was ignored."]


def test_a_note_after_a_torn_line_is_not_glued_to_it(tmp_path: Path):
    journal, whole = three(tmp_path)
    journal.path.write_bytes(whole[:-20])
    seq = journal.note_knob(FileKnob(file="c"), "again", "new")
    assert pending(journal)[-1] == ("file_knob c", "again")
    assert seq == 4  # the torn one may have been 3
    assert "line 3" in journal.problems[0]


def test_a_damaged_line_in_the_middle_is_named_and_hides_no_other(tmp_path: Path):
    journal, whole = three(tmp_path)
    first, _, third = whole.splitlines(keepends=True)
    journal.path.write_bytes(first + bytes(range(128, 192)) + b"\n" + third)
    assert pending(journal) == [("file_knob a", "old a"), ("file_knob c", "old c")]
    assert journal.problems == [f"line 2 of {journal.path} is damaged; it was ignored."]


def test_no_change_of_a_single_byte_makes_another_record_of_it(tmp_path: Path):
    journal, whole = three(tmp_path)
    true = pending(journal)
    first, second, _ = (len(line) for line in whole.splitlines(keepends=True))
    for position in range(first - 1, first + second):
        flipped = bytes([whole[position] ^ 0x01])
        journal.path.write_bytes(whole[:position] + flipped + whole[position + 1 :])
        seen = pending(journal)
        assert set(seen) < set(true), position  # at least one is missing, and none is different


def test_a_line_that_is_whole_but_not_ours_is_ignored(tmp_path: Path):
    journal, whole = three(tmp_path)
    record = unseal(whole.splitlines()[0])
    assert record is not None
    forged = [
        {**record, "kind": "shell"},
        {**record, "seq": 0},
        {**record, "seq": True},
        {**record, "knob": {"control": "../../etc/passwd", "fields": {}, "id": "x"}},
        {**record, "knob": "cpu"},
        {**record, "kind": "site", "platform": "docker", "site": "../../../home"},
        {"device": DEVICE},
        {**record, "time_s": 10**400},
        {**record, "time_s": 1e300},
        {**record, "time_s": -1},
        {**record, "time_s": "0"},
    ]
    journal.path.write_bytes(whole + b"".join(map(seal, forged)))
    assert len(pending(journal)) == 3
    assert [problem.split(" of ")[0] for problem in journal.problems] == [f"line {n}" for n in range(4, 15)]


def test_a_number_of_more_digits_than_python_reads_is_damage(tmp_path: Path):
    journal, whole = three(tmp_path)
    body = b'{"seq":1,"time_s":' + b"9" * 5000 + b"}"
    crc = f"{zlib.crc32(body):08x}".encode()
    journal.path.write_bytes(body[:-1] + b',"crc":"' + crc + b'"}\n' + whole)
    assert len(pending(journal)) == 3
    assert journal.problems == [f"line 1 of {journal.path} is damaged; it was ignored."]


def test_a_line_of_another_device_is_ignored(tmp_path: Path):
    journal, whole = three(tmp_path)
    record = unseal(whole.splitlines()[0])
    assert record is not None
    journal.path.write_bytes(seal({**record, "device": "another", "seq": 9}) + whole)
    assert len(pending(journal)) == 3
    assert "another device" in journal.problems[0]


# A file that others could have written


def test_a_journal_that_others_can_write_is_not_trusted(tmp_path: Path):
    journal, _ = three(tmp_path)
    journal.path.chmod(0o666)
    with pytest.raises(TareError, match="not trusted"):
        journal.pending()
    with pytest.raises(TareError, match="not trusted"):
        journal.note_knob(A, "old", "new")


def test_a_link_in_place_of_the_journal_is_not_followed(tmp_path: Path):
    journal, whole = three(tmp_path)
    journal.path.rename(tmp_path / "elsewhere")
    journal.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TareError, match="cannot be read"):
        journal.pending()
    assert (tmp_path / "elsewhere").read_bytes() == whole


# Housekeeping


def test_the_file_goes_when_nothing_is_pending_and_stays_while_something_is(tmp_path: Path):
    journal = journal_in(tmp_path)
    seq = journal.note_knob(A, "old", "new")
    journal.compact()
    assert pending(journal) == [("file_knob a", "old")]
    journal.retire(seq, "restored")
    journal.compact(at_least_bytes=1 << 20)
    assert journal.path.exists()
    journal.compact()
    assert not journal.path.exists()
    journal.note_knob(A, "old", "new")
    assert pending(journal) == [("file_knob a", "old")]


def test_a_damaged_journal_is_set_aside_and_not_lost(tmp_path: Path):
    journal, whole = three(tmp_path)
    damaged = b"garbage\n" + whole
    journal.path.write_bytes(damaged)
    for entry in journal.pending():
        journal.retire(entry.seq, "restored")
    journal.compact()
    (kept,) = journal.folder.iterdir()
    assert kept.name == "undo.damaged-1000.jsonl"
    assert kept.read_bytes().startswith(damaged)


def test_sites_and_knobs_keep_their_order(tmp_path: Path):
    journal = journal_in(tmp_path)
    journal.note_knob(A, "old", "new")
    journal.note_site("docker", "tare-1")
    journal.note_knob(B, "old", "new")
    assert [type(entry) for entry in journal.pending()] == [KnobEntry, SiteEntry, KnobEntry]
