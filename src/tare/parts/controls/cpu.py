"""Which cores of the device are online."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from tare.base.errors import TareError
from tare.base.host import Host
from tare.base.rulings import Ruling, obstacle
from tare.base.units import MOST_CORES, cores
from tare.drivers.power import hotplug
from tare.parts.protocols import Control, Json


def _cores(value: Any) -> Any:
    """A list, or the kernel's way to write one; in order, each once."""
    if isinstance(value, str):
        value = cores(value)
    if not isinstance(value, list | tuple | set | frozenset) or any(type(core) is not int for core in value):
        raise ValueError(f"{value!r} is not a list of cores; write it like [0, 1] or '0-2,5'")
    return sorted(set(value))


Core = Annotated[int, Field(ge=0, lt=MOST_CORES)]


class Cpu(Control):
    """Keeps the named cores online and takes the others offline, for the time of a trial."""

    example: ClassVar[Mapping[str, Json]] = {"online": "0"}
    restore_rank: ClassVar[int] = 20  # early, for others may need the cores; with the clocks, the last turned first
    hold_rank: ClassVar[int] = 30

    online: Annotated[tuple[Core, ...], Field(min_length=1), BeforeValidator(_cores)]
    """The cores that stay online, as a list, or as the kernel writes it: '0-2,5'."""

    def knob(self) -> str:
        return "cpu"

    def turns(self) -> frozenset[str]:
        return frozenset({"cores"})

    def obstacles(self, host: Host) -> list[Ruling]:
        if not hotplug.present(host):
            return [obstacle("needs.kernel", f"this machine does not list its cores in {hotplug.FOLDER}.")]
        return hotplug.switch_obstacles(host, self.online)

    def target(self, host: Host, inputs: Iterable[Path]) -> Json:
        return {"online": list(self.online)} | _cpusets(hotplug.settings_for(host, set(self.online)))

    def read(self, host: Host) -> Json | None:
        return {"online": sorted(hotplug.online(host))} | _cpusets(hotplug.standing(host))

    def write(self, host: Host, state: Json) -> None:
        hotplug.switch(host, _checked(state))


def _cpusets(settings: Mapping[str, str]) -> dict[str, str]:
    """Whether the cpusets of cgroup v1 are kept aside, where there are any: they belong to the state of the cores."""
    return {"cpusets": settings[hotplug.CPUSETS]} if hotplug.CPUSETS in settings else {}


def _checked(state: Json) -> set[int]:
    """A state from the journal is data from a file: it must be a set of core numbers, and nothing else."""
    rest = dict(state) if isinstance(state, dict) else {}
    online = rest.pop("online", None)
    valid = isinstance(online, list) and online and all(type(core) is int and core >= 0 for core in online)
    if not valid or rest not in ({}, {"cpusets": hotplug.KEPT}, {"cpusets": hotplug.AS_FOUND}):
        raise TareError(f"cpu: {state!r} is not a set of cores")
    return set(online or ())
