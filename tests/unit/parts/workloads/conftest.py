"""A desk, as every trial has one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tare.parts.inside import SOURCE


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    desk = tmp_path / "desk"
    shutil.copytree(SOURCE, desk / "inside" / "tare_inside", ignore=shutil.ignore_patterns("__pycache__"))
    return desk
