"""The host's own root file system inside a container: both sides then run the very same software.

An overlay over `/` shows the root file system and nothing that is mounted on it; what else is needed (a Python on
another disk, data, the system's own mounts) is bound on top. The container has its own /proc, /sys, /dev, /run, /tmp.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import PurePosixPath

from tare.base.errors import ObstacleError, TrialError
from tare.base.host import Host, Site
from tare.base.mounts import Mount, holding, mounts

OWN = ("proc", "sys", "dev", "run", "tmp")
_SYSTEM = ("usr", "etc", "opt", "lib", "lib32", "lib64", "libx32", "bin", "sbin")  # software lies here
_UNMOUNT_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Bind:
    """A folder or file of the device that is shown inside, under a path of its own."""

    source: str
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Top:
    """A folder, or a link (`bin -> usr/bin`), directly in the root."""

    name: str
    link: str = ""


def tops(host: Host) -> list[Top]:
    """The folders and links in the root that a container is shown, sorted."""
    listed = host.run(["find", "/", "-mindepth", "1", "-maxdepth", "1", "-printf", "%y\\t%f\\t%l\\n"]).checked()
    rows = [line.split("\t") for line in listed.out.splitlines()]
    found = [Top(name, link) for kind, name, link in rows if kind in "dl"]
    return sorted((top for top in found if top.name not in (*OWN, "lost+found")), key=lambda top: top.name)


def overlay(host: Host, site: Site, stack: ExitStack, *, lower: str = "/") -> str:
    """Mount an overlay over `lower` in the site's scratch folder; returns where. The stack takes it away."""
    folder = f"{site.scratch}/{site.name}"
    for path in (folder, lower):
        if set(path) & set(":,\\"):
            raise ObstacleError(f"an overlay cannot lie under {path!r}: the kernel takes no ':', ',' or '\\' there.")
    stack.callback(remove_overlay, host, site.name, folder)
    host.run(["mkdir", "-p", "--", *(f"{folder}/{part}" for part in ("upper", "work", "root"))]).checked()
    options = f"lowerdir={lower},upperdir={folder}/upper,workdir={folder}/work"
    done = host.run(["mount", "-t", "overlay", _source(site.name), "-o", options, f"{folder}/root"])
    if done.code != 0:
        raise TrialError(
            f"no overlay over {lower} can be mounted in {folder}: {(done.err or done.out).strip()}\n"
            "It needs root, and a scratch folder on a file system that can hold its upper layer "
            "(ext4, xfs, btrfs or tmpfs; not NFS, and not another overlay)."
        )
    return f"{folder}/root"


def _source(name: str) -> str:
    """What the mount is called in the mount table, so that only ours is ever unmounted."""
    return f"tare:{name}"


def _is_a_root(mount: Mount) -> bool:
    return mount.kind == "overlay" and mount.source.startswith(_source(""))


def remove_overlay(host: Host, name: str, folder: str = "") -> None:
    """Unmount every overlay of this name and remove its folder; nothing there is no error."""
    folders = dict.fromkeys([folder] if folder else [])
    for mount in reversed(_ours(host, name)):
        _unmount(host, mount.point)
        folders[mount.point.removesuffix("/root")] = None
    for each in folders:
        # Its name is checked once more: a path made by someone else must never get here.
        if PurePosixPath(each).name == name and not _mounted_below(host, each):
            host.run(["rm", "-rf", "--one-file-system", "--", each]).checked()


def _ours(host: Host, name: str) -> list[Mount]:
    return [mount for mount in mounts(host) if mount.kind == "overlay" and mount.source == _source(name)]


def _mounted_below(host: Host, folder: str) -> bool:
    return any(PurePosixPath(mount.point).is_relative_to(folder) for mount in mounts(host))


def _unmount(host: Host, point: str) -> None:
    """It stays busy for a moment after the last process inside; past the deadline it is only detached."""
    deadline_ns = host.clock.now_ns() + round(_UNMOUNT_WITHIN_S * 1e9)
    while host.run(["umount", "--", point]).code != 0:
        if host.clock.now_ns() >= deadline_ns:
            host.run(["umount", "-l", "--", point]).checked()
            return
        host.clock.sleep_until(host.clock.now_ns() + 20_000_000)


