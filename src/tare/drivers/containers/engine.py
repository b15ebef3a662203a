"""Finding a Docker engine, or starting one of our own that touches nothing of the machine's.

`python -m tare.drivers.containers.engine start|stop|status` does it by hand; `start` prints the line to `export`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.base.errors import ObstacleError, TareError, TrialError
from tare.base.files import state_dir
from tare.base.host import Host, LocalHost, OwnDevice, Reaching
from tare.base.installed import pip_install
from tare.base.processes import is_root
from tare.base.rulings import Ruling, obstacle
from tare.drivers.containers.daemons import UNIX, Patience, dead_mounts_in, launch, own_pid_in, socket_in, stop_in

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
    return socket_in(str(folder()))


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
        answer = _ping(path, within_s)
    except OSError as error:
        return error.strerror or str(error)
    return None if b" 200 " in answer[:64] else f"it answers {answer[:40]!r}"


def _ping(path: str, within_s: float) -> bytes:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(within_s)
        line.connect(path)
        line.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
        return line.recv(4096)


def own_obstacles(host: Host) -> list[Ruling]:
    """Why the engine of the device cannot be used on this host."""
    stopped = sdk_obstacles()
    if not isinstance(host, OwnDevice):
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
    found = find() if isinstance(host, OwnDevice) and not sdk_obstacles() else None
    if found is None:
        raise ObstacleError("docker cannot be used here.", own_obstacles(host) or [_no_engine()])
    return client(found.socket, _REQUEST_WITHIN_S)


def client(path: str, within_s: int) -> Any:
    """A client of the SDK for the engine at this socket; it waits so long for each answer."""
    import docker

    with errors("answer"):
        try:  # the SDK's own question for the version takes the engine 7 ms, this one 0.5
            version = re.search(rb"(?i)\napi-version: *([0-9.]+)\r", _ping(path, within_s))
        except TimeoutError:
            raise
        except OSError:
            version = None
        spoken = version[1].decode() if version else "auto"
        return docker.DockerClient(base_url=f"{UNIX}{path}", version=spoken, timeout=within_s)


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
    except (requests.exceptions.RequestException, TimeoutError) as error:
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
    launch(host, str(folder()), lambda: why_silent(own_socket()), Patience())
    return Engine(own_socket(), ours=True)


@contextlib.contextmanager
def for_removal(host: Host) -> Iterator[Any | None]:
    """A client to remove a dead run's containers with; None where no engine is left that could have any.

    Our own engine is started for it where its data are still there, and stopped again: after a power cut nobody else
    does. A container of an engine that was taken off the device can neither run nor come back.
    """
    started = False
    if find() is None:
        can_start = is_root(host) and host.run(["test", "-d", str(folder() / "data")]).code == 0
        if not can_start or host.run(["dockerd", "--version"]).code != 0:
            yield None
            return
        try:
            started = start(host).ours
        except ObstacleError as error:
            raise ObstacleError(
                f"{error}\nA container of a dead run may be left in {folder()}/data. If that engine cannot be mended, "
                "remove the folder, and with it all that it holds; then run `tare device restore` again."
            ) from error
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
    return dead_mounts_in(host, str(folder()))


def stop(host: Host, place: str | None = None) -> bool:
    """Stop the engine that we started, and no other; False if there is none."""
    return stop_in(host, place or str(folder()), Patience())


def own_pid(host: Host) -> int | None:
    """The pid of the engine that we started, if it runs."""
    return own_pid_in(host, str(folder()))


def main(arguments: Sequence[str] | None = None) -> int:
    """`start`, `stop` or `status`, for people and for make."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        match words:
            case ["start"]:
                told = f"export DOCKER_HOST={start(LocalHost()).address}"
            case ["stop"]:
                told = "stopped." if stop(LocalHost()) else "no engine of ours was running."
            case ["status"]:
                if (found := find()) is None:
                    raise ObstacleError("no Docker engine.", [_no_engine()])
                told = f"{found.address} answers{' (started by tare)' if found.ours else ''}."
            case _:
                sys.stderr.write("usage: python -m tare.drivers.containers.engine start|stop|status\n")
                return 2
    except TareError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"{told}\n")
    return 0


