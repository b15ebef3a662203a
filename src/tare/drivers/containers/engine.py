"""Finding a Docker engine, or starting one of our own that touches nothing of the machine's.

`python -m tare.drivers.containers.engine start|stop|status` does it by hand; `start` prints the line to `export`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.base.errors import ObstacleError, TareError, TrialError, pip_install
from tare.base.files import state_dir
from tare.base.host import Host, LocalHost
from tare.base.processes import is_root
from tare.base.rulings import Ruling, obstacle
from tare.drivers.containers import engine_process
from tare.drivers.containers.engine_process import UNIX, Patience

SYSTEM_SOCKET = "/var/run/docker.sock"
_LONGEST_SOCKET_PATH = 107  # the kernel's limit for a UNIX socket
SITE = "tare-engine"  # what our own engine leaves behind belongs to no trial
_ANSWER_WITHIN_S = 2.0
_REQUEST_WITHIN_S = 60  # an engine that hangs must not hang us (faults.md D3p)


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that answers."""

    socket: str
    ours: bool

    @property
    def address(self) -> str:
        return f"{UNIX}{self.socket}"


def folder() -> Path:
    """Where our own engine keeps everything."""
    return state_dir() / "engine"


def own_socket() -> str:
    return engine_process.socket_in(str(folder()))


def candidates() -> list[str]:
    """Sockets where an engine may answer, in the order in which they are tried."""
    named = os.environ.get("DOCKER_HOST", "")
    paths = [named.removeprefix(UNIX)] if named.startswith(UNIX) else []
    return list(dict.fromkeys([*paths, SYSTEM_SOCKET, own_socket()]))


def find() -> Engine | None:
    """The first engine that answers; nothing is started."""
    for path in candidates():
        if why_silent(path) is None:
            return Engine(path, ours=path == own_socket())
    return None


def why_silent(path: str, within_s: float = _ANSWER_WITHIN_S) -> str | None:
    """Why no engine answers at this socket; None if one does."""
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(within_s)
            line.connect(path)
            line.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            answer = line.recv(64)
    except OSError as error:
        return error.strerror or str(error)
    return None if b" 200 " in answer else f"it answers {answer[:40]!r}"


def obstacles(host: Host) -> list[Ruling]:
    """Why the engine of the device cannot be used on this host."""
    stopped = sdk_obstacles()
    if not isinstance(host, LocalHost):
        stopped.append(
            obstacle(
                "needs.outermost",
                f"docker talks to an engine's socket, and there is no way to one inside {host.name}; "
                "inside another container use runc or podman.",
            )
        )
    elif find() is None:
        stopped.append(_no_engine())
    return stopped


def sdk_obstacles() -> list[Ruling]:
    try:
        import docker  # noqa: F401
    except ImportError:
        return [obstacle("needs.module", f"the Docker SDK for Python is not installed: run `{pip_install('docker')}`.")]
    return []


def _no_engine() -> Ruling:
    named = os.environ.get("DOCKER_HOST", "")
    if named and not named.startswith(UNIX):
        return obstacle(
            "needs.engine",
            f"DOCKER_HOST={named} is not on this device: tare measures here, and needs a unix:// socket.",
        )
    tried = "; ".join(f"{path}: {why_silent(path)}" for path in candidates())
    return obstacle(
        "needs.engine",
        f"no Docker engine answers ({tried}). `apt-get install docker.io` brings one; as root, `tare run` and "
        "`tare weigh` then start a private one where none runs. "
        "Where permission is denied, your user is not in the group docker.",
    )


def connect(host: Host) -> Any:
    """A client of the SDK for the first engine that answers; raises `ObstacleError` with what to do."""
    if stopped := obstacles(host):
        raise ObstacleError("docker cannot be used here.", stopped)
    found = find()
    if found is None:  # it went away between the two questions
        raise ObstacleError("docker cannot be used here.", [_no_engine()])
    return client(found.socket, _REQUEST_WITHIN_S)


def client(path: str, within_s: int) -> Any:
    """A client of the SDK for the engine at this socket; it waits so long for each answer."""
    import docker

    with errors("answer"):
        return docker.DockerClient(base_url=f"{UNIX}{path}", version="auto", timeout=within_s)


