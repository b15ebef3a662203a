"""`tare trace import`: someone's own trace becomes tables, or a sentence says why not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from made_up_trace_dat import version_7
from tare.base.errors import TareError
from tare.cli import tare
from tare.records.parquet import columns_of

RECORDING = Path(__file__).parents[2] / "recordings" / "trace-6.18"


def run(*words: object) -> str:
    done = CliRunner().invoke(tare, ["trace", "import", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def dat(tmp_path: Path) -> Path:
    path = tmp_path / "trace.dat"
    path.write_bytes(version_7(RECORDING))
    return path


def test_a_summary_says_what_is_in_it_and_nothing_is_written(dat: Path):
    said = run(dat)

    assert "trace.dat of trace-cmd" in said
    assert "sched_switch" in said
    assert "write-backs by reason: sync" in said
    assert list(dat.parent.iterdir()) == [dat]


def test_json_is_one_document(dat: Path):
    found = json.loads(run(dat, "--json"))

    assert found["clock"] == "mono"
    assert found["tables"]["writeback_start"] == found["writebacks"]["sync"]
    assert found["lost_events_at_least"] == {}


def test_a_folder_gets_a_table_for_each_event(dat: Path, tmp_path: Path):
    found = json.loads(run(dat, "-o", tmp_path / "out", "--json"))

    start = columns_of(tmp_path / "out" / "trace-ftrace-writeback_start.parquet")
    assert set(start["reason"]) == {"sync"}
    assert sorted(found["written"]) == sorted(str(path) for path in (tmp_path / "out").glob("*.parquet"))


def test_a_parquet_file_gets_the_page_writes_as_a_simulator_takes_them(tmp_path: Path):
    run(RECORDING, "-o", tmp_path / "pages.parquet")

    columns = columns_of(tmp_path / "pages.parquet")
    assert list(columns) == ["t_s", "dev", "inode", "page", "tenant"]
    assert columns["t_s"][0] == 0
    assert set(columns["inode"]) == {0}  # a page of the device is the same one, whoever writes it
    assert "workload" in set(columns["tenant"])


def test_a_text_is_read_too(tmp_path: Path):
    assert json.loads(run(RECORDING / "report-raw.txt", "--json"))["kind"] == "text"


def test_a_trace_without_block_events_has_no_page_writes_to_give(tmp_path: Path):
    path = tmp_path / "trace.txt"
    path.write_text("  a-1 [000] 1.000001: sched_waking: comm=b pid=2\n")

    with pytest.raises(TareError, match="block_bio_queue"):
        run(path, "-o", tmp_path / "pages.parquet")
    assert not (tmp_path / "pages.parquet").exists()


@pytest.mark.parametrize(
    ("name", "said"), [("nothing", "no such"), ("letter", "is no trace"), ("folder", "without a raw")]
)
def test_what_is_no_trace_is_refused_in_a_sentence(tmp_path: Path, name: str, said: str):
    (tmp_path / "letter").write_bytes(b"Dear \xff all")
    (tmp_path / "folder").mkdir()

    with pytest.raises(TareError, match=said):
        run(tmp_path / name)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path):
    """One with a writer lost its first events without a word: the beginning is read to see what it is."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TareError, match="is a pipe or a device, and a trace is read more than once"):
        run(tmp_path / "pipe")
