"""The device itself was in another state: clocks, huge pages, heat. For two machines, or one machine at two times."""

from __future__ import annotations

from typing import ClassVar

from tare.parts.protocols import Cause, RuledOut, Side, Suspicion

_KEYS = {
    "device.cpu": ("another CPU", 0.9),
    "device.cores": ("another number of cores", 0.7),
    "device.kernel": ("another kernel", 0.4),
    "device.cpu.governor": ("another CPU governor", 0.7),
    "device.transparent_hugepage": ("other transparent huge pages", 0.6),
    "device.vm.swappiness": ("another swappiness", 0.2),
    "device.memory_bytes": ("another amount of memory", 0.3),
    "device.os": ("another operating system", 0.3),
    "device.board": ("another board", 0.8),
}


class DeviceState(Cause):
    """The device: another CPU, kernel, governor, or huge pages; for two machines, or one machine at two times."""

    title: ClassVar[str] = "the state of the device"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "gpu", "tail"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        differing = [key for key in _KEYS if slow.facts.get(key) != quick.facts.get(key)]
        if not differing:
            return RuledOut("both sides ran on the same device in the same state.")
        told = "; ".join(
            f"{_KEYS[key][0]} ({slow.facts.get(key)}, {quick.facts.get(key)} on the other side)" for key in differing
        )
        return Suspicion(
            weight=max(_KEYS[key][1] for key in differing),
            evidence=f"{told}.",
            cure="the same settings on both machines: `tare device status` prints them",
            untried="the other machine is not at hand.",
        )
