"""A Docker engine for the time of a run: the one that answers, or a private one that its last user stops again."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from tare.errors import ObstacleError
from tare.host import Host
from tare.parts import engine

STARTED = "no Docker engine answered, so a private one was started for this run."
STOPPED = "the private Docker engine of an earlier run was stopped."


@contextmanager
def held(host: Host) -> Iterator[str | None]:
    """Start a private engine where none answers and we may; where we may not, the platform's obstacle says why."""
    found = engine.find()
    if os.geteuid() != 0 or (found is not None and not found.ours):
        yield None
        return
    with _lock("users") as users:
        started = _start_if_silent(host, users)
        try:
            yield STARTED if started else None
        finally:
            _stop_if_last(host, users)


def could_start(host: Host) -> bool:
    """Whether a run would get a private engine: none answers, we are root, and both the SDK and dockerd are there."""
    if os.geteuid() != 0 or engine.find() is not None or engine.sdk_obstacles():
        return False
    return host.run(["sh", "-c", "command -v dockerd"]).code == 0


def left_over(host: Host) -> str | None:
    """The private engine of a run that died, in words, unless someone uses it; nothing is changed."""
    if os.geteuid() != 0 or (pid := engine.own_pid(host)) is None:
        return None
    with _lock("users") as users, _deciding():
        return f"the private Docker engine of an earlier run (pid {pid})" if _is_last(users) else None


def stop_left_over(host: Host) -> str | None:
    """Stop the private engine of a run that died, unless someone uses it."""
    if os.geteuid() != 0 or not engine.folder().exists():
        return None
    with _lock("users") as users:
        return STOPPED if _stop_if_last(host, users) else None


@contextmanager
def _lock(name: str) -> Iterator[int]:
    """A descriptor to be locked: of `users`, shared by whoever uses the engine; of `deciding`, see there."""
    folder = engine.folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o711)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(folder / f"{name}.lock", flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _deciding() -> Iterator[None]:
    """One at a time starts an engine or stops it, for seconds: who uses it must not wait for who does already."""
    with _lock("deciding") as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _start_if_silent(host: Host, users: int) -> bool:
    with _deciding():
        fcntl.flock(users, fcntl.LOCK_SH)
        if engine.find() is not None:
            return False
        try:
            engine.start(host)
        except ObstacleError:
            return False  # the platform itself says what is missing
        return True


def _stop_if_last(host: Host, users: int) -> bool:
    """Also one that we found there and that is ours: its own run was killed before it could stop it."""
    with _deciding():
        return _is_last(users) and engine.stop(host)


def _is_last(users: int) -> bool:
    """Whether nobody else uses the engine; nobody can begin to, as long as we are deciding."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
