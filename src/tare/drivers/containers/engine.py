"""Finding a Docker engine, or starting one of our own that touches nothing of the machine's.

`python -m tare.drivers.containers.engine start|stop|status` does it by hand; `start` prints the line to `export`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tare.base.errors import ObstacleError, TareError
from tare.base.files import state_dir
from tare.base.host import Host, LocalHost, OwnDevice, clock_inside
from tare.base.processes import is_root
from tare.base.rulings import Ruling, obstacle
from tare.drivers.containers import client
from tare.drivers.containers.client import UNIX, Client, is_installed
from tare.drivers.containers.daemons import Patience, dead_mounts_in, launch, own_pid_in, socket_in, stop_in

SYSTEM_SOCKET = "/var/run/docker.sock"
_LONGEST_SOCKET_PATH = 107  # the kernel's limit for a UNIX socket
SITE = "tare-engine"  # what our own engine leaves behind belongs to no trial
_ANSWER_WITHIN_S = 2.0
_ANSWERS_WITHIN_S = 60.0  # an engine that hangs must not hang tare (faults.md D3p)


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
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(within_s)
            line.connect(path)
            line.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            answer = line.recv(4096)
    except OSError as error:
        return error.strerror or str(error)
    return None if b" 200 " in answer[:64] else f"it answers {answer[:40]!r}"


def own_obstacles(host: Host) -> list[Ruling]:
    """Why the engine of the device cannot be used on this host."""
    if not isinstance(host, OwnDevice):
        sentence = (
            f"docker needs an engine, and there is none inside {host.name}, which has no kernel of its own: "
            "use runc or podman there."
        )
        return [obstacle("needs.outermost", sentence)]
    return [*command_obstacles(host), *([_no_engine()] if find() is None else [])]


def command_obstacles(host: Host) -> list[Ruling]:
    if is_installed(host, "docker"):
        return []
    sentence = "the command `docker` is not installed: `apt-get install docker.io` (or docker-cli) brings it."
    return [obstacle("needs.program", sentence)]


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


def connect(host: Host) -> Client:
    """The command line of the first engine that answers; raises `ObstacleError` with what to do."""
    answering = find() if isinstance(host, OwnDevice) else None
    if answering is None or (missing := command_obstacles(host)):
        raise ObstacleError("docker cannot be used here.", own_obstacles(host) or missing)
    return client.docker(host, answering.socket, _ANSWERS_WITHIN_S)


def clients(host: Host) -> list[Client]:
    """The engines of this device that may have images, the one without a daemon first."""
    there = [client.podman(host)] if is_installed(host, "podman") else []
    return [*there, *([connect(host)] if find() is not None and is_installed(host, "docker") else [])]


def start(host: Host) -> Engine:
    """The engine that answers, else a private one that we start; raises `ObstacleError` where neither can be had."""
    answering = find()
    if answering is not None:
        return answering
    if not is_root(host):
        raise ObstacleError("no Docker engine answers, and only root can start one.", [_no_engine()])
    if host.run(["dockerd", "--version"]).code != 0:
        raise ObstacleError("no Docker engine answers, and none is installed: `apt-get install docker.io` brings one.")
    if len(own_socket()) > _LONGEST_SOCKET_PATH:
        raise ObstacleError(f"{own_socket()} is too long for a socket; set TARE_STATE to a shorter folder.")
    launch(host, str(folder()), lambda: why_silent(own_socket()), Patience())
    return Engine(own_socket(), ours=True)


@contextlib.contextmanager
def for_removal(host: Host) -> Iterator[Client | None]:
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
        yield connect(host)
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
                answer = f"export DOCKER_HOST={start(LocalHost()).address}"
            case ["stop"]:
                answer = "stopped." if stop(LocalHost()) else "no engine of ours was running."
            case ["status"]:
                if (running := find()) is None:
                    raise ObstacleError("no Docker engine.", [_no_engine()])
                answer = f"{running.address} answers{' (started by tare)' if running.ours else ''}."
            case _:
                sys.stderr.write("usage: python -m tare.drivers.containers.engine start|stop|status\n")
                return 2
    except TareError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"{answer}\n")
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
    answering = find()
    if os.geteuid() != 0 or (answering is not None and not answering.ours):
        yield None
        return
    with _lock("users") as users:
        started = _start_if_silent(host, users)
        try:
            yield STARTED if started else None
        finally:
            _stop_if_last(host, users)


def could_start(host: Host) -> bool:
    """Whether a run would get a private engine: none answers, tare runs as root, and its programs are installed."""
    if os.geteuid() != 0 or find() is not None or not is_installed(host, "docker"):
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
_GUEST_ANSWERS_WITHIN_S = 600.0


def is_in_guest(host: Host) -> bool:
    """Whether this host has a kernel of its own, which can run an engine."""
    return clock_inside(host) is not None


def obstacles(host: Host) -> list[Ruling]:
    """Why no engine can be had for containers on this host; nothing is started."""
    if not is_in_guest(host):
        return own_obstacles(host)
    return [*command_obstacles(host), *([] if answers(host) else _start_obstacles(host))]


def _start_obstacles(host: Host) -> list[Ruling]:
    stopped = []
    if not is_root(host):
        sentence = f"no Docker engine answers inside {host.name}, and only root can start one there."
        stopped.append(obstacle("needs.root", sentence))
    if host.run(["sh", "-c", "command -v dockerd"]).code != 0:
        sentence = (
            f"no Docker engine answers inside {host.name}, and none is installed there: "
            "`apt-get install docker.io` on the device brings one to a machine that has its root."
        )
        stopped.append(obstacle("needs.engine", sentence))
    return stopped


def answers(host: Host) -> bool:
    """Whether an engine runs already, and so may have images."""
    return (_socket_inside(host) if is_in_guest(host) else find()) is not None


@contextmanager
def opened(host: Host) -> Iterator[Client]:
    """The command line of this host's engine; an engine that was started for it is stopped again."""
    if not is_in_guest(host):
        yield connect(host)
        return
    if stopped := obstacles(host):
        raise ObstacleError(f"docker cannot be used inside {host.name}.", stopped)
    answering = _socket_inside(host)
    try:
        path = answering or _started_inside(host)
        yield client.docker(host, path, _GUEST_ANSWERS_WITHIN_S)
    finally:
        if answering is None:
            stop_in(host, INSIDE, _PATIENCE)


def _socket_inside(host: Host) -> str | None:
    """The socket inside where an engine answers."""
    there = (path for path in (SYSTEM_SOCKET, socket_in(INSIDE)) if host.run(["test", "-S", path]).code == 0)
    return next((path for path in there if _why_silent_inside(host, path) is None), None)


def _why_silent_inside(host: Host, path: str) -> str | None:
    asked = client.docker(host, path, _GUEST_ANSWERS_WITHIN_S).run("version", "--format={{.Server.Version}}")
    return None if asked.code == 0 else asked.err.strip() or f"code {asked.code}"


def _started_inside(host: Host) -> str:
    path = socket_in(INSIDE)
    launch(host, INSIDE, lambda: _why_silent_inside(host, path), _PATIENCE, containerd_first=True)
    return path


if __name__ == "__main__":
    raise SystemExit(main())
