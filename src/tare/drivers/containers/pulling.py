"""Fetching an image that is not on this device, through the engine that is to have it: Docker's or Podman.

Who may fetch from a registry, and how its certificate is checked, is set in the engine (`docker login`,
`/etc/containers/registries.conf`); nothing of that is decided here.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import replace

from tare.base.errors import ObstacleError
from tare.base.host import LocalHost
from tare.base.rulings import obstacle
from tare.drivers.containers import engine
from tare.drivers.containers.client import Client
from tare.drivers.containers.unpacked import is_path

Say = Callable[[str], None]

_SAY_EVERY_S = 5.0


def fetch(platform: str, name: str, say: Say) -> None:
    """Bring an image to where this platform takes it from, unless it is there; says so before, and as it goes on."""
    if is_path(name):
        return
    clients = engine.clients(LocalHost())
    if platform in ("docker", "podman"):
        clients = [client for client in clients if client.program == platform]
    if any(client.image(name) is not None for client in clients):
        return
    if not clients:
        raise ObstacleError(
            f"the image {name} is not on this device, and there is neither Podman nor a Docker engine to fetch it."
        )
    program = clients[0].program
    say(f"{program} has no image {name}: fetching it ...")
    began_s = time.monotonic()
    if (reason := _pulled(clients[0], name, say)) is not None:
        advice = (
            f"`{program} pull {name}` failed: {reason}. Check the name and its tag, the network, and for a private "
            f"registry `{program} login`; or give an image that is here, or a file of `{program} save` "
            "(--image ./F.tar)."
        )
        raise ObstacleError("the image cannot be fetched, and nothing was run:", [obstacle("needs.image", advice)])
    say(f"fetched {name} in {time.monotonic() - began_s:.0f} s.")


def _pulled(client: Client, name: str, say: Say) -> str | None:
    """Why the image did not come; None where it did. What the engine prints is said every few seconds."""
    command = [*replace(client, settings=()).words, "pull", name]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, text=True, errors="replace", **streams) as pulling:  # type: ignore[call-overload]
        last, said_s = "", time.monotonic()
        try:
            for line in pulling.stdout or ():
                last = line.strip() or last
                if time.monotonic() - said_s >= _SAY_EVERY_S:
                    said_s = time.monotonic()
                    say(f"  {last}")
        except BaseException:
            pulling.terminate()
            raise
    if pulling.returncode == 0:
        return None
    reason = last.removeprefix("Error: ").removeprefix("Error response from daemon: ").rstrip(".")
    return reason or f"it ended with code {pulling.returncode}"
