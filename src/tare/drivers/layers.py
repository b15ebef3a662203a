"""The user's files as a script sees them: all of them, and writable, by layers that go with the trial.

An overlay over `/` shows the root file system and nothing that is mounted on it, so every further file system with
files of the user's gets an overlay of its own, mounted at the same place in the first. What is written goes to the
disk that the original lies on: to the site's scratch folder where that is on the same disk, else to a folder `.tare`
at the top of that file system. Containers take the whole as their root; on bare metal a job enters it in a mount
namespace of its own. [Why](docs/decisions/0020-copy-on-write.md).
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tare.base.errors import ObstacleError, TrialError
from tare.base.files import state_dir
from tare.base.host import Host, OwnDevice, Site, make_file
from tare.base.processes import Mount, holding, is_root, mounts
from tare.drivers.places import comes_true

KERNELS = ("proc", "sys", "dev", "run")
"""Top folders that are no files of the user's: a container has its own, and on bare metal they are the device's."""

ASIDE = ".tare"
MEDIA = "tare-storage-"
"""How the folders of emulated media begin. Those of other runs get no layer, which would hold them."""

_NO_FILES = frozenset(
    {"autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs",
     "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "ramfs", "rpc_pipefs", "securityfs", "selinuxfs",
     "sysfs", "tracefs"}
)  # fmt: skip
_REMOTE = ("nfs", "cifs", "smb", "fuse", "9p", "afs", "ceph", "gluster", "lustre")
"""Beginnings of kinds whose server may be gone, and with it every answer; none of them takes an upper layer."""
_ANSWERS_WITHIN_S = 3.0
_OF_ENGINES = tuple(f"/var/lib/{name}" for name in ("docker", "containers", "containerd", "kubelet", "tare"))
_UNMOUNT_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Layer:
    """One file system of the device in the view."""

    point: str  # on the device
    at: str  # in the view
    upper: str  # where what is written goes; empty: it can only be read


@dataclass(frozen=True, slots=True)
class View:
    """The device's files with a layer of its own on each file system; the root's layer comes first."""

    layers: tuple[Layer, ...]

    @property
    def root(self) -> str:
        return self.layers[0].at

    def facts(self) -> dict[str, Any]:
        """For the record: what is not as on the device itself."""
        away = sorted(layer.point for layer in self.layers if not layer.upper)
        return {"files": "layers", **({"read_only": away} if away else {})}


def possible(host: Host, site: Site) -> bool:
    """Whether the site's workload is to see all files, and layers can be mounted over them here."""
    return site.layered and isinstance(host, OwnDevice) and is_root(host)


def compose(host: Host, site: Site, stack: ExitStack, *, files: Mapping[str, str] | None = None) -> View:
    """Mount a layer over every file system with files; the stack keeps what is to be kept and takes all away.

    `files` are texts that the view has in place of the device's, by their paths.
    """
    root = overlay(host, site, stack, files=files)
    table = mounts(host)
    seen = _seen(host, further(table, site))
    layers = [Layer("/", root, f"{root.removesuffix('/root')}/upper")]
    layers += [layer for point, kind in seen if (layer := _further(host, site, table, root, point, kind)) is not None]
    view = View(tuple(layers))
    if site.keep is not None:
        stack.callback(keep, view, site.keep, without=files or ())
    return view


def further(table: Sequence[Mount], site: Site) -> list[Mount]:
    """The mounts beside the root that hold files of the user's, outer ones first."""
    ours = [mount.point for mount in table if is_a_layer(mount)]  # with what lies in it, of whatever run
    hidden = (*_OF_ENGINES, str(state_dir()), str(site.scratch), *ours)
    found = {
        mount.point: mount
        for mount in table
        if mount.kind not in _NO_FILES
        and PurePosixPath(mount.point).parts[1:2] not in [(), *((name,) for name in KERNELS)]
        and not any(PurePosixPath(mount.point).is_relative_to(folder) for folder in hidden)
        and not any(part.startswith(MEDIA) for part in PurePosixPath(mount.point).parts)
        and holding(table, mount.point) == mount
        and not _shown_by_root(holding(table, "/"), mount)
    }
    return [found[point] for point in sorted(found, key=lambda point: PurePosixPath(point).parts)]


