"""dask.distributed, as a run over a fleet uses it: a scheduler and one worker a device here, or someone's cluster.

Ours speaks TLS with keys that are made for this run and go with it, and listens on loopback only.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from tare.errors import ObstacleError, TareError
from tare.fleet.servant import TUNED

_UP_WITHIN_S = 60.0
_LOOPBACK = "127.0.0.1"
_PREFIX = "tare-fleet-"
GONE = (
    "dask's scheduler is gone, so the run over the fleet has ended. The devices finish the trials that they are at and "
    "keep the records; the same command collects them and goes on."
)
_INSTALL = "a fleet runs on dask.distributed: `pip install 'tare-bench[fleet]'`."


class WorkerLost(TareError):
    """The worker that a question was given to has died, and the question with it."""


class Cluster(Protocol):
    """Where questions to devices are run, each on the worker that has the device's name."""

    def submit(self, name: str, key: str, function: Callable[..., Any], *arguments: Any) -> Any: ...
    def wait(self, futures: Sequence[Any], within_s: float) -> None: ...  # until one of them is done
    def result(self, future: Any) -> Any: ...  # of one that is done; raises `WorkerLost`
    def check(self) -> None: ...  # raises where there is no scheduler any more
    def dead(self) -> list[str]: ...  # names of workers that have ended without being told to
    def restart(self, name: str) -> None: ...
    def close(self) -> None: ...


class _Dask:
    """What any cluster of dask can do."""

    _client: Any = None

    def submit(self, name: str, key: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """On this worker and no other, one at a time, and once: what failed is ours to look at."""
        return self._client.submit(
            function,
            *arguments,
            key=key,
            workers=[name],
            allow_other_workers=False,
            retries=0,
            resources={"device": 1},
            pure=False,
        )

    def wait(self, futures: Sequence[Any], within_s: float) -> None:
        from distributed import wait

        with suppress(TimeoutError, CancelledError):  # who asks for the answer is told which
            wait(list(futures), timeout=within_s, return_when="FIRST_COMPLETED")

    def result(self, future: Any) -> Any:
        from distributed.scheduler import KilledWorker

        try:
            return future.result()
        except KilledWorker as error:
            raise WorkerLost(str(error)) from error
        except CancelledError as error:
            raise TareError(GONE) from error


class OwnCluster(_Dask):
    """A scheduler and workers that live as long as this run."""

    def __init__(self, names: Iterable[str]) -> None:
        try:
            import distributed
        except ImportError as error:
            raise ObstacleError(_INSTALL) from error
        _remove_dead()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        self._tls = _make_keys(self.folder, distributed.Security.temporary().get_tls_config_for_role("worker"))
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._scheduler: subprocess.Popen[bytes] | None = None
        try:
            self._scheduler = self._start_scheduler()
            for name in names:
                self._workers[name] = self._start_worker(name)
            self._client = distributed.Client(self._address(), security=self._security())
            self._wait_for_workers(set(self._workers))
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> Mapping[str, int]:
        """The worker of each device, for whoever looks for it."""
        return {name: child.pid for name, child in self._workers.items()}

    def check(self) -> None:
        if self._scheduler is None or self._scheduler.poll() is not None:
            raise TareError(GONE)

    def dead(self) -> list[str]:
        return [name for name, child in self._workers.items() if child.poll() is not None]

    def restart(self, name: str) -> None:
        """Another worker for the device; what it is told is what the first one was told."""
        self._workers[name] = self._start_worker(name)
        self._wait_for_workers({name})

    def close(self) -> None:
        if self._client is not None:
            self._client.close(timeout=2)
        # They hold nothing: what is worth keeping is on the devices, or in the store.
        children = [*self._workers.values(), *([self._scheduler] if self._scheduler is not None else [])]
        for child in children:
            child.kill()
        for child in children:
            child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start_scheduler(self) -> subprocess.Popen[bytes]:
        return self._start("scheduler", "scheduler", ["--port", "0", "--scheduler-file", str(self._file)])

    def _start_worker(self, name: str) -> subprocess.Popen[bytes]:
        self._address()  # once the scheduler is up
        scratch = self.folder / "workers"
        words = ["--scheduler-file", str(self._file), "--name", name, "--resources", "device=1", "--no-nanny"]
        words += ["--nthreads", "1", "--memory-limit", "0", "--local-directory", str(scratch)]
        return self._start(f"worker-{name}", "worker", [*words, "--death-timeout", "60"])

    def _start(self, log: str, what: str, words: list[str]) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-P", "-m", "tare.fleet.servant", str(os.getpid()), what, "--protocol", "tls"]
        argv += ["--host", _LOOPBACK, "--no-dashboard", "--dashboard-address", f"{_LOOPBACK}:0", *words]
        for option, path in self._tls.items():
            argv += [option, str(path)]
        with (self.folder / f"{log}.log").open("ab") as out:
            return subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=os.environ | TUNED, cwd=self.folder,
                start_new_session=True,
            )  # fmt: skip

    @property
    def _file(self) -> Path:
        return self.folder / "scheduler.json"

    def _address(self) -> str:
        end_s = time.monotonic() + _UP_WITHIN_S
        while time.monotonic() < end_s:
            if self._scheduler is not None and self._scheduler.poll() is not None:
                break
            try:
                return str(json.loads(self._file.read_text())["address"])
            except (OSError, ValueError, KeyError):
                time.sleep(0.05)
        raise TareError(f"dask's scheduler did not come up here:\n{self._last_words('scheduler')}")

    def _wait_for_workers(self, wanted: set[str]) -> None:
        end_s = time.monotonic() + _UP_WITHIN_S
        while missing := wanted - workers_of(self._client).keys():
            gone = [name for name in missing if self._workers[name].poll() is not None]
            if gone or time.monotonic() > end_s:
                name = (gone or sorted(missing))[0]
                raise TareError(f"dask's worker for {name} did not come up:\n{self._last_words(f'worker-{name}')}")
            time.sleep(0.05)

    def _last_words(self, log: str) -> str:
        try:
            return (self.folder / f"{log}.log").read_text(errors="replace")[-1000:]
        except OSError:
            return "it said nothing."

    def _security(self) -> Any:
        from distributed import Security

        files = {option: str(path) for option, path in self._tls.items()}
        return Security(
            require_encryption=True,
            tls_ca_file=files["--tls-ca-file"],
            tls_client_cert=files["--tls-cert"],
            tls_client_key=files["--tls-key"],
        )


