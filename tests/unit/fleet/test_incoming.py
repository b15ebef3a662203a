"""What devices hand over, taken into a store many at a time."""

from __future__ import annotations

import errno
import io
import json
import os
import resource
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tare.base.files import write_files
from tare.fleet.incoming import Incoming, Ledger, name_on_devices
from tare.records.model import Record
from tare.records.store import Store
from tare_inside.agents.device import plain


def record(trial: str, attempt: int, device: str) -> Record:
    return Record(trial, attempt, "s", 0, 0, 0, {"platform": "bare", "device": device}, "ok", start_ns=1, end_ns=2)


def sent(tmp_path: Path, *trials: tuple[str, str]) -> bytes:
    """As a device sends them: sealed by a store of its own."""
    made = io.BytesIO()
    there = Store.create(tmp_path / f"there-{len(list(tmp_path.iterdir()))}", {"study": "s"}, "")
    with there, tarfile.open(fileobj=made, mode="w") as archive:
        for trial, device in trials:
            there.begin(record(trial, 0, device)).seal(record(trial, 1, device), [], "", "")
        for path in sorted((there.root / "trials").iterdir()):
            archive.add(path, arcname=path.name)
    return made.getvalue()


def hostile(name: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    return made.getvalue()


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "store", {"study": "s"}, "") as made:
        yield made


def test_answers_that_come_together_are_taken_in_together_each_with_its_own_outcome(store, tmp_path):
    incoming = Incoming(store)
    one, two = sent(tmp_path, ("a1", "one")), sent(tmp_path, ("b1", "two"), ("b2", "two"))
    bad = ("three", hostile("../../out")), ("four", b"no tar at all")
    taken = incoming.keep([("one", one), ("idle", b""), *bad, ("two", two)])
    assert [merged.copied for merged in taken] == [("a1.1",), (), (), (), ("b1.1", "b2.1")]
    assert "no file of a sealed trial" in taken[2].refused[0]
    assert "cannot be read" in taken[3].refused[0]
    assert store.verify() == []
    assert store.states() == {"a1": "ok", "b1": "ok", "b2": "ok"}
    assert (incoming.names_of("b1"), incoming.names_from("two")) == (["b1.1"], ["b1.1", "b2.1"])
    assert incoming.attempts["a1"][1].settings["device"] == "one"
    assert not list(store.root.glob(".tmp-*"))
    assert not (tmp_path / "out").exists()


def test_the_same_once_more_is_there_already_also_within_one_moment(store, tmp_path):
    incoming, one = Incoming(store), sent(tmp_path, ("a1", "one"))
    first, second = incoming.keep([("one", one), ("one", one)])
    assert (first.copied, second.there) == (("a1.1",), ("a1.1",))
    assert incoming.keep([("one", one)])[0].there == ("a1.1",)
    other = sent(tmp_path, ("a1", "another device, the same trial"))
    assert "says otherwise" in incoming.keep([("another device, the same trial", other)])[0].refused[0]


def test_a_device_speaks_for_itself_alone(store, tmp_path):
    incoming = Incoming(store, {"a1": "one", "b1": "two"})
    both = sent(tmp_path, ("b1", "two"), ("b2", "one"))
    (found,) = incoming.keep([("two", both)])
    assert found.copied == ("b1.1",)
    assert found.refused == ("b2.1: not merged: it is a trial of one, not of two.",)
    (lied,) = incoming.keep([("two", sent(tmp_path, ("a1", "two")))])  # under its own name, and another's number
    assert lied.refused == ("a1.1: not merged: it is a trial of one, not of two.",)
    true = sent(tmp_path, ("a1", "one"))
    assert incoming.keep([("one", true)])[0].copied == ("a1.1",)
    assert incoming.keep([("renamed", true)])[0].there == ("a1.1",)
    assert store.verify() == []


def sparse(size_bytes: int) -> bytes:
    """As GNU tar writes a file that is nothing but a hole: a few bytes here, as many as it likes there."""
    member = tarfile.TarInfo("a1.1/record.json")
    member.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[386:410] = b"%011o\0" % size_bytes + b"%011o\0" % 0  # where its only piece lies: at the end, and empty
    header[483:495] = b"%011o\0" % size_bytes
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(1024)


def test_a_file_that_is_larger_than_what_came_is_refused_before_it_is_read(store):
    size_bytes = 8 << 30
    with tarfile.open(fileobj=io.BytesIO(sparse(size_bytes - 1))) as members:
        assert [(one.issparse(), one.size) for one in members] == [(True, size_bytes - 1)]  # as it is meant to be
    (found,) = Incoming(store).keep([("one", sparse(size_bytes - 1))])
    assert "no file of a sealed trial" in found.refused[0]


def test_an_archive_that_upsets_the_reader_of_tar_files_is_refused_alone(store, tmp_path):
    header = tarfile.TarInfo.create_pax_global_header({"comment": "x"})
    nested = header * 3000 + bytes(1024)  # a header of a header of a header ...
    two = sent(tmp_path, ("b1", "two"))
    bad, good = Incoming(store).keep([("one", nested), ("two", two)])
    assert "cannot be read" in bad.refused[0]
    assert good.copied == ("b1.1",)


