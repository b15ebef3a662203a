"""What goes into an image: every library that is needed, every link on the way, and twice the same bytes."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tare.errors import StudyError
from tare.parts import elf, image_python
from tare.parts.image_archive import write_folder, write_tar
from tare.parts.image_content import gather
from tare.parts.image_import import into_folder
from tare.parts.image_tree import Tree
from tare.parts.library_closure import Loader

PYTHON = str(Path(sys.executable).resolve())


def nothing(_: int) -> None:
    """Nobody wants to know how far it is."""


def ldd(path: str) -> set[str]:
    """What the loader itself says, with its own name for each library."""
    said = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    return {str(Path(found).resolve()) for found in re.findall(r"(/\S+) \(0x", said)}


def test_the_closure_of_a_program_is_what_the_loader_would_load():
    found, missing = Loader().closure([PYTHON])

    assert {str(Path(path).resolve()) for path in found} == ldd(PYTHON)
    assert missing == set()


def test_a_library_that_nothing_has_is_named(tmp_path):
    copy = tmp_path / "program"
    known = elf.read(PYTHON)
    assert known is not None
    name = known.needed[-1]
    copy.write_bytes(Path(PYTHON).read_bytes().replace(f"\0{name}\0".encode(), f"\0{'x' * len(name)}\0".encode()))

    _, missing = Loader().closure([str(copy)])

    assert missing == {"x" * len(name)}


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\xff" * 60])
def test_what_is_no_whole_elf_file_needs_nothing(tmp_path, data):
    (tmp_path / "file").write_bytes(data)

    assert elf.read(tmp_path / "file") is None


def test_a_library_for_another_processor_is_passed_over(tmp_path):
    other = tmp_path / "libc.so.6"
    data = bytearray(Path(PYTHON).read_bytes())
    data[18:20] = b"\x03\x00" if data[18:20] != b"\x03\x00" else b"\xb7\x00"
    other.write_bytes(data)
    mine = elf.read(PYTHON)
    assert mine is not None

    assert Loader(cached=[("libc.so.6", str(other))]).find("libc.so.6", [str(tmp_path)], mine.kind) is None


def test_links_on_the_way_to_a_file_are_taken_with_it(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("text")
    (tmp_path / "way").symlink_to("real")
    (tmp_path / "real" / "alias").symlink_to("../way/file")
    tree = Tree()

    tree.add(f"{tmp_path}/way/alias")

    root = str(tmp_path)
    assert {entry.path: entry.link for entry in tree.entries() if not entry.is_folder} == {
        f"{root}/way": "real",
        f"{root}/real/alias": "../way/file",
        f"{root}/real/file": "",
    }


def archive(entries) -> bytes:
    data = io.BytesIO()
    write_tar(entries, data, nothing)
    return data.getvalue()


def test_two_builds_are_equal_byte_for_byte_and_belong_to_root():
    first, second = gather(sys.executable, []), gather(sys.executable, [])

    data = archive(first.entries)

    assert data == archive(second.entries)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        headers = tar.getmembers()
    assert {(header.uid, header.gid) for header in headers} == {(0, 0)}
    assert {header.mtime for header in headers if not header.name.endswith(".py")} == {0}
    assert [header.name.split("/") for header in headers] == sorted(header.name.split("/") for header in headers)


def test_sources_keep_the_time_that_their_byte_code_names():
    """With another one Python would compile every module again at every start, for nothing can be written inside."""
    (entry,) = [each for each in gather(sys.executable, []).entries if each.path == os.__file__]

    assert entry.mtime_s == int(Path(os.__file__).stat().st_mtime)


def test_packages_come_with_what_they_require():
    said = image_python.ask(sys.executable, ["jinja2"])

    assert {"jinja2", "markupsafe"} <= said.packages.keys()
    assert any(path.endswith("markupsafe/__init__.py") for path in said.package_files)


def test_a_package_or_an_interpreter_that_is_not_there_is_refused():
    with pytest.raises(StudyError, match="no-such-package"):
        image_python.ask(sys.executable, ["no-such-package"])
    with pytest.raises(StudyError, match="no interpreter"):
        image_python.ask("/no/such/python", [])


def test_a_folder_that_is_there_is_not_overwritten(tmp_path):
    content = gather(sys.executable, [])

    with pytest.raises(StudyError, match="is there already"):
        into_folder(content, str(tmp_path), nothing)


def test_a_folder_has_the_same_files_as_the_archive(tmp_path):
    tree = Tree()
    tree.add(PYTHON)
    tree.add_text("/etc/passwd-of-ours", "text\n")
    write_folder(tree.entries(), tmp_path, nothing)

    with tarfile.open(fileobj=io.BytesIO(archive(tree.entries()))) as tar:
        for header in tar.getmembers():
            made = tmp_path / header.name
            assert (made.lstat().st_mode & 0o777) == header.mode
            assert not header.isfile() or made.read_bytes() == tar.extractfile(header).read()  # type: ignore[union-attr]
