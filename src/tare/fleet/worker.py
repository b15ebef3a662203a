"""A worker of someone's dask cluster that is a device: as quiet as dask can be made, and on one address."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tare.errors import ObstacleError, StudyError
from tare.extras import pip_install
from tare.fleet.servant import TUNED
from tare.trial.device import private_folder, state_dir

_ENCRYPTED, _PLAIN = "tls", "tcp"
_INSTALL = "a worker is a part of dask.distributed: `{}` puts it here."


def worker_command(address: str, name: str, keys: Mapping[str, Path]) -> list[str]:
    """The command line of the worker; `keys` are dask's own options for TLS, by name."""
    kind, place, port = _parts(address)
    missing = [str(path) for path in keys.values() if not path.is_file()]
    if missing:
        raise StudyError(f"there is no file {missing[0]}.")
    own = _address_towards(place, port)
    folder = private_folder(state_dir() / "fleet" / "worker")
    words = [sys.executable, "-P", "-m", "dask", "worker", address, "--name", name, "--resources", "device=1"]
    words += ["--no-nanny", "--nthreads", "1", "--memory-limit", "0", "--no-dashboard"]
    words += ["--dashboard-address", "127.0.0.1:0", "--host", own, "--local-directory", str(folder)]
    words += ["--protocol", kind]
    return [*words, *(word for option, path in keys.items() for word in (option, str(path.absolute())))]


def worker_environment(address: str) -> dict[str, str]:
    """Our own, with dask told to leave the device alone."""
    tuned = {**TUNED, "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": str(is_encrypted(address))}
    return {**os.environ, **tuned}


def is_encrypted(address: str) -> bool:
    return _parts(address)[0] == _ENCRYPTED


def require_dask() -> None:
    """Raises where there is no dask here."""
    from importlib.util import find_spec

    if find_spec("distributed") is None:
        raise ObstacleError(_INSTALL.format(pip_install("fleet")))


def _parts(address: str) -> tuple[str, str, int]:
    try:
        found = urlsplit(address)
        if found.scheme in (_ENCRYPTED, _PLAIN) and found.hostname and found.port:
            return found.scheme, found.hostname, found.port
    except ValueError:
        pass
    raise StudyError(f"{address!r} is no address of a scheduler; write it like 'tls://10.0.0.1:8786'.")


def _address_towards(place: str, port: int) -> str:
    """The address of ours from which the scheduler is reached: the worker listens there, and nowhere else."""
    try:
        family, kind, _, _, there = socket.getaddrinfo(place, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as line:
            line.connect(there)  # sends nothing
            return str(line.getsockname()[0])
    except OSError as error:
        raise ObstacleError(f"there is no way from here to {place}: {error}.") from error
