"""A workdir, as every trial has one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tare.drivers.places import SOURCE


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    workdir = tmp_path / "workdir"
    shutil.copytree(SOURCE, workdir / "inside" / "tare_inside", ignore=shutil.ignore_patterns("__pycache__"))
    return workdir
