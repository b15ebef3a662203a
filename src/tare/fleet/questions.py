"""Questions to devices, each asked by the device's own worker; and what becomes of them when a worker dies."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tare.errors import TareError
from tare.fleet.cluster import Cluster, SchedulerGone, WorkerLost
from tare.fleet.driving import drive
from tare.fleet.inventory import Device

_LOOK_EVERY_S = 1.0


class Questions:
    """Asks and hears. An answer says how it `ended`: as `driving.drive` does, or `worker lost`, or `no worker`."""

    def __init__(self, cluster: Cluster, patience_s: float, driving: Callable[..., dict[str, Any]] = drive) -> None:
        self._cluster = cluster
        self._patience_s = patience_s
        self._drive = driving
        self._asked = 0
        self._word = os.urandom(4).hex()  # a cluster that others use too has keys of theirs

    def ask(self, device: Device, question: Mapping[str, Any], word: str) -> Any:
        """What is asked, to be known again by; the device's worker asks as soon as it has nothing else to ask."""
        self._asked += 1
        fields = device.model_dump(mode="json")
        key = f"{device.name}-{word}-{self._word}-{self._asked}"  # never used twice: dask must not think that it knows
        return self._cluster.submit(device.name, key, self._drive, fields, dict(question), self._patience_s)

    def over(self) -> Sequence[Any]:
        """Those that there is an answer to now, or nobody left to give one; waits a while for the first."""
        self._cluster.check()
        return self._cluster.over(_LOOK_EVERY_S)

    def answer(self, device: Device, asked: Any) -> dict[str, Any]:
        """What came of a question that is over. Whatever went wrong with it is this device's, and no other's."""
        try:
            found: dict[str, Any] = self._cluster.result(asked)
        except SchedulerGone:
            raise
        except WorkerLost:
            return self._replaced(device, asked)
        except Exception as error:  # no ssh where the worker is, no memory for one, no tare there, ...
            why = f"{device.name}: it could not be asked ({type(error).__name__}): {error}"
            return {"ended": "refused", "text": why, "broken": []}
        return found

    def _replaced(self, device: Device, asked: Any) -> dict[str, Any]:
        """A worker that died is replaced, and that is said."""
        try:
            self._cluster.replace(asked)
        except (TareError, OSError) as error:
            return {"ended": "no worker", "text": str(error), "broken": []}
        return {"ended": "worker lost", "text": f"{device.name}: the worker that drove it died.", "broken": []}
