"""What a workload made is removed, however it is nested, and nothing that it linked to."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from tare.base import untrusted
from tare_inside.agents.guest_jobs import names
from tare_inside.jobs import remove_tree


def nest(folder: Path, deep: int) -> None:
    """Folders in one another, far beyond the longest path and Python's depth of calls."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(deep):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("last", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


@pytest.mark.parametrize("remove", [remove_tree, lambda top: untrusted.remove(top.parent, top.name)])
def test_folders_that_are_nested_without_end_are_removed_with_few_descriptors(tmp_path: Path, remove):
    top = tmp_path / "top"
    top.mkdir()
    for name in ("0.tare", "1.tare"):  # names that are used on the way
        (top / name / "2.tare").mkdir(parents=True)
        nest(top / name, 1500)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(200, limits[1]), limits[1]))
    try:
        remove(top)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_removed_and_not_what_it_names(tmp_path: Path):
    kept, top = tmp_path / "kept", tmp_path / "top"
    (kept / "inner").mkdir(parents=True)
    (top / "a" / "b").mkdir(parents=True)
    for place in (top, top / "a", top / "a" / "b"):
        (place / "link").symlink_to(kept)
        os.mkfifo(place / "pipe")
    (top / "a" / "b").chmod(0o500)
    (top / "a").chmod(0o500)
    remove_tree(top)
    assert not top.exists()
    assert (kept / "inner").is_dir()
    (tmp_path / "alias").symlink_to(kept)
    remove_tree(tmp_path / "alias")
    remove_tree(tmp_path / "nothing")
    assert (kept / "inner").is_dir()


def test_the_names_in_a_work_folder_are_listed_outer_ones_first_however_deep_it_is(tmp_path: Path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").write_text("")
    (tmp_path / "link").symlink_to("a")
    assert set(names(str(tmp_path))) == {"a", "a/b", "a/file"}
    assert names(str(tmp_path))[0] == "a"
    nest(tmp_path, 1500)
    assert "d/d/d" in names(str(tmp_path))
    remove_tree(tmp_path / "d")
