"""The root of a container: the host's own root file system, or an image as a folder."""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from tare.base.errors import ObstacleError, TareError, did_you_mean
from tare.base.files import state_dir
from tare.base.host import Host, ImageConfig, LocalHost, OwnDevice, Site, existing
from tare.base.processes import Mount, holding, identity, mounts
from tare.drivers import layers
from tare.drivers.containers import engine
from tare.drivers.layers import KERNELS, is_a_layer

# An image as a folder: its layers laid over each other, and what it sets for whatever runs in it.
#
# Taken are a name that the Docker engine or Podman has, a tarball of `docker save` or `podman save`, an OCI layout (a
# folder or a tarball of one), a SIF file (by Apptainer), and a folder that is a root file system already. `pulling`
# fetches others.

_WITHIN_S = 1800
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
OF_APPTAINER = re.compile(r"(APPTAINER|SINGULARITY)_\w+|PS1|PROMPT_COMMAND|TERM|HOME|PWD|OLDPWD|SHLVL|_|USER|LOGNAME")
"""Variables that Apptainer sets in every container, whatever the image sets."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Unpacked:
    """A root file system on this device."""

    root: Path
    config: ImageConfig
    id: str  # changes when the image does; empty for a folder, which may be another tomorrow

    def user(self) -> tuple[int, int]:
        """The ids of the user that the image names; root where it names none."""
        name, _, group = self.config.user.partition(":")
        uid, gid = _listed(self.root / "etc/passwd", name or "0")
        if group:
            gid, _ = _listed(self.root / "etc/group", group)
        return uid, gid


def is_path(reference: str) -> bool:
    """Whether an image is named by its place on this device, and not as an engine has it."""
    path = Path(reference)
    return reference.startswith(("/", "./", "../", "~")) or path.is_file() or (path / "oci-layout").is_file()


def refuse_no_image(reference: str) -> None:
    """A file that is no archive, or not there, is refused before anything is run."""
    path = Path(reference).expanduser()
    if not is_path(reference) and reference.endswith((".tar", ".tar.gz", ".tgz", ".sif")):
        hint = did_you_mean(path.name, [each.name for each in path.parent.glob("*.[ts]*")])
        raise ObstacleError(f"there is no file {reference} in {Path.cwd()}. {hint}".strip())
    if is_path(reference) and not path.exists():
        raise ObstacleError(f"no image {reference}: there is no such file or folder.")
    if is_path(reference) and path.is_file() and not (is_sif(reference) or tarfile.is_tarfile(path)):
        raise ObstacleError(
            f"{reference} is no image: it is neither a file of `docker save`, nor an OCI layout, nor a SIF file."
        )


def is_sif(reference: str) -> bool:
    """Whether this is an image of Apptainer or Singularity, by its first bytes."""
    return _sif_id(Path(reference).expanduser()) != ""


def _sif_id(path: Path) -> str:
    """The id that a SIF file got when it was made; empty for any other file."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError:
        return ""
    return f"sif-{head[48:64].hex()}" if head[32:41] == b"SIF_MAGIC" else ""


def unpacked(reference: str) -> Unpacked:
    """The image as a folder; done once for each image, and kept in the state folder."""
    path = Path(reference).expanduser()
    if is_path(reference) and path.is_dir() and not (path / "oci-layout").is_file():
        return Unpacked(path.resolve(), ImageConfig(), "")
    if is_path(reference) and (sif := _sif_id(path)):
        return _kept(sif) or _unpack_sif(path, sif)
    note = _note(reference)
    if note is not None and note.is_file() and (found := _kept(note.read_text())) is not None:
        return found
    with _opened(reference) as folder:
        manifest = _manifest(reference, folder)
        if (found := _kept(manifest.id)) is None:
            _unpack(manifest, state_dir() / "images" / manifest.id)
            found = _kept(manifest.id)
    assert found is not None
    if note is not None:
        note.write_text(manifest.id)
    return found


_PROGRAMS = ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin")
_MADE = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")  # by each engine, for each container


