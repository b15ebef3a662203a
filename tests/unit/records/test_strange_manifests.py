"""A sealed trial from a stranger: no name in it leads out of its folder, and no JSON of it ends in a traceback.

Strict JSON, out and in.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from pathlib import Path

import pytest

from some_records import draft, run_one
from tare.base import strict_json
from tare.base.errors import StoreError
from tare.records.merging import merge
from tare.records.schema import MANIFEST_FILE, RECORD_FILE, STORE_FILE, TRIALS_FOLDER
from tare.records.sealed import open_sealed, verify_sealed
from tare.records.store import Store


def made(root: Path, *trials: str) -> Path:
    with Store.create(root, {"study": "s"}, "study: s\n") as store:
        store.plan([draft(trial) for trial in trials])
        for trial in trials:
            run_one(store, trial)
    return root


def folder_of(root: Path, trial: str) -> Path:
    return root / TRIALS_FOLDER / f"{trial}.1"


def resealed(folder: Path, **files: bytes) -> None:
    """The manifest, made anew over what is there, with whatever else it shall name."""
    body = strict_json.load((folder / MANIFEST_FILE).read_bytes())
    body.pop("crc32")
    record = (folder / RECORD_FILE).read_bytes()
    body["files"][RECORD_FILE] = [len(record), hashlib.sha256(record).hexdigest()]
    body["files"] |= {name: [len(data), hashlib.sha256(data).hexdigest()] for name, data in files.items()}
    (folder / MANIFEST_FILE).write_bytes(strict_json.dump({**body, "crc32": zlib.crc32(strict_json.dump(body))}))


@pytest.mark.parametrize("name", ["../../store.json", "../bbbb.1/record.json", "/dev/zero", "a/b", ".hidden", ""])
def test_a_manifest_that_names_a_file_elsewhere_is_damaged(tmp_path: Path, name: str) -> None:
    folder = folder_of(made(tmp_path / "store", "aaaa"), "aaaa")
    data = (folder / name).read_bytes() if name == "../../store.json" else b""
    resealed(folder, **{name: data})

    (problem,) = verify_sealed(folder)

    assert "is no name of a file of a trial" in problem


def test_a_number_in_the_manifest_itself_that_was_changed_is_damage(tmp_path: Path) -> None:
    folder = folder_of(made(tmp_path / "store", "aaaa"), "aaaa")
    body = strict_json.load((folder / MANIFEST_FILE).read_bytes())
    (folder / MANIFEST_FILE).write_bytes(strict_json.dump({**body, "lost_marks": body["lost_marks"] + 1}))

    (problem,) = verify_sealed(folder)

    assert "the checksum differs" in problem


def test_merging_such_a_trial_changes_nothing_of_the_store(tmp_path: Path) -> None:
    ours, theirs = made(tmp_path / "ours", "bbbb"), made(tmp_path / "theirs", "aaaa", "bbbb")
    forged = folder_of(theirs, "bbbb") / RECORD_FILE
    forged.write_bytes(forged.read_bytes().replace(b"block", b"blOck"))
    resealed(folder_of(theirs, "aaaa"), **{f"../../trials/bbbb.1/{RECORD_FILE}": forged.read_bytes()})
    before = (folder_of(ours, "bbbb") / RECORD_FILE).read_bytes()

    with Store.open(ours, write=True) as store:
        found = merge(store, [theirs])

    assert found.copied == ()
    assert (folder_of(ours, "bbbb") / RECORD_FILE).read_bytes() == before


@pytest.mark.parametrize(
    "change", [{"trial": 5}, {"block": "x"}, {"settings": []}, {"metrics": 3}, {"state": None}, {"attempt": "1"}]
)
def test_a_record_of_other_kinds_of_values_is_damaged(tmp_path: Path, change: dict[str, object]) -> None:
    folder = folder_of(made(tmp_path / "store", "aaaa"), "aaaa")
    record = strict_json.load((folder / RECORD_FILE).read_bytes())
    (folder / RECORD_FILE).write_bytes(strict_json.dump({**record, **change}))
    resealed(folder)

    with pytest.raises(StoreError, match="it is not a record"):
        open_sealed(folder)


def test_json_that_is_nested_without_end_is_damage_and_not_the_end_of_us(tmp_path: Path) -> None:
    root = made(tmp_path / "store", "aaaa")
    (root / STORE_FILE).write_bytes(b"[" * 100_000)

    with pytest.raises(StoreError, match="nested too deeply"):
        Store.open(root)


def test_a_study_that_is_no_mapping_is_damage(tmp_path: Path) -> None:
    root = made(tmp_path / "store", "aaaa")
    header = strict_json.load((root / STORE_FILE).read_bytes())
    (root / STORE_FILE).write_bytes(strict_json.dump({**header, "study": ["s"]}))

    with pytest.raises(StoreError, match="no mapping"):
        Store.open(root)


@pytest.mark.parametrize("data", [None, [], {"a": [1, 2.5, "é\ud800\x00"], "b": {"c": True}}, 2**80, 5e-324, "\u2028"])
def test_plain_data_comes_back_as_it_was(data: object) -> None:
    assert strict_json.load(strict_json.dump(data)) == data


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_written(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        strict_json.dump({"x": [value]})


@pytest.mark.parametrize("text", [b"NaN", b"[Infinity]", b'{"a": -Infinity}', b"[1e999]", b"-1e400"])
def test_what_is_no_number_is_not_read(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"is not a number that JSON knows|is beyond every number"):
        strict_json.load(text)


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", object])
def test_what_is_not_plain_is_refused_by_its_kind(value: object) -> None:
    with pytest.raises(StoreError, match=f"a {type(value).__name__} is not plain data"):
        strict_json.dump({"x": value})


def test_missing_numbers_are_taken_out_and_named() -> None:
    data = {"a": math.nan, "b": {"c": math.inf, "d": 1.0}, "e": [math.nan, 2.0, {"f": -math.inf}], "g": (1, "x")}
    clean, left_out = strict_json.without_missing(data)
    assert clean == {"b": {"d": 1.0}, "e": [None, 2.0, {}], "g": [1, "x"]}
    assert sorted(left_out) == ["a", "b.c", "e.0", "e.2.f"]