@contextlib.contextmanager
def errors(doing: str) -> Iterator[None]:
    """What the SDK and its transport raise, as an error of ours that says what was being done."""
    import docker.errors
    import requests.exceptions

    try:
        yield
    except docker.errors.DockerException as error:
        reported = (error.explanation if isinstance(error, docker.errors.APIError) else None) or str(error)
        raise TrialError(f"the Docker engine could not {doing}: {reported}") from error
    except requests.exceptions.RequestException as error:
        raise TrialError(
            f"the Docker engine did not answer when asked to {doing}: {error}\n"
            "It was restarted or hangs; look at its log, then `tare device restore` removes what was left behind."
        ) from error


def start(host: Host) -> Engine:
    """The engine that answers, else a private one that we start; raises `ObstacleError` where neither can be had."""
    found = find()
    if found is not None:
        return found
    if not is_root(host):
        raise ObstacleError("no Docker engine answers, and only root can start one.", [_no_engine()])
    if host.run(["dockerd", "--version"]).code != 0:
        raise ObstacleError("no Docker engine answers, and none is installed: `apt-get install docker.io` brings one.")
    if len(own_socket()) > _LONGEST_SOCKET_PATH:
        raise ObstacleError(f"{own_socket()} is too long for a socket; set TARE_STATE to a shorter folder.")
    engine_process.launch(host, str(folder()), lambda: why_silent(own_socket()), Patience())
    return Engine(own_socket(), ours=True)


@contextlib.contextmanager
def for_removal(host: Host) -> Iterator[Any | None]:
    """A client to remove a dead run's containers with; None where no engine is left that could have any.

    Our own engine is started for it where its data are still there, and stopped again: after a power cut nobody else
    does. A container of an engine that was taken off the device can neither run nor come back.
    """
    started = False
    if find() is None:
        if not _could_hold_containers(host):
            yield None
            return
        started = _started_for_removal(host)
    try:
        with contextlib.closing(connect(host)) as connected:
            yield connected
    finally:
        if started:
            stop(host)


def holds_containers(host: Host) -> bool:
    """Whether our own engine, which does not run, has kept any container.

    An engine that is killed while it creates or removes one may leave a folder without its file of settings: no engine
    takes that up again, so none has to be started for it.
    """
    look = 'for each in "$1"/*/config.v2.json; do [ -e "$each" ] && exit 0; done; exit 1'
    return host.run(["sh", "-c", look, "look", str(folder() / "data/containers")]).code == 0


def dead_mounts(host: Host) -> list[str]:
    """What our own engine left mounted when it was killed."""
    return engine_process.dead_mounts(host, str(folder()))


def _could_hold_containers(host: Host) -> bool:
    """Whether our own engine has been here, and can be started again."""
    return (
        is_root(host)
        and host.run(["test", "-d", str(folder() / "data")]).code == 0
        and host.run(["dockerd", "--version"]).code == 0
    )


def _started_for_removal(host: Host) -> bool:
    try:
        return start(host).ours
    except ObstacleError as error:
        raise ObstacleError(
            f"{error}\nA container of a dead run may be left in {folder()}/data. If that engine cannot be mended, "
            "remove the folder, and with it all that it holds; then run `tare device restore` again."
        ) from error


def stop(host: Host, place: str | None = None) -> bool:
    """Stop the engine that we started, and no other; False if there is none."""
    return engine_process.stop(host, place or str(folder()), Patience())


def own_pid(host: Host) -> int | None:
    """The pid of the engine that we started, if it runs."""
    return engine_process.own_pid(host, str(folder()))


def main(arguments: Sequence[str] | None = None) -> int:
    """`start`, `stop` or `status`, for people and for make."""
    verbs = {"start": _say_start, "stop": _say_stop, "status": _say_status}
    words = list(sys.argv[1:] if arguments is None else arguments)
    if len(words) != 1 or words[0] not in verbs:
        sys.stderr.write("usage: python -m tare.drivers.containers.engine start|stop|status\n")
        return 2
    try:
        sys.stdout.write(f"{verbs[words[0]](LocalHost())}\n")
    except TareError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def _say_start(host: Host) -> str:
    return f"export DOCKER_HOST={start(host).address}"


def _say_stop(host: Host) -> str:
    return "stopped." if stop(host) else "no engine of ours was running."


def _say_status(host: Host) -> str:
    found = find()
    if found is None:
        raise ObstacleError("no Docker engine.", [_no_engine()])
    return f"{found.address} answers{' (started by tare)' if found.ours else ''}."


if __name__ == "__main__":
    raise SystemExit(main())