def differing(paths: Iterable[str], ours: Path, theirs: Path) -> list[str]:
    """Those of these files that are not the same in two roots, or in one of them only, by the names that programs use:
    a library by the link to it, which names another version on the other side.
    """
    names = {*paths, *_links_between({*paths}, ours, theirs)} - {*_MADE}
    found: dict[tuple[str, ...], str] = {}  # where a name leads in both roots: one name of several
    for name in sorted(name for name in names if _differs(name, ours, theirs)):
        found.setdefault(tuple(f"/{inside(root, name).relative_to(root)}" for root in (ours, theirs)), name)
    behind_links = {file for files, name in found.items() for file in files if file != name}
    return [name for name in found.values() if name not in behind_links]


def _differs(name: str, ours: Path, theirs: Path) -> bool:
    try:
        one, other = inside(ours, name), inside(theirs, name)
        if one.is_file() and other.is_file():
            return not filecmp.cmp(one, other, shallow=False)
        return one.is_file() or other.is_file()
    except OSError:  # not for us to read: nothing is known of it
        return False


def inside(root: Path, name: str) -> Path:
    """Where a file lies of this name inside a root, whose links lead from its own top."""
    found, waiting = PurePosixPath("/"), [*PurePosixPath(name).parts[:0:-1]]
    for _ in range(1000):  # links may go round
        if not waiting:
            break
        step = waiting.pop()
        found = found.parent if step == ".." else found / step
        here = root / str(found).lstrip("/")
        if here.is_symlink():
            link = PurePosixPath(here.readlink())
            waiting += [part for part in link.parts[::-1] if part != "/"]
            found = PurePosixPath("/") if link.is_absolute() else found.parent
    return root / str(found).lstrip("/")


def _links_between(paths: Set[str], *roots: Path) -> set[str]:
    """The links beside these files, and among programs, that lead to one of them wherever they lead."""
    folders = {*_PROGRAMS, *(path.rpartition("/")[0] for path in paths)}
    return {
        link
        for root in roots
        for folder in folders
        for link in _links(root, folder)
        if all(_leads_to(paths, each, link) for each in roots)
    }


def _links(root: Path, folder: str) -> list[str]:
    try:
        return [f"{folder}/{each.name}" for each in os.scandir(inside(root, folder)) if each.is_symlink()]
    except OSError:
        return []


def _leads_to(paths: Set[str], root: Path, link: str) -> bool:
    return f"/{inside(root, link).relative_to(root)}" in paths


def _kept(image_id: str) -> Unpacked | None:
    """The image with this id, if it was unpacked before."""
    folder = state_dir() / "images" / image_id
    if not (folder / "config.json").is_file():
        return None
    return Unpacked(folder / "root", image_config(json.loads((folder / "config.json").read_text())), image_id)


def _note(reference: str) -> Path | None:
    """Where the image's id is noted, by what changes with it and costs nothing to ask; None for what is open anyway."""
    path = Path(reference).expanduser()
    if not is_path(reference):
        known_as = _engines_id(reference)
    elif path.is_file():
        seen = path.stat()
        known_as = f"{path.resolve()} {seen.st_ino} {seen.st_size} {seen.st_mtime_ns}"
    else:
        return None
    return _room() / f".of-{hashlib.sha256(known_as.encode()).hexdigest()}" if known_as else None


def _engines_id(name: str) -> str:
    """What the engine that has it calls it; empty where none has."""
    host = LocalHost()
    asked = host.run(["podman", "image", "inspect", "--format", "{{.Id}}", name])
    if asked.code == 0:
        return f"podman {asked.out.strip()}"
    if engine.find() is None:
        return ""
    from docker.errors import ImageNotFound

    with closing(engine.connect(host)) as client, engine.errors(f"look for the image {name}"):
        try:
            return f"docker {client.api.inspect_image(name)['Id']}"
        except ImageNotFound:
            return ""


def image_config(config: Mapping[str, Any]) -> ImageConfig:
    """What Docker and OCI both call the `config` of an image."""
    entry = config.get("Entrypoint") or ()
    return ImageConfig(
        env=dict(each.partition("=")[::2] for each in config.get("Env") or ()),
        folder=config.get("WorkingDir") or "/",
        user=config.get("User") or "",
        entry=tuple(entry.split() if isinstance(entry, str) else entry),
    )


