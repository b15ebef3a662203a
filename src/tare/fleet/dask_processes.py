"""dask's processes that a run over a fleet starts here: one scheduler, and hosts of workers; keys and logs of both.

They speak TLS with keys that are made for this run and go with it, and listen on loopback only, unless workers are on
other machines.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tare.base.errors import TareError
from tare.base.files import new_folder

# A part of dask as a process of ours, which ends with its starter: `python -m tare.fleet.dask_processes PID scheduler`.
#
# Many workers in one process: each is called as its device is, and has a thread of its own once it drives.
#
# A process for each would take 46 MB; a worker beside others takes 0.2 MB until it drives. If one of them ends, all do,
# and the process with them: whoever watches over it then starts it again, and nobody drives a device without being
# known.

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
    # Asked of each message, whether it is large enough to be packed by a thread: records are, and are bytes already.
    "DASK_DISTRIBUTED__COMM__OFFLOAD": "False",
    # Looked for by each worker, and found by none.
    "DASK_DISTRIBUTED__DIAGNOSTICS__NVML": "False",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__GIL__ENABLED": "False",
    # A thousand workers that come at once are let in one after another.
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "120s",
}

# Beside these, workers that share a process: what looks at the process itself need not do so for each of them.
SHARED = {
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "60s",
    "DASK_DISTRIBUTED__ADMIN__TICK__CYCLE": "1h",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10m",
    "DASK_LOGGING__DISTRIBUTED": "warning",  # each of them hears what all of them say
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
    from distributed import versions
    from distributed.cli import dask_scheduler

    if dask_scheduler.main.name not in cli.commands:
        cli.add_command(dask_scheduler.main)
    compare = versions.error_message  # of a worker that comes with the scheduler, not with all that are there
    versions.error_message = lambda ours, _, its, source_name="": compare(ours, {}, its, source_name)
    cli(prog_name="dask")


def allow_many_files() -> None:
    """A device is some eight connections and pipes; the usual 1024 would end at a hundred of them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


# On this machine the scheduler hears of a death by the connection that breaks. As dask has it, a thousand workers would
# beat 170 times a second, over a second connection each, and who is silent for 300 s would be forgotten.
_NO_HEARTBEAT = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "0", "DASK_LOGGING__DISTRIBUTED": "warning"}
_WORKER_UP_WITHIN_S = 300
_AT_ONCE = 8  # workers that are started together: each shakes hands with the scheduler, which does one thing at a time


def serve(order_file: Path) -> None:
    """Run the workers that the order names until one of them ends; never returns."""
    try:
        asyncio.run(_serve(json.loads(order_file.read_text())))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


async def _serve(order: Mapping[str, Any]) -> None:
    # Here: what devices import has to do without dask.
    from distributed import Security, Worker
    from distributed.protocol import to_serialize

    class SharedSecurity(Security):  # type: ignore[misc]
        """Reads its keys once, not for each worker."""

        get_connection_args = cache(Security.get_connection_args)
        get_listen_args = cache(Security.get_listen_args)

    class DeviceWorker(Worker):  # type: ignore[misc]
        """dask's own, without what a thousand of them would do for nobody: a web page, and heartbeats."""

        async def heartbeat(self) -> None: ...

        def start_http_server(self, *_: Any, **__: Any) -> None: ...

    def answers(asked: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """What these workers of ours have made, by worker and key: in one message."""
        made = {key: named[name].data for name, key in asked if name in named}
        return {key: to_serialize(data[key]) for key, data in made.items() if key in data}

    tls = order["tls"]
    security = SharedSecurity(
        require_encryption=True,
        tls_ca_file=tls["--tls-ca-file"],
        tls_worker_cert=tls["--tls-cert"],
        tls_worker_key=tls["--tls-key"],
    )

    def worker(name: str) -> Any:
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
            death_timeout=_WORKER_UP_WITHIN_S,
            heartbeat_interval="1h",
        )

    named: dict[str, Any] = {}
    for start in range(0, len(order["names"]), _AT_ONCE):
        fresh = {name: worker(name) for name in order["names"][start : start + _AT_ONCE]}
        await asyncio.gather(*fresh.values())
        named |= fresh
    first, up = next(iter(named.values())), Path(order["up"])
    first.handlers["answers"] = answers
    half_made = up.with_suffix(".half")
    half_made.write_text(first.address)
    half_made.rename(up)
    await asyncio.wait([asyncio.create_task(each.finished()) for each in named.values()], return_when="FIRST_COMPLETED")
    os._exit(1)  # threads may wait for devices, and need not be waited for


LOOPBACK = "127.0.0.1"
PER_HOST = 125  # workers in one process; what its death costs is that so many devices are asked again
_MOST_HOSTS = 32  # more than so many processes are only slower: each imports dask, and has 47 MB of its own
_UP_WITHIN_S = 60.0
_PER_WORKER_S = 0.5  # more for each, on a machine that has much else to do
_DIES_WITHIN_S = 1.0
_LOOK_EVERY_S = 0.02


