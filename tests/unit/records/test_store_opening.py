"""What is no store, or not ours to touch, gets a sentence and nothing else.

Stores and packs in a folder of results: all of them, in order, and nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from some_records import run_one
from tare import __version__
from tare.base.errors import NoSuchInput, StoreError
from tare.base.files import make_folders
from tare.records.creation import file_system, refuse_network_disk
from tare.records.pack import pack, stores_in
from tare.records.store import Store


def tree(root: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(root)): p.read_bytes() if p.is_file() else None for p in sorted(root.rglob("*"))}


def test_a_missing_folder_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere: no such file or folder\. Give the folder that `tare run` wrote"):
        Store.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_path_that_is_not_utf_8_is_refused_before_anything_is_made_or_read(tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"a\xff")
    with pytest.raises(StoreError, match="this path is not UTF-8"):
        Store.create(root, {}, "")
    assert not root.exists()
    with pytest.raises(StoreError, match="this path is not UTF-8"):
        Store.open(root)


def test_an_empty_folder_is_said_to_be_empty(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="this folder is empty"):
        Store.open(tmp_path)
    assert tree(tmp_path) == {}


def test_another_folder_is_said_not_to_be_a_store(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(StoreError, match=r"not a store \(it has no store\.json\)"):
        Store.open(tmp_path, write=True)
    assert list(tree(tmp_path)) == ["thesis.tex"]


def test_a_folder_of_stores_names_them(tmp_path: Path) -> None:
    for name in ("monday", "friday"):
        Store.create(tmp_path / name, {}, "").close()
    with pytest.raises(StoreError, match=r"not a store, but holds some: friday, monday\. Give one of them\."):
        Store.open(tmp_path)


def test_a_file_is_said_to_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("x")
    with pytest.raises(StoreError, match="this is a file, and a store is a folder"):
        Store.open(tmp_path / "results.csv")
    with pytest.raises(StoreError, match="this is a file, and a store is a folder"):
        Store.create(tmp_path / "results.csv", {}, "")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"schema_version": "1"}', '{"schema_version": NaN}'])
def test_a_damaged_header_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "store.json").write_text(text)
    with pytest.raises(StoreError, match=r"store\.json: damaged \(.*the trials were not touched"):
        Store.open(tmp_path)


def test_a_newer_store_is_not_touched(tmp_path: Path) -> None:
    with Store.create(tmp_path / "store", {}, "") as store:
        run_one(store)
    header = json.loads((store.root / "store.json").read_text())
    header |= {"schema_version": header["schema_version"] + 1, "tare_version": "9.8.7"}
    (store.root / "store.json").write_text(json.dumps(header))
    before = tree(store.root)

    says = rf"written by tare 9\.8\.7 \(schema 2\); this is tare {__version__} \(schema 1\): upgrade tare"
    for write in (False, True):
        with pytest.raises(StoreError, match=says):
            Store.open(store.root, write=write)
    assert tree(store.root) == before


def test_a_store_is_not_made_over_another_or_over_other_files(tmp_path: Path) -> None:
    Store.create(tmp_path / "store", {"study": "first"}, "").close()
    with pytest.raises(StoreError, match="there is a store here already"):
        Store.create(tmp_path / "store", {"study": "second"}, "")
    assert Store.open(tmp_path / "store").study == {"study": "first"}

    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "diary").write_text("x")
    with pytest.raises(StoreError, match=r"the folder is not empty \(diary\)"):
        Store.create(tmp_path / "home", {}, "")
    assert list(tree(tmp_path / "home")) == ["diary"]


def test_a_store_is_made_in_an_empty_folder_and_with_its_parents(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    Store.create(tmp_path / "empty", {}, "").close()
    Store.create(tmp_path / "out" / "deep" / "store", {}, "").close()
    assert Store.open(tmp_path / "out" / "deep" / "store").records() == []


def test_a_study_that_is_no_strict_json_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Store.create(tmp_path / "store", {"limit_s": float("inf")}, "")
    assert not (tmp_path / "store").exists()


# Rights


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can reach; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="tare-test-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def someone_else() -> Iterator[None]:
    """A user without rights; where the tests are not run as root, we are that user already."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def test_a_store_without_the_right_to_read_is_said_so(open_folder: Path) -> None:
    Store.create(open_folder / "store", {}, "").close()
    (open_folder / "store").chmod(0o000)
    with someone_else(), pytest.raises(StoreError, match=r"no permission to read this store\. Run as its owner\."):
        Store.open(open_folder / "store")
    (open_folder / "store").chmod(0o700)


