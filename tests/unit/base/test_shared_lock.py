"""Root's runs and those of ordinary users exclude each other, although neither can see the other's files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tare.base import processes
from tare.base.errors import BusyError
from tare.trial.device import GUARDIAN, GUARDIAN_MODULE, ROOT_LOCKS, DeviceLock, in_use
from tare.trial.undo import guardian

NOBODY = 65534
# A run of the user with this number, in a process of its own: says how it went, and holds what it has until it is told.
RUN = """
import os, sys
from pathlib import Path
from tare.base.errors import BusyError
from tare.base import processes
from tare.trial.device import DeviceLock
uid, folder, state = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
os.setgid(uid)
os.setuid(uid)
processes.LOCK_FOLDERS = (folder,)
try:
    with DeviceLock(state, "dev", "theirs"):
        print("has it", flush=True)
        input()
except BusyError as error:
    print(str(error).replace("\\n", " "), flush=True)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that everybody can open, as /run/lock is; locks of users lie in their state folders."""
    monkeypatch.delenv("TARE_LOCK_DIR")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 0o001 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    monkeypatch.setattr(processes, "LOCK_FOLDERS", (shared,))
    monkeypatch.setattr("tare.trial.device.ROOT_LOCKS", tmp_path / "roots")
    return shared


@contextmanager
def run_of(uid: int, place: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    state = place.parent / f"state-{uid}"
    state.mkdir(mode=0o700)
    os.chown(state, uid, uid)
    child = subprocess.Popen(
        [sys.executable, "-c", RUN, str(uid), str(place), str(state)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    try:
        yield child, child.stdout.readline().strip()
    finally:
        child.communicate("\n", timeout=30)


@pytest.mark.machine("root")
def test_a_users_run_is_refused_while_root_has_the_device(place: Path):
    with DeviceLock(place.parent / "state", "dev", "roots"), run_of(NOBODY, place) as (_, said):
        assert f"another user's run owns this device: pid {os.getpid()}, of root" in said
    with run_of(NOBODY + 1, place) as (_, said):
        assert said == "has it"


@pytest.mark.machine("root")
def test_no_user_can_keep_root_out_by_holding_the_folder_that_all_can_lock(place: Path):
    lock = DeviceLock(place.parent / "state", "dev", "roots")
    with run_of(NOBODY, place) as (child, said):
        assert said == "has it"
        assert f"pid {child.pid}" in str(in_use(place.parent / "state", "dev"))
        with lock:
            assert f"pid {child.pid}, of nobody" in lock.overruled
            assert "continues" in lock.overruled
            with pytest.raises(BusyError, match="roots"), DeviceLock(place.parent / "state", "dev", "second"):
                pass  # root's own lock, which nobody else can open, still holds


def test_roots_lock_lies_where_nobody_else_can_make_a_folder():
    for folder in ROOT_LOCKS.parents:
        if folder.exists():
            assert not folder.stat().st_mode & 0o022, folder


@pytest.mark.machine("root")
def test_a_user_who_is_killed_blocks_nobody(place: Path):
    with run_of(NOBODY, place) as (child, said):
        assert said == "has it"
        child.kill()
        child.wait()
        with DeviceLock(place.parent / "state", "dev"):
            pass


def test_two_state_folders_of_one_user_are_one_device(place: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() or 1000)
    monkeypatch.setattr("tare.trial.device.trusted_owners", lambda: {os.getuid()})
    one, two = (DeviceLock(place.parent / name, "dev") for name in ("one", "two"))
    with one, pytest.raises(BusyError, match="owns this device"), two:
        pass
    with two:
        pass


def test_a_guardian_puts_back_what_nobody_else_would_even_if_another_user_was_quicker(place: Path):
    held = processes.locked(place)
    assert held is not None
    try:
        with DeviceLock(place.parent / "state", "dev", GUARDIAN):
            pass
    finally:
        os.close(held)


def test_locks_that_the_user_set_apart_are_apart(place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("TARE_LOCK_DIR", str(tmp_path / "mine"))
    assert processes.lock_folder() is None
    held = processes.locked(place)
    assert held is not None
    try:
        with DeviceLock(tmp_path / "state", "dev"):
            pass
    finally:
        os.close(held)


def test_nobody_has_a_free_device(place: Path):
    assert in_use(place.parent / "state", "dev") is None
    with DeviceLock(place.parent / "state", "dev", "out/weigh") as lock:
        since = time.localtime(json.loads(lock.path.read_text())["since"])
        assert f"pid {os.getpid()}, run 'out/weigh', owns this device since {time.strftime('%Y-%m-%d', since)}" in str(
            in_use(place.parent / "state", "dev")
        )


def test_the_process_that_is_waited_for_is_the_guardian():
    assert guardian.__name__ == GUARDIAN_MODULE