def _shown_by_root(root: Mount | None, mount: Mount) -> bool:
    """Whether a folder of the root is mounted on itself, as engines do with their data: a layer over / has it all."""
    if root is None or (root.kind, root.source) != (mount.kind, mount.source):
        return False
    return mount.root == f"{root.root.rstrip('/')}{mount.point}"


def _seen(host: Host, found: list[Mount]) -> list[tuple[str, str]]:
    """The points that are there with what they are: w a folder to write to, d one to read, f a file.

    One that gives no answer is left out, with what lies in it.
    """
    script = (
        'for path do if [ -d "$path" ]; then if [ -w "$path" ]; then echo w; else echo d; fi; '
        'elif [ -f "$path" ]; then echo f; else echo -; fi; done'
    )
    silent: list[str] = []
    for mount in found:
        remote = mount.kind.startswith(_REMOTE)
        if remote and host.run(["test", "-e", mount.point], limit_s=_ANSWERS_WITHIN_S).code != 0:
            silent.append(mount.point)
    points = [mount.point for mount in found if not any(_is_in(mount.point, each) for each in silent)]
    kinds = host.run(["sh", "-c", script, "seen", *points]).checked().out.split()
    return [(point, kind) for point, kind in zip(points, kinds, strict=True) if kind != "-"]


def _further(host: Host, site: Site, table: Sequence[Mount], root: str, point: str, kind: str) -> Layer | None:
    """The layer over one more file system, or the file system itself to read; None where it has just gone."""
    at = f"{root}{point}"
    if kind == "w" and not set(point) & set(":,\\"):
        for folder in _upper_folders(site, table, point):
            if _mounted(host, site.name, point, folder, at):
                return Layer(point, at, f"{folder}/upper")
    # Private at once: what is mounted in a copy of a shared mount would else be mounted in the original too.
    if host.run(["mount", "--bind", "--", point, at]).code != 0:
        return None
    host.run(["mount", "--make-private", "--", at]).checked()
    host.run(["mount", "-o", "remount,bind,ro", "--", at])
    return Layer(point, at, "")


def _upper_folders(site: Site, table: Sequence[Mount], point: str) -> list[str]:
    """Where the upper layer of a file system may lie: on itself, else in the scratch folder."""
    mangled = f"{site.scratch}/{site.name}/on{point.replace('/', '-')}"
    own = holding(table, point)
    if own is None or own.kind.startswith(_REMOTE) or holding(table, str(site.scratch)) == own:
        return [mangled]
    return [f"{point}/{ASIDE}/{site.name}", mangled]


def overlay(
    host: Host, site: Site, stack: ExitStack, *, lower: str = "/", files: Mapping[str, str] | None = None
) -> str:
    """Mount an overlay over `lower` in the site's scratch folder; returns where. The stack takes it away."""
    folder = f"{site.scratch}/{site.name}"
    for path in (folder, lower):
        if set(path) & set(":,\\"):
            raise ObstacleError(f"an overlay cannot lie under {path!r}: the kernel takes no ':', ',' or '\\' there.")
    stack.callback(remove, host, site.name, folder)
    parts = ("upper", "work", "root", *(f"upper{PurePosixPath(path).parent}" for path in files or ()))
    make_folders(host, [f"{folder}/{part}" for part in parts])
    for path, text in (files or {}).items():
        make_file(host, f"{folder}/upper{path}", text)
    done = _mount(host, site.name, lower, folder, f"{folder}/root")
    if done:
        raise TrialError(
            f"no overlay over {lower} can be mounted in {folder}: {done}\n"
            "It needs root, and a scratch folder on a file system that can hold its upper layer "
            "(ext4, xfs, btrfs or tmpfs; not NFS, and not another overlay)."
        )
    return f"{folder}/root"


