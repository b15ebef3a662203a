"""The Docker engine of a host: the device's, or one inside a host whose sockets can be reached from the device.

Inside, the engine that answers is taken; where none does, a private one is started for as long as it is used. Its
folder is in /run, which lies in memory: the root there is an overlay, and an engine cannot lay another one on that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from tare.errors import ObstacleError
from tare.host import Host, Reaching
from tare.parts import engine, engine_process
from tare.parts.engine_process import Patience
from tare.parts.identity import is_root

INSIDE = "/run/tare/engine"
# An emulated processor is fifty times slower, and each look costs it dearly.
_PATIENCE = Patience(ready_s=600.0, stop_s=120.0, look_every_s=0.5)
_ANSWER_WITHIN_S = 30.0
_REQUEST_WITHIN_S = 600


def obstacles(host: Host) -> list[str]:
    """Why no engine can be had for containers on this host, in sentences; nothing is started."""
    if not isinstance(host, Reaching):
        return engine.obstacles(host)
    sentences = engine.sdk_obstacles()
    if _found(host) is None:
        sentences += _start_obstacles(host)
    return sentences


def _start_obstacles(host: Reaching) -> list[str]:
    sentences = []
    if not is_root(host):
        sentences.append(f"no Docker engine answers inside {host.name}, and only root can start one there.")
    if host.run(["sh", "-c", "command -v dockerd"]).code != 0:
        sentences.append(
            f"no Docker engine answers inside {host.name}, and none is installed there: `apt-get install docker.io` "
            "on the device brings one to a machine that has its root."
        )
    return sentences


def answers(host: Host) -> bool:
    """Whether an engine runs already, and so may have images."""
    return (_found(host) if isinstance(host, Reaching) else engine.find()) is not None


@contextmanager
def opened(host: Host) -> Iterator[Any]:
    """A client of the SDK for this host's engine; what was started for it is stopped again."""
    if not isinstance(host, Reaching):
        with closing(engine.connect(host)) as client:
            yield client
        return
    if sentences := obstacles(host):
        raise ObstacleError(f"docker cannot be used inside {host.name}.", sentences)
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
