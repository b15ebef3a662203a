"""Dynamic clocks: on, they follow the load; off, they stand at their upper limit."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from tare.base.host import Host, LocalHost
from tare.base.rulings import Ruling, obstacle
from tare.base.units import OnOff
from tare.drivers.power import everything
from tare.drivers.power.backend import Backend, Settings
from tare.drivers.power.jetson import memory_moves
from tare.parts.protocols import Control, Json

_CLOCKS = ("cpu_mhz", "gpu_mhz")


class Dvfs(Control):
    """Lets the clocks of CPU and GPU follow the load, or fixes them at the limits that the power mode has set."""

    short: ClassVar[str | None] = "state"
    example: ClassVar[Mapping[str, Json]] = {"state": "off"}
    restore_rank: ClassVar[int] = 20  # with the power mode: what was turned last is put back first
    hold_rank: ClassVar[int] = 60  # after the power mode, whose limits it takes

    state: OnOff
    """off: every clock stands at its upper limit (jetson_clocks, governor performance, a locked GPU)."""

    def knob(self) -> str:
        return "dvfs"

    def turns(self) -> frozenset[str]:
        return frozenset({"cpu_mhz", "governor", "gpu_mhz"})

    def obstacles(self, host: Host) -> list[Ruling]:
        if not any(backend.clocks(host) for backend in _concerned(host)):
            return [
                obstacle(
                    "needs.hardware",
                    "this device has no clocks that could be fixed: neither cpufreq nor a GPU that can be locked.",
                )
            ]
        if isinstance(host, LocalHost) and os.geteuid() != 0:
            return [obstacle("needs.root", "fixing clocks needs root.")]
        if self.state == "off" and memory_moves(host):
            return [
                obstacle(
                    "needs.program",
                    "this board's memory clock is fixed by `jetson_clocks`, which is not there; install it.",
                )
            ]
        return []

    def target(self, host: Host, inputs: Iterable[Path]) -> Json:
        made: Settings = {}
        for backend in _concerned(host):
            made |= backend.fixed(host) if self.state == "off" else backend.free(host)
        return made

    def read(self, host: Host) -> Json | None:
        return {name: text for backend in _concerned(host) for name, text in backend.clocks(host).items()}

    def write(self, host: Host, state: Json) -> None:
        everything.write(host, state)


def _concerned(host: Host) -> list[Backend]:
    """Those who set the clocks of CPU and GPU here: on a Jetson the board, not cpufreq."""
    there = everything.offered(host)
    first = [there[field][0] for field in _CLOCKS if field in there]
    return [backend for backend in everything.backends() if backend in first]
