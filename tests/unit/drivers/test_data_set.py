from __future__ import annotations

import os
from pathlib import Path

import pytest

from tare.drivers.storage.residency import open_files


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
