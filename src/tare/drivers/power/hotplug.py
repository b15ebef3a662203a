"""CPU hotplug: which cores are online, on any Linux that has switches for them.

cpusets of cgroup v1 over CPU hotplug: a core that goes offline is lost to every group, also after it is back.

So they are kept aside in a file before the first core goes, and put back after the last one has come (faults.md D13).
Version 2 keeps what was asked for and what is in force apart, and needs only a look afterwards.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from tare.base.errors import ControlNotHeld, TareError
from tare.base.files import state_dir
from tare.base.host import Host, OwnDevice, may_write
from tare.base.processes import boot_id
from tare.base.rulings import Ruling, obstacle
from tare.base.units import core_text, cores
from tare.drivers.cgroups.tree import hierarchies
from tare.drivers.power.backend import NO_LIMIT, PowerRequest, Settings, WithoutClocks, known, put

FILE = "cpusets.json"
KEPT, AS_FOUND = "kept aside", "as found"


class _Note(NamedTuple):
    """What is kept aside: the cores that were online then, and those of each group."""

    online: frozenset[int]
    groups: dict[str, str]


def cpuset_standing(host: Host) -> str | None:
    """Whether cpusets are kept aside at the moment; None where no hierarchy of version 1 has them."""
    if "cpuset" not in hierarchies(host):
        return None
    return KEPT if _load() is not None else AS_FOUND


def keep(host: Host, online: set[int]) -> None:
    """Note every group's cores on disk, unless that was done already: the first note is the true one."""
    if cpuset_standing(host) != AS_FOUND:
        return
    folder = state_dir()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f"{FILE}.{os.getpid()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump({"boot": boot_id(), "online": core_text(online), "groups": _groups(host)}, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / FILE)
    _sync(folder)


def put_back(host: Host, online: set[int]) -> None:
    """Give each group that is still there the cores it had; one that someone else has changed since is left alone.

    The note is dropped only once every core of then is online again and every group has been looked at.
    """
    note = _load()
    if note is None:
        return
    groups = note.groups
    point = hierarchies(host)["cpuset"].point
    for name in sorted(groups, key=lambda name: name.count("/")):  # a group's cores must be among its parent's
        _refill(host, f"{point}/{name}/cpuset.cpus", groups[name], online)
    if note.online <= online:
        (state_dir() / FILE).unlink(missing_ok=True)
        _sync(state_dir())


def check_effective(host: Host, online: set[int]) -> None:
    """On version 2 the kernel gives cores back by itself; say so where it has not."""
    unified = hierarchies(host).get("")
    if unified is None:
        return
    path = f"{unified.point}/cpuset.cpus.effective"
    try:
        effective = set(cores(host.read(path)))
    except (OSError, ValueError):
        return  # the controller is not there: nothing is limited
    if not online <= effective and effective:
        raise ControlNotHeld("cpuset.cpus.effective", asked=core_text(online), found=core_text(effective))


def _refill(host: Host, path: str, wanted: str, online: set[int]) -> None:
    try:
        now = set(cores(host.read(path)))
    except OSError:
        return  # the group has gone since
    before = set(cores(wanted))
    if now == before or not now <= before or not (before & online) - now:
        return  # as it was; or someone gave it other cores; or its cores are still off
    host.write(path, f"{core_text(before & online)}\n")
    if set(cores(host.read(path))) != before & online:
        raise ControlNotHeld(path, asked=core_text(before & online), found=host.read(path).strip())


def _groups(host: Host) -> dict[str, str]:
    """The cores of each group but the root, which the kernel sees to."""
    point = hierarchies(host)["cpuset"].point
    found = {}
    for name in _names(host, point):
        try:
            found[name] = host.read(f"{point}/{name}/cpuset.cpus").strip()
        except OSError:
            continue  # gone while we looked
    return {name: text for name, text in found.items() if text}


def _names(host: Host, point: str) -> list[str]:
    if isinstance(host, OwnDevice):
        base = host.file(point)
        return sorted(str(path.parent.relative_to(base)) for path in base.glob("*/**/cpuset.cpus"))
    listed = host.run(["find", point, "-mindepth", "2", "-name", "cpuset.cpus"]).checked()
    return sorted(str(PurePosixPath(line).parent.relative_to(point)) for line in listed.out.splitlines())


def _load() -> _Note | None:
    """What was kept aside in this boot; a reboot has made every group anew."""
    path = state_dir() / FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor) as file:
        seen = os.fstat(file.fileno())
        if seen.st_uid not in (0, os.geteuid()) or seen.st_mode & 0o022:
            raise TareError(f"{path} could have been written by someone else, so it is not trusted; remove it")
        return _checked(file.read(), path)


