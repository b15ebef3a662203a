"""The data set is out of the page cache when an epoch begins, each time, and what that took is in no step."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tare.drivers.storage.residency import residency
from tare_inside.programs import cold_epochs


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "deeper").mkdir(parents=True)
    for number in range(3):
        (folder / "deeper" / f"{number}.bin").write_bytes(os.urandom(300_000))
    (folder / "empty").write_bytes(b"")
    (folder / "link").symlink_to("/etc/passwd")
    os.sync()
    return folder


def resident(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*.bin"):
        with path.open("rb") as file:
            seen = residency(file.fileno())
            assert seen is not None
            total += seen.resident
    return total


def ordered(workdir: Path, *paths: Path) -> None:
    workdir.mkdir(exist_ok=True)
    (workdir / cold_epochs.ORDER).write_text(json.dumps({"paths": [str(path) for path in paths]}))


def test_each_pass_begins_cold_and_the_shares_are_written_down(tmp_path: Path, data: Path):
    ordered(tmp_path / "workdir", data)
    cool = cold_epochs.before_each_pass(str(tmp_path / "workdir"))
    for _ in range(3):
        assert sum(len(path.read_bytes()) for path in data.rglob("*.bin")) == 900_000
        assert resident(data) > 200
        cool()
        assert resident(data) == 0
    said = json.loads((tmp_path / "workdir" / cold_epochs.SAID).read_text())
    assert said["shares"] == [0.0, 0.0, 0.0]
    assert all(seconds >= 0 for seconds in said["seconds"])


def test_a_file_that_stays_in_memory_is_counted(tmp_path: Path, data: Path):
    import mmap

    path = data / "deeper" / "0.bin"
    ordered(tmp_path / "workdir", data)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert sum(mapped[:: mmap.PAGESIZE]) >= 0  # every page of it is mapped, and a mapped page does not go
        cold_epochs.before_each_pass(str(tmp_path / "workdir"))()
    (share,) = json.loads((tmp_path / "workdir" / cold_epochs.SAID).read_text())["shares"]
    assert 0.3 < share < 0.4


def test_what_the_kernel_does_not_tell_is_not_a_share(tmp_path: Path, data: Path, monkeypatch):
    monkeypatch.setattr(cold_epochs, "_may_know", lambda descriptor: False)
    assert cold_epochs.dropped([str(data)]) is None


def test_nothing_to_read_is_no_share(tmp_path: Path):
    (tmp_path / "nothing").mkdir()
    assert cold_epochs.dropped([str(tmp_path / "nothing"), str(tmp_path / "gone")]) is None


def test_without_an_order_nothing_is_done(tmp_path: Path, monkeypatch):
    assert cold_epochs.before_each_pass(str(tmp_path)) is cold_epochs.nothing
    monkeypatch.delenv("TARE_MARKS", raising=False)
    assert cold_epochs.before_each_pass() is cold_epochs.nothing
    (tmp_path / cold_epochs.ORDER).write_text("{")
    assert cold_epochs.before_each_pass(str(tmp_path)) is cold_epochs.nothing


def test_what_is_done_between_passes_is_timed_apart(tmp_path: Path, data: Path):
    ordered(tmp_path / "workdir", data)
    between = cold_epochs.Between(str(tmp_path / "workdir"))
    between()
    first_ns = between.first_ns
    between()
    assert 0 < first_ns == between.first_ns < between.spent_ns
    assert between.cpu_s > 0
