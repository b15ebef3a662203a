"""Temporary folders: one's own, and what becomes of those whose process was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tare.base.files import new_folder


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def killed(kind: str) -> Path:
    """The folder of a process that was killed."""
    code = "import os, signal, sys; from tare.base.files import new_folder\n"
    code += f"print(new_folder({kind!r}), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return Path(done.stdout.strip())


def test_the_next_process_removes_what_a_killed_one_left():
    left = killed("pack")
    (left / "file").write_text("large")
    other = killed("fleet")

    mine = new_folder("pack")

    assert mine.is_dir() and mine.stat().st_mode & 0o077 == 0
    assert not left.exists()
    assert other.is_dir()  # of another kind: whoever makes the next of those removes it


def test_what_a_living_process_has_is_left_alone():
    mine = new_folder("pack")

    assert new_folder("pack") != mine
    assert mine.is_dir()


def test_what_lies_there_by_another_name_is_left_alone(temporary: Path):
    left = killed("pack")
    elsewhere = temporary / left.name.replace("tare-pack-", "tare-pack-1")  # a process of another host or namespace
    left.rename(elsewhere)
    odd = temporary / f"{elsewhere.name.rpartition('-')[0]}x-odd"
    odd.mkdir()
    target = temporary / "target"
    target.mkdir()
    link = temporary / left.name
    link.symlink_to(target)

    new_folder("pack")

    assert elsewhere.is_dir() and odd.is_dir() and target.is_dir() and link.is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to give a folder away")
def test_another_users_is_left_alone():
    left = killed("pack")
    os.chown(left, 65534, 65534)

    new_folder("pack")

    assert left.is_dir()