def _checked(text: str, path: Path) -> _Note | None:
    try:
        content = json.loads(text)
        online = frozenset(cores(content["online"]))
        groups = {str(name): core_text(cores(value)) for name, value in content["groups"].items()}
        boot = content["boot"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise TareError(f"{path} is damaged: cpusets cannot be restored from it; look at it, then remove it") from None
    for name in groups:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise TareError(f"{path} names {name!r}, which is no group below the cpusets; remove the file")
    return _Note(online, groups) if boot == boot_id() else None


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


FOLDER = "/sys/devices/system/cpu"
CPUSETS = "cores.cpusets"


class Hotplug(WithoutClocks):
    """The cores: `cores.cpu3` is "1" or "0"; `cores.cpusets` says whether those of cgroup v1 are kept aside."""

    name = "cores"
    rank = 20

    def offers(self, host: Host) -> frozenset[str]:
        return frozenset({"cores", "online"}) if switches(host) else frozenset()

    def obstacles(self, host: Host, request: PowerRequest) -> list[Ruling]:
        there = present(host)
        if request.cores is not None and request.cores != NO_LIMIT and request.cores > len(there):
            return [obstacle("needs.cores", f"`cores: {request.cores:g}`: this machine has {len(there)}.")]
        wanted = wanted_cores(host, request)
        return [] if wanted is None else switch_obstacles(host, wanted)

    def target(self, host: Host, request: PowerRequest) -> Settings:
        wanted = wanted_cores(host, request)
        if wanted is None:
            return {}
        return settings_for(host, wanted)

    def read(self, host: Host, request: PowerRequest) -> Settings:
        return {} if wanted_cores(host, request) is None else standing(host)

    def write(self, host: Host, settings: Mapping[str, str]) -> None:
        known(self.name, settings, [*(f"cores.cpu{core}" for core in switches(host)), CPUSETS])
        named = {int(key.removeprefix("cores.cpu")): text for key, text in settings.items() if key != CPUSETS}
        if strange := [text for text in named.values() if text not in ("0", "1")]:
            raise TareError(f"cores: {strange[0]!r} is no position of a core's switch")
        off = {core for core, text in named.items() if text == "0"}
        switch(host, (online(host) | named.keys()) - off, keeps=settings.get(CPUSETS) != AS_FOUND)

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


def wanted_cores(host: Host, request: PowerRequest) -> set[int] | None:
    """The cores that a request leaves online; None where it says nothing about them."""
    if request.cores is not None:
        there = present(host)
        return set(there if request.cores == NO_LIMIT else there[: int(request.cores)])
    return None if request.online is None else set(request.online)


def online_then(host: Host, request: PowerRequest) -> set[int]:
    """The cores that are on once the request holds."""
    wanted = wanted_cores(host, request)
    return online(host) if wanted is None else wanted


def settings_for(host: Host, wanted: set[int]) -> Settings:
    """The settings that leave exactly these online."""
    made = {f"cores.cpu{core}": "1" if core in wanted else "0" for core in switches(host)}
    if (now := cpuset_standing(host)) is not None:
        made[CPUSETS] = KEPT if online(host) - wanted else now
    return made


def standing(host: Host) -> Settings:
    """The settings as they are."""
    made = {f"cores.cpu{core}": "1" if on else "0" for core, on in switches(host).items()}
    if (now := cpuset_standing(host)) is not None:
        made[CPUSETS] = now
    return made


def switch(host: Host, wanted: set[int], *, keeps: bool = True) -> None:
    """Online before offline, so that there is always a core to run on; what stands right is not touched.

    Before the first core goes, cpusets of cgroup v1 are kept aside; once all are back, they are filled again. Cores
    that were found offline are in no group's cpuset: where they go offline again, nothing `keeps` aside.
    """
    now = online(host)
    if keeps and now - wanted:
        keep(host, now)
    for core in sorted(wanted - now):
        _set(host, core, "1")
    for core in sorted(now - wanted, reverse=True):
        _set(host, core, "0")
    put_back(host, online(host))
    check_effective(host, online(host))


def switch_obstacles(host: Host, wanted: Iterable[int]) -> list[Ruling]:
    """Cores that are not there, cores that cannot be switched, and switches that are not ours to turn."""
    there, movable, now = present(host), switches(host), online(host)
    requested = set(wanted)
    stopped = []
    if unknown := sorted(requested - set(there)):
        here = ", ".join(map(str, there))
        stopped.append(
            obstacle("needs.cores", f"this machine has no core {', '.join(map(str, unknown))}; its cores are {here}.")
        )
    change = (now ^ requested) & set(there)
    if fixed := [core for core in sorted(change) if core not in movable]:
        named = ", ".join(map(str, fixed))
        stay = "stays online on this machine; add it to `online`" if set(fixed) <= now else "cannot be brought online"
        stopped.append(
            obstacle("needs.cores", f"core {named} has no switch ({FOLDER}/cpu{fixed[0]}/online): it {stay}.")
        )
    movable_change = sorted(change & set(movable))
    if movable_change and not may_write(host, f"{FOLDER}/cpu{movable_change[-1]}/online"):
        stopped.append(obstacle("needs.root", "taking cores offline needs root."))
    return stopped


def _set(host: Host, core: int, position: str) -> None:
    path = f"{FOLDER}/cpu{core}/online"
    try:
        put(host, f"cpu{core}", path, position)
    except ControlNotHeld as error:
        if isinstance(error.__cause__, FileNotFoundError):
            found = "no such core, or one without a switch"
            raise ControlNotHeld(f"cpu{core}", asked=f"{position} in {path}", found=found) from None
        raise
