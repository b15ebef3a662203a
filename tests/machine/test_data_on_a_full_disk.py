"""Making a data set on a disk that is too small, and going on when there is room."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tare_inside.workloads.formats import make


def tare(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tare.cli", *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.machine("root")
def test_a_full_disk_is_said_and_what_is_made_stays(small_disk: Path) -> None:
    words = ("device", "data", "make", "cifar10", "--items", "1000", "--processes", "2", str(small_disk / "data"))
    full = tare(*words)

    assert full.returncode == 1
    assert f"there is no room left in {small_disk}/data." in full.stderr
    assert not list(small_disk.rglob("*.half"))
    assert not (small_disk / "data" / make.MANIFEST).exists()

    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    assert tare(*words).returncode == 0
    assert tare("device", "data", "check", str(small_disk / "data")).returncode == 0
