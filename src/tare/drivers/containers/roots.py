"""The root of a container: the host's own root file system, and what is bound on top of it or of an image.

For a built-in workload, and where the root is sealed: an overlay over `/` shows the root file system and nothing
that is mounted on it; what else is needed (a Python on another disk, data, the system's own mounts) is bound on top,
and the container has its own /proc, /sys, /dev, /run, /tmp. For a command of the user's: all of their files, writable
by layers (`tare.drivers.layers`), with the container's own /proc, /sys, /dev, /run.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import PurePath, PurePosixPath
from typing import Any

from tare.base.host import Host, ImageConfig, OwnDevice, Site, existing
from tare.base.processes import Mount, holding, identity, mounts
from tare.drivers import layers
from tare.drivers.layers import KERNELS, is_a_layer

OWN = (*KERNELS, "tmp")
_SYSTEM = ("usr", "etc", "opt", "lib", "lib32", "lib64", "libx32", "bin", "sbin")  # software lies here


@dataclass(frozen=True, slots=True)
class Bind:
    """A folder or file of the device that is shown inside, under a path of its own."""

    source: str
    target: str
    writable: bool = False


def csv_line(words: Sequence[str]) -> str:
    """The words of a mount as engines and Apptainer read them: a path may have a comma or a quote in it."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(words)
    return line.getvalue()


@dataclass(frozen=True, slots=True)
class Top:
    """A folder, or a link (`bin -> usr/bin`), directly in the root."""

    name: str
    link: str = ""


def tops(host: Host) -> list[Top]:
    """The folders and links in the root that a container is shown, sorted."""
    if isinstance(host, OwnDevice):  # without a command, which takes a few milliseconds of every trial
        entries = [each for each in host.file("/").iterdir() if each.is_symlink() or each.is_dir()]
        found = [Top(each.name, str(each.readlink()) if each.is_symlink() else "") for each in entries]
    else:
        listed = host.run(["find", "/", "-mindepth", "1", "-maxdepth", "1", "-printf", "%y\\t%f\\t%l\\n"]).checked()
        rows = [line.split("\t") for line in listed.out.splitlines()]
        found = [Top(name, link) for kind, name, link in rows if kind in "dl"]
    return sorted((top for top in found if top.name not in (*OWN, "lost+found")), key=lambda top: top.name)


def binds(host: Host, site: Site) -> list[Bind]:
    """What an overlay over `/` does not show but the site needs: read-only, then what may be written."""
    mounted = mounts(host)
    reads = [str(path) for path in site.reads]
    # Not the roots of containers, whose scratch may lie in the working folder or below /opt.
    others = [mount.point for mount in mounted if not is_a_layer(mount)]
    below = [  # a disk inside of a folder of data
        point for point in others if any(point != each and PurePosixPath(point).is_relative_to(each) for each in reads)
    ]
    needed = [*reads, *below, *existing(host, [*reads, *python_paths(host)])]
    hidden = [path for path in needed if not _shown(mounted, path)]
    system = [point for point in others if _is_system(point)]
    readable = _without_nested(mounted, sorted({*system, *hidden}))
    return _ordered(readable, site)


def view_binds(host: Host, site: Site) -> list[Bind]:
    """What a view of all files does not show: what lies in the kernel's folders, and what is written for real."""
    wanted = existing(host, [*(str(path) for path in site.reads), *python_paths(host)])
    return _ordered([path for path in wanted if PurePosixPath(path).parts[1:2] in [(top,) for top in KERNELS]], site)


def is_hidden(host: Host, program: PurePath, shown: Iterable[PurePath], *, sealed: bool) -> bool:
    """Whether a container on the host's root lacks this program: it lies where a container has folders of its own, or
    (sealed) on another disk."""
    if any(program.is_relative_to(each) for each in (*map(str, shown), *python_paths(host))):
        return False
    if not sealed:
        return program.parts[1:2] in [(top,) for top in KERNELS]
    mounted = mounts(host)
    holder = holding(mounted, str(program))
    return not (_shown(mounted, str(program)) or (holder is not None and _is_system(holder.point)))


def needed_below(host: Host, site: Site, folders: Iterable[str]) -> list[Bind]:
    """What the site and the interpreter need of folders that cannot be shown whole."""
    wanted = existing(host, [*(str(path) for path in site.reads), *python_paths(host)])
    below = [path for path in wanted if any(PurePosixPath(path).is_relative_to(folder) for folder in folders)]
    return [Bind(path, path) for path in dict.fromkeys(below)]


@dataclass(frozen=True, slots=True)
class BoundRoot:
    """A folder with nothing in it but links, the host's folders that are bound into it, and what a record says."""

    path: str
    binds: Sequence[Bind]
    facts: Mapping[str, Any]