def make_folders(host: Host, paths: Iterable[str]) -> None:
    """These folders, with those above them; on the device itself without a command, which takes milliseconds."""
    if not isinstance(host, OwnDevice):
        host.run(["mkdir", "-p", "--", *paths]).checked()
        return
    try:
        for path in paths:
            host.file(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrialError(f"no folder {error.filename} can be made: {error.strerror}") from error


def over(host: Host, site: Site, path: str, number: int) -> str:
    """A layer over one folder, or a copy of one file, in a folder of the site's that `overlay` has made."""
    folder = f"{site.scratch}/{site.name}/over-{number}"
    if host.run(["test", "-d", path]).code == 0:
        return f"{folder}/root" if _mounted(host, site.name, path, folder, f"{folder}/root") else ""
    host.run(["mkdir", "-p", "--", folder]).checked()
    copied = host.run(["cp", "-p", "--reflink=auto", "--", path, f"{folder}/file"], limit_s=600)
    return f"{folder}/file" if copied.code == 0 else ""


def _mounted(host: Host, name: str, lower: str, folder: str, at: str) -> bool:
    """Whether a layer over `lower` could be mounted at `at`, with what is written in `folder`."""
    made = [f"{folder}/{part}" for part in ("upper", "work")] + ([at] if at.startswith(f"{folder}/") else [])
    if host.run(["mkdir", "-p", "--", *made]).code != 0:
        return False
    for flag in ("chmod", "chown"):  # the upper folder is what is seen at the top
        host.run([flag, f"--reference={lower}", "--", f"{folder}/upper"])
    return not _mount(host, name, lower, folder, at)


def _mount(host: Host, name: str, lower: str, folder: str, at: str) -> str:
    """Mount one overlay; what went wrong, if anything. A folder of the original can be renamed where the kernel can."""
    options = f"lowerdir={lower},upperdir={folder}/upper,workdir={folder}/work"
    for more in (",redirect_dir=on", ""):
        done = host.run(["mount", "-t", "overlay", f"tare:{name}", "-o", f"{options}{more}", at])
        if done.code == 0:
            return ""
    return (done.err or done.out).strip() or f"code {done.code}"


LARGEST_COPY_BYTES = 2 << 30


def copied(host: Host, site: Site, stack: ExitStack) -> str:
    """A fresh copy of the folder that a command is started in, where no layers can be mounted; empty if it is too big.

    What a trial writes there reaches neither the next one nor the user's folder.
    """
    if not (site.layered and site.folder and isinstance(host, OwnDevice)) or site.folder in site.writes:
        return ""
    size = host.run(["du", "-sb", "--", str(site.folder)]).out.split()
    if not size or not size[0].isdigit() or int(size[0]) > LARGEST_COPY_BYTES or site.folder == Path("/"):
        return ""
    folder = f"{site.scratch}/{site.name}-copy"
    stack.callback(host.run, ["rm", "-rf", "--", folder])
    done = host.run(["cp", "-a", "--reflink=auto", "--", str(site.folder), folder], limit_s=600)
    return folder if done.code == 0 else ""


def is_remote(mount: Mount) -> bool:
    """Whether a server holds its files, which may not answer."""
    return mount.kind.startswith(_REMOTE)


def is_a_layer(mount: Mount) -> bool:
    """Whether this is one of ours, of whatever site: an overlay, or a file system in memory for a container."""
    return mount.kind in ("overlay", "tmpfs") and mount.source.startswith("tare:")


def remove(host: Host, name: str, folder: str = "") -> None:
    """Unmount every layer of this name, with what lies in its root, and remove its folders; nothing is no error."""
    table = mounts(host)
    ours = [mount for mount in table if mount.kind == "overlay" and mount.source == f"tare:{name}"]
    folders = dict.fromkeys([folder] if folder else [])
    folders |= dict.fromkeys(own for mount in ours if (own := _own_folder(mount.point, name)))
    inside = [mount for mount in table if any(_is_in(mount.point, own) for own in folders)]
    for mount in reversed(table):
        if mount in ours or (mount in inside and ours):
            unmount(host, mount.point)
    folders |= dict.fromkeys(aside(host, name))
    for each in folders:
        # Its name is checked once more: a path made by someone else must never get here.
        if PurePosixPath(each).name == name and not any(_is_in(mount.point, each) for mount in mounts(host)):
            host.run(["rm", "-rf", "--one-file-system", "--", each]).checked()
            if PurePosixPath(each).parent.name == ASIDE:
                host.run(["rmdir", "--ignore-fail-on-non-empty", "--", str(PurePosixPath(each).parent)])


def aside(host: Host, name: str = "*") -> list[str]:
    """The folders of this site, or of all, at the tops of file systems that are not the scratch folder's."""
    if not isinstance(host, OwnDevice):
        return []
    disks = [mount for mount in mounts(host) if mount.kind not in _NO_FILES and not mount.kind.startswith(_REMOTE)]
    points = [Path(mount.point) for mount in disks]
    found = (path for point in points for path in _listed(point / ASIDE))
    return sorted({str(path) for path in found if name in ("*", path.name)})


def _listed(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.name.startswith("tare-") and not path.is_symlink()]
    except OSError:
        return []


def _own_folder(point: str, name: str) -> str:
    """The site's folder that a mount point lies in."""
    parts = PurePosixPath(point).parts
    return str(PurePosixPath(*parts[: parts.index(name) + 1])) if name in parts[:-1] else ""


def _is_in(path: str, folder: str) -> bool:
    return PurePosixPath(path).is_relative_to(folder)


def unmount(host: Host, point: str) -> None:
    """It stays busy for a moment after the last process inside; past the deadline it is only detached."""
    if not comes_true(host.clock, lambda: host.run(["umount", "--", point]).code == 0, _UNMOUNT_WITHIN_S, 0.02):
        host.run(["umount", "-l", "--", point]).checked()


def keep(view: View, into: Path, without: Iterable[str] = ()) -> None:
    """Copy what was written to the layers; what was deleted, and what is no file or link, leaves nothing."""
    for layer in view.layers:
        if layer.upper:
            _copy(Path(layer.upper), into / layer.point.lstrip("/"), {f"{layer.upper}{path}" for path in without})


def _copy(source: Path, target: Path, without: set[str]) -> None:
    for folder, _, names in os.walk(source):
        there = target / Path(folder).relative_to(source)
        for name in names:
            path = Path(folder) / name
            if str(path) not in without and (stat.S_ISREG(path.lstat().st_mode) or path.is_symlink()):
                there.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, there / name, follow_symlinks=False)


