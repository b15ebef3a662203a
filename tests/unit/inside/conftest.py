"""A workdir: a folder with a copy of `tare_inside`, as every trial has one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import tare_inside
from tare_inside import marks


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    source = Path(tare_inside.__file__).parent
    workdir = tmp_path / "workdir"
    shutil.copytree(source, workdir / "inside" / "tare_inside", ignore=shutil.ignore_patterns("__pycache__"))
    return workdir


@pytest.fixture
def marks_file(tmp_path: Path) -> Iterator[Path]:
    """Marks are open while the test runs, with room for 64."""
    path = tmp_path / "marks.bin"
    marks.open_marks(str(path), capacity=64)
    yield path
    marks.close_marks()