def bound_root(host: Host, site: Site, stack: ExitStack) -> BoundRoot:
    """The host's root for a user who can mount no layer: its folders to be read, and a copy of the working folder."""
    path = f"{site.scratch}/{site.name}/root"
    stack.callback(host.run, ["rm", "-rf", "--one-file-system", "--", f"{site.scratch}/{site.name}"])
    host.run(["mkdir", "-p", "--", path]).checked()
    shown = tops(host)
    for top in shown:
        word = ["ln", "-s", "--", top.link] if top.link else ["mkdir", "--"]
        host.run([*word, f"{path}/{top.name}"]).checked()
    readable = 'for path do if [ -r "$path" ] && [ -x "$path" ]; then echo "$path"; fi; done'
    # A disk that is mounted further down would else keep its own right to be written to.
    disks = [mount.point for mount in layers.further(mounts(host), site) if not layers.is_remote(mount)]
    folders = [*(f"/{top.name}" for top in shown if not top.link), *disks]
    open_to_us = host.run(["sh", "-c", readable, "open", *folders]).checked().out.splitlines()
    binds = [Bind(each, each) for each in open_to_us]
    binds += needed_below(host, site, ["/tmp", "/run", "/dev", "/root"])
    facts: dict[str, Any] = {"root": "binds"}
    if site.layered and site.folder:
        copy = layers.copied(host, site, stack)
        binds.append(Bind(copy or str(site.folder), str(site.folder), writable=True))
        facts["files"] = "copied" if copy else "shared"
    binds += [Bind(str(each), str(each), writable=True) for each in site.writes]
    return BoundRoot(path, list({bind.target: bind for bind in binds}.values()), facts)


def image_binds(host: Host, site: Site, stack: ExitStack) -> list[Bind]:
    """What an image does not have: all that the site reads and writes; of a command's files a layer, where we can."""
    plain = _ordered([str(path) for path in site.reads], site)
    if not layers.possible(host, site):
        return plain
    stack.callback(layers.remove, host, site.name, f"{site.scratch}/{site.name}")
    binds = []
    for number, bind in enumerate(plain):
        at = "" if bind.writable else layers.over(host, site, bind.source, number)
        binds.append(Bind(at, bind.target, writable=True) if at else bind)
    return binds


def hidden_by_tmp(image: ImageConfig) -> bool:
    """Whether an image has its programs where a container has a /tmp of its own: an environment in an odd place."""
    return any(folder.startswith("/tmp/") for folder in image.env.get("PATH", "").split(":"))


def open_to_all(host: Host, site: Site) -> None:
    """An image's own user writes to folders of ours; root gives it the work folder, and opens only the others."""
    opened = [str(path) for path in (site.writes[1:] if identity(host).uid == 0 else site.writes)]
    if opened:
        host.run(["chmod", "a+rwx", "--", *opened]).checked()


def give_work_folder(host: Host, site: Site, user: str) -> None:
    """To `uid:gid`, who is to run in it; only root can, and where it cannot, `open_to_all` has opened it."""
    if identity(host).uid == 0 and not user.startswith("0:") and site.writes:
        host.run(["chown", "-R", "-h", "--", user, str(site.writes[0])]).checked()


_LOOPED = "127.0.1.1"  # as Debian has it
_NO_HOSTS = "127.0.0.1 localhost\n::1 localhost\n"


def loop_address(host: Host, name: str) -> str:
    """The address of the device's own name in a container: the device's, where that is on the loopback."""
    for line in _hosts(host).splitlines():
        words = line.partition("#")[0].split()
        if name in words[1:] and words[0].startswith("127."):
            return words[0]
    return _LOOPED


def hosts_text(host: Host, name: str) -> str:
    """The device's /etc/hosts, with a line for its own name before all, which must be on the loopback."""
    return f"{loop_address(host, name)} {name}\n{_hosts(host)}"


def _hosts(host: Host) -> str:
    try:
        return host.read("/etc/hosts")
    except OSError:
        return _NO_HOSTS


def shm_bytes(host: Host) -> int:
    """The size of the device's /dev/shm; 1 GiB where it has none."""
    if isinstance(host, OwnDevice):
        with suppress(OSError):
            seen = os.statvfs("/dev/shm")
            return seen.f_blocks * seen.f_frsize or 1 << 30
    words = host.run(["df", "--block-size=1", "--output=size", "/dev/shm"]).out.split()
    return int(words[-1]) if words and words[-1].isdigit() and int(words[-1]) else 1 << 30


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


def _shown(mounted: list[Mount], path: str) -> bool:
    """Whether an overlay over `/` shows this path."""
    holder = holding(mounted, path)
    return PurePosixPath(path).parts[1:2] not in [(name,) for name in OWN] and (holder is None or holder.point == "/")


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