def as_changes(config: ImageConfig) -> list[str]:
    """The same as lines of a Dockerfile, for an engine that imports the folder."""
    lines = [f"ENV {name}={json.dumps(value)}" for name, value in config.env.items()]
    lines += [f"WORKDIR {config.folder}"] if config.folder != "/" else []
    lines += [f"USER {config.user}"] if config.user else []
    return lines + ([f"ENTRYPOINT {json.dumps(list(config.entry))}"] if config.entry else [])


@contextmanager
def packed(image: Unpacked) -> Iterator[Path]:
    """The folder as one archive, for an engine to import."""
    with tempfile.TemporaryDirectory(prefix="tare-image-", dir=_room()) as folder:
        archive = Path(folder) / "root.tar"
        _run("tar", "-c", "--numeric-owner", "-C", str(image.root), "-f", str(archive), ".")
        yield archive


@dataclass(frozen=True)
class _Manifest:
    id: str
    config: Path
    layers: tuple[Path, ...]  # the lowest first


@contextmanager
def _opened(reference: str) -> Iterator[Path]:
    """A folder with the image's blobs: an OCI layout, or what `docker save` writes."""
    path = Path(reference).expanduser()
    if is_path(reference) and path.is_dir():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="tare-image-", dir=_room()) as made:
        folder = Path(made) / "blobs"
        folder.mkdir()
        archive = path
        if not is_path(reference):
            archive = Path(made) / "saved.tar"
            _save(reference, archive)
        elif not path.is_file():
            raise ObstacleError(f"no image {reference}: there is no such file or folder.")
        _run("tar", "-x", "-f", str(archive), "-C", str(folder))
        yield folder


def _room() -> Path:
    folder = state_dir() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _save(name: str, archive: Path) -> None:
    """From whichever engine has it."""
    host = LocalHost()
    if host.run(["podman", "image", "exists", name]).code == 0:
        host.run(["podman", "save", "--quiet", "-o", str(archive), name], limit_s=_WITHIN_S).checked()
        return
    if engine.find() is None:
        raise ObstacleError(f"no image {name}: Podman has none, and no Docker engine answers that may have it.")
    with closing(engine.connect(host)) as client, engine.errors(f"save the image {name}"), archive.open("wb") as file:
        client.api.timeout = _WITHIN_S
        for chunk in client.api.get_image(name):
            file.write(chunk)


def _manifest(reference: str, folder: Path) -> _Manifest:
    try:
        if (folder / "manifest.json").is_file():
            (listed, *_) = json.loads((folder / "manifest.json").read_text())
            config = folder / listed["Config"]
            return _Manifest(config.stem, config, tuple(folder / layer for layer in listed["Layers"]))
        if (folder / "oci-layout").is_file():
            found = _of_this_machine(folder, json.loads((folder / "index.json").read_text()))
            config = _blob(folder, found["config"])
            return _Manifest(config.name, config, tuple(_blob(folder, layer) for layer in found["layers"]))
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ObstacleError(f"{reference}: the image cannot be read: {error!r}.") from None
    raise ObstacleError(f"{reference}: this is neither an OCI layout nor what `docker save` writes.")


def _of_this_machine(folder: Path, index: Mapping[str, Any]) -> Mapping[str, Any]:
    """The manifest in an index, which may list one for each architecture, or further indexes."""
    listed = index["manifests"]
    ours = _ARCHITECTURES.get(platform.machine(), platform.machine())
    fitting = [each for each in listed if (each.get("platform") or {}).get("architecture", ours) == ours]
    found: Mapping[str, Any] = json.loads(_blob(folder, (fitting or listed)[0]).read_text())
    return _of_this_machine(folder, found) if "manifests" in found else found


def _blob(folder: Path, described: Mapping[str, Any]) -> Path:
    kind, _, digest = str(described["digest"]).partition(":")
    if "/" in kind or "/" in digest:
        raise ValueError(f"{described['digest']} is no digest")
    return folder / "blobs" / kind / digest


