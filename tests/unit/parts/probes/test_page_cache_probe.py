"""How much of a data set is cached, over time; of a large one only pieces are looked at, and that is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tare.base.host import LocalHost, Scope
from tare.drivers.storage import sampling
from tare.drivers.storage.sampling import WINDOW_BYTES, drawn
from tare.parts.probes import memory
from tare.parts.probes.memory import PageCache
from tare.testing import FakeClock, FakeHost


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(8):
        (folder / f"{number}.bin").write_bytes(os.urandom(200_000))
    (folder / "large.bin").write_bytes(os.urandom(5 * WINDOW_BYTES + 100))
    (folder / "empty").write_bytes(b"")
    os.sync()
    return folder


def drop(*paths: Path) -> None:
    for path in paths:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def values(readings) -> dict[str, float]:
    return {reading.channel.removeprefix("page_cache."): reading.value for reading in readings}


def test_it_sees_the_data_set_leave_and_come_back(data: Path):
    clock = FakeClock()
    feed = PageCache().aimed((data,)).open(LocalHost(clock=clock), Scope())
    total = 8 * 200_000 + 5 * WINDOW_BYTES + 100
    assert values(feed.poll()) == {"share": 1.0, "resident_bytes": total, "sampled_share": 1.0}

    drop(*data.glob("*.bin"))
    assert feed.poll() == []  # not due yet
    clock.advance(1)
    assert values(feed.poll()) == {"share": 0.0, "resident_bytes": 0.0, "sampled_share": 1.0}

    (data / "large.bin").read_bytes()
    assert values(feed.close())["share"] == pytest.approx(5 * WINDOW_BYTES / total, abs=0.03)
    clock.advance(1)
    assert feed.poll() == []


def test_a_large_data_set_is_sampled_and_says_how_much_of_it(data: Path):
    feed = PageCache(paths=(data,), pieces=6).open(LocalHost(), Scope())
    drop(data / "large.bin")
    seen = values(feed.close())
    assert 0.2 < seen["sampled_share"] < 0.9
    assert 0 < seen["share"] < 1


def test_pieces_are_spread_over_all_files_each_at_most_once(tmp_path: Path):
    for number in range(50):
        (tmp_path / f"{number:02}.bin").write_bytes(b"x" * 5000)
    sample = drawn([tmp_path], 10)
    assert len(sample.pieces) == len({piece.descriptor for piece in sample.pieces}) == 10
    names = sorted(int(Path(f"/proc/self/fd/{piece.descriptor}").readlink().stem) for piece in sample.pieces)
    assert names[0] < 10
    assert names[-1] >= 40
    assert sample.share == pytest.approx(0.2)
    sample.close()


def test_the_pieces_of_one_file_share_a_descriptor_and_do_not_overlap(data: Path):
    sample = drawn([data / "large.bin"], 100)
    assert len({piece.descriptor for piece in sample.pieces}) == 1
    assert [piece.start for piece in sample.pieces] == [number * WINDOW_BYTES for number in range(6)]
    assert [piece.length for piece in sample.pieces] == [WINDOW_BYTES] * 5 + [100]
    sample.close()
    assert sampling.Sample((), 0).share == 0


def test_what_it_may_not_know_is_said_once_and_no_number_is_made_up(data: Path, monkeypatch):
    monkeypatch.setattr(memory, "residency", lambda *_: None)
    feed = PageCache(paths=(data,)).open(LocalHost(), Scope())
    assert feed.poll() == []
    assert feed.close() == []
    assert [*map(str, feed.lost)] == [
        "page_cache: only root and the owner of a file can read how much of it is in memory."
    ]


def test_a_workload_without_files_and_a_folder_that_is_gone_stop_nobody(tmp_path: Path):
    silent = PageCache().open(LocalHost(), Scope())
    assert (silent.channels, silent.poll()) == ((), [])
    assert "names no files" in str(silent.lost[0])
    assert "cannot be watched" in str(PageCache(paths=(tmp_path / "gone",)).open(LocalHost(), Scope()).lost[0])


def test_its_own_paths_win_over_those_of_the_workload(data: Path, tmp_path: Path):
    assert PageCache(paths=(data,)).aimed((tmp_path,)).paths == (data,)
    assert PageCache().aimed((tmp_path, tmp_path)).paths == (tmp_path,)


def test_it_watches_the_device_alone():
    assert PageCache().obstacles(FakeHost()) != []
    assert PageCache().obstacles(LocalHost()) == []
    assert "no /no/such to watch" in str(PageCache(paths=(Path("/no/such"),)).obstacles(LocalHost())[0])
