"""Fetching an image that is not on this device, through the engine that is to have it: Docker's or Podman.

Who may fetch from a registry, and how its certificate is checked, is set in the engine (`docker login`,
`/etc/containers/registries.conf`); nothing of that is decided here.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

from tare.base.errors import ObstacleError, TareError
from tare.base.host import LocalHost
from tare.base.rulings import obstacle
from tare.drivers.containers import docker, engine
from tare.drivers.containers.unpacked import is_path

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
        return not docker.missing(client, name)


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
