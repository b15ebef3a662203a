"""A part of dask as a process of ours, which ends with its starter: `python -m tare.fleet.child PID scheduler`.

Many workers in one process: each is called as its device is, and has a thread of its own once it drives.

A process for each would take 46 MB; a worker beside others takes 0.2 MB until it drives. If one of them ends, all do,
and the process with them: whoever watches over it then starts it again, and nobody drives a device without being known.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import random
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from distributed import Security, Worker

from tare.base.errors import ObstacleError, StudyError, pip_install
from tare.base.files import state_dir
from tare.trial.device import private_folder

_PR_SET_PDEATHSIG = 1

# A worker as it comes looks at itself a hundred times a second; these make that five (docs/decisions/0015-fleet.md).
TUNED = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__WORKER__PROFILE__INTERVAL": "1h",
    "DASK_DISTRIBUTED__WORKER__PROFILE__CYCLE": "1h",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "2s",
    "DASK_DISTRIBUTED__ADMIN__TICK__CYCLE": "60s",
    "DASK_DISTRIBUTED__ADMIN__TICK__LIMIT": "1h",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
    "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "False",
    # Nothing is run again, or elsewhere, unless we say so.
    "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False",
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
    "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True",
    # A thousand workers that come at once are let in one after another.
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "120s",
}

# Beside these, workers that share a process: what looks at the process itself need not do so for each of them.
SHARED = {
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "60s",
    "DASK_DISTRIBUTED__ADMIN__TICK__CYCLE": "1h",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10m",
}


def main() -> None:
    """Become what was asked for, after having made sure that we do not outlive our starter."""
    starter = int(sys.argv.pop(1))
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != starter:
        return  # it died before we had asked to be told
    allow_many_files()
    if sys.argv[1] == "workers":
        serve(Path(sys.argv[2]))
    from dask.cli import cli
    from distributed.cli import dask_scheduler

    if dask_scheduler.main.name not in cli.commands:
        cli.add_command(dask_scheduler.main)
    cli(prog_name="dask")


def allow_many_files() -> None:
    """A device is some eight connections and pipes; the usual 1024 would end at a hundred of them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


# The scheduler hears of a death by the connection that breaks, not by this; as dask has it, a thousand workers would
# beat 170 times a second. It forgets who is silent for 300 s.
HEARTBEAT_S = 100
_UP_WITHIN_S = 300
_AT_ONCE = 8  # workers that are started together: each shakes hands with the scheduler, which does one thing at a time


class DeviceWorker(Worker):  # type: ignore[misc]
    """dask's own, without what a thousand of them would do for nobody: a web page, and a heartbeat each second."""

    async def heartbeat(self) -> None:
        await super().heartbeat()
        self.periodic_callbacks["heartbeat"].callback_time = _next_beat_s() * 1000

    def start_http_server(self, *_: Any, **__: Any) -> None: ...


def serve(order_file: Path) -> None:
    """Run the workers that the order names until one of them ends; never returns."""
    try:
        asyncio.run(_serve(json.loads(order_file.read_text())))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


async def _serve(order: Mapping[str, Any]) -> None:
    tls = order["tls"]
    security = Security(
        require_encryption=True,
        tls_ca_file=tls["--tls-ca-file"],
        tls_worker_cert=tls["--tls-cert"],
        tls_worker_key=tls["--tls-key"],
    )
    workers: list[Any] = []
    for start in range(0, len(order["names"]), _AT_ONCE):
        fresh = [_worker(name, order, security) for name in order["names"][start : start + _AT_ONCE]]
        await asyncio.gather(*fresh)
        workers += fresh
    Path(order["up"]).touch()
    await asyncio.wait([asyncio.create_task(each.finished()) for each in workers], return_when="FIRST_COMPLETED")
    os._exit(1)  # threads may wait for devices, and need not be waited for


def _next_beat_s() -> float:
    """Not all at the same time."""
    return HEARTBEAT_S * random.uniform(0.5, 1.0)


def _worker(name: str, order: Mapping[str, Any], security: Any) -> Any:
    return DeviceWorker(
        order["scheduler"],
        name=name,
        nthreads=1,
        resources={"device": 1},
        security=security,
        protocol="tls",
        host=order["host"],
        memory_limit=0,
        local_directory=order["scratch"],
        death_timeout=_UP_WITHIN_S,
        heartbeat_interval=f"{_next_beat_s()}s",
    )


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


if __name__ == "__main__":
    main()
