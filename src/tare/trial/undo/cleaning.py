"""`tare device clean`: what dead runs left on the device, found by its marks and removed, even without a journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tare.base.host import Host
from tare.base.processes import Owner, mounts
from tare.drivers import layers, leftovers, name_leases
from tare.drivers.cgroups import orphans, tree
from tare.drivers.cgroups.freezing import resume_all
from tare.drivers.containers.oci import STATE
from tare.drivers.tracing import tracefs
from tare.parts.find import find
from tare.parts.protocols import Leftover, Platform
from tare.trial.undo.knob import why
from tare.trial.workdir import remove_folders


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
    known = leftovers.by_platform(host)
    things = [*(thing for each in known.values() for thing in each), *leftovers.shared(host, scratch)]
    claimed = name_leases.active()
    sites: dict[str, list[Leftover]] = {}
    for thing in things:
        sites.setdefault(thing.site, []).append(thing)
    return [_remains(site, found, known, claimed) for site, found in sorted(sites.items())]


def _remains(
    site: str, found: Sequence[Leftover], known: dict[str, list[Leftover]], claimed: dict[str, Owner]
) -> Remains:
    platforms = [name for name, things in known.items() if any(thing.site == site for thing in things)]
    words = tuple(dict.fromkeys(thing.what for thing in found))
    return Remains(site, words, tuple(platforms), leftovers.owner_of(site, found, claimed))


def remove(host: Host, remains: Sequence[Remains], scratch: Path) -> list[Failure]:
    """Remove what belongs to no living process; one that cannot be removed does not keep the others."""
    failures = []
    for each in remains:
        if each.owner is None:
            try:
                _remove(host, each, scratch)
            except Exception as error:  # a part may raise anything
                failures.append(Failure(each.site, why(error)))
    name_leases.remove_stale()
    return failures


def _remove(host: Host, remains: Remains, scratch: Path) -> None:
    resume_all(host, remains.site)
    for name in remains.platforms:
        platform = find("platforms", name)
        assert issubclass(platform, Platform)
        platform.sweep(host, remains.site)
    orphans.kill_all(host, remains.site)
    tree.remove(host, tree.own_folders(host, remains.site))
    layers.remove(host, remains.site)
    tracefs.sweep(host, remains.site)  # before what it is mounted on goes
    own = _own_folders(remains, scratch)
    _free(host, own, [mount.point for mount in mounts(host) if leftovers.site_of_mount(mount, scratch) == remains.site])
    for folder in own:
        host.run(["rm", "-rf", "--one-file-system", "--", str(folder)]).checked()
    remove_folders(remains.site, scratch)


def _own_folders(remains: Remains, scratch: Path) -> list[PurePosixPath]:
    """The folders that carry exactly this name, where only we make any."""
    kinds = [path for path in sorted(Path(STATE).glob("*")) if path != name_leases.SYSTEM]
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
