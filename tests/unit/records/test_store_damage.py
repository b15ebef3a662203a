"""Damage is named by file, the damaged trial is left out, and the rest opens."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from some_records import draft, run_one
from tare.base.errors import StoreError
from tare.records.spool import SpoolWriter
from tare.records.store import Store

SEALED_FILES = (
    "record.json",
    "readings.parquet",
    "marks.parquet",
    "channels.json",
    "out.txt",
    "err.txt",
    "manifest.json",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two whole trials."""
    with Store.create(tmp_path_factory.mktemp("whole") / "store", {}, "") as store:
        store.plan([draft("aaaa"), draft("bbbb")])
        run_one(store, "aaaa")
        run_one(store, "bbbb")
    return store.root


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return shutil.copytree(whole, tmp_path / "store")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def trials(store: Store) -> list[str]:
    return [record.trial for record in store.records()]


@pytest.mark.parametrize("harm", [truncate, grow, Path.unlink], ids=["truncated", "grown", "missing"])
@pytest.mark.parametrize("name", SEALED_FILES)
def test_a_file_of_another_size_is_named_when_the_store_opens(
    root: Path, name: str, harm: Callable[[Path], None]
) -> None:
    harm(root / "trials/aaaa.1" / name)

    with Store.open(root) as store:
        assert trials(store) == ["bbbb"]
        (problem,) = store.problems
        assert problem.startswith(f"trials/aaaa.1/{name}: it ")
        assert problem.endswith("this trial is left out.")
        assert len(store.readings("bbbb", 1)) == 2
        assert store.verify() == [problem]


@pytest.mark.parametrize("name", ["record.json", "manifest.json"])
def test_flipped_bytes_in_what_is_read_at_once_are_named_when_the_store_opens(root: Path, name: str) -> None:
    flip(root / "trials/aaaa.1" / name)

    with Store.open(root) as store:
        assert trials(store) == ["bbbb"]
        assert [f"trials/aaaa.1/{name}: " in problem for problem in store.problems] == [True]


@pytest.mark.parametrize("name", ["readings.parquet", "marks.parquet", "channels.json", "out.txt", "err.txt"])
def test_flipped_bytes_in_the_series_are_named_by_verify_and_when_they_are_read(root: Path, name: str) -> None:
    flip(root / "trials/aaaa.1" / name)

    with Store.open(root) as store:
        says = (
            f"trials/aaaa.1/{name}: its content is not what was sealed (the checksum differs); this trial is left out."
        )
        assert store.verify() == [says]
        read = {
            "readings.parquet": store.readings,
            "marks.parquet": store.marks,
            "channels.json": store.channels,
            "out.txt": store.output,
            "err.txt": store.output,
        }[name]
        with pytest.raises(StoreError, match="the checksum differs"):
            read("aaaa", 1)
        assert store.problems == [says]
        assert trials(store) == ["bbbb"]


@pytest.mark.parametrize("harm", [lambda folder: flip(folder / "record.json"), shutil.rmtree], ids=["flipped", "gone"])
def test_a_damaged_trial_is_none_that_was_not_run(root: Path, harm: Callable[[Path], None]) -> None:
    with Store.open(root, write=True) as store:
        store.plan([draft("aaaa"), draft("bbbb"), draft("cccc")])
        assert store.damaged() == set()
    harm(root / "trials/aaaa.1")
    with Store.open(root, write=True) as store:
        assert store.damaged() == {"aaaa"}
        assert store.states() == {"aaaa": "planned", "bbbb": "ok", "cccc": "planned"}  # it is run again
        store.begin(draft("aaaa"))
        assert store.damaged() == set()  # it runs
    with Store.open(root, write=True) as store:
        store.recover()
        run_one(store, "aaaa")
        assert store.damaged() == set()  # a later attempt speaks for it


def test_a_whole_store_has_nothing_to_say(root: Path) -> None:
    with Store.open(root) as store:
        assert store.verify() == store.problems == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"trial": 1}', "\0" * 300, '{"files": NaN}'])
def test_a_manifest_that_is_none_is_named(root: Path, text: str) -> None:
    (root / "trials/aaaa.1/manifest.json").write_text(text)
    with Store.open(root) as store:
        assert trials(store) == ["bbbb"]
        assert store.problems[0].startswith("trials/aaaa.1/manifest.json: it is damaged (")


def test_a_folder_under_a_wrong_name_is_left_out(root: Path) -> None:
    (root / "trials/aaaa.1").rename(root / "trials/cccc.1")
    with Store.open(root) as store:
        assert trials(store) == ["bbbb"]
        assert store.problems == [
            "trials/cccc.1/record.json: it is the record of aaaa.1; this trial is left out.",
            "trials/aaaa.1: it was sealed as ok, and its folder is gone.",
        ]


def test_a_file_where_a_trial_should_be_is_named(root: Path) -> None:
    shutil.rmtree(root / "trials/aaaa.1")
    (root / "trials/aaaa.1").write_text("")
    with Store.open(root) as store:
        assert trials(store) == ["bbbb"]
        assert store.problems == [
            "trials/aaaa.1/manifest.json: it cannot be read (Not a directory); this trial is left out."
        ]


def test_a_damaged_or_lost_trial_is_run_again_as_a_new_attempt(root: Path) -> None:
    flip(root / "trials/aaaa.1/record.json")
    shutil.rmtree(root / "trials/bbbb.1")
    with Store.open(root, write=True) as store:
        assert store.recover() == []
        assert store.states() == {"aaaa": "planned", "bbbb": "planned"}
        assert run_one(store, "aaaa").attempt == 2
        assert run_one(store, "bbbb").attempt == 2
        assert store.states() == {"aaaa": "ok", "bbbb": "ok"}


