"""A store in one file: the same bytes each time, read like a folder, and refused as a whole where it is not ours."""

from __future__ import annotations

import errno
import gc
import io
import lzma
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import recorded_stores
from some_records import draft, run_one
from tare.base import strict_json
from tare.base.errors import StoreError
from tare.records import unpack
from tare.records.merging import merge
from tare.records.pack import pack
from tare.records.schema import is_pack, is_store
from tare.records.sealed import manifest_for
from tare.records.store import Store
from tare.records.unpack import each_pack_once

Members = list[tuple[tarfile.TarInfo, bytes]]


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch) -> Path:
    """Where packs are unpacked: a folder of the test's own, so that what is left can be seen."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def store(tmp_path) -> Path:
    with Store.create(tmp_path / "store", {"study": "s"}, "study: s\n") as opened:
        opened.plan([draft("aaaa"), draft("bbbb", position=1), draft("cccc", position=2)])
        run_one(opened, "aaaa")
        run_one(opened, "bbbb", position=1)
    return tmp_path / "store"


@pytest.fixture
def packed(store, tmp_path) -> Path:
    return packed_as(store, tmp_path / "s.tare")


def packed_as(store: Path, output: Path) -> Path:
    with Store.open(store) as opened:
        pack(opened, output)
    return output


def test_packing_twice_gives_the_same_bytes_whatever_the_day_and_the_place(store, packed, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    moved = store.rename(tmp_path / "elsewhere" / "other")
    for path in moved.rglob("*"):
        path.touch()
    assert packed_as(moved, tmp_path / "again.tare").read_bytes() == packed.read_bytes()
    assert packed_as(packed, tmp_path / "of-a-pack.tare").read_bytes() == packed.read_bytes()


def test_a_pack_is_read_as_its_folder_is(store, packed):
    with Store.open(store) as folder, Store.open(packed) as file:
        assert file.path == packed
        assert file.problems == []
        assert file.records() == folder.records()
        assert file.states() == folder.states() == {"aaaa": "ok", "bbbb": "ok", "cccc": "planned"}
        assert file.planned() == folder.planned()
        assert (file.text(), file.study) == (folder.text(), folder.study)
        assert file.output("aaaa", 1) == folder.output("aaaa", 1)
        assert file.marks("aaaa", 1)["t_ns"].tolist() == folder.marks("aaaa", 1)["t_ns"].tolist()
        assert file.readings("aaaa", 1).keys() == folder.readings("aaaa", 1).keys()
        assert file.verify() == []


def test_a_real_store_is_packed_to_half_of_its_size(tmp_path):
    folder = recorded_stores.unpacked(recorded_stores.ENERGY, tmp_path / "energy")
    found = packed_as(folder, tmp_path / "energy.tare")
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert found.stat().st_size < 0.6 * sum(path.stat().st_size for path in files)
    with Store.open(found) as opened:
        assert len(opened.records()) == 10


def test_a_pack_is_never_written(packed):
    with pytest.raises(StoreError, match="a pack is never written"):
        Store.open(packed, write=True)
    with Store.open(packed) as opened, pytest.raises(StoreError, match=r"s\.tare: this store was opened to be read"):
        opened.begin(draft("dddd"))


def test_too_little_memory_for_a_pack_is_told_and_leaves_nothing(packed, temporary, monkeypatch):
    def fails(*_):
        raise MemoryError

    monkeypatch.setattr(unpack, "_unpack", fails)
    with pytest.raises(StoreError, match=r"not enough memory to open this pack\. Nothing of it was read\."):
        Store.open(packed)
    assert list(temporary.iterdir()) == []


def test_the_folder_goes_when_the_store_is_closed(packed, temporary):
    with Store.open(packed) as opened:
        assert opened.root.stat().st_mode & 0o777 == 0o700
        assert list(temporary.iterdir()) == [opened.root]
    assert list(temporary.iterdir()) == []


def test_the_folder_goes_with_a_store_that_nobody_closes(packed, temporary):
    opened = Store.open(packed)
    assert list(temporary.iterdir())
    del opened
    gc.collect()
    assert list(temporary.iterdir()) == []


def test_the_folder_goes_at_exit(packed, temporary):
    program = (
        "import sys; from pathlib import Path; from tare.records.store import Store\n"
        "kept = Store.open(Path(sys.argv[1])); print(kept.root); sys.exit(3)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(packed)],
        check=False, capture_output=True, text=True, env={"TMPDIR": str(temporary), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stdout.startswith(str(temporary))
    assert list(temporary.iterdir()) == []


def test_one_who_reads_a_pack_often_unpacks_it_once(packed, temporary):
    with each_pack_once():
        with Store.open(packed) as first:
            root = first.root
        with each_pack_once(), Store.open(packed) as second:  # a verb that does the same for itself
            assert second.root == root
            assert len(second.records()) == 2
        assert list(temporary.iterdir()) == [root.parent]
    assert list(temporary.iterdir()) == []


def test_a_pack_is_merged_like_a_store(packed, tmp_path):
    with Store.create(tmp_path / "into", {"study": "s"}, "") as into:
        found = merge(into, [packed])
        assert found.copied == ("aaaa.1", "bbbb.1")
        assert into.verify() == []


def test_the_folders_that_a_pack_is_to_lie_in_are_made(store, tmp_path):
    made = packed_as(store, tmp_path / "missing" / "folder" / "x.tare")
    assert is_pack(made)
    usual = tmp_path / "usual"
    usual.mkdir()
    assert made.parent.stat().st_mode == usual.stat().st_mode  # a place for results, and none that is ours alone


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("file/x.tare", "the pack cannot be written there: Not a directory"),
        ("file/deeper/x.tare", "the folder .*file/deeper cannot be made: Not a directory"),
    ],
)
def test_a_place_that_no_pack_can_lie_in_is_named_and_not_the_store(output, sentence, store, tmp_path):
    (tmp_path / "file").write_text("a file")
    with pytest.raises(StoreError, match=f"^{tmp_path / output}: {sentence}") as said:
        packed_as(store, tmp_path / output)
    assert str(said.value).endswith("The store is as it was; choose another file with -o.")


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.EACCES, "the pack cannot be written there: Permission denied"),
        (errno.ENOENT, "the pack cannot be written there: No such file or directory"),  # as /proc says
        (errno.ENOSPC, "no space left: .* free, up to .* needed"),
    ],
)
def test_a_disk_that_refuses_the_pack_is_told_of_the_pack(number, sentence, store, tmp_path, monkeypatch):
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(lzma, "open", refuse)
    with pytest.raises(StoreError, match=sentence) as said:
        packed_as(store, tmp_path / "x.tare")
    assert str(said.value).startswith(f"{tmp_path / 'x.tare'}: ")
    assert "choose another file with -o" in str(said.value)
    assert not re.search("owner|sealed before|removed or moved", str(said.value))


def test_a_file_of_the_store_that_goes_while_it_is_packed_is_told_of_the_store(store, tmp_path, monkeypatch):
    read = Path.read_bytes

    def vanished(path: Path) -> bytes:
        if path == store / "study.yaml":
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", vanished)
    with pytest.raises(StoreError, match=f"^{store}: reading study.yaml to pack it failed"):
        packed_as(store, tmp_path / "x.tare")


def test_a_damaged_store_is_not_packed(store, tmp_path):
    (store / "trials" / "aaaa.1" / "out.txt").write_text("edited")
    with Store.open(store) as opened, pytest.raises(StoreError, match="a damaged store is not packed"):
        pack(opened, tmp_path / "s.tare")
    assert not list(tmp_path.glob("*s.tare"))


def test_an_attempt_that_runs_is_not_packed_and_said(store, tmp_path):
    with Store.open(store, write=True) as opened:
        opened.begin(draft("cccc"))
        found = pack(opened, tmp_path / "s.tare")
    assert found.trials == 2
    assert "cut off, and not packed" in found.notes[0]


def test_what_can_be_a_store_is_told_by_its_looks(store, packed, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("a,b\n")
    assert [is_store(path) for path in (store, packed, table, tmp_path / "none")] == [True, True, False, False]
    assert [is_pack(path) for path in (store, packed, table)] == [False, True, False]


# Packs that somebody else made


def members_of(path: Path) -> Members:
    with tarfile.open(path, "r:xz") as tar:
        return [(entry, tar.extractfile(entry).read()) for entry in tar]


def write(path: Path, members: Members, format: int = tarfile.USTAR_FORMAT) -> Path:
    with tarfile.open(path, "w:xz", format=format) as tar:
        for entry, data in members:
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type = kind
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def replaced(members: Members, ending: str, data: bytes) -> Members:
    return [(each, data if each.name.endswith(ending) else content) for each, content in members]


HOSTILE: dict[str, tuple[Callable[[Members], Members], str]] = {
    "absolute": (lambda m: [*m, (entry("/etc/tare-was-here"), b"x")], "outside of its folder"),
    "dots": (lambda m: [*m, (entry("trials/../../x"), b"x")], "outside of its folder"),
    "symlink": (lambda m: [(entry("trials/aaaa.1/x", tarfile.SYMTYPE, linkname="/etc"), b""), *m], "no plain file"),
    "hard link": (lambda m: [*m, (entry("trials/aaaa.1/x", tarfile.LNKTYPE, linkname="store.json"), b"")], "no plain"),
    "device": (lambda m: [*m, (entry("trials/aaaa.1/x", tarfile.CHRTYPE, devmajor=1), b"")], "no plain file"),
    "pipe": (lambda m: [*m, (entry("trials/aaaa.1/x", tarfile.FIFOTYPE), b"")], "no plain file"),
    "folder": (lambda m: [(entry("trials", tarfile.DIRTYPE), b""), *m], "no plain file"),
    "a name of no store": (lambda m: [*m, (entry("bin/run.sh"), b"x")], "no part of a store"),
    "a hidden name": (lambda m: [*m, (entry("trials/.tmp-aaaa.1/x"), b"x")], "no part of a store"),
    "an index": (lambda m: [*m, (entry("catalogue.db"), b"x")], "no part of a store"),
    "twice": (lambda m: [*m, m[-1]], "is in it twice"),
    "no store": (lambda m: [each for each in m if each[0].name != "store.json"], "no store in it"),
    "empty": (lambda m: [], "no store in it"),
    "a header of nonsense": (lambda m: replaced(m, "store.json", b"[]"), "store.json: damaged"),
    "an edited file": (lambda m: replaced(m, "aaaa.1/out.txt", b"loss 0.2\r\n"), "not what was sealed"),
    "a lost file": (lambda m: [each for each in m if each[0].name != "trials/aaaa.1/err.txt"], "it is missing"),
    "a foreign file": (lambda m: [*m, (entry("trials/aaaa.1/more.txt"), b"x")], "is not in its manifest"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pack_is_refused_in_a_sentence_and_leaves_nothing(name, packed, temporary, tmp_path):
    change, sentence = HOSTILE[name]
    made = write(tmp_path / "hostile.tare", change(members_of(packed)))
    with pytest.raises(StoreError, match=sentence) as refused:
        Store.open(made)
    assert str(refused.value).startswith(f"{made}: this pack is refused: ")
    assert str(temporary) not in str(refused.value)
    assert list(temporary.iterdir()) == []
    assert not Path("/etc/tare-was-here").exists()


def test_headers_that_others_make_are_refused(packed, tmp_path):
    """A long name in an extension header is read into memory by most who unpack; ours has none."""
    long = [*members_of(packed), (entry(f"trials/aaaa.1/{'x' * 300}"), b"x")]
    for format in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        with pytest.raises(StoreError, match="this pack is refused: "):
            Store.open(write(tmp_path / "long.tare", long, format))


def test_too_many_and_too_large_files_are_refused_before_they_are_written(packed, tmp_path, temporary, monkeypatch):
    monkeypatch.setattr(unpack, "MOST_MEMBERS", 5)
    with pytest.raises(StoreError, match="more than 5 files"):
        Store.open(packed)
    monkeypatch.setattr(unpack, "MOST_MEMBERS", 500)
    monkeypatch.setattr(unpack, "MOST_BYTES", 2**20)
    bomb = write(tmp_path / "bomb.tare", [*members_of(packed), (entry("trials/aaaa.1/zeros"), bytes(2**21))])
    assert bomb.stat().st_size < 20_000
    with pytest.raises(StoreError, match="files or 1 MiB"):
        Store.open(bomb)
    assert list(temporary.iterdir()) == []


def test_a_pack_that_asks_for_gigabytes_to_be_unpacked_is_refused(packed, tmp_path):
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**29}]
    greedy = tmp_path / "greedy.tare"
    greedy.write_bytes(lzma.compress(lzma.decompress(packed.read_bytes()), filters=filters))
    with pytest.raises(StoreError, match="memory usage limit"):
        Store.open(greedy)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_pack_that_was_cut_off_is_refused(share, packed, temporary):
    packed.write_bytes(packed.read_bytes()[: int(packed.stat().st_size * share)])
    with pytest.raises(StoreError, match="it is cut off"):
        Store.open(packed)
    assert list(temporary.iterdir()) == []


def test_a_byte_that_changed_is_noticed_wherever_it_is(packed):
    whole = packed.read_bytes()
    for place in range(6, len(whole), max(1, len(whole) // 40)):
        packed.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        with pytest.raises(StoreError):
            Store.open(packed)


def test_what_follows_the_end_is_refused(packed):
    whole = packed.read_bytes()
    packed.write_bytes(whole + b"more")
    with pytest.raises(StoreError, match="behind its end"):
        Store.open(packed)
    packed.write_bytes(lzma.compress(lzma.decompress(whole) + b"\0" * 8 + b"more"))
    with pytest.raises(StoreError, match="behind the archive's end"):
        Store.open(packed)


@pytest.mark.parametrize(
    ("data", "what"),
    [(b"", "it is empty"), (b"\x7fELF", "it does not begin as packs do"), (b"PK", "it does not begin as packs do")],
)
def test_a_file_that_is_only_called_like_a_pack_is_said_to_be_none_and_what_to_do(data, what, tmp_path):
    (tmp_path / "x.tare").write_bytes(data)
    with pytest.raises(StoreError, match=f"x.tare: this file is called like a pack, and is none: .*{what}") as said:
        Store.open(tmp_path / "x.tare")
    assert "`tare store pack STORE -o FILE`" in str(said.value)
    assert "give it another name" in str(said.value)


def test_a_file_that_is_neither_store_nor_pack_is_said_to_be_none(tmp_path):
    (tmp_path / "x.zip").write_bytes(b"PK\x03\x04")
    with pytest.raises(StoreError, match="this is a file, and a store is a folder, or a pack"):
        Store.open(tmp_path / "x.zip")
    (tmp_path / "text.tare").write_bytes(lzma.compress(b"no archive" * 100))
    with pytest.raises(StoreError, match="it is damaged, or no archive that tare makes"):
        Store.open(tmp_path / "text.tare")


@pytest.mark.parametrize("place", [0, 3, 7, 9, 13, 24])
def test_a_byte_that_changed_in_a_packs_first_bytes_is_damage_and_says_what_to_do(place, packed):
    whole = packed.read_bytes()
    packed.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
    with pytest.raises(StoreError, match=r"s\.tare: this .*(damaged|called like a pack, and is none)") as said:
        Store.open(packed)
    assert "Copy it again from where it came, or make it again with `tare store pack" in str(said.value)


def test_a_plan_of_nonsense_does_not_cost_the_records(packed, tmp_path):
    row = {"trial": "aaaa", "settings": {}}
    made = write(tmp_path / "p.tare", replaced(members_of(packed), "plan.json", strict_json.dump([row, row])))
    with Store.open(made) as opened:
        assert len(opened.records()) == 2
        assert "the index could not be used" in opened.problems[0]


def test_a_pack_that_was_unpacked_by_hand_is_a_store(packed, tmp_path):
    with tarfile.open(packed, "r:xz") as tar:
        tar.extractall(tmp_path / "by-hand", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    with Store.open(tmp_path / "by-hand") as opened:
        assert opened.problems == []
        assert opened.states()["cccc"] == "planned"


def test_a_manifest_that_was_made_anew_is_whole_to_the_store(store, tmp_path):
    """Bytes prove that nothing broke, not that nobody edited: `tare store verify` makes the figures again."""
    folder = store / "trials" / "aaaa.1"
    (folder / "out.txt").write_text("edited")
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").write_bytes(manifest_for(folder, 0))
    assert is_pack(packed_as(store, tmp_path / "s.tare"))
