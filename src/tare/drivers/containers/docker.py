"""A command inside a running Docker container, by the engine's exec interface."""

from __future__ import annotations

import contextlib
import hashlib
import io
import socket
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.base.errors import ObstacleError, TareError, TrialError
from tare.base.host import LISTENER, OUTPUT_LIMIT_BYTES, Exit, Host, ImageConfig, LocalHost, Reaching
from tare.base.rulings import obstacle
from tare.base.secrets import shown_env
from tare.drivers.cgroups.job import Group, with_oom_note
from tare.drivers.containers import engine
from tare.drivers.containers.engine import errors
from tare.drivers.containers.roots import OWN, Top, Unpacked, as_changes, image_config, is_path, packed
from tare.drivers.places import image_env, own_variables, users_env

_STDERR = 2
_LOOK_EVERY_S = 0.2
_GRACE_S = 5.0
_LINGER_S = 2.0


@dataclass(frozen=True)
class Inside:
    """A running container: whom to ask, what for, and where its processes are seen."""

    api: Any  # the SDK's low-level client
    container: str
    host: Host
    group: Group


class ExecProcess:
    """A job in a container. Its output comes as frames on one connection and is taken apart here."""

    def __init__(
        self,
        inside: Inside,
        argv: Sequence[str],
        *,
        env: Sequence[str],
        cwd: str = "/",
        stdin: str = "",
        clocked: bool = False,
    ) -> None:
        self._inside = inside
        self._clocked = clocked
        if isinstance(inside.host, Reaching):
            inside.host.lay_out(clocked=clocked)
        self._oom_kills_before = inside.group.oom_kills()
        self._start_ns = inside.host.clock.now_ns()
        with errors(f"run {argv[0]} in the container"):
            made = inside.api.exec_create(
                inside.container, list(argv), stdin=bool(stdin), environment=list(env), workdir=cwd
            )
            self._id = made["Id"]
            self._line = inside.api.exec_start(self._id, socket=True)
        self._frames = _Frames(self._line)
        if stdin:
            plain = _socket(self._line)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it need not read all of it
                plain.sendall(stdin.encode())
                plain.shutdown(socket.SHUT_WR)

    def wait(self, limit_s: float) -> Exit:
        timed_out = not self._ended_within(limit_s)
        waiting = self._inside.group.waiting() if timed_out else ""
        if timed_out:
            self.kill()
        out, err = self._frames.texts()
        ended = Exit(
            code=self._code(),
            seconds=(self._inside.host.clock.now_ns() - self._start_ns) / 1e9,
            out=out,
            err=err,
            timed_out=timed_out,
            waiting=waiting,
            truncated=self._frames.truncated,
        )
        noted = with_oom_note(ended, self._oom_kills_before, self._inside.group.oom_kills())
        if isinstance(self._inside.host, Reaching):
            self._inside.host.bring_home(clocked=self._clocked)
        return noted

    def kill(self) -> None:
        """End every job in the container; if that does not help, the container itself."""
        self._inside.group.kill_jobs()
        if not self._frames.ended_within(_GRACE_S):
            with errors("kill the container"):
                self._inside.api.kill(self._inside.container)
            self._frames.ended_within(_GRACE_S)

    def _ended_within(self, limit_s: float) -> bool:
        """Whether the command ended: its output did, or its process is gone and a child of it holds the output."""
        clock = self._inside.host.clock
        deadline_ns = clock.now_ns() + round(limit_s * 1e9)
        pid: int | None = None
        while not self._frames.ended_within(min(_LOOK_EVERY_S, max(0.0, (deadline_ns - clock.now_ns()) / 1e9))):
            if clock.now_ns() >= deadline_ns:
                return False
            pid = pid or self._pid()
            if pid is not None and not self._inside.group.alive(pid):
                return True
        return True

    def _pid(self) -> int | None:
        with errors("look at a command in the container"):
            return self._inside.api.exec_inspect(self._id).get("Pid") or None

    def _code(self) -> int:
        """The engine notes the code a moment after the output has ended."""
        clock = self._inside.host.clock
        deadline_ns = clock.now_ns() + round(_GRACE_S * 1e9)
        while True:
            with errors("say how a command ended"):
                seen = self._inside.api.exec_inspect(self._id)
            if not seen["Running"] and seen["ExitCode"] is not None:
                return int(seen["ExitCode"])
            if clock.now_ns() >= deadline_ns:
                raise TrialError("the Docker engine does not say how a command ended; it may have been restarted.")
            clock.sleep_until(clock.now_ns() + 5_000_000)


