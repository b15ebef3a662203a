"""A board below a folder, with its commands on the PATH."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trees import commands
from trees.kernel import Kernel


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Kernel]:
    """`board(agx_xavier, nvpmodel="hang")`: the kernel of that board; without a behaviour a command is not there."""

    def make(tree: Callable[[Path], Path], **behaviours: str) -> Kernel:
        root, folder = tree(tmp_path / "root"), tmp_path / "bin"
        folder.mkdir()
        for name, behaviour in behaviours.items():
            getattr(commands, name)(folder, root, behaviour)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        return Kernel(root)

    return make


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """`impatient()`: from now on nobody waits long for a command that hangs."""

    def begin() -> None:
        monkeypatch.setattr("tare.drivers.power.named_mode.LIMIT_S", 0.3)
        monkeypatch.setattr("tare.drivers.power.named_mode.JETSON_CLOCKS_LIMIT_S", 0.3)

    return begin


@pytest.fixture(autouse=True)
def _as_root() -> None:
    """Modes and clocks are root's: another user is refused before anything is looked at."""
    if os.geteuid() != 0:
        pytest.skip("root: only root changes the power of a board.")
