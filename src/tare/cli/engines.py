"""A Docker engine for the time of a run: the one that answers, or a private one that is stopped again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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

    host = LocalHost()
    started = False
    if engine.find() is None:
        try:
            engine.start(host)
        except ObstacleError:
            pass
        else:
            started = True
            say("no Docker engine answered, so a private one was started for this run.")
    try:
        yield
    finally:
        if started:
            engine.stop(host)


def stop_left_over_engine() -> str | None:
    """Stop the private engine of a run that died; called only while no run owns the device."""
    from tare.parts import engine

    return "the private Docker engine of an earlier run was stopped." if engine.stop(LocalHost()) else None
