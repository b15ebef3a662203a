"""Traces in files: the same page writes by every way in, and a sentence with the line for each way to be wrong."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pytest

from tare.analysis.nvm import files
from tare.analysis.nvm.files import trace_file
from tare.analysis.nvm.model import POLICIES, Layer
from tare.analysis.nvm.replay import Simulation, simulate
from tare.base.errors import StudyError

HEADER = "t_s,dev,inode,page,tenant\n"
ROWS = [(0.5 * n, 8 + n % 2, 100 + n % 3, n % 7, "ab"[n % 2]) for n in range(60)]
SMALL = [Layer(POLICIES[name], 5 * 4096) for name in ("lru", "clock", "hot")]


def csv(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def parquet(folder: Path, rows: str, more: str = "") -> Path:
    path = folder / "trace.parquet"
    duckdb.sql(f"COPY ({rows}) TO '{path}' (FORMAT PARQUET{more})")
    return path


def simulated(path: Path, divided: bool = False) -> Simulation:
    with trace_file(path) as trace:
        return simulate(trace, SMALL, divided=divided)


def lines(rows: list[tuple]) -> str:
    return "".join(",".join(map(str, row)) + "\n" for row in rows)


def test_csv_and_parquet_of_the_same_writes_give_the_same_runs(tmp_path: Path) -> None:
    text = csv(tmp_path, HEADER + lines(ROWS))
    typed = parquet(tmp_path, f"SELECT * FROM read_csv('{text}')")
    for divided in (False, True):
        ours, theirs = simulated(text, divided), simulated(typed, divided)
        assert [run.tenants for run in ours.runs] == [run.tenants for run in theirs.runs]
        assert (
            ours.distinct_pages
            == theirs.distinct_pages
            == len({row[1:4] + (row[4:] if divided else ()) for row in ROWS})
        )
    assert ours.trace.tenants == ("a", "b")
    assert ours.trace.duration_s == pytest.approx(ROWS[-1][0])


def test_devices_and_files_may_be_words(tmp_path: Path) -> None:
    words = [(t, f"8:{dev}", f"/data/it's {inode}", page, tenant) for t, dev, inode, page, tenant in ROWS]
    plain = simulated(csv(tmp_path, HEADER + lines(ROWS), "plain.csv"))
    worded = simulated(csv(tmp_path, HEADER + lines(words), "worded.csv"))
    assert [run.tenants for run in worded.runs] == [run.tenants for run in plain.runs]


def test_numbers_too_wide_for_one_key_are_told_apart_all_the_same(tmp_path: Path) -> None:
    wide = [(t, dev << 40, inode * (1 << 56), page, tenant) for t, dev, inode, page, tenant in ROWS]
    plain = simulated(csv(tmp_path, HEADER + lines(ROWS), "plain.csv"))
    assert [run.tenants for run in simulated(csv(tmp_path, HEADER + lines(wide))).runs] == [
        run.tenants for run in plain.runs
    ]


def test_a_piece_begins_where_the_last_one_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = csv(tmp_path, HEADER + lines(ROWS))
    whole = simulated(path)
    monkeypatch.setattr(files, "PIECE_ROWS", 7)
    assert [run.tenants for run in simulated(path).runs] == [run.tenants for run in whole.runs]


def test_a_trace_without_tenants_and_in_nanoseconds(tmp_path: Path) -> None:
    path = parquet(tmp_path, "SELECT 3 * range AS t_ns, 1 AS dev, 2 AS inode, range % 4 AS page FROM range(40)")
    with trace_file(path) as trace:
        (piece,) = trace.pieces()
    assert trace.tenants == ("",)
    assert piece.times_ns.tolist() == [3 * n for n in range(40)]
    assert len(np.unique(piece.keys)) == 4


def test_a_file_may_say_how_large_its_pages_are(tmp_path: Path) -> None:
    rows = "SELECT 0.0::DOUBLE AS t_s, 1 AS dev, 2 AS inode, 3 AS page"
    with trace_file(parquet(tmp_path, rows, ", KV_METADATA {page_bytes: '16384'}")) as trace:
        assert simulate(trace, SMALL).page_bytes == 16384
        assert simulate(trace, SMALL, page_bytes=8192).page_bytes == 8192


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the file is empty"),
        (HEADER, "the trace has no rows"),
        ("t_s,dev,inode\n1,1,1\n", "no column 'page'; available: t_s, dev, inode"),
        ("dev,inode,page\n1,1,1\n", "no column 't_s'"),
        (HEADER + "0,1,1,1,a\n1,1,1,x,a\n", ":3: column 'page': 'x' is not a whole number"),
        (HEADER + "0,1,1,1,a\nsoon,1,1,1,a\n", ":3: column 't_s': 'soon' is not a number"),
        (HEADER + "0,1,1,1,a\nnan,1,1,1,a\n", ":3: column 't_s': 'nan' is not a time"),
        (HEADER + "0,1,1,-5,a\n", ":2: column 'page': -5 is below zero"),
        (HEADER + "0,1,1,1,a\n0,1,,1,a\n", ":3: column 'inode': it is empty"),
        (HEADER + "0,1,1,1,a\n0,1,1,1,\n", ":3: column 'tenant': it is empty"),
        (HEADER + "0,1,1,1,a\n0,8:0,1,1,a\n", ":3: column 'dev': '8:0' is not a whole number"),
        (HEADER + "0,1,1,1,a\n0,1,1\n", ":3: it has 3 fields where the header has 5"),
        (HEADER + "2,1,1,1,a\n\n1,1,1,1,a\n", ":4: column 't_s': the time goes back; sort the trace"),
        ("t_s,dev,dev,page\n", ":1: two columns have the same name"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_csv_trace_is_said_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(StudyError) as error:
        simulated(csv(tmp_path, text))
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("SELECT 0.0::DOUBLE AS t_s, 1 AS dev, 2 AS inode, 1.5::DOUBLE AS page", "column 'page' holds DOUBLE"),
        ("SELECT range::DOUBLE AS t_s, 1 AS dev, 2 AS inode, nullif(range, 3) AS page FROM range(9)",
         "row 4, column 'page': it is empty"),
        ("SELECT range::DOUBLE AS t_s, 1 AS dev, 2 - range AS inode, 7 AS page FROM range(9)",
         "row 4, column 'inode': -1 cannot be"),
        ("SELECT 9.0 - range::DOUBLE AS t_s, 1 AS dev, 2 AS inode, 7 AS page FROM range(9)",
         "row 2, column 't_s': the time goes back"),
        ("SELECT 0.0::DOUBLE AS t_s, 1 AS dev, 2 AS inode, 7 AS page, range AS tenant FROM range(300)",
         "column 'tenant' has 300 different values; at most 256"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_parquet_trace_is_said_with_its_row(tmp_path: Path, rows: str, told: str) -> None:
    with pytest.raises(StudyError) as error:
        simulated(parquet(tmp_path, rows))
    assert told in str(error.value)


def test_what_is_no_parquet_and_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="cannot be read as Parquet"):
        simulated(csv(tmp_path, "hello", "trace.parquet"))
    with pytest.raises(StudyError, match="no such file"):
        simulated(tmp_path / "gone.csv")


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    simulated(csv(tmp_path, HEADER + lines(ROWS)))
    assert not list((tmp_path / "tmp").iterdir())