def binds(host: Host, site: Site) -> list[Bind]:
    """What an overlay over `/` does not show but the site needs: read-only, then what may be written."""
    mounted = mounts(host)
    reads = [str(path) for path in site.reads]
    # Not the roots of containers, whose scratch may lie in the working folder or below /opt.
    others = [mount.point for mount in mounted if not _is_a_root(mount)]
    below = [point for point in others if _is_below(point, reads)]  # a disk inside of a folder of data
    needed = [*reads, *below, *_existing(host, [*reads, *python_paths(host)])]
    hidden = [path for path in needed if not _shown(mounted, path)]
    system = [point for point in others if _is_system(point)]
    readable = _without_nested(mounted, sorted({*system, *hidden}))
    return _ordered(readable, site)


def needed_below(host: Host, site: Site, folders: Iterable[str]) -> list[Bind]:
    """What the site and the interpreter need of folders that cannot be shown whole."""
    wanted = _existing(host, [*(str(path) for path in site.reads), *python_paths(host)])
    below = [path for path in wanted if any(PurePosixPath(path).is_relative_to(folder) for folder in folders)]
    return [Bind(path, path) for path in dict.fromkeys(below)]


def image_binds(site: Site) -> list[Bind]:
    """What an image does not have: all that the site reads and writes."""
    return _ordered([str(path) for path in site.reads], site)


def _ordered(readable: Iterable[str], site: Site) -> list[Bind]:
    """Outer folders before those inside them; what may be written is bound once, and writable."""
    binds = {path: Bind(path, path) for path in readable}
    binds |= {str(path): Bind(str(path), str(path), writable=True) for path in site.writes}
    return sorted(binds.values(), key=lambda bind: PurePosixPath(bind.target).parts)


def own_interpreter() -> list[str]:
    """Where this very interpreter finds its modules."""
    return [sys.prefix, sys.base_prefix, *sys.path]


def python_paths(host: Host) -> list[str]:
    """The folders that the host's own interpreter lives on, wherever they are mounted."""
    if host.python == sys.executable:
        return _folders(own_interpreter())
    script = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix] + sys.path))"
    requested = host.run([host.python, "-c", script])
    return _folders(json.loads(requested.out)) if requested.code == 0 else []


def _folders(paths: Iterable[str]) -> list[str]:
    return [path for path in dict.fromkeys(paths) if path.startswith("/") and not path.endswith(".zip")]


def _existing(host: Host, paths: list[str]) -> list[str]:
    """The paths that are there, and where their links lead: a link on the root may point to another disk."""
    script = 'for path do if [ -e "$path" ]; then printf "%s\\n" "$path"; readlink -f -- "$path"; fi; done'
    return list(dict.fromkeys(host.run(["sh", "-c", script, "existing", *paths]).out.splitlines()))


def _shown(mounted: list[Mount], path: str) -> bool:
    """Whether an overlay over `/` shows this path."""
    holder = holding(mounted, path)
    return PurePosixPath(path).parts[1:2] not in [(name,) for name in OWN] and (holder is None or holder.point == "/")


def _is_below(point: str, folders: Iterable[str]) -> bool:
    return any(point != folder and PurePosixPath(point).is_relative_to(folder) for folder in folders)


def _is_system(point: str) -> bool:
    """Whether something mounted here is part of the system: a top-level folder, or anything below /usr, /etc, /opt."""
    parts = PurePosixPath(point).parts[1:]
    return bool(parts) and parts[0] not in OWN and (len(parts) == 1 or parts[0] in _SYSTEM)


def _without_nested(mounted: list[Mount], paths: list[str]) -> list[str]:
    """Without what a folder before it in the list shows already: the same file system, further down."""
    kept: list[str] = []
    for path in paths:
        holder = holding(mounted, path)
        above = (each for each in kept if PurePosixPath(path).is_relative_to(each))
        if not any(holding(mounted, each) == holder for each in above):
            kept.append(path)
    return kept