def test_names_that_are_none_of_ours_are_let_be(root: Path) -> None:
    (root / "trials/.DS_Store").write_text("")
    (root / "trials/notes").mkdir()
    (root / "trials/aaaa.01").mkdir()
    with Store.open(root, write=True) as store:
        store.recover()
        assert trials(store) == ["aaaa", "bbbb"]
        assert store.problems == []
    assert (root / "trials/notes").is_dir()


# The catalogue


def overwrite_header(path: Path) -> None:
    path.write_bytes(b"garbage" * 10 + path.read_bytes()[70:])


def overwrite_middle(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def spoil_json(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'{"block":', b'?"block":'))


HARM = [Path.unlink, overwrite_header, overwrite_middle, cut_in_half, empty, spoil_json]


@pytest.mark.parametrize("harm", HARM)
def test_a_lost_catalogue_is_made_good_for_a_reader_without_a_change(root: Path, harm: Callable[[Path], None]) -> None:
    harm(root / "catalogue.db")
    left = (root / "catalogue.db").read_bytes() if (root / "catalogue.db").exists() else None

    with Store.open(root) as store:
        assert trials(store) == ["aaaa", "bbbb"]
        assert store.states() == {"aaaa": "ok", "bbbb": "ok"}
        (problem,) = store.problems
        assert problem.startswith("catalogue.db: the index could not be used (")
        assert problem.endswith("it was rebuilt from the sealed trials.")
    assert ((root / "catalogue.db").read_bytes() if (root / "catalogue.db").exists() else None) == left


@pytest.mark.parametrize("harm", HARM)
def test_a_lost_catalogue_is_rebuilt_by_a_writer(root: Path, harm: Callable[[Path], None]) -> None:
    harm(root / "catalogue.db")
    with Store.open(root, write=True) as store:
        assert store.recover() == []
        assert run_one(store, "aaaa").attempt == 2

    with Store.open(root) as again:
        assert again.problems == []
        assert again.verify() == []
        assert [(r.trial, r.attempt) for r in again.records()] == [("aaaa", 1), ("aaaa", 2), ("bbbb", 1)]


def test_a_damaged_catalogue_is_kept_aside_when_it_is_rebuilt(root: Path) -> None:
    overwrite_header(root / "catalogue.db")
    spoilt = (root / "catalogue.db").read_bytes()
    with Store.open(root, write=True) as store:
        store.recover()
    assert (root / "catalogue.db.damaged-1").read_bytes() == spoilt


def test_a_catalogue_that_forgot_a_trial_learns_it_from_its_folder(root: Path, tmp_path: Path) -> None:
    shutil.copy(root / "catalogue.db", tmp_path / "older.db")
    with Store.open(root, write=True) as store:
        run_one(store, "cccc")
    shutil.copy(tmp_path / "older.db", root / "catalogue.db")

    with Store.open(root) as reader:
        assert trials(reader) == ["aaaa", "bbbb", "cccc"]
    with Store.open(root, write=True) as store:
        store.recover()
        shutil.rmtree(root / "trials/cccc.1")
    with Store.open(root) as reader:  # it was noted: its loss is noticed
        assert reader.problems == ["trials/cccc.1: it was sealed as ok, and its folder is gone."]


def test_a_trial_is_adopted_only_after_a_look_at_every_byte(root: Path) -> None:
    (root / "catalogue.db").unlink()
    flip(root / "trials/aaaa.1/readings.parquet")
    with Store.open(root, write=True) as store:
        store.recover()
        assert trials(store) == ["bbbb"]
        assert "trials/aaaa.1/readings.parquet: its content is not what was sealed" in store.problems[-1]


# Left-over spools


def interrupted(root: Path) -> Path:
    """The spool file of a trial that was never sealed."""
    with Store.open(root, write=True) as store:
        writer = store.begin(draft("cccc"))
        with SpoolWriter(writer.spool) as spool:
            for k in range(400):
                spool.tick(k, [(k, f"channel.{c}", float(c)) for c in range(20)])
    return writer.spool


def test_what_can_be_read_of_a_damaged_spool_is_sealed_and_the_spool_is_kept(root: Path) -> None:
    spool = interrupted(root)
    data = bytearray(spool.read_bytes())
    data[len(data) * 3 // 4 :] = b"\xa5" * len(data[len(data) * 3 // 4 :])
    spool.write_bytes(data)

    with Store.open(root, write=True) as store:
        (record,) = store.recover()
        assert record.state == "interrupted"
        assert "some of its readings could not be read back" in str(record.notes[0])
        times, _ = store.readings("cccc", 1)["channel.3"]
        assert 100 < len(times) < 400
    with Store.open(root) as again:
        assert again.problems == [
            "spool/.damaged-cccc.1-1: it could not be read in full, and is kept for a closer look."
        ]
    assert (root / "spool/.damaged-cccc.1-1/spool.db").read_bytes() == data


def test_a_spool_without_a_draft_is_kept_aside_and_named(root: Path) -> None:
    draft_file = interrupted(root).with_name("draft.json")
    draft_file.write_text("{")
    with Store.open(root, write=True) as store:
        assert store.recover() == []
        assert store.problems == ["spool/.damaged-cccc.1-1: it could not be sealed, and is kept for a closer look."]
        assert store.states()["aaaa"] == "ok"
        assert store.begin(draft("cccc")).attempt == 2


def test_an_attempt_whose_spool_was_removed_is_said_to_be_lost(root: Path) -> None:
    shutil.rmtree(interrupted(root).parent)
    with Store.open(root, write=True) as store:
        assert store.recover() == []
        assert store.problems == ["trial cccc, attempt 1: it was begun, but its spool was removed."]
        assert store.states()["cccc"] == "interrupted"
        assert store.begin(draft("cccc")).attempt == 2
