"""dockerd and containerd of our own: started in a folder, touching nothing outside of it, and stopped again."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tare.base.errors import ObstacleError, TareError
from tare.base.host import Host, OwnDevice
from tare.base.processes import mounts, words_of
from tare.drivers.cgroups.tree import state_of
from tare.drivers.containers.client import UNIX
from tare.drivers.places import comes_true

_NOTED = "/var/run/docker.pid"
_ANSWER_S = 1.0

# Nothing of the host's network is touched, and its own engine, if it gets one later, finds its folders free.
_FLAGS = (
    "--iptables=false",
    "--ip6tables=false",
    "--bridge=none",
    "--storage-driver=overlay2",
    "--userland-proxy=false",
    "--exec-opt=native.cgroupdriver=cgroupfs",
)

_CONTAINERD = """version = 2
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
"""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an engine may take; an emulated one takes long."""

    ready_s: float = 30.0
    stop_s: float = 30.0
    look_every_s: float = 0.05


def socket_in(place: str) -> str:
    return f"{place}/docker.sock"


def launch(
    host: Host, place: str, why_silent: Callable[[], str | None], patience: Patience, *, containerd_first: bool = False
) -> None:
    """Start dockerd in a session of its own and wait until it answers.

    dockerd starts containerd itself and gives up after 15 seconds; where that may be too short, it is started first.
    """
    host.run(["mkdir", "-p", "-m", "0711", "--", place, f"{place}/tmp"]).checked()
    _forget_dead(host, place)
    command = ["dockerd", "-H", f"{UNIX}{socket_in(place)}", "--data-root", f"{place}/data"]
    command += ["--exec-root", f"{place}/exec", "--pidfile", f"{place}/dockerd.pid", *_FLAGS]
    if containerd_first:
        command += ["--containerd", containerd(host, place, patience)]
    pid = _begin(host, f"{place}/dockerd.log", command)
    deadline_ns = host.clock.now_ns() + round(patience.ready_s * 1e9)
    while why_silent() is not None:
        if host.clock.now_ns() >= deadline_ns or not _may_live(host, pid):
            reported = host.run(["tail", "-n", "5", "--", f"{place}/dockerd.log"]).out
            if not stop_in(host, place, patience):  # it is dead, and its data folder may be mounted onto itself
                host.run(["umount", "--", f"{place}/data"])
            raise ObstacleError(f"a private Docker engine was started but did not answer; its log ends:\n{reported}")
        host.clock.sleep_until(host.clock.now_ns() + round(patience.look_every_s * 1e9))


def _begin(host: Host, log: str, command: Sequence[str]) -> str:
    """Start a command that stays, in a session of its own; returns its pid.

    dockerd makes a containerd that does not answer write its stacks to the folder for temporary files: that is in the
    engine's own folder, and goes with it.
    """
    script = 'log=$1; export TMPDIR="${log%/*}/tmp"; shift; setsid "$@" < /dev/null > "$log" 2>&1 & echo $!'
    return host.run(["sh", "-c", script, "start", log, *command]).checked().out.strip()


def _may_live(host: Host, pid: str) -> bool:
    """By its state: a dead one may still be listed, and the command line of one that is just starting is empty too."""
    return not pid or state_of(host, pid) not in ("Z", "X")


def containerd_socket(place: str) -> str:
    return f"{place}/containerd.sock"


def containerd(host: Host, place: str, patience: Patience) -> str:
    """Start containerd in this folder unless it runs there, wait for its socket, and return that."""
    path, config = containerd_socket(place), f"{place}/containerd.toml"
    if _pid_in(host, f"{place}/containerd.pid", path) is not None:
        return path
    host.run(["mkdir", "-p", "-m", "0711", "--", place, f"{place}/tmp"]).checked()
    host.run(["rm", "-f", "--", path]).checked()  # of one that was killed
    host.run(["sh", "-c", 'cat > "$1"', "write", config], stdin=_CONTAINERD).checked()
    folders = ["--root", f"{place}/containerd", "--state", f"{place}/containerd.state"]
    pid = _begin(host, f"{place}/containerd.log", ["containerd", "--config", config, "--address", path, *folders])
    host.run(["sh", "-c", 'echo "$2" > "$1"', "note", f"{place}/containerd.pid", pid]).checked()
    until = 'while [ ! -S "$1" ]; do [ -d "/proc/$2" ] || exit 1; sleep "$3"; done'
    waited = ["sh", "-c", until, "await", path, pid, f"{patience.look_every_s:g}"]
    if host.run(waited, limit_s=patience.ready_s).code != 0:
        reported = host.run(["tail", "-n", "5", "--", f"{place}/containerd.log"]).out
        stop_in(host, place, patience)
        raise ObstacleError(f"a private containerd was started but is not up; its log ends:\n{reported}")
    return path


