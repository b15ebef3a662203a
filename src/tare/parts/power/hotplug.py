"""CPU hotplug: which cores are online, on any Linux that has switches for them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tare.errors import ControlNotHeld, TareError
from tare.host import Host, LocalHost
from tare.parts.core_list import cores
from tare.parts.power import cpusets
from tare.parts.power.backend import NO_LIMIT, Settings, Wish, WithoutClocks, known, put

FOLDER = "/sys/devices/system/cpu"
CPUSETS = "cores.cpusets"


class Hotplug(WithoutClocks):
    """The cores: `cores.cpu3` is "1" or "0"; `cores.cpusets` says whether those of cgroup v1 are kept aside."""

    name = "cores"
    rank = 20

    def offers(self, host: Host) -> frozenset[str]:
        return frozenset({"cores", "online"}) if switches(host) else frozenset()

    def obstacles(self, host: Host, wish: Wish) -> list[str]:
        there = present(host)
        if wish.cores is not None and wish.cores != NO_LIMIT and wish.cores > len(there):
            return [f"`cores: {wish.cores:g}`: this machine has {len(there)}."]
        wanted = wanted_cores(host, wish)
        return [] if wanted is None else switch_obstacles(host, wanted)

    def target(self, host: Host, wish: Wish) -> Settings:
        wanted = wanted_cores(host, wish)
        if wanted is None:
            return {}
        return settings_for(host, wanted)

    def read(self, host: Host, wish: Wish) -> Settings:
        return {} if wanted_cores(host, wish) is None else standing(host)

    def write(self, host: Host, settings: Mapping[str, str]) -> None:
        known(self.name, settings, [*(f"cores.cpu{core}" for core in switches(host)), CPUSETS])
        named = {int(key.removeprefix("cores.cpu")): text for key, text in settings.items() if key != CPUSETS}
        if strange := [text for text in named.values() if text not in ("0", "1")]:
            raise TareError(f"cores: {strange[0]!r} is no position of a core's switch")
        off = {core for core, text in named.items() if text == "0"}
        switch(host, (online(host) | named.keys()) - off)

    def values(self, host: Host) -> dict[str, Sequence[Any]]:
        least = len(present(host)) - len([core for core in switches(host) if core != 0])
        return {"cores": list(range(max(1, least), len(present(host)) + 1))}


BACKEND = Hotplug()


def present(host: Host) -> list[int]:
    """The cores that the machine has, online or not; none where the kernel does not say."""
    for name in ("present", "online"):
        try:
            return cores(host.read(f"{FOLDER}/{name}"))
        except (OSError, ValueError):
            continue
    return []


def switches(host: Host) -> dict[int, bool]:
    """The cores that can be switched, and whether each is on."""
    found = {}
    for core in present(host):
        try:
            found[core] = host.read(f"{FOLDER}/cpu{core}/online").strip() != "0"
        except OSError:
            continue  # the first core of most machines
    return found


def online(host: Host) -> set[int]:
    """The cores that are on: by their switches, and those that have none."""
    off = {core for core, on in switches(host).items() if not on}
    return set(present(host)) - off


def wanted_cores(host: Host, wish: Wish) -> set[int] | None:
    """The cores that a wish leaves online; None where it says nothing about them."""
    if wish.cores is not None:
        there = present(host)
        return set(there if wish.cores == NO_LIMIT else there[: int(wish.cores)])
    return None if wish.online is None else set(wish.online)


def online_then(host: Host, wish: Wish) -> set[int]:
    """The cores that are on once the wish holds."""
    wanted = wanted_cores(host, wish)
    return online(host) if wanted is None else wanted


def settings_for(host: Host, wanted: set[int]) -> Settings:
    """The settings that leave exactly these online."""
    made = {f"cores.cpu{core}": "1" if core in wanted else "0" for core in switches(host)}
    if (now := cpusets.standing(host)) is not None:
        made[CPUSETS] = cpusets.KEPT if online(host) - wanted else now
    return made


def standing(host: Host) -> Settings:
    """The settings as they are."""
    made = {f"cores.cpu{core}": "1" if on else "0" for core, on in switches(host).items()}
    if (now := cpusets.standing(host)) is not None:
        made[CPUSETS] = now
    return made


def switch(host: Host, wanted: set[int]) -> None:
    """Online before offline, so that there is always a core to run on; what stands right is not touched.

    Before the first core goes, cpusets of cgroup v1 are kept aside; once all are back, they are filled again.
    """
    now = online(host)
    if now - wanted:
        cpusets.keep(host, now)
    for core in sorted(wanted - now):
        _set(host, core, "1")
    for core in sorted(now - wanted, reverse=True):
        _set(host, core, "0")
    cpusets.put_back(host, online(host))
    cpusets.check_effective(host, online(host))


def switch_obstacles(host: Host, wanted: Iterable[int], who: str = "") -> list[str]:
    """Cores that are not there, cores that cannot be switched, and switches that are not ours to turn."""
    there, movable, now = present(host), switches(host), online(host)
    asked, said = set(wanted), f"{who}: " if who else ""
    sentences = []
    if unknown := sorted(asked - set(there)):
        here = ", ".join(map(str, there))
        sentences.append(f"{said}this machine has no core {', '.join(map(str, unknown))}; its cores are {here}.")
    change = (now ^ asked) & set(there)
    if fixed := [core for core in sorted(change) if core not in movable]:
        named = ", ".join(map(str, fixed))
        stay = "stays online on this machine; add it to `online`" if set(fixed) <= now else "cannot be brought online"
        sentences.append(f"{said}core {named} has no switch ({FOLDER}/cpu{fixed[0]}/online): it {stay}.")
    movable_change = sorted(change & set(movable))
    if movable_change and not may_write(host, f"{FOLDER}/cpu{movable_change[-1]}/online"):
        sentences.append(f"{said}taking cores offline needs root.")
    return sentences


def may_write(host: Host, path: str) -> bool:
    """Whether a file of this device may be written by us; other hosts only say so when it is tried."""
    return not isinstance(host, LocalHost) or os.access(host.root / path.lstrip("/"), os.W_OK)


def _set(host: Host, core: int, position: str) -> None:
    path = f"{FOLDER}/cpu{core}/online"
    try:
        put(host, f"cpu{core}", path, position)
    except ControlNotHeld as error:
        if isinstance(error.__cause__, FileNotFoundError):
            found = "no such core, or one without a switch"
            raise ControlNotHeld(f"cpu{core}", asked=f"{position} in {path}", found=found) from None
        raise
