"""Making data sets: the same bytes whatever happens on the way, and nothing that looks finished and is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tare_inside.workloads.formats import make

MAKE = [sys.executable, str(make.__file__)]


def digest(folder: Path) -> str:
    """The digest of the list of all files with their digests, once each file was found to be as listed."""
    listed = make.listing(str(folder))
    assert listed is not None
    assert all(make.fits(str(folder), name, row, True) for name, row in listed.items())
    return str(json.loads((folder / make.MANIFEST).read_text())["sha256"])


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "cifar10"
    make.make("cifar10", str(folder), 25, 3, processes=1)
    return folder


@pytest.mark.parametrize("processes", [2, 20])
def test_the_number_of_processes_changes_nothing(once: Path, tmp_path: Path, processes: int) -> None:
    make.make("cifar10", str(tmp_path), 25, 3, processes=processes)

    assert digest(tmp_path) == digest(once)
    assert names(tmp_path) == names(once)


def test_pictures_are_the_same_whichever_process_makes_them(tmp_path: Path) -> None:
    make.make("gld23k", str(tmp_path / "one"), 36, 0, processes=1)
    make.make("gld23k", str(tmp_path / "two"), 36, 0, processes=2)

    assert digest(tmp_path / "one") == digest(tmp_path / "two")


def test_another_seed_makes_other_files(once: Path, tmp_path: Path) -> None:
    make.make("cifar10", str(tmp_path), 25, 4, processes=1)

    assert digest(tmp_path) != digest(once)


def test_progress_goes_up_to_the_count(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    make.make("cifar10", str(tmp_path), 30, 0, processes=2, report=lambda done, total: heard.append((done, total)))

    assert heard[0] == (0, 30)
    assert heard[-1] == (30, 30)
    assert heard == sorted(heard)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    broken=st.lists(st.sampled_from(range(7)), max_size=7, unique=True),
    how=st.sampled_from(["missing", "short", "changed"]),
    finished=st.booleans(),
    log_bytes=st.integers(0, 3000),
)
def test_whatever_was_lost_or_broken_is_made_again_as_it_was(
    once: Path, tmp_path_factory: pytest.TempPathFactory, broken: list[int], how: str, finished: bool, log_bytes: int
) -> None:
    """From any state: some files gone or damaged, the manifest there or not, the log cut off anywhere."""
    folder = tmp_path_factory.mktemp("broken")
    make.make("cifar10", str(folder), 25, 3, processes=1)
    listed = make.listing(str(folder)) or {}
    if not finished:
        lines = [{"data": "cifar10", "count": 25, "seed": 3}]
        lines += [[unit, [[name, size, sha]]] for name, (unit, size, sha) in listed.items() if unit < 5]
        (folder / make.LOG).write_bytes(b"".join(map(make.json_line, lines))[:log_bytes])
        (folder / make.MANIFEST).unlink()
    for number in broken:
        damage(folder / sorted(listed)[number], how)
    make.make("cifar10", str(folder), 25, 3, processes=1)

    assert digest(folder) == digest(once)
    assert names(folder) == names(once)


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-7] if how == "short" else content[:-1] + bytes([content[-1] ^ 1]))


def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    make.make("wikipedia", str(tmp_path / "whole"), 192, 0)
    folder = tmp_path / "killed"
    making_it = subprocess.Popen([*MAKE, "wikipedia", str(folder), "192", "0"], start_new_session=True)
    log = folder / make.LOG
    until_s = time.monotonic() + 60
    while not (log.exists() and log.read_bytes().count(b"\n") > 3) and time.monotonic() < until_s:
        time.sleep(0.005)
    os.killpg(making_it.pid, signal.SIGKILL)
    making_it.wait()
    there = {name: (folder / name).stat().st_mtime_ns for name in names(folder) if name.endswith(".tokens")}
    assert not (folder / make.MANIFEST).exists()
    assert there

    done = subprocess.run([*MAKE, "wikipedia", str(folder), "192", "0"], check=False)
    kept = [name for name, at_ns in there.items() if (folder / name).stat().st_mtime_ns == at_ns]

    assert done.returncode == 0
    assert digest(folder) == digest(tmp_path / "whole")
    assert len(kept) >= 2  # what was logged was not made again
    assert names(folder) == names(tmp_path / "whole")


def test_a_worker_that_dies_is_an_error_and_not_a_hole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(OSError, match="ended early"):
        make.make("cifar10", str(tmp_path), 25, 3, processes=2)

    assert not (tmp_path / make.MANIFEST).exists()


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"the real one")
    with pytest.raises(ValueError, match="tare did not make what is in it"):
        make.make_named("mnist", str(tmp_path), 10, 0)

    assert names(tmp_path) == {"train-images-idx3-ubyte"}


@pytest.mark.parametrize(("name", "count", "seed"), [("mnist", 25, 3), ("cifar10", 26, 3), ("cifar10", 25, 4)])
def test_another_data_set_is_not_made_over_one_that_is_there(tmp_path: Path, name: str, count: int, seed: int) -> None:
    make.make_named("cifar10", str(tmp_path), 25, 3, processes=1)
    before = digest(tmp_path)
    with pytest.raises(ValueError, match="holds another data set"):
        make.make_named(name, str(tmp_path), count, seed)

    assert digest(tmp_path) == before


def test_one_that_was_begun_is_not_gone_on_with_as_another(tmp_path: Path) -> None:
    (tmp_path / make.LOG).write_bytes(make.json_line({"data": "cifar10", "count": 9, "seed": 0}))
    with pytest.raises(ValueError, match="another data set was begun there"):
        make.make("cifar10", str(tmp_path), 25, 3)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(make.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"making GLD-23k needs PIL: .* -m pip install pillow"):
        make.make_named("gld23k", str(tmp_path / "data"), 10, 0)

    assert not (tmp_path / "data").exists()


def test_a_data_set_that_is_whole_is_recognised_without_a_process(tmp_path: Path) -> None:
    order = {"data": "mnist", "count": 10, "seed": 0}
    assert not make.is_whole(str(tmp_path), order)
    make.make_named("mnist", str(tmp_path), 10, 0)
    assert make.is_whole(str(tmp_path), order)
    assert not make.is_whole(str(tmp_path), dict(order, count=11))
    (tmp_path / make.CLAIM).write_text("{}")
    assert not make.is_whole(str(tmp_path), order)
    (tmp_path / make.CLAIM).unlink()
    first = next(iter(make.listing(str(tmp_path))))
    (tmp_path / first).write_bytes((tmp_path / first).read_bytes()[::-1])
    assert not make.is_whole(str(tmp_path), order)