class ThereCluster(_Dask):
    """A cluster that someone else runs; each of its workers is, or drives, the device of its name."""

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise ObstacleError(_INSTALL) from error
        try:
            self._client = Client(address, timeout=15)
        except (OSError, ValueError, TypeError) as error:
            raise ObstacleError(
                f"there is no dask cluster at {address} that takes us: {error}\n"
                "Its keys come from dask's own settings (DASK_DISTRIBUTED__COMM__TLS__...)."
            ) from error

    def names(self) -> list[str]:
        """The workers that may be used: those that say `--resources device=1`."""
        return sorted(name for name, worker in workers_of(self._client).items() if worker["resources"].get("device"))

    def check(self) -> None:
        if self._client.status in ("closed", "closing"):
            raise TareError(GONE)

    def dead(self) -> list[str]:
        return []  # dask tells, by the answer that does not come

    def restart(self, name: str) -> None:
        raise TareError(f"the worker {name} is gone, and is not ours to start again.")

    def close(self) -> None:
        self._client.close(timeout=2)


def workers_of(client: Any) -> dict[str, Any]:
    """The workers that the scheduler knows now, by name."""
    return {str(worker["name"]): worker for worker in client.scheduler_info(n_workers=-1)["workers"].values()}


def _remove_dead() -> None:
    """The folders of runs that were killed: their keys open nothing any more, and need not lie about."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _make_keys(folder: Path, made: Mapping[str, Any]) -> dict[str, Path]:
    """The keys as files that only we can read."""
    files = {"--tls-ca-file": "ca_file", "--tls-cert": "cert", "--tls-key": "key"}
    for name in files.values():
        descriptor = os.open(folder / f"{name}.pem", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(str(made[name]))
    return {option: folder / f"{name}.pem" for option, name in files.items()}
