"""cpusets of cgroup v1 over CPU hotplug: a core that goes offline is lost to every group, also after it is back.

So they are kept aside in a file before the first core goes, and put back after the last one has come (faults.md D13).
Version 2 keeps what was asked for and what is in force apart, and needs only a look afterwards.
"""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tare.errors import ControlNotHeld, TareError
from tare.host import Host, LocalHost
from tare.parts.cgroups import hierarchies
from tare.parts.core_list import core_text, cores
from tare.parts.owner import boot_id
from tare.parts.state import state_dir

FILE = "cpusets.json"
KEPT, AS_FOUND = "kept aside", "as found"


class _Note(NamedTuple):
    """What is kept aside: the cores that were online then, and those of each group."""

    online: frozenset[int]
    groups: dict[str, str]


def standing(host: Host) -> str | None:
    """Whether cpusets are kept aside at the moment; None where no hierarchy of version 1 has them."""
    if "cpuset" not in hierarchies(host):
        return None
    return KEPT if _load() is not None else AS_FOUND


def keep(host: Host, online: set[int]) -> None:
    """Note every group's cores on disk, unless that was done already: the first note is the true one."""
    if standing(host) != AS_FOUND:
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
    if isinstance(host, LocalHost):
        base = host.root / point.lstrip("/")
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
        raise TareError(f"{path} is damaged: cpusets cannot be put back from it; look at it, then remove it") from None
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