# A Docker engine for the time of a run: the one that answers, or a private one that its last user stops again.
#
# The Docker engine of a host: the device's, or one inside a host whose sockets can be reached from the device.
#
# Inside, the engine that answers is taken; where none does, a private one is started for as long as it is used. Its
# folder is in /run, which lies in memory: the root there is an overlay, and an engine cannot lay another one on that.

STARTED = "no Docker engine answered, so a private one was started for this run."
STOPPED = "the private Docker engine of an earlier run was stopped."


@contextmanager
def held(host: Host) -> Iterator[str | None]:
    """Start a private engine where none answers and we may; where we may not, the platform's obstacle says why."""
    found = find()
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
    if os.geteuid() != 0 or find() is not None or sdk_obstacles():
        return False
    return host.run(["sh", "-c", "command -v dockerd"]).code == 0


def left_over(host: Host) -> str | None:
    """The private engine of a run that died, in words, unless someone uses it; nothing is changed."""
    if os.geteuid() != 0 or (pid := own_pid(host)) is None:
        return None
    with _lock("users") as users, _deciding():
        return f"the private Docker engine of an earlier run (pid {pid})" if _is_last(users) else None


def stop_left_over(host: Host) -> str | None:
    """Stop the private engine of a run that died, unless someone uses it."""
    if os.geteuid() != 0 or not folder().exists():
        return None
    with _lock("users") as users:
        return STOPPED if _stop_if_last(host, users) else None


@contextmanager
def _lock(name: str) -> Iterator[int]:
    """A descriptor to be locked: of `users`, shared by whoever uses the engine; of `deciding`, see there."""
    place = folder()
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
        if find() is not None:
            return False
        try:
            start(host)
        except ObstacleError:
            return False  # the platform itself says what is missing
        return True


def _stop_if_last(host: Host, users: int) -> bool:
    """Also one that we found there and that is ours: its own run was killed before it could stop it."""
    with _deciding():
        return _is_last(users) and stop(host)


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
_GUEST_ANSWERS_WITHIN_S = 30.0
_GUEST_REQUEST_WITHIN_S = 600


def obstacles(host: Host) -> list[Ruling]:
    """Why no engine can be had for containers on this host, in found; nothing is started."""
    if not isinstance(host, Reaching):
        return own_obstacles(host)
    found = sdk_obstacles()
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
    return (_found(host) if isinstance(host, Reaching) else find()) is not None


@contextmanager
def opened(host: Host) -> Iterator[Any]:
    """A client of the SDK for this host's engine; what was started for it is stopped again."""
    if not isinstance(host, Reaching):
        with closing(connect(host)) as connected:
            yield connected
        return
    if found := obstacles(host):
        raise ObstacleError(f"docker cannot be used inside {host.name}.", found)
    with ExitStack() as stack:
        near = stack.enter_context(host.reach(_found(host) or _started(host, stack)))
        yield stack.enter_context(closing(client(near, _GUEST_REQUEST_WITHIN_S)))


def _found(host: Reaching) -> str | None:
    """The socket inside where an engine answers."""
    there = (path for path in (SYSTEM_SOCKET, socket_in(INSIDE)) if host.run(["test", "-S", path]).code == 0)
    return next((path for path in there if _why_silent(host, path) is None), None)


def _why_silent(host: Reaching, path: str) -> str | None:
    with host.reach(path) as near:
        return why_silent(near, _GUEST_ANSWERS_WITHIN_S)


def _started(host: Reaching, stack: ExitStack) -> str:
    path = socket_in(INSIDE)
    launch(host, INSIDE, lambda: _why_silent(host, path), _PATIENCE, containerd_first=True)
    stack.callback(stop_in, host, INSIDE, _PATIENCE)
    return path


if __name__ == "__main__":
    raise SystemExit(main())
