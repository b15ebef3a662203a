"""Recorded pages become columns, and those are what trace-cmd says of the same pages."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest

from made_up_pages import common, event, page
from tare.kernel.traces.decode import Source, decode, lost_events, padded, pieces
from tare.kernel.traces.formats import PageLayout, parse_event
from tare.kernel.traces.recording import open_folder

RECORDINGS = Path(__file__).parents[2] / "recordings"
HERE = RECORDINGS / "trace-6.18"
_ROW = re.compile(r"^\s*(.+)-(\d+)\s+\[(\d+)\]\s+(\d+)\.(\d{9}): (\w+):\s*(.*)$")


def trace_cmd_says() -> dict[str, list[tuple[int, int, int, dict[str, str]]]]:
    """Event to (time, core, pid, fields), from `trace-cmd report -t -R` of the same pages."""
    rows: dict[str, list[tuple[int, int, int, dict[str, str]]]] = {}
    for line in (HERE / "report-raw.txt").read_text().splitlines():
        if found := _ROW.match(line):
            fields = dict(re.findall(r"(\w+)=(\S*)", found[7]))
            rows.setdefault(found[6], []).append(
                (int(found[4]) * 10**9 + int(found[5]), int(found[3]), int(found[2]), fields)
            )
    return rows


def same(value: object, said: str) -> bool:
    """trace-cmd writes some numbers in base 16."""
    if isinstance(value, bytes):
        return value.decode() == said
    return int(value) == int(said, 0)  # type: ignore[call-overload]


@pytest.mark.parametrize("pages_at_once", [2, 2048])
def test_every_field_of_every_event_is_as_trace_cmd_decodes_it(pages_at_once: int):
    recording = open_folder(HERE)
    said = trace_cmd_says()
    seen: dict[str, int] = {}

    for piece in pieces(recording.sources, recording.layout, recording.formats, pages_at_once):
        for events in piece:
            columns, name = events.columns, events.format.name
            for row in range(len(columns["t_ns"])):
                t_ns, cpu, pid, fields = said[name][seen.get(name, 0)]
                seen[name] = seen.get(name, 0) + 1
                assert (columns["t_ns"][row], columns["cpu"][row], columns["pid"][row]) == (t_ns, cpu, pid)
                for field, value in fields.items():
                    column = columns[f"event_{field}" if field in ("pid", "comm") else field]
                    assert same(column[row], value), (name, field)

    assert seen == {name: len(rows) for name, rows in said.items()}
    assert seen["writeback_start"] > 0


def test_texts_are_cut_at_their_first_zero_byte_and_may_lie_behind_the_record():
    attach = parse_event((RECORDINGS / "trace-formats/4.9/cgroup_attach_task").read_text())
    path, name = b"/tare/t1\0", b"python3\0junk"
    places = struct.pack("<iii", 1, 2, 3) + struct.pack("<I", len(path) << 16 | 32)
    record = common(attach.id, 9) + places + struct.pack("<iI", 77, len(name) << 16 | 32 + len(path)) + path + name

    (events,) = decode(padded(page(5, event(1, record))), PageLayout(), {attach.id: attach}, cpu=3)

    assert {key: column.tolist() for key, column in events.columns.items()} == {
        "t_ns": [6], "cpu": [3], "pid": [9], "dst_root": [1], "dst_id": [2], "dst_level": [3],
        "dst_path": [b"/tare/t1"], "event_pid": [77], "event_comm": [b"python3"],
    }  # fmt: skip


def test_a_text_at_a_relative_place_counts_from_the_end_of_its_field():
    odd = parse_event(
        "name: odd\nID: 7\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
        "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
        "\tfield:__rel_loc char[] why;\toffset:8;\tsize:4;\tsigned:0;\n"
        "\tfield:__data_loc u64[] numbers;\toffset:12;\tsize:4;\tsigned:0;\n"
    )
    record = common(7, 1) + struct.pack("<II", 3 << 16 | 4, 16 << 16 | 20) + b"no\0\0" + struct.pack("<QQ", 5, 1 << 40)

    (events,) = decode(padded(page(0, event(1, record))), PageLayout(), {7: odd}, cpu=0)

    assert events.columns["why"].tolist() == [b"no"]
    assert events.columns["numbers"].tolist() == [(5, 1 << 40)]


def test_one_long_text_does_not_widen_all_the_others():
    attach = parse_event((RECORDINGS / "trace-formats/4.9/cgroup_attach_task").read_text())

    def record(path: bytes) -> bytes:
        fixed = struct.pack("<iii", 1, 2, 3) + struct.pack("<IiI", len(path) << 16 | 32, 77, 1 << 16 | 32 + len(path))
        return common(attach.id, 9) + fixed + path + b"\0"

    long_path = b"/" + b"x" * 600
    pages = page(5, event(1, record(b"/short\0")) + event(1, record(long_path + b"\0")))

    (events,) = decode(padded(pages), PageLayout(), {attach.id: attach}, cpu=0)

    assert events.columns["dst_path"].tolist() == [b"/short", long_path]


def test_events_of_an_unknown_kind_are_left_out():
    assert list(decode(padded(page(0, event(1, common(999, 1)))), PageLayout(), {}, cpu=0)) == []


def test_pieces_of_all_cores_come_in_the_order_of_time(tmp_path: Path):
    tick = parse_event(
        "name: tick\nID: 7\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
    )
    sources = []
    for cpu in (0, 1):
        pages = [
            page(1000 * number + 300 * cpu, b"".join(event(70, common(7, cpu)) for _ in range(20)))
            for number in range(9)
        ]
        (tmp_path / f"cpu{cpu}.raw").write_bytes(b"".join(pages))
        sources.append(Source(cpu, tmp_path / f"cpu{cpu}.raw"))

    found = [events for piece in pieces(sources, PageLayout(), {7: tick}, pages_at_once=3) for events in piece]
    times = np.concatenate([events.columns["t_ns"] for events in found])

    assert len(found) > 3
    assert len(times) == 2 * 9 * 20
    assert (np.diff(times) >= 0).all()


def test_a_file_that_was_cut_off_in_a_page_is_read_up_to_there(tmp_path: Path):
    path = tmp_path / "cpu0.raw"
    path.write_bytes(page(0, event(1, common(7, 1)), lost=5) + b"\1" * 100)

    assert lost_events(Source(0, path), PageLayout()).events == 5
    path.write_bytes(b"")
    assert lost_events(Source(0, path), PageLayout()).events == 0


def test_page_faults_of_a_program_that_touches_n_fresh_pages_are_n():
    """Recorded on an x86 machine, where the kernel has these events."""
    recording = open_folder(RECORDINGS / "trace-faults-x86")
    faults = {}
    for piece in pieces(recording.sources, recording.layout, recording.formats):
        faults |= {events.format.name: events.columns for events in piece}
    user = faults["page_fault_user"]
    ips, times = np.unique(user["ip"][user["pid"] == 447], return_counts=True)  # 447 touched 1500 pages, 446 none

    touched = np.sort(user["address"][user["ip"] == ips[times.argmax()]] // 4096)
    assert times.max() == pytest.approx(1500, rel=0.01)
    assert (np.diff(touched[-1500:].astype(np.int64)) == 1).mean() > 0.99  # one page after another, each once