@contextmanager
def _drafted(kept: Path) -> Iterator[Path]:
    """A folder to unpack into, all or nothing: it gets its name when it is whole."""
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=_room()))
    try:
        yield draft
        draft.chmod(0o755)
        with suppress(OSError) if kept.is_dir() else nullcontext():  # another run was quicker
            draft.rename(kept)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _unpack(manifest: _Manifest, kept: Path) -> None:
    with _drafted(kept) as draft:
        root = draft / "root"
        root.mkdir(mode=0o755)
        for layer in manifest.layers:
            _lay_over(layer, root)
        config = json.loads(manifest.config.read_text()).get("config") or {}
        (draft / "config.json").write_text(json.dumps(config))


def _unpack_sif(file: Path, image_id: str) -> Unpacked:
    """The files of a SIF file in a folder, and the variables that Apptainer sets inside."""
    program = next((name for name in ("apptainer", "singularity") if shutil.which(name)), "")
    if not program:
        raise ObstacleError(f"{file} is a SIF file: only Apptainer or Singularity can unpack it, and neither is here.")
    with _drafted(_room() / image_id) as draft:
        listed = re.search(r"\|(\d+)-\d+ *\|FS \(Squashfs", _run(program, "sif", "list", str(file)))
        if listed is None:
            raise ObstacleError(f"{file} holds no squashfs file system: encrypted or writable SIF files are refused.")
        _run("unsquashfs", "-no-progress", "-offset", listed[1], "-dest", str(draft / "root"), str(file))
        seen = _run(program, "--silent", "exec", "--containall", "--no-eval", "--no-privs", str(file), "env", "-0")
        env = [line for line in seen.split("\0") if "=" in line and not OF_APPTAINER.fullmatch(line.partition("=")[0])]
        (draft / "config.json").write_text(json.dumps({"Env": env}))
    found = _kept(image_id)
    assert found is not None
    return found


def _lay_over(layer: Path, root: Path) -> None:
    """One layer over those before it: what it marks as deleted goes first."""
    for name in _run("tar", "-t", "-f", str(layer)).splitlines():
        path = root / name.lstrip("/")
        if path.name == _OPAQUE and _is_within(path.parent, root):
            for each in path.parent.iterdir():
                _delete(each)
        elif path.name.startswith(_WHITEOUT) and path.name != _OPAQUE and _is_within(path.parent, root):
            _delete(path.with_name(path.name.removeprefix(_WHITEOUT)))
    _run("tar", "-x", "-p", "--numeric-owner", f"--exclude={_WHITEOUT}*", "-f", str(layer), "-C", str(root))


def _is_within(folder: Path, root: Path) -> bool:
    """Whether a folder is there and no link leads out of the image."""
    return folder.is_dir() and folder.resolve().is_relative_to(root.resolve())


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=_WITHIN_S, check=False)
    if done.returncode != 0:
        raise TareError(f"`{' '.join(argv)}` failed with code {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def _listed(file: Path, name: str) -> tuple[int, int]:
    """The third and fourth field of a line of /etc/passwd or /etc/group; a number stands for itself."""
    try:
        rows = [line.split(":") for line in file.read_text(errors="replace").splitlines()]
    except OSError:
        rows = []
    for row in rows:
        if len(row) >= 4 and name in (row[0], row[2]):
            return int(row[2]), int(row[3]) if row[3].isdigit() else int(row[2])
    if name.isdigit():
        return int(name), int(name) if file.name == "group" else 0
    raise ObstacleError(f"the image names the user {name!r}, and its {file.name} has none of that name.")


# The host's own root file system inside a container: both sides then run the very same software.
#
# For a built-in workload, and where the root is sealed: an overlay over `/` shows the root file system and nothing
# that is mounted on it; what else is needed (a Python on another disk, data, the system's own mounts) is bound on top,
# and the container has its own /proc, /sys, /dev, /run, /tmp. For a command of the user's: all of their files, writable
# by layers (`tare.drivers.layers`), with the container's own /proc, /sys, /dev, /run.

OWN = (*KERNELS, "tmp")
_SYSTEM = ("usr", "etc", "opt", "lib", "lib32", "lib64", "libx32", "bin", "sbin")  # software lies here


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
