from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tare.drivers.storage import residency as module
from tare.drivers.storage.residency import Residency, cachestat, mincore, open_files, residency

PAGE = mmap.PAGESIZE


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "data.bin"
    path.write_bytes(os.urandom(100 * PAGE + 1))
    opened = os.open(path, os.O_RDONLY)
    yield opened
    os.close(opened)


def cool(descriptor: int) -> None:
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def read_pages(descriptor: int, first: int, count: int) -> None:
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead: only what is asked for
    os.pread(descriptor, count * PAGE, first * PAGE)


def test_a_file_that_was_just_written_is_in_memory_and_not_yet_on_disk(descriptor: int):
    seen = residency(descriptor)
    assert seen is not None
    assert (seen.pages, seen.resident, seen.share) == (101, 101, 1.0)
    if cachestat(descriptor) is not None:
        assert seen.dirty == 101


def test_a_file_that_was_dropped_is_not_in_memory(descriptor: int):
    cool(descriptor)
    assert residency(descriptor) == Residency(101, 0, 0)


def test_both_ways_to_ask_the_kernel_agree(descriptor: int):
    cool(descriptor)
    read_pages(descriptor, 40, 25)
    by_cachestat = cachestat(descriptor)
    assert mincore(descriptor) == 25
    assert by_cachestat is None or by_cachestat.resident == 25


def test_a_kernel_without_cachestat_is_asked_by_mincore(descriptor: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_CACHESTAT", 100_000)  # a number that no kernel knows
    assert cachestat(descriptor) is None
    cool(descriptor)
    read_pages(descriptor, 0, 10)
    assert residency(descriptor) == Residency(101, 10, None)


def test_a_stacked_file_system_that_shows_cachestat_nothing_is_asked_by_mincore(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "cachestat", lambda *_: Residency(101, 0, 0))  # as overlayfs does
    assert residency(descriptor) == Residency(101, 101, None)


def test_a_file_is_mapped_in_windows(descriptor: int, monkeypatch: pytest.MonkeyPatch):
    cool(descriptor)
    read_pages(descriptor, 5, 30)
    monkeypatch.setattr(module, "_WINDOW_BYTES", 16 * PAGE)
    assert mincore(descriptor) == 30


def test_an_empty_file_has_no_pages_and_no_share(tmp_path: Path):
    with (tmp_path / "empty").open("wb") as file:
        seen = residency(file.fileno())
    assert seen == Residency(0, 0, 0)
    assert seen.share is None


def test_a_user_who_may_not_know_gets_no_answer_rather_than_a_false_one(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
):
    # The kernel tells such a user that everything is resident.
    monkeypatch.setattr(module, "_CACHESTAT", 100_000)
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert residency(descriptor) is None


def test_files_add_up_and_an_unknown_makes_the_sum_unknown():
    assert Residency(10, 5, 1) + Residency(10, 10, 2) == Residency(20, 15, 3)
    assert Residency(10, 5, 1) + Residency(10, 10, None) == Residency(20, 15, None)


def test_a_piece_of_a_file_is_counted_by_itself(tmp_path: Path):
    path = tmp_path / "pieces.bin"
    path.write_bytes(os.urandom(66 * PAGE))
    with path.open("rb", buffering=0) as file:
        number = file.fileno()
        os.fsync(number)
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead: what is asked for is what is read
        os.pread(number, 2 * PAGE, 64 * PAGE)
        counted = [residency(number, start * PAGE, 32 * PAGE) for start in (0, 32, 64, 66)]
        by_mincore = [mincore(number, start * PAGE, 32 * PAGE) for start in (0, 32, 64)]
    assert [(seen.pages, seen.resident) for seen in counted if seen] == [(32, 0), (32, 0), (2, 2), (0, 0)]
    assert by_mincore == [0, 0, 2]


def contents(*paths: Path) -> list[str]:
    return sorted(os.read(descriptor, 100).decode() for descriptor in open_files(paths))


def test_a_folder_is_all_its_files_and_a_file_is_itself(tmp_path: Path):
    (tmp_path / "data" / "deep" / "deeper").mkdir(parents=True)
    for name in ("data/one", "data/deep/two", "data/deep/deeper/three", "alone"):
        (tmp_path / name).write_text(Path(name).name)
    assert contents(tmp_path / "data") == ["one", "three", "two"]
    assert contents(tmp_path / "data", tmp_path / "alone") == ["alone", "one", "three", "two"]


def test_links_inside_are_not_followed_and_the_named_path_is(tmp_path: Path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_text("secret")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "one").write_text("one")
    (tmp_path / "data" / "out").symlink_to(tmp_path / "secret")
    (tmp_path / "data" / "file").symlink_to(tmp_path / "secret" / "file")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    assert contents(tmp_path / "link") == ["one"]


def test_pipes_are_left_alone(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "one").write_text("one")
    assert contents(tmp_path) == ["one"]
    assert contents(tmp_path / "pipe") == []


def test_each_file_is_closed_before_the_next_also_when_the_reader_stops(tmp_path: Path):
    for number in range(5):
        (tmp_path / str(number)).write_text("")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in open_files([tmp_path]):
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 3  # the file, its folder, the walk
    walk = open_files([tmp_path])
    descriptor = next(walk)
    walk.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        contents(tmp_path / "missing")