def stop_containerd(host: Host, place: str, patience: Patience) -> bool:
    """Stop the containerd that was started in `place`, and no other; False if there is none."""
    return _end(host, f"{place}/containerd", containerd_socket(place), patience)


def _forget_dead(host: Host, place: str) -> None:
    """Remove pid files that a power cut left: dockerd does not start where their numbers are someone else's by now."""
    containerd = f"{place}/exec/containerd/containerd"
    if own_pid_in(host, place) is None:
        host.run(["rm", "-f", "--", f"{place}/dockerd.pid"]).checked()
        unmount_dead(host, place)
    if _pid_in(host, f"{containerd}.pid", f"{containerd}.toml") is None:
        host.run(["rm", "-f", "--", f"{containerd}.pid"]).checked()


def dead_mounts_in(host: Host, place: str) -> list[str]:
    """The network namespaces that an engine which was killed left mounted in its folder; none while one runs there."""
    if own_pid_in(host, place) is not None:
        return []
    real = os.path.realpath(place)  # as the kernel names it
    return [mount.point for mount in mounts(host) if mount.point.startswith(f"{real}/exec/netns/")]


def unmount_dead(host: Host, place: str) -> None:
    for point in dead_mounts_in(host, place):
        host.run(["umount", "--", point])


def stop_in(host: Host, place: str, patience: Patience) -> bool:
    """Stop the engine that was started in `place`, and no other; False if there is none."""
    stopped = _end(host, f"{place}/dockerd", f"{place}/dockerd.pid", patience)
    if stopped:
        host.run(["umount", "--", f"{place}/data"])  # dockerd mounts its data folder onto itself, and forgets it
        unmount_dead(host, place)
    stop_containerd(host, place, patience)
    if stopped:
        host.run(["rm", "-rf", "--", f"{place}/tmp"])
    return stopped


def _end(host: Host, files: str, argument: str, patience: Patience) -> bool:
    """End the process in `files`.pid that has this argument; False if there is none."""
    pid = _pid_in(host, f"{files}.pid", argument)
    if pid is None:
        return False
    host.run(["kill", "-TERM", str(pid)])
    pid_now = partial(_pid_in, host, f"{files}.pid", argument)
    if not comes_true(host.clock, lambda: pid_now() is None, patience.stop_s, patience.look_every_s):
        name = files.rpartition("/")[2]
        raise TareError(f"our own {name} (pid {pid}) does not stop; its log is {files}.log.")
    return True


def own_pid_in(host: Host, place: str) -> int | None:
    """The pid of the engine that was started in `place`, if it runs."""
    return _pid_in(host, f"{place}/dockerd.pid", f"{place}/dockerd.pid")


def serving(host: Host, keeper: int | None, engine: str | None = None) -> set[int]:
    """Who serves the container of this keeper, on the device itself: what started it (a shim, conmon, a monitor), the
    containerd that the shim reports to, and the daemon behind the socket `engine`.

    An engine that others use too is among them: that it has to run is the cost of the platform.
    """
    if not isinstance(host, OwnDevice):
        return set()
    shim = _parent(host, keeper)
    words = list(words_of(shim)) if shim else []
    above = words[words.index("-address") + 1] if "-address" in words[:-1] else None
    found = {shim, *(listener(path) for path in (above, engine) if path)}
    return {pid for pid in found if pid is not None} - {0, 1, os.getpid()}


def _parent(host: Host, pid: int | None) -> int | None:
    try:
        return int(host.read(f"/proc/{pid}/stat").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def listener(path: str) -> int | None:
    """The process behind a socket; of one that systemd listens at, the daemon that has noted its pid."""
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(_ANSWER_S)
            line.connect(path)
            pid = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            return int(Path(_NOTED).read_text()) if pid == 1 else int(pid)
    except (OSError, ValueError, struct.error):
        return None


def _pid_in(host: Host, file: str, argument: str) -> int | None:
    """The pid in a file, if that process has this argument: the number alone may be someone else's by now."""
    try:
        pid = int(host.read(file))
        arguments = host.read(f"/proc/{pid}/cmdline").split("\0")
    except (OSError, ValueError):
        return None
    return pid if argument in arguments else None
