"""Which cores of the device are online."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from tare.errors import ControlNotHeld, TareError
from tare.host import Host, LocalHost
from tare.parts.cgroups import hierarchies
from tare.parts.core_list import MOST_CORES, cores
from tare.parts.protocols import Control, Json

_FOLDER = "/sys/devices/system/cpu"


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
    restore_rank: ClassVar[int] = 10  # cores come back before anything that may need them

    online: Annotated[tuple[Core, ...], Field(min_length=1), BeforeValidator(_cores)]
    """The cores that stay online, as a list, or as the kernel writes it: '0-2,5'."""

    def knob(self) -> str:
        return "cpu"

    def obstacles(self, host: Host) -> list[str]:
        try:
            present = cores(host.read(f"{_FOLDER}/present"))
            now = cores(host.read(f"{_FOLDER}/online"))
        except OSError:
            return [f"cpu: this machine does not list its cores in {_FOLDER}."]
        if set(now) == set(self.online):
            return []
        sentences = _impossible(host, present, now, self.online)
        if cpusets := hierarchies(host).get("cpuset"):
            sentences.append(
                f"cpu: cpusets of cgroup v1 are mounted at {cpusets.point}: a core that goes offline is lost to every "
                "group in it, also after it is online again. Limit the platform's cores (cpuset) instead."
            )
        if isinstance(host, LocalHost) and not os.access(
            host.root / f"{_FOLDER}/cpu{max(present)}/online"[1:], os.W_OK
        ):
            sentences.append("cpu: taking cores offline needs root.")
        return sentences

    def target(self, host: Host, inputs: Iterable[Path]) -> Json:
        return {"online": list(self.online)}

    def read(self, host: Host) -> Json | None:
        return {"online": cores(host.read(f"{_FOLDER}/online"))}

    def write(self, host: Host, state: Json) -> None:
        """Online before offline, so that there is always a core to run on; what stands right is not touched."""
        wanted = _checked(state)
        now = set(cores(host.read(f"{_FOLDER}/online")))
        for core in sorted(wanted - now):
            _switch(host, core, "1")
        for core in sorted(now - wanted, reverse=True):
            _switch(host, core, "0")


def _impossible(host: Host, present: list[int], now: list[int], wanted: Iterable[int]) -> list[str]:
    """Cores that are not there, and cores that cannot be switched."""
    sentences = []
    if unknown := sorted(set(wanted) - set(present)):
        here = ", ".join(map(str, present))
        sentences.append(f"cpu: this machine has no core {', '.join(map(str, unknown))}; its cores are {here}.")
    change = (set(now) ^ set(wanted)) & set(present)
    if fixed := [core for core in sorted(change) if not _has_switch(host, core)]:
        named = ", ".join(map(str, fixed))
        stay = (
            "stays online on this machine; add it to `online`" if set(fixed) <= set(now) else "cannot be brought online"
        )
        sentences.append(f"cpu: core {named} has no switch ({_FOLDER}/cpu{fixed[0]}/online): it {stay}.")
    return sentences


def _has_switch(host: Host, core: int) -> bool:
    try:
        host.read(f"{_FOLDER}/cpu{core}/online")
    except OSError:
        return False
    return True


def _checked(state: Json) -> set[int]:
    """A state from the journal is data from a file: it must be a set of core numbers, and nothing else."""
    cores = state.get("online") if isinstance(state, dict) and len(state) == 1 else None
    if not isinstance(cores, list) or not cores or any(type(core) is not int or core < 0 for core in cores):
        raise TareError(f"cpu: {state!r} is not a set of cores")
    return set(cores)


def _switch(host: Host, core: int, position: str) -> None:
    path = f"{_FOLDER}/cpu{core}/online"
    try:
        host.write(path, position)
    except FileNotFoundError:
        raise ControlNotHeld(
            "cpu", asked=f"{position} in {path}", found="no such core, or one without a switch"
        ) from None
