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

from tare.base.errors import StudyError
from tare.drivers.containers.differing import differing
from tare.drivers.images.content import ask, gather, libraries
from tare.drivers.images.takers import into_folder
from tare.drivers.images.tree import Tree, write_folder, write_tar

PYTHON = str(Path(sys.executable).resolve())


def nothing(_: int) -> None:
    """Nobody wants to know how far it is."""


def test_the_libraries_of_a_program_are_those_that_it_has_loaded_when_it_runs():
    found, missing = libraries([PYTHON])

    script = "print(open('/proc/self/maps').read())"
    maps = subprocess.run([PYTHON, "-ISc", script], capture_output=True, text=True, check=True).stdout
    loaded = {path for path in re.findall(r" (/\S+)$", maps, re.MULTILINE) if re.search(r"\.so(\.|$)", path)}
    assert {str(Path(path).resolve()) for path in found} == {path for path in loaded if "lib-dynload" not in path}
    assert missing == set()


def test_a_library_that_nothing_has_is_named(tmp_path):
    copy = tmp_path / "program"
    data = Path(PYTHON).read_bytes()
    assert data.count(b"\0libc.so.6\0") == 1
    copy.write_bytes(data.replace(b"\0libc.so.6\0", b"\0xxxx.so.6\0"))
    copy.chmod(0o755)

    assert "xxxx.so.6" in libraries([str(copy)])[1]


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\xff" * 60])
def test_what_is_no_whole_elf_file_needs_nothing_and_hides_no_other(tmp_path, data):
    (tmp_path / "file").write_bytes(data)

    assert libraries([str(tmp_path / "file")]) == (set(), set())
    assert libraries([str(tmp_path / "file"), PYTHON]) == libraries([PYTHON])


def test_a_library_for_another_processor_is_passed_over(tmp_path):
    other = tmp_path / "libc.so.6"
    data = bytearray(Path(PYTHON).read_bytes())
    data[18:20] = b"\x03\x00" if data[18:20] != b"\x03\x00" else b"\xb7\x00"
    other.write_bytes(data)

    assert libraries([str(other)]) == (set(), set())


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
    said = ask(sys.executable, ["jinja2"])

    assert {"jinja2", "markupsafe"} <= said.packages.keys()
    assert any(path.endswith("markupsafe/__init__.py") for path in said.package_files)


def test_a_package_or_an_interpreter_that_is_not_there_is_refused():
    with pytest.raises(StudyError, match="no-such-package"):
        ask(sys.executable, ["no-such-package"])
    with pytest.raises(StudyError, match="no interpreter"):
        ask("/no/such/python", [])


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


SYSTEM = Path("/usr/bin/python3")


@pytest.mark.skipif(not SYSTEM.is_symlink(), reason="/usr/bin/python3 is no link here")
def test_an_environment_made_by_the_systems_python_is_the_images_python(tmp_path):
    """Its interpreter is a link to /usr/bin/python3, which in the image is a script that starts the environment's."""
    subprocess.run([SYSTEM, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)

    entries = {entry.path: entry for entry in gather(str(tmp_path / "venv/bin/python3"), []).entries}

    assert f"exec {tmp_path}/venv/bin/python3" in entries[str(SYSTEM)].text
    assert entries[f"{tmp_path}/venv/bin/python3"].link == str(SYSTEM.resolve())
    assert entries[str(SYSTEM.resolve())].source == str(SYSTEM.resolve())


def test_two_roots_differ_in_files_of_other_content_and_in_those_of_one_alone(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for root, text in ((one, "a"), (other, "b")):
        (root / "app").mkdir(parents=True)
        (root / "app" / "same.py").write_text("same")
        (root / "app" / "changed.py").write_text(text)
        (root / "etc").mkdir()
        (root / "etc" / "hosts").write_text(text)  # each engine makes one for each container
        (root / "link").symlink_to("/etc")
        (root / "lib").mkdir()
        (root / "bin").mkdir()
        (root / "bin" / "awk").symlink_to("/etc/alternatives")  # from its own top
        for name in ("mawk", "busybox"):
            (root / "bin" / name).write_text(name)
    (one / "etc" / "alternatives").symlink_to("/bin/busybox")
    (other / "etc" / "alternatives").symlink_to("../bin/mawk")
    for root, version in ((one, "1.2"), (other, "1.3")):
        (root / "lib" / f"libwork.so.{version}").write_text(version)
        (root / "lib" / "libwork.so.1").symlink_to(f"libwork.so.{version}")
    (other / "app" / "new.so").write_text("here alone")
    paths = ["/app/same.py", "/app/changed.py", "/app/new.so", "/app/none.py", "/etc/hosts", "/link/passwd", "/app"]
    paths += ["/bin/awk", "/bin/mawk", "/bin/busybox", "/lib/libwork.so.1.2", "/lib/libwork.so.1.3"]

    assert differing(paths, one, other) == ["/app/changed.py", "/app/new.so", "/bin/awk", "/lib/libwork.so.1"]