# Runs in a mount namespace of its own: the kernel's folders and what may be written for real are bound into the view,
# which then becomes the root. Nothing of it is seen outside, and all of it goes with the last process.
ENTER_VIEW = """
path=$PATH; PATH=/usr/sbin:/usr/bin:/sbin:/bin
root=$1 cwd=$2; shift 2
for top in proc sys dev run; do
  [ -d "$root/$top" ] || mkdir "$root/$top"
  mount --rbind "/$top" "$root/$top" || exit 125
done
while [ "$1" != -- ]; do
  if [ ! -e "$root$2" ]; then
    if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "$root${2%/*}"; : > "$root$2"; fi
  fi
  mount --rbind "$1" "$root$2" || exit 125
  shift 2
done
shift
"""
TO_VIEW = """
cd "$root" && pivot_root . . && umount -l . || exit 125
cd "$cwd" || exit 125
PATH=$path
"""
# An image may have no program at all but its own: nothing of it is needed here. $1 and $2 are the user's ids.
TO_IMAGE = """
enter=$(command -v unshare) ids="$1 $2"; shift 2
PATH=$path
set -- "$enter" --root="$root" --wd="$cwd" --setgid "${ids#* }" --setuid "${ids% *}" -- "$@"
"""


def bound_for_real(paths: Iterable[Path]) -> list[str]:
    """Those of the paths that a view would show through a layer, each as its source and its place."""
    real = [str(path) for path in paths if path.parts[1:2] not in [(name,) for name in KERNELS]]
    return [word for path in real for word in (path, path)]