@dataclass(frozen=True, eq=False)
class Host:
    """A process with the workers of these devices."""

    names: tuple[str, ...]
    process: subprocess.Popen[bytes]
    up: Path  # there once every worker is known to the scheduler: the address of the first, which has all answers
    log: Path

    @cached_property
    def address(self) -> str:
        return self.up.read_text()

    @property
    def is_dead(self) -> bool:
        return self.process.poll() is not None

    def end(self) -> None:
        """The scheduler may know of its death before we do, or of one worker's: two of one name must not be."""
        end_s = time.monotonic() + _DIES_WITHIN_S
        while not self.is_dead and time.monotonic() < end_s:
            time.sleep(_LOOK_EVERY_S)
        self.process.kill()
        self.process.wait()


def groups(names: Sequence[str], most: int = PER_HOST) -> list[tuple[str, ...]]:
    """The names in as few groups as may be, all of about the same size; of very many, more in each."""
    count = min(-(-len(names) // most), _MOST_HOSTS)
    return [tuple(names[number::count]) for number in range(count)]


class Processes:
    """All of them, from the first to `close`."""

    def __init__(self, folder: Path | None = None, address: str = LOOPBACK) -> None:
        # A killed run's keys open nothing any more, and go with its folder.
        self.folder = folder or new_folder("fleet")
        self._tls = _make_keys(self.folder)
        self._started: list[subprocess.Popen[bytes]] = []
        self._hosts = 0
        words = ["--port", "0", "--scheduler-file", str(self._file), "--protocol", "tls", "--host", address]
        words += ["--no-dashboard", "--dashboard-address", f"{LOOPBACK}:0"]
        keys = [word for option, path in self._tls.items() for word in (option, path)]
        beside = _NO_HEARTBEAT if address == LOOPBACK else {}
        self.scheduler = self._start(self._scheduler_log, beside, "scheduler", *words, *keys)

    @property
    def address(self) -> str:
        """The scheduler's, once it is up."""
        end_s = time.monotonic() + _UP_WITHIN_S
        while time.monotonic() < end_s and self.scheduler.poll() is None:
            try:
                return str(json.loads(self._file.read_text())["address"])
            except (OSError, ValueError, KeyError):
                time.sleep(_LOOK_EVERY_S)
        raise TareError(f"dask's scheduler did not come up here:\n{_last_words(self._scheduler_log)}")

    def security(self) -> Any:
        """What a client or a worker needs to be let in."""
        from distributed import Security

        return Security(
            require_encryption=True,
            tls_ca_file=self._tls["--tls-ca-file"],
            tls_client_cert=self._tls["--tls-cert"],
            tls_client_key=self._tls["--tls-key"],
            tls_worker_cert=self._tls["--tls-cert"],
            tls_worker_key=self._tls["--tls-key"],
        )

    def start_host(self, names: Sequence[str]) -> Host:
        """A process for these workers, begun; `await_host` says when they are there."""
        self._hosts += 1
        stem = self.folder / f"workers-{self._hosts}"
        order, up, log = (stem.with_suffix(suffix) for suffix in (".json", ".up", ".log"))
        described = {"scheduler": self.address, "names": list(names), "tls": self._tls, "host": LOOPBACK}
        order.write_text(json.dumps({**described, "up": str(up), "scratch": str(stem)}))
        return Host(tuple(names), self._start(log, SHARED, "workers", str(order)), up, log)

    def await_host(self, host: Host, together: int = 1) -> None:
        """Until the scheduler knows all of its workers; so many processes come up together."""
        end_s = time.monotonic() + _UP_WITHIN_S + _PER_WORKER_S * len(host.names) * together
        while not host.up.exists():
            if host.is_dead or time.monotonic() > end_s:
                who = host.names[0] if len(host.names) == 1 else f"{host.names[0]} and {len(host.names) - 1} more"
                raise TareError(f"dask's worker for {who} did not come up:\n{_last_words(host.log)}")
            time.sleep(_LOOK_EVERY_S)

    def close(self) -> None:
        """They hold nothing: what is worth keeping is on the devices, or in the store."""
        for child in self._started:
            child.kill()
        for child in self._started:
            child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _file(self) -> Path:
        return self.folder / "scheduler.json"

    @property
    def _scheduler_log(self) -> Path:
        return self.folder / "scheduler.log"

    def _start(self, log: Path, beside: dict[str, str], *words: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-P", "-m", "tare.fleet.dask_processes", str(os.getpid()), *words]
        with log.open("ab") as out:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=os.environ | TUNED | beside,
                cwd=self.folder, start_new_session=True,
            )  # fmt: skip
        self._started.append(child)
        return child


def _last_words(log: Path) -> str:
    try:
        return log.read_text(errors="replace")[-1000:]
    except OSError:
        return "it printed nothing."


def _make_keys(folder: Path) -> dict[str, str]:
    """The keys of this run, as files that only we can read.

    As dask's own, but elliptic: a thousand devices shake hands three thousand times, and RSA takes 5 ms for each.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tare-fleet")])
    cert = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365))
        .sign(key, hashes.SHA256())
    )
    public = cert.public_bytes(serialization.Encoding.PEM).decode()
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    made = {"ca_file": public, "cert": public, "key": key.private_bytes(*pem).decode()}
    files = {"--tls-ca-file": "ca_file", "--tls-cert": "cert", "--tls-key": "key"}
    for file_name in files.values():
        descriptor = os.open(folder / f"{file_name}.pem", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(made[file_name])
    return {option: str(folder / f"{file_name}.pem") for option, file_name in files.items()}


if __name__ == "__main__":
    main()
