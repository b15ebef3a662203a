"""`tare device clean`: what dead runs left on the device, found by its marks and removed, even without a journal.

What is ours on this device, whichever platform made it: groups, mounts, processes, loop devices, folders, traces.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tare.base import processes
from tare.base.host import Host
from tare.base.processes import Mount, Owner, boot_id, mounts
from tare.drivers import layers
from tare.drivers.cgroups import tree
from tare.drivers.cgroups.tree import resume_all
from tare.drivers.containers.oci import STATE
from tare.drivers.storage import placing
from tare.drivers.tracing import tracefs
from tare.parts.find import find, names
from tare.parts.protocols import Leftover, Platform
from tare.trial.undo.knob import why
from tare.trial.workdir import remove_folders

SHARED_MEMORY = Path("/dev/shm")
_WORKDIR = "-workdir"
_SITE = re.compile(r"tare-[A-Za-z0-9._-]{1,120}")
_CARRIED = re.compile(rf"/proc/(\d+)/environ:(?:{tree.NAME_VARIABLE}|{tree.KEEPER_VARIABLE})=([^\0]+)")
_KINDS_LEFT_OUT = processes.SYSTEM_LEASES.name


def leftovers_by_platform(host: Host) -> dict[str, list[Leftover]]:
    """What each platform itself knows of, by the platform's name."""
    found = {}
    for name in names("platforms"):
        part = find("platforms", name)
        assert issubclass(part, Platform)
        found[name] = part.leftovers(host)
    return {name: things for name, things in found.items() if things}


def shared_leftovers(host: Host, scratch: Path) -> list[Leftover]:
    """What platforms have in common; only what lies where only we put things, or carries our mark."""
    return [
        *_groups(host),
        *_mounts(host, scratch),
        *_loops(host, scratch),
        *_processes(host),
        *_folders(scratch),
        *(Leftover(PurePosixPath(path).name, f"the folder {path}") for path in layers.aside(host)),
        *tracefs.leftovers(host),
    ]


def owner_of(site: str, things: Iterable[Leftover], claimed: dict[str, Owner]) -> Owner | None:
    """The living process that a site belongs to: it has claimed the name, or the things themselves name it."""
    for name, owner in claimed.items():
        if site == name or site.startswith(f"{name}-"):  # what is inside a place has that place's name before its own
            return owner
    makers = [Owner.parse(thing.owner) for thing in things if thing.boot in ("", boot_id())]
    return next((maker for maker in makers if maker is not None and maker.is_alive()), None)


def _groups(host: Host) -> Iterator[Leftover]:
    points = {f"{mount.point}/{tree.PARENT}" for mount in tree.hierarchies(host).values()}
    for point in sorted(points):
        listed = host.run(["find", point, "-mindepth", "1", "-maxdepth", "1", "-type", "d", "-name", "tare-*"])
        for path in listed.out.splitlines():
            yield Leftover(PurePosixPath(path).name, f"the control group {tree.PARENT}/{PurePosixPath(path).name}")


def _mounts(host: Host, scratch: Path) -> Iterator[Leftover]:
    for mount in mounts(host):
        if (site := site_of_mount(mount, scratch)) is not None:
            yield Leftover(site, f"the mount {mount.point}")


def site_of_mount(mount: Mount, scratch: Path) -> str | None:
    """The site that a mount belongs to: by its source, by what it shows, or by the folder that it is in."""
    if placing.is_ours(mount, scratch.parent):
        return placing.site(scratch.parent)
    named = mount.source.removeprefix("tare:") if mount.source.startswith("tare:") else None
    site = named or _site_in(mount.point, scratch)
    return site if site is not None and _SITE.fullmatch(site) else None


def _loops(host: Host, scratch: Path) -> Iterator[Leftover]:
    listed = host.run(["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"])
    for line in listed.out.splitlines():
        device, _, file = line.strip().partition(" ")
        if (site := _site_in(file.strip(), scratch)) is not None:
            yield Leftover(site, f"the loop device {device}")


def _processes(host: Host) -> Iterator[Leftover]:
    found = host.run(
        ["find", "/proc", "-mindepth", "2", "-maxdepth", "2", "-path", "/proc/[0-9]*/environ", "-exec",
         "grep", "-HaszoE", f"^({tree.NAME_VARIABLE}|{tree.KEEPER_VARIABLE})=.+", "--", "{}", "+"]
    )  # fmt: skip
    for pid, site in _CARRIED.findall(found.out):
        if _SITE.fullmatch(site) and int(pid) in tree.processes_named(host, site) | tree.processes_named(
            host, site, tree.KEEPER_VARIABLE
        ):
            yield Leftover(site, f"the process {pid}")


def _folders(scratch: Path) -> Iterator[Leftover]:
    kinds = [kind for kind in _folders_in(Path(STATE)) if kind.name != _KINDS_LEFT_OUT]
    ours = [folder for kind in kinds for folder in _folders_in(kind)]
    yield from (Leftover(folder.name, f"the folder {folder}") for folder in (*ours, *_folders_in(scratch)))
    for workdir in _folders_in(SHARED_MEMORY):
        named = workdir.name.startswith("tare-") and workdir.name.endswith(_WORKDIR)
        may_look = os.access(workdir, os.X_OK, effective_ids=True)  # it may be another user's
        if named and may_look and (workdir / "inside" / "tare_inside").is_dir():
            yield Leftover(workdir.name.removesuffix(_WORKDIR), f"the folder {workdir}")


