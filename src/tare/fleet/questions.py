"""Questions to devices, each asked by the device's own worker; and what becomes of them when a worker dies."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tare.errors import TareError
from tare.fleet.cluster import Cluster, WorkerLost
from tare.fleet.driving import drive
from tare.fleet.inventory import Device

_LOOK_EVERY_S = 1.0


class Questions:
    """Asks and hears. An answer says how it `ended`: as `driving.drive` does, or `worker lost`, or `no worker`."""

    def __init__(self, cluster: Cluster, patience_s: float) -> None:
        self._cluster = cluster
        self._patience_s = patience_s
        self._asked = 0
        self._word = os.urandom(4).hex()  # a cluster that others use too has keys of theirs

    def ask(self, device: Device, question: Mapping[str, Any], word: str) -> Any:
        """A future; the device's worker asks as soon as it has nothing else to ask."""
        self._asked += 1
        fields = device.model_dump(mode="json")
        key = f"{device.name}-{word}-{self._word}-{self._asked}"  # never used twice: dask must not think that it knows
        return self._cluster.submit(device.name, key, drive, fields, dict(question), self._patience_s)

    def is_over(self, device: Device, future: Any) -> bool:
        """Whether there is an answer, or nobody left to give one."""
        return bool(future.done()) or device.name in self._cluster.dead()

    def wait_for_any(self, futures: Sequence[Any]) -> None:
        """Until one of them is done, or it is time to look whether the workers are still there."""
        self._cluster.check()
        self._cluster.wait(futures, _LOOK_EVERY_S)

    def answer(self, device: Device, future: Any) -> dict[str, Any]:
        """What came of a question; a worker that died is replaced, and that is said."""
        while not self.is_over(device, future):
            self.wait_for_any([future])
        if future.done():
            with suppress(WorkerLost):
                found: dict[str, Any] = self._cluster.result(future)
                return found
        future.cancel()
        try:
            self._await_death(device)
            self._cluster.restart(device.name)
        except TareError as error:
            return {"ended": "no worker", "text": str(error), "broken": []}
        return {"ended": "worker lost", "text": f"{device.name}: the worker that drove it died.", "broken": []}

    def _await_death(self, device: Device) -> None:
        """The scheduler may know before we do; two workers of one name must not be."""
        end_s = time.monotonic() + _LOOK_EVERY_S
        while device.name not in self._cluster.dead() and time.monotonic() < end_s:
            time.sleep(0.02)
