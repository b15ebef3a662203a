"""A Docker engine for the time of a run: the one that answers, or a private one that its last user stops again.

The Docker engine of a host: the device's, or one inside a host whose sockets can be reached from the device.

Inside, the engine that answers is taken; where none does, a private one is started for as long as it is used. Its
folder is in /run, which lies in memory: the root there is an overlay, and an engine cannot lay another one on that.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from tare.base.errors import ObstacleError
from tare.base.host import Host, Reaching
from tare.base.processes import is_root
from tare.base.rulings import Ruling, obstacle
from tare.drivers.containers import engine, engine_process
from tare.drivers.containers.engine_process import Patience

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
    place = engine.folder()
    place.mkdir(parents=True, exist_ok=True, mode=0o711)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(place / f"{name}.lock", flags, 0o600)
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


INSIDE = "/run/tare/engine"
# An emulated processor is fifty times slower, and each look costs it dearly.
_PATIENCE = Patience(ready_s=600.0, stop_s=120.0, look_every_s=0.5)
_ANSWER_WITHIN_S = 30.0
_REQUEST_WITHIN_S = 600


def obstacles(host: Host) -> list[Ruling]:
    """Why no engine can be had for containers on this host, in found; nothing is started."""
    if not isinstance(host, Reaching):
        return engine.obstacles(host)
    found = engine.sdk_obstacles()
    if _found(host) is None:
        found += _start_obstacles(host)
    return found


def _start_obstacles(host: Reaching) -> list[Ruling]:
    found = []
    if not is_root(host):
        found.append(
            obstacle("needs.root", f"no Docker engine answers inside {host.name}, and only root can start one there.")
        )
    if host.run(["sh", "-c", "command -v dockerd"]).code != 0:
        found.append(
            obstacle(
                "needs.engine",
                f"no Docker engine answers inside {host.name}, and none is installed there: "
                "`apt-get install docker.io` on the device brings one to a machine that has its root.",
            )
        )
    return found


def answers(host: Host) -> bool:
    """Whether an engine runs already, and so may have images."""
    return (_found(host) if isinstance(host, Reaching) else engine.find()) is not None


@contextmanager
def opened(host: Host) -> Iterator[Any]:
    """A client of the SDK for this host's engine; what was started for it is stopped again."""
    if not isinstance(host, Reaching):
        with closing(engine.connect(host)) as connected:
            yield connected
        return
    if found := obstacles(host):
        raise ObstacleError(f"docker cannot be used inside {host.name}.", found)
    with ExitStack() as stack:
        near = stack.enter_context(host.reach(_found(host) or _started(host, stack)))
        yield stack.enter_context(closing(engine.client(near, _REQUEST_WITHIN_S)))


def _found(host: Reaching) -> str | None:
    """The socket inside where an engine answers."""
    there = (path for path in _candidates() if host.run(["test", "-S", path]).code == 0)
    return next((path for path in there if _why_silent(host, path) is None), None)


def _candidates() -> tuple[str, ...]:
    return (engine.SYSTEM_SOCKET, engine_process.socket_in(INSIDE))


def _why_silent(host: Reaching, path: str) -> str | None:
    with host.reach(path) as near:
        return engine.why_silent(near, _ANSWER_WITHIN_S)


def _started(host: Reaching, stack: ExitStack) -> str:
    path = engine_process.socket_in(INSIDE)
    engine_process.launch(host, INSIDE, lambda: _why_silent(host, path), _PATIENCE, containerd_first=True)
    stack.callback(engine_process.stop, host, INSIDE, _PATIENCE)
    return path
