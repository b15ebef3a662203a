"""Readings while a trial runs: every tick that was taken is there, for a reader beside and after a kill."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from counted_calls import calls_of
from tare.base.errors import StoreError
from tare.base.units import Channel
from tare.records.spool import SpoolReader, SpoolWriter, read_spool


def plain(path: Path) -> dict[str, tuple[list[int], list[float]]]:
    return {name: (t_ns.tolist(), value.tolist()) for name, (t_ns, value) in read_spool(path).items()}


def test_readings_come_back_by_channel_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "spool.db") as spool:
        spool.channels([Channel("a", "s", "counter"), Channel("b", "1", "gauge"), Channel("never", "W", "gauge")])
        spool.tick(10, [(10, "a", 1.0), (11, "b", 2)])
        spool.tick(20, iter([(21, "b", -0.5), (20, "a", 3.0), (19, "a", 4.0)]))
        spool.tick(30, [])

    assert plain(tmp_path / "spool.db") == {"a": ([10, 20, 19], [1.0, 3.0, 4.0]), "b": ([11, 21], [2.0, -0.5])}


def test_a_value_that_is_no_number_is_absent(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "spool.db") as spool:
        spool.tick(1, [(1, "a", float("nan")), (1, "b", float("inf")), (1, "c", 1.0)])
    assert plain(tmp_path / "spool.db") == {"c": ([1], [1.0])}


def test_a_channel_is_declared_once_and_an_undeclared_one_loses_nothing(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "spool.db") as spool:
        spool.channels([Channel("a", "s", "counter", "first")])
        spool.tick(1, [(1, "stray", 7.0)])
        spool.channels([Channel("a", "s", "counter", "second"), Channel("b", "W", "gauge")])
        spool.tick(2, [(2, "b", 8.0)])

    with SpoolReader(tmp_path / "spool.db") as reader:
        assert [(c["name"], c["unit"], c["about"]) for c in reader.channels()] == [
            ("a", "s", "first"),
            ("stray", "", "not declared by its probe"),
            ("b", "W", ""),
        ]
    assert plain(tmp_path / "spool.db") == {"stray": ([1], [7.0]), "b": ([2], [8.0])}


def test_a_spool_that_is_opened_again_goes_on(tmp_path: Path) -> None:
    for t_ns in (1, 2):
        with SpoolWriter(tmp_path / "spool.db") as spool:
            spool.channels([Channel("a", "s", "counter"), Channel(f"b{t_ns}", "s", "counter")])
            spool.tick(t_ns, [(t_ns, "a", float(t_ns)), (t_ns, f"b{t_ns}", 0.0)])
    assert plain(tmp_path / "spool.db") == {"a": ([1, 2], [1.0, 2.0]), "b1": ([1], [0.0]), "b2": ([2], [0.0])}


def test_a_reader_beside_the_writer_sees_each_tick_and_never_holds_it_up(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "spool.db") as spool:
        spool.tick(1, [(1, "a", 1.0)])
        with SpoolReader(tmp_path / "spool.db") as reader:
            spool.tick(2, [(2, "a", 2.0), (2, "b", 2.0)])
            (chunk,) = reader.chunks()
            assert (chunk[0].tolist(), [c["name"] for c in reader.channels()]) == ([1], ["a"])  # one moment
        assert plain(tmp_path / "spool.db") == {"a": ([1, 2], [1.0, 2.0]), "b": ([2], [2.0])}


def test_many_ticks_come_in_chunks(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "spool.db") as spool:
        for k in range(5000):
            spool.tick(k, [(k, "a", k / 4)])
    with SpoolReader(tmp_path / "spool.db") as reader:
        assert [len(times) for times, _, _ in reader.chunks()] == [4096, 904]
    t_ns, value = read_spool(tmp_path / "spool.db")["a"]
    assert (t_ns.tolist(), (value * 4).tolist()) == (list(range(5000)), list(range(5000)))


@pytest.mark.parametrize(
    ("reading", "says"),
    [
        ((1, "a", None), "a reading of a cannot be kept: None at 1 ns"),
        ((2**63, "a", 1.0), "a reading of a cannot be kept: 1.0 at 9223372036854775808 ns"),
        ((1, "a", 10**400), "a reading of a cannot be kept: 1000"),
    ],
)
def test_a_reading_that_cannot_be_kept_is_named(tmp_path: Path, reading: tuple[int, str, float], says: str) -> None:
    with SpoolWriter(tmp_path / "spool.db") as spool:
        with pytest.raises(StoreError, match=says):
            spool.tick(1, [(1, "b", 1.0), reading])
        spool.tick(2, [(2, "a", 1.0)])
    assert plain(tmp_path / "spool.db") == {"a": ([2], [1.0])}


def test_a_spool_that_is_not_there_or_has_no_tables_yet_is_empty(tmp_path: Path) -> None:
    assert read_spool(tmp_path / "spool.db") == {}
    sqlite3.connect(tmp_path / "spool.db").execute("PRAGMA journal_mode = WAL").connection.close()
    with SpoolReader(tmp_path / "spool.db") as reader:
        assert (list(reader.chunks()), reader.channels(), reader.damage) == ([], [], None)


def test_a_spool_in_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="was removed or moved"):
        SpoolWriter(tmp_path / "gone" / "spool.db")
    assert not (tmp_path / "gone").exists()


def test_readings_of_a_channel_whose_row_was_lost_are_kept_without_a_name(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "spool.db") as spool:
        spool.tick(1, [(1, "a", 1.0), (2, "b", 2.0), (3, "c", 3.0)])
    db = sqlite3.connect(tmp_path / "spool.db")
    db.execute("DELETE FROM channel WHERE name IN ('b', 'c')")
    db.commit()
    db.close()
    assert plain(tmp_path / "spool.db") == {"a": ([1], [1.0]), "nameless.1": ([2], [2.0]), "nameless.2": ([3], [3.0])}


def test_garbage_is_damage_and_no_exception(tmp_path: Path) -> None:
    (tmp_path / "spool.db").write_bytes(b"garbage" * 1000)
    with SpoolReader(tmp_path / "spool.db") as reader:
        assert list(reader.chunks()) == []
        assert reader.damage == "file is not a database"


@pytest.mark.parametrize("tail", [b"", b"\xa5" * 3000], ids=["torn", "garbage"])
def test_a_torn_log_is_read_up_to_the_last_good_tick(tmp_path: Path, tail: bytes) -> None:
    spool = SpoolWriter(tmp_path / "spool.db")
    for k in range(50):
        spool.tick(k, [(k, "a", float(k))])
    (tmp_path / "after").mkdir()
    for name in ("spool.db", "spool.db-wal"):
        (tmp_path / "after" / name).write_bytes((tmp_path / name).read_bytes())
    spool.close()
    log = tmp_path / "after" / "spool.db-wal"
    log.write_bytes(log.read_bytes()[:-3000] + tail)

    times, _ = read_spool(tmp_path / "after" / "spool.db")["a"]
    assert times.tolist() == list(range(49))


WRITER = """
import sys
from pathlib import Path
from tare.records.spool import SpoolWriter
spool = SpoolWriter(Path(sys.argv[1]))
k = 0
while True:
    spool.tick(k, [(k, f"c{c}", float(k)) for c in range(30)])
    k += 1
    sys.stdout.write(f"{k}\\n"); sys.stdout.flush()
"""


def test_kill_9_loses_no_tick_that_was_taken(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(200):
            writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged = 200 + len(writer.stdout.read().split())
    times, _ = read_spool(path)["c29"]
    assert times.tolist() == list(range(len(times)))
    assert len(times) in (acknowledged, acknowledged + 1)


def test_a_tick_is_one_statement_however_many_readings_it_has(tmp_path: Path) -> None:
    """What a tick takes in time is in benchmarks: here are counted what it calls and writes."""
    path = tmp_path / "spool.db"
    called = {}
    for channels in (30, 300):
        readings = [(10**15, f"channel.{c}", c / 7) for c in range(channels)]
        with SpoolWriter(path) as spool:
            spool.tick(0, readings)  # the first notes the channels
            said: list[str] = []
            spool._db.set_trace_callback(said.append)
            called[channels] = calls_of(partial(spool.tick, 1, readings))
            spool._db.set_trace_callback(None)
        assert [statement.split()[0] for statement in said] == ["INSERT"]
    assert max(called.values()) < 30, "none for each reading"
