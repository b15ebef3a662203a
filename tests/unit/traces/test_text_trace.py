"""Traces as text, as the kernel and as trace-cmd print them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tare.base.errors import TareError
from tare.kernel.traces.recording import open_folder, tables
from tare.kernel.traces.text import is_text_trace, text_tables

RECORDING = Path(__file__).parents[2] / "recordings" / "trace-6.18"
_WORK = "sb_dev 0:0 nr_pages={} sync_mode=0 kupdate=1 range_cyclic=1 background=0 reason=periodic cgroup_ino=1"
KERNEL = f"""\
# tracer: nop
#
# entries-in-buffer/entries-written: 7/7   #P:2
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
   kworker/u8:1-1234    [001] .....   100.000001: writeback_start: bdi 254:0: {_WORK.format(1024)}
   kworker/u8:1-1234    [001] .....   100.000002: writeback_single_inode_start: bdi 254:0: ino=77 state=I_DIRTY index=0
   kworker/u8:1-1234    [001] d..1.   100.000003: block_bio_queue: 254,0 W 800 + 16 [kworker/u8:1]
   kworker/u8:1-1234    [001] .....   100.000004: writeback_single_inode: bdi 254:0: ino=77 state= index=2 wrote=2
   kworker/u8:1-1234    [001] .....   100.000005: writeback_written: bdi 254:0: {_WORK.format(1022)}
        dockerd-99      [000] d..1.   100.000006: sys_enter: NR 64 (3, ffff, 1, 0, 0, 0)
CPU:1 [LOST 42 EVENTS]
      my prog-3-100   (     99) [000] .....   100.000007: writeback_dirty_page: bdi 254:0: ino=77 index=3
"""


def read(path: Path, **options: Any) -> dict[str, dict[str, Any]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for chunk in text_tables(path, **options):
        found.setdefault(chunk.name, []).append(chunk.columns)
    return {name: {key: np.concatenate([one[key] for one in many]) for key in many[0]} for name, many in found.items()}


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "trace.txt"
    path.write_text(KERNEL)
    return path


def test_the_kernels_own_text_becomes_tables(kernels: Path):
    found = read(kernels)

    start = {key: column.tolist() for key, column in found["writeback_start"].items() if key != "text"}
    assert start["t_ns"] == [100_000_001_000]
    assert (start["comm"], start["pid"], start["cpu"]) == (["kworker/u8:1"], [1234], [1])
    assert (start["bdi"], start["dev"], start["reason"], start["nr_pages"]) == (
        ["254:0"], [254 << 20], ["periodic"], [1024],
    )  # fmt: skip
    assert found["sys_enter"]["id"].tolist() == [64]
    assert found["sys_enter"]["role"].tolist() == ["daemon"]
    assert found["lost"]["events"].tolist() == [42]


def test_a_dirtied_page_has_one_name_in_all_kernels_and_tasks_may_have_odd_names(kernels: Path):
    dirtied = read(kernels)["writeback_dirty_folio"]

    assert (dirtied["inode"].tolist(), dirtied["page"].tolist()) == ([77], [3])
    assert dirtied["comm"].tolist() == ["my prog-3"]
    assert dirtied["pid"].tolist() == [100]


def test_page_writes_are_joined_as_from_raw_pages(kernels: Path):
    written = read(kernels)["page_writes"]

    assert written["page"].tolist() == [100, 101]
    assert (written["inode"].tolist(), set(written["reason"])) == ([77, 77], {"periodic"})


def test_page_writes_are_the_same_where_the_other_words_are_not_read(kernels: Path):
    whole, found = read(kernels), read(kernels, whole=False)

    assert {name: len(its["t_ns"]) for name, its in found.items() if name != "lost"} == {
        name: len(its["t_ns"]) for name, its in whole.items() if name != "lost"
    }
    assert {key: its.tolist() for key, its in found["page_writes"].items()} == {
        key: its.tolist() for key, its in whole["page_writes"].items()
    }
    assert found["writeback_start"]["reason"].tolist() == ["periodic"]
    assert found["sys_enter"].keys() == {"t_ns", "cpu", "pid", "comm", "role"}


@pytest.mark.parametrize("at_once", [1, 300, 100_000])
def test_pieces_make_no_difference(kernels: Path, at_once: int):
    assert read(kernels, at_once=at_once)["page_writes"]["page"].tolist() == [100, 101]


def test_trace_cmds_raw_report_gives_the_same_figures_as_the_pages_it_was_made_of():
    text = read(RECORDING / "report-raw.txt")
    for chunk in tables(open_folder(RECORDING)):
        if chunk.name == "page_writes":
            continue
        for column in ("t_ns", "cpu", "pid"):
            assert text[chunk.name][column].tolist() == chunk.columns[column].tolist(), (chunk.name, column)
    assert text["writeback_start"]["nr_pages"].dtype.kind == "i"


def test_trace_cmds_plain_report_is_read_too():
    found = read(RECORDING / "report.txt")

    assert {"prev_pid", "next_pid", "prev_comm"} <= found["sched_switch"].keys()
    assert found["sched_switch"]["prev_pid"].dtype.kind == "i"


def test_a_column_that_turns_into_words_later_is_left_out_there(tmp_path: Path):
    path = tmp_path / "trace.txt"
    line = "  a-1 [000] 1.00000{}: odd: what={}\n"
    path.write_text("".join(line.format(n, value) for n, value in enumerate(["1", "2", "three", "4"])))

    chunks = list(text_tables(path, at_once=60))

    assert chunks[0].columns["what"].tolist() == [1, 2]
    assert "what" not in chunks[1].columns
    assert chunks[1].columns["text"].tolist() == ["what=three", "what=4"]


def test_what_holds_no_events_is_refused(tmp_path: Path):
    path = tmp_path / "letter.txt"
    path.write_text("Dear all,\nno trace here.\n")

    assert not is_text_trace(path)
    with pytest.raises(TareError, match="no line of it is an event"):
        list(text_tables(path))


def test_a_line_without_end_is_damage_with_its_place(tmp_path):
    path = tmp_path / "trace.txt"
    path.write_bytes(b" dd-12  [000] .... 100.000001: writeback_start: x=1\n")
    with path.open("r+b") as file:
        file.truncate(1 << 36)
    with pytest.raises(TareError, match=r"in the \d+ lines from line 1 on\): ValueError: a line of more than"):
        list(text_tables(path))
    assert is_text_trace(path)
    path.write_bytes(b"")
    with path.open("r+b") as file:
        file.truncate(1 << 36)
    assert not is_text_trace(path)
