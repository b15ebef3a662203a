"""Many workers in one process: each is called as its device is, and has a thread of its own once it drives.

A process for each would take 46 MB; a worker beside others takes 0.2 MB until it drives. If one of them ends, all do,
and the process with them: whoever watches over it then starts it again, and nobody drives a device without being known.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distributed import Security, Worker

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
