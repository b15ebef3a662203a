"""Tables of a sealed trial: written in pieces, sealed with it, read back as columns, and checked like all else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from some_records import draft, ended, run_one
from tare.base.errors import StoreError
from tare.records import parquet
from tare.records.parquet import TableFiles, TableName, tables_in
from tare.records.store import Store

STARTS = TableName("ftrace", "writeback_start")


def piece(first: int, count: int) -> dict[str, object]:
    numbers = np.arange(first, first + count)
    return {"t_ns": numbers * 1000, "pages": numbers.astype(np.uint32), "reason": [f"reason {n % 3}" for n in numbers]}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "store", {}, "")


def sealed(store: Store) -> None:
    writer = store.begin(draft())
    with TableFiles(writer.tables) as files:
        files.add(STARTS, piece(0, 3))
        files.add(TableName("perf", "counters"), {"event": ["cycles"], "count": np.array([7])})
        files.add(STARTS, piece(3, 2))
        assert files.write() == {STARTS: 5, TableName("perf", "counters"): 1}
    writer.seal(ended(draft()), [], "", "")


def test_pieces_of_a_table_come_back_as_one_in_their_order(store: Store) -> None:
    sealed(store)
    found = store.trace(draft().trial, 1, "ftrace", "writeback_start")
    assert found["t_ns"].tolist() == [0, 1000, 2000, 3000, 4000]
    assert found["pages"].dtype == np.uint32
    assert found["reason"].tolist() == ["reason 0", "reason 1", "reason 2", "reason 0", "reason 1"]
    assert sorted(store.traces(draft().trial, 1)) == [STARTS, TableName("perf", "counters")]


def test_a_table_that_nobody_kept_is_named(store: Store) -> None:
    run_one(store)
    with pytest.raises(StoreError, match="ftrace kept no table 'faults' of it"):
        store.trace(draft().trial, 1, "ftrace", "faults")


def test_a_damaged_table_is_found(store: Store) -> None:
    sealed(store)
    path = next((store.root / "trials").glob(f"*/{STARTS.file}"))
    path.write_bytes(path.read_bytes()[:-8] + b"damaged!")
    with pytest.raises(StoreError, match="its content is not what was sealed"):
        store.trace(draft().trial, 1, "ftrace", "writeback_start")
    assert any(STARTS.file in problem for problem in store.verify())


def test_an_empty_table_keeps_its_columns(tmp_path: Path) -> None:
    with TableFiles(tmp_path) as files:
        files.add(STARTS, piece(0, 0))
        files.write()
    assert {name: len(column) for name, column in tables_in(tmp_path, "ftrace")["writeback_start"].items()} == {
        "t_ns": 0, "pages": 0, "reason": 0,
    }  # fmt: skip


def test_columns_of_different_lengths_are_refused(tmp_path: Path) -> None:
    with TableFiles(tmp_path) as files, pytest.raises(StoreError, match="one length"):
        files.add(STARTS, {"t_ns": np.arange(2), "pages": np.arange(3)})


def test_a_name_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    with TableFiles(tmp_path) as files, pytest.raises(StoreError, match="small letters"):
        files.add(TableName("ftrace", "../../x"), piece(0, 1))
        files.write()


def test_what_an_interrupted_trial_recorded_does_not_keep_it_from_being_sealed(store: Store) -> None:
    writer = store.begin(draft())
    (writer.raw / "ftrace").mkdir(parents=True)
    (writer.raw / "ftrace" / "cpu0").write_bytes(bytes(4096))
    store.close()
    with Store.open(store.root, write=True) as again:
        assert [record.state for record in again.recover()] == ["interrupted"]
    assert not list((store.root / "spool").iterdir())


def test_the_database_of_a_seal_is_used_again_and_nothing_of_the_last_one_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_idle", [])
    with parquet.engine(tmp_path / "one's spill") as db:
        parquet.insert(db, "t0", piece(0, 3), new=True)
    (kept,) = parquet._idle
    with parquet.engine(tmp_path / "two") as db:
        assert parquet._idle == []  # a second one at the same time would get its own
        assert db.execute("SELECT count(*) FROM duckdb_tables()").fetchall() == [(0,)]
        parquet.insert(db, "t0", piece(5, 2), new=True)
        assert db.execute("SELECT sum(pages) FROM t0").fetchall() == [(11,)]
    assert parquet._idle == [kept]


def test_a_database_that_has_spilled_is_bound_to_its_folder_and_not_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_idle", [])
    with parquet.engine(tmp_path / "spill") as db:
        db.execute("SET memory_limit = '24MB'")
        for number in range(8):
            parquet.insert(db, "t0", {"x": np.random.default_rng(number).random(500_000)}, new=number == 0)
        assert list((tmp_path / "spill").iterdir())
        assert db.execute("SELECT count(*) FROM t0").fetchall() == [(4_000_000,)]
    assert parquet._idle == []
    with parquet.engine(tmp_path / "next") as db:
        parquet.insert(db, "t0", piece(0, 3), new=True)