@pytest.mark.parametrize(("old", "new"), [(b'"block":0', b'"block":7'), (b"manifest.json", b"manifest.bson")])
def test_a_trial_is_compared_with_what_was_sealed_and_nothing_else_is_kept(store, tmp_path, old, new):
    one, two = sent(tmp_path, ("a1", "one")), io.BytesIO(sent(tmp_path, ("b1", "two")))
    with tarfile.open(fileobj=two, mode="a") as archive:
        archive.addfile(tarfile.TarInfo("b1.1/extra.bin"))
    bad, good = Incoming(store).keep([("one", one.replace(old, new)), ("two", two.getvalue())])
    assert (bad.copied, good.copied) == ((), ("b1.1",))
    assert bad.refused
    assert not (store.root / "trials" / "b1.1" / "extra.bin").exists()


def test_a_store_that_is_opened_again_knows_what_it_has(store, tmp_path):
    Incoming(store).keep([("one", sent(tmp_path, ("a1", "one")))])
    store.close()
    with Store.open(store.root, write=True) as again:
        assert Incoming(again).names_from("one") == ["a1.1"]
        assert again.problems == []


def test_lines_of_the_ledger_are_on_the_disk_once_it_is_settled(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.write("one", "try", trial="a1")
    ledger.write("two", "skipped", text="gone")
    assert not (tmp_path / "fleet.jsonl").exists()
    ledger.settle()
    ledger.settle()
    lines = [json.loads(line) for line in (tmp_path / "fleet.jsonl").read_text().splitlines()]
    assert [(line["device"], line["what"]) for line in lines] == [("one", "try"), ("two", "skipped")]


@pytest.mark.parametrize("study", ["lenet", "_hidden", "x" * 64, "_"])
def test_a_store_has_a_name_that_devices_take_for_a_folders_for_as_long_as_it_lives(tmp_path, study):
    with Store.create(tmp_path / "store", {"study": study}, "") as store:
        name = name_on_devices(store)
        assert name_on_devices(store) == name
    assert plain(name) == name
    assert plain(f"{name}.{'d' * 64}") == f"{name}.{'d' * 64}"  # as a lean device's store is called


def test_an_id_that_a_full_disk_left_empty_is_made_again(store):
    (store.root / "fleet.id").touch()
    name = name_on_devices(store)
    assert len(name.removeprefix("s-")) == 12
    assert name_on_devices(store) == name


def test_a_disk_that_is_full_while_one_trial_is_written_leaves_the_others(store, tmp_path, monkeypatch):
    def full(folder: Path, files: Mapping[str, memoryview]) -> None:
        if folder.name == "a1.1":
            raise OSError(errno.ENOSPC, "No space left on device")
        write_files(folder, files)

    one, two = sent(tmp_path, ("a1", "one")), sent(tmp_path, ("b1", "two"))
    monkeypatch.setattr("tare.records.merging.write_files", full)
    taken = Incoming(store).keep([("one", one), ("two", two)])
    assert "No space left" in taken[0].refused[0]
    assert taken[1].copied == ("b1.1",)
    assert {path.name for path in (store.root / "trials").iterdir()} == {"b1.1"}


def test_a_trial_that_came_twice_and_was_not_kept_is_not_there(store, tmp_path, monkeypatch):
    def full(folder: Path, files: Mapping[str, memoryview]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    one = sent(tmp_path, ("a1", "one"))
    monkeypatch.setattr("tare.records.merging.write_files", full)
    taken = Incoming(store).keep([("one", one), ("one", one)])
    assert [(each.there, "No space left" in each.refused[0]) for each in taken] == [((), True)] * 2


def test_a_device_is_not_known_by_what_another_one_sent_of_a_trial_with_the_same_id(store, tmp_path):
    store.begin(record("a1", 0, "one")).seal(record("a1", 1, "one"), [], "", "")
    other = Store.create(tmp_path / "other", {"study": "s"}, "")
    made = io.BytesIO()
    with other, tarfile.open(fileobj=made, mode="w") as archive:
        for attempt in (1, 2):
            other.begin(record("a1", 0, "two")).seal(record("a1", attempt, "two"), [], "", "")
        archive.add(other.root / "trials" / "a1.2", arcname="a1.2")
    known = Incoming(store)
    known.keep([("two", made.getvalue())])
    assert (known.names_from("one"), known.names_from("two")) == (["a1.1"], ["a1.2"])
    assert [each.attempt for each in known.of_device("one")] == [1]


def test_a_trial_of_many_files_takes_few_descriptors(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len([*Path("/proc/self/fd").iterdir()]) + 50, before[1]))
    try:
        write_files(tmp_path / "many", {f"file-{number}": memoryview(b"x") for number in range(400)})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(list((tmp_path / "many").iterdir())) == 400


def test_a_ledger_that_could_not_be_written_has_no_half_a_line_and_is_written_later(tmp_path, monkeypatch):
    write, room = os.write, [10]

    def small(descriptor: int, data: bytes) -> int:
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[: room.pop()])

    ledger = Ledger(tmp_path)
    ledger.write("one", "try")
    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space"):
        patched.setattr(os, "write", small)
        ledger.settle()
    assert (tmp_path / "fleet.jsonl").read_bytes() == b""
    ledger.settle()
    assert json.loads((tmp_path / "fleet.jsonl").read_text())["what"] == "try"


def test_a_ledger_that_goes_to_the_disk_in_pieces_is_whole(tmp_path, monkeypatch):
    write = os.write
    ledger = Ledger(tmp_path)
    ledger.write("one", "try")
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
        ledger.settle()
    assert json.loads((tmp_path / "fleet.jsonl").read_text())["what"] == "try"
