"""An `ssh` in the place of OpenSSH's, so that no test of the lines to devices reaches a network."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from lean_devices import RUN_IT


@pytest.fixture
def pretended_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """It does what the test says instead; unless told, what is asked is run here, with a cache and locks of its own."""

    def make(script: str) -> None:
        path = tmp_path / "bin" / "ssh"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TARE_LOCK_DIR", str(tmp_path / "locks"))
    make(RUN_IT)
    return make