def _folders_in(folder: Path) -> list[Path]:
    """The folders in a folder, links left out."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return []


def _site_in(path: str, scratch: Path) -> str | None:
    """The site whose own folder holds this path: /run/tare/vm/SITE/..., SCRATCH/SITE/..., /dev/shm/SITE-workdir/..."""
    parts = PurePosixPath(path)
    for above, depth in ((PurePosixPath(STATE), 1), (PurePosixPath(scratch), 0), (PurePosixPath(SHARED_MEMORY), 0)):
        if parts.is_relative_to(above):
            below = parts.relative_to(above).parts[depth:]
            name = below[0].removesuffix(_WORKDIR) if below else ""
            if _SITE.fullmatch(name) and (above != PurePosixPath(SHARED_MEMORY) or below[0].endswith(_WORKDIR)):
                return name
    return None


@dataclass(frozen=True)
class Remains:
    """Everything of one site: which platforms know of it, and the living process that it belongs to, if any."""

    site: str
    things: tuple[str, ...]
    platforms: tuple[str, ...]
    owner: Owner | None

    def as_json(self) -> dict[str, Any]:
        owner = None if self.owner is None else {"pid": self.owner.pid, "started": self.owner.started}
        return {"site": self.site, "things": list(self.things), "platforms": list(self.platforms), "alive": owner}


@dataclass(frozen=True)
class Failure:
    """A site that could not be removed whole, and why."""

    site: str
    why: str


def find_remains(host: Host, scratch: Path) -> list[Remains]:
    """All that is ours, by site. Names are claimed before anything is made, so that claims are read last."""
    known = leftovers_by_platform(host)
    things = [*(thing for each in known.values() for thing in each), *shared_leftovers(host, scratch)]
    claimed = processes.leased_names()
    sites: dict[str, list[Leftover]] = {}
    for thing in things:
        sites.setdefault(thing.site, []).append(thing)
    return [_remains(site, found, known, claimed) for site, found in sorted(sites.items())]


def _remains(
    site: str, found: Sequence[Leftover], known: dict[str, list[Leftover]], claimed: dict[str, Owner]
) -> Remains:
    platforms = [name for name, things in known.items() if any(thing.site == site for thing in things)]
    words = tuple(dict.fromkeys(thing.what for thing in found))
    return Remains(site, words, tuple(platforms), owner_of(site, found, claimed))


def remove(host: Host, remains: Sequence[Remains], scratch: Path) -> list[Failure]:
    """Remove what belongs to no living process; one that cannot be removed does not keep the others."""
    failures = []
    for each in remains:
        if each.owner is None:
            try:
                _remove(host, each, scratch)
            except Exception as error:  # a part may raise anything
                failures.append(Failure(each.site, why(error)))
    processes.remove_stale_leases()
    return failures


def _remove(host: Host, remains: Remains, scratch: Path) -> None:
    resume_all(host, remains.site)
    for name in remains.platforms:
        platform = find("platforms", name)
        assert issubclass(platform, Platform)
        platform.sweep(host, remains.site)
    tree.kill_named(host, remains.site)
    tree.remove(host, tree.own_folders(host, remains.site))
    layers.remove(host, remains.site)
    tracefs.sweep(host, remains.site)  # before what it is mounted on goes
    own = _own_folders(remains, scratch)
    _free(host, own, [mount.point for mount in mounts(host) if site_of_mount(mount, scratch) == remains.site])
    for folder in own:
        host.run(["rm", "-rf", "--one-file-system", "--", str(folder)]).checked()
    remove_folders(remains.site, scratch)


def _own_folders(remains: Remains, scratch: Path) -> list[PurePosixPath]:
    """The folders that carry exactly this name, where only we make any."""
    kinds = [path for path in sorted(Path(STATE).glob("*")) if path != processes.SYSTEM_LEASES]
    found = [kind / remains.site for kind in kinds] + [scratch / remains.site]
    return [PurePosixPath(path) for path in found if path.is_dir() and not path.is_symlink()]


def _free(host: Host, folders: Sequence[PurePosixPath], points: Sequence[str]) -> None:
    """Detach what hangs on files in our folders, and unmount what is mounted in them or of them, the last first."""
    listed = host.run(["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"])
    for line in listed.out.splitlines():
        device, _, file = line.strip().partition(" ")
        if _within(file.strip(), folders):
            host.run(["losetup", "--detach", device]).checked()
    for mount in reversed(mounts(host)):
        if mount.point in points or _within(mount.point, folders):
            host.run(["umount", "--", mount.point]).checked()


def _within(path: str, folders: Sequence[PurePosixPath]) -> bool:
    return any(PurePosixPath(path).is_relative_to(folder) for folder in folders)
