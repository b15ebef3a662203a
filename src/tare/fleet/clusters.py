"""Clusters that somebody else runs: their addresses, and this device as a worker of one."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from tare.base.errors import ObstacleError, StudyError
from tare.base.files import state_dir
from tare.base.installed import pip_install
from tare.fleet.dask_processes import TUNED
from tare.trial.device import private_folder

_ENCRYPTED, _PLAIN = "tls", "tcp"
_INSTALL = "a worker is a part of dask.distributed: `{}` puts it here."


def worker_command(address: str, name: str, keys: Mapping[str, Path]) -> list[str]:
    """The command line of the worker; `keys` are dask's own options for TLS, by name."""
    kind, place, port = _parts(address)
    missing = [str(path) for path in keys.values() if not path.is_file()]
    if missing:
        raise StudyError(f"no file {missing[0]}.")
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


_ADDRESS = re.compile(r"(tls|tcp)://(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")


def over_tls(address: str) -> str:
    """The address of a cluster: TLS unless it says otherwise, and plain TCP to this machine alone.

    Only `tls` and `tcp` in small letters: dask has more protocols, of which none but TLS is encrypted. This machine is
    a number of its own, no name, for whoever answers for a name says which machine that is.
    """
    full = address if "://" in address else f"tls://{address}"
    found = _ADDRESS.fullmatch(full)
    if found is None:
        raise StudyError(f"{address!r} is no address of a cluster: write HOST:PORT, or tls://HOST:PORT.")
    if found[1] == "tcp" and not is_loopback(found[2] or found[3]):
        raise StudyError(
            f"{address} is not encrypted: whoever can reach it runs what they like on the devices.\n"
            "Use tls:// with the cluster's keys (DASK_DISTRIBUTED__COMM__TLS__...), or a tunnel: tcp:// is accepted on "
            "127.0.0.1 alone."
        )
    return full


def is_loopback(place: str) -> bool:
    try:
        return ip_address(place).is_loopback
    except ValueError:
        return False