class _Frames:
    """Takes frames off a connection in the background; keeps the first `OUTPUT_LIMIT_BYTES` of each stream."""

    def __init__(self, line: Any) -> None:
        self.truncated = False
        self._line = line
        self._out, self._err = bytearray(), bytearray()
        self._heard = LISTENER.get()
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def _take(self) -> None:
        from docker.utils.socket import frames_iter

        with contextlib.suppress(OSError, ValueError):  # the engine went away; `_code` will say so
            for stream, chunk in frames_iter(self._line, tty=False):
                kept = self._err if stream == _STDERR else self._out
                room = OUTPUT_LIMIT_BYTES - len(kept)
                kept += chunk[:room]
                self.truncated |= len(chunk) > room
                if self._heard is not None:
                    self._heard(chunk)

    def ended_within(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def texts(self) -> tuple[str, str]:
        """Standard output and error. What a left-over child still holds open is not waited for."""
        plain = _socket(self._line)
        if not self.ended_within(_LINGER_S):
            with contextlib.suppress(OSError):
                plain.shutdown(socket.SHUT_RDWR)
            self.ended_within(_GRACE_S)
        self._line.close()
        plain.close()
        return bytes(self._out).decode("utf-8", "replace"), bytes(self._err).decode("utf-8", "replace")


def _socket(line: Any) -> Any:
    """The socket itself: the SDK hands out a file object around it, which does not close it."""
    return getattr(line, "_sock", line)


def environment(env: Mapping[str, str], present: Iterable[str] = ()) -> list[str]:
    """`env` and nothing else: a name without a value takes away what the container would add."""
    return [*(f"{name}={value}" for name, value in env.items()), *(name for name in present if name not in env)]


_NO_WORK = Path("/no/work/folder")  # of a command that is not run
_SKELETON = "tare/skeleton"
_BUILT = "tare/built"
_TAKEN = "tare/taken"


def skeleton_tar(tops: Iterable[Top]) -> bytes:
    """A few empty folders and links with the names of the host's: the same bytes for the same names."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for top in (*tops, *(Top(name) for name in OWN)):
            entry = tarfile.TarInfo(top.name)
            entry.type = tarfile.SYMTYPE if top.link else tarfile.DIRTYPE
            entry.linkname = top.link
            entry.mode = 0o1777 if top.name == "tmp" else 0o755
            tar.addfile(entry)
    return data.getvalue()


def skeleton(client: Any, tops: Iterable[Top]) -> str:
    """The id of the skeleton image; made once an engine."""
    data = skeleton_tar(tops)
    tag = hashlib.sha256(data).hexdigest()[:16]
    with errors("make the skeleton image"):
        if (known := _id(client, f"{_SKELETON}:{tag}")) is None:
            client.api.import_image_from_data(data, repository=_SKELETON, tag=tag)
            known = _id(client, f"{_SKELETON}:{tag}")
    if known is None:
        raise TrialError("the Docker engine took the skeleton image but does not have it.")
    return known


def _id(client: Any, name: str) -> str | None:
    from docker.errors import ImageNotFound

    try:
        return str(client.api.inspect_image(name)["Id"])
    except ImageNotFound:
        return None


def missing(client: Any, name: str) -> bool:
    """Whether the engine does not have this image."""
    with errors(f"look for the image {name}"):
        return _id(client, name) is None


def pinned(client: Any, name: str) -> str:
    """The id behind a name now. The container is made from the id: a tag may move between two trials."""
    with errors(f"look for the image {name}"):
        known = _id(client, name)
    if known is None:
        raise ObstacleError(f"the engine has no image {name}; `docker pull {name}` fetches it.")
    return known


def config_of(client: Any, image: str) -> ImageConfig:
    """What an image sets for whatever runs in it."""
    with errors("look into the image"):
        return image_config(client.api.inspect_image(image)["Config"])


def taken(client: Any, image: Unpacked) -> str:
    """The id of an image that came from a file or folder; imported once an engine."""
    if not image.id:
        raise ObstacleError(f"{image.root}: Docker takes an image of a folder only where that is an OCI layout.")
    tag = f"{_TAKEN}:{image.id[:16]}"
    with errors(f"import {tag}"):
        if (known := _id(client, tag)) is None:
            with packed(image) as archive:
                client.api.import_image_from_file(
                    str(archive), repository=_TAKEN, tag=image.id[:16], changes=as_changes(image.config)
                )
            known = _id(client, tag)
    if known is None:
        raise TrialError(f"the Docker engine took {tag} but does not have it.")
    return known


def image_facts(client: Any, image: str) -> dict[str, Any]:
    """What is known of an image without running it: its architecture, and the variables of a command in it."""
    with errors("look into the image"):
        found = client.api.inspect_image(image)
    env = image_env(_NO_WORK, "default", image_config(found["Config"]), attach=False)
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(found["Architecture"], found["Architecture"])
    return {"machine": machine, "variables": shown_env(own_variables(env, _NO_WORK))}


def variables_here() -> dict[str, str]:
    """The variables of a command of the user's on this device."""
    return shown_env(own_variables(users_env(_NO_WORK, "default", attach=False), _NO_WORK))


def built(client: Any, dockerfile: Path) -> str:
    """The id of the image that a Dockerfile describes; built without a network, and again only when a file changed."""
    tag = f"{_BUILT}:{_context_hash(dockerfile)}"
    with errors(f"build {dockerfile}"):
        if (known := _id(client, tag)) is not None:
            return known
        _build(client, dockerfile, tag)
        known = _id(client, tag)
    if known is None:
        raise TrialError(f"{dockerfile} was built, but the engine does not have {tag}.")
    return known


def _build(client: Any, dockerfile: Path, tag: str) -> None:
    said: list[str] = []
    steps = client.api.build(
        path=str(dockerfile.parent.resolve()),
        dockerfile=dockerfile.name,
        tag=tag,
        network_mode="none",
        rm=True,
        forcerm=True,
        decode=True,
    )
    for step in steps:
        said.append(step.get("stream", ""))
        if "error" in step:
            tail = "".join(said)[-1500:].strip()
            raise ObstacleError(f"{dockerfile} cannot be built (no network in a build): {step['error']}\n{tail}")


def _context_hash(dockerfile: Path) -> str:
    """Changes when the Dockerfile or any file beside it does."""
    digest = hashlib.sha256(dockerfile.read_bytes())
    context = dockerfile.parent
    for path in sorted(context.rglob("*")):
        seen = path.lstat()
        digest.update(f"{path.relative_to(context)}\0{seen.st_mode}\0{seen.st_size}\0{seen.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


# Fetching an image that is not on this device, through the engine that is to have it: Docker's or Podman.
#
# Who may fetch from a registry, and how its certificate is checked, is set in the engine (`docker login`,
# `/etc/containers/registries.conf`); nothing of that is decided here.

Say = Callable[[str], None]

_WITHIN_S = 1800  # without a byte of it
_SAID_EVERY_S = 5.0
_MB = 1_000_000


class _Refused(Exception):
    """An engine's own words on why an image did not come."""


def fetch(platform: str, name: str, say: Say) -> None:
    """Bring an image to where this platform takes it from, unless it is there; says so before, and as it goes on."""
    if is_path(name):
        return
    host = LocalHost()
    there = {"podman": _podman_has(host, name), "docker": _docker_has(host, name)}
    wanted = platform if platform in there else ""
    if there[wanted] if wanted else any(there.values()):
        return
    through = wanted or next((each for each, has in there.items() if has is not None), "")
    if not through:
        raise ObstacleError(
            f"the image {name} is not on this device, and there is neither Podman nor a Docker engine to fetch it."
        )
    say(f"{through} has no image {name}: fetching it ...")
    began_s = time.monotonic()
    try:
        (_docker_pulls if through == "docker" else _podman_pulls)(host, name, say)
    except _Refused as error:
        raise ObstacleError(
            "the image cannot be fetched, and nothing was run:",
            [obstacle("needs.image", _advice(through, name, error))],
        ) from None
    say(f"fetched {name} in {time.monotonic() - began_s:.0f} s.")


def _advice(through: str, name: str, error: _Refused) -> str:
    reason = str(error).strip().rstrip(".")
    return (
        f"`{through} pull {name}` failed: {reason}. Check the name and its tag, the network, and for a private "
        f"registry `{through} login`; or give an image that is here, or a file of `{through} save` (--image ./F.tar)."
    )


def _podman_has(host: LocalHost, name: str) -> bool | None:
    """None where there is no Podman."""
    code = host.run(["podman", "image", "exists", name]).code
    return None if code == 127 else code == 0


def _docker_has(host: LocalHost, name: str) -> bool | None:
    """None where no engine answers."""
    if engine.sdk_obstacles() or engine.find() is None:
        return None
    with closing(engine.connect(host)) as client:
        return not missing(client, name)


def _docker_pulls(host: LocalHost, name: str, say: Say) -> None:
    from docker.errors import APIError

    with closing(engine.connect(host)) as client:
        client.api.timeout = _WITHIN_S
        try:
            with engine.errors(f"fetch the image {name}"):
                for line in _told(client.api.pull(name, stream=True, decode=True), say):
                    if line.get("error"):
                        raise _Refused(str(line["error"]))
        except TareError as error:
            cause = error.__cause__ or error.__context__
            raise _Refused(str(cause.explanation if isinstance(cause, APIError) else error)) from None


def _told(lines: Iterator[Mapping[str, Any]], say: Say) -> Iterator[Mapping[str, Any]]:
    """The engine's lines; every few seconds how much of it has come, or is unpacked."""
    got: dict[str, dict[str, tuple[int, int]]] = {"Downloading": {}, "Extracting": {}}
    said_s = time.monotonic()
    for line in lines:
        status, detail = str(line.get("status")), line.get("progressDetail") or {}
        if status in got and detail.get("total"):
            got[status][str(line.get("id"))] = (int(detail.get("current", 0)), int(detail["total"]))
            if time.monotonic() - said_s >= _SAID_EVERY_S:
                said_s = time.monotonic()
                done, total = (sum(each) / _MB for each in zip(*got[status].values(), strict=True))
                what = "of the layers that were begun" if status == "Downloading" else "unpacked"
                say(f"  {done:.0f} of {total:.0f} MB {what}")
        yield line


def _podman_pulls(host: LocalHost, name: str, say: Say) -> None:
    with subprocess.Popen(
        ["podman", "pull", name], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, errors="replace",
    ) as pulling:  # fmt: skip
        last = ""
        try:
            for line in pulling.stderr or ():
                last = line.strip() or last
                say(f"  {line.strip()}")
        except BaseException:
            pulling.terminate()
            raise
    if pulling.returncode != 0:
        raise _Refused(last.removeprefix("Error: ") or f"it ended with code {pulling.returncode}")
