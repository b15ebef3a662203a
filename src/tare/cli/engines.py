"""A Docker engine for the time of a run: the one that answers, or a private one that its last user stops again."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from tare.cli.options import say
from tare.errors import ObstacleError
from tare.host import LocalHost

if TYPE_CHECKING:
    from tare.study.model import Study


def engine_for(study: Study) -> AbstractContextManager[None]:
    """An engine where the study names docker, nothing where it does not."""
    named = any(choice.name == "docker" for level in study.platforms for choice in level)
    return engine_if_possible() if named else nullcontext()


@contextmanager
def engine_if_possible() -> Iterator[None]:
    """Start a private engine where none answers and we may; where we may not, the platform's obstacle says why."""
    from tare.parts import engine

    found = engine.find()
    if os.geteuid() != 0 or (found is not None and not found.ours):
        yield
        return
    with _users_of(engine.folder()) as users:
        _start_if_silent(users)
        try:
            yield
        finally:
            _stop_if_last(users)


def stop_left_over_engine() -> str | None:
    """Stop the private engine of a run that died, unless someone uses it."""
    from tare.parts import engine

    if os.geteuid() != 0 or not engine.folder().exists():
        return None
    with _users_of(engine.folder()) as users:
        return "the private Docker engine of an earlier run was stopped." if _stop_if_last(users) else None


@contextmanager
def _users_of(folder: Path) -> Iterator[int]:
    """A descriptor whose lock says who uses the engine: shared by users, exclusive to start or stop it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o711)
    descriptor = os.open(folder / "users.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _start_if_silent(users: int) -> None:
    from tare.parts import engine

    fcntl.flock(users, fcntl.LOCK_EX)  # two runs that start at once must not both start one
    if engine.find() is None:
        try:
            engine.start(LocalHost())
        except ObstacleError:
            pass  # the platform itself says what is missing
        else:
            say("no Docker engine answered, so a private one was started for this run.")
    fcntl.flock(users, fcntl.LOCK_SH)


def _stop_if_last(users: int) -> bool:
    """Also one that we found there and that is ours: its own run was killed before it could stop it."""
    from tare.parts import engine

    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return engine.stop(LocalHost())