def test_a_place_where_nothing_may_be_made_is_said_so(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    with someone_else(), pytest.raises(StoreError, match="the folder cannot be made: Permission denied"):
        Store.create(open_folder / "store", {}, "")
    open_folder.chmod(0o777)


def test_a_store_that_may_only_be_read_is_read_and_not_written(open_folder: Path) -> None:
    with Store.create(open_folder / "store", {}, "") as store:
        sealed = run_one(store)
    for path in (store.root, *store.root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    with someone_else(), Store.open(store.root, write=True) as reader:
        assert (reader.records(), reader.problems) == ([sealed], [])
        with pytest.raises(StoreError, match="opening the store to write is not allowed here: Permission denied"):
            reader.recover()
    for path in (store.root, *store.root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def test_files_are_for_their_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Store.create(tmp_path / "store", {}, "") as store:
            run_one(store)
            store.begin(run_one(store, "bbbb"))
            modes = {path.stat().st_mode & 0o777 for path in store.root.rglob("*") if path.is_file()}
            folders = {path.stat().st_mode & 0o777 for path in (store.root, *store.root.rglob("*")) if path.is_dir()}
    finally:
        os.umask(before)
    assert (modes, folders) == ({0o600}, {0o700})


# Network disks

MOUNTS = r"""22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:40 / /mnt/my\040share rw shared:1 - nfs4 server:/x rw
31 30 0:41 / /mnt/my\040share/local rw - xfs /dev/sdb rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/home/me", "ext4"), ("/mnt/my share/out", "nfs4"), ("/mnt/my share/local/out", "xfs"), ("/mnt/mine", "ext4")],
)
def test_the_file_system_is_that_of_the_deepest_mount(path: str, kind: str) -> None:
    assert file_system(Path(path), MOUNTS) == kind


def test_a_store_is_not_written_on_a_network_disk() -> None:
    with pytest.raises(StoreError, match=r"on a network disk \(nfs4\).*Put the store on a local disk"):
        refuse_network_disk(Path("/mnt/my share/out"), MOUNTS)
    refuse_network_disk(Path("/mnt/my share/local/out"), MOUNTS)
    refuse_network_disk(Path("/anywhere"), "")


def test_parents_are_made_once(tmp_path: Path) -> None:
    make_folders(tmp_path / "a" / "b")
    make_folders(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


@pytest.fixture
def results(tmp_path):
    """Two machines: one with a store, one with a pack of it; a folder that is called like a pack is none."""
    root = tmp_path / "results"
    for machine in ("b", "a"):
        (root / machine).mkdir(parents=True)
    with Store.create(root / "b" / "weigh", {"study": "weigh"}, "study: weigh\n") as store:
        run_one(store)
        pack(store, root / "a" / "weigh.tare")
    (root / "a" / "folder.tare").mkdir()
    return root


def test_stores_and_packs_are_found_below_a_folder_in_order(results):
    assert stores_in(results) == [results / "a" / "weigh.tare", results / "b" / "weigh"]


@pytest.mark.parametrize("path", ["a/weigh.tare", "b/weigh"])
def test_a_store_or_a_pack_is_the_only_one(results, path):
    assert stores_in(results / path) == [results / path]


def test_where_there_is_nothing_it_is_said(results, tmp_path):
    with pytest.raises(NoSuchInput, match="no such folder of results"):
        stores_in(tmp_path / "none")
    with pytest.raises(StoreError, match=r"no store in this folder, and no pack \(\*\.tare\)"):
        stores_in(results / "a" / "folder.tare")
