"""A container of the Docker engine."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from tare.base.errors import ObstacleError, TrialError
from tare.base.host import Host, OwnDevice, Site
from tare.base.processes import Mount, holding, identity, mounts
from tare.base.rulings import Ruling, obstacle
from tare.drivers import layers
from tare.drivers.cgroups import limits, tree
from tare.drivers.containers import engine, roots
from tare.drivers.containers.client import Client
from tare.drivers.containers.engine_container import EngineContainer, imported, mount_options, own_tmpfs
from tare.drivers.containers.place import Root
from tare.drivers.containers.roots import OWN, Bind, Top
from tare.drivers.containers.unpacked import image_config, is_path, unpacked
from tare.drivers.nvidia import gpu_obstacles, handed_on
from tare.parts.protocols import Json, Leftover

_NVIDIA = "nvidia"
_FOR_NVIDIA = ("--env=NVIDIA_VISIBLE_DEVICES=all", "--env=NVIDIA_DRIVER_CAPABILITIES=compute,utility")
_CREATED_WITHIN_S = 2.0
_BUILT_WITHIN_S = 3600.0
_PARENTS = (tree.PARENT, f"{tree.PARENT}.slice")
_SKELETON = "tare/skeleton"
_BUILT = "tare/built"
_RECURSIVE_BY_NAME = 25  # from this version on `docker create` warns of the older option


class Docker(EngineContainer):
    """Run in a container of the Docker engine: no network, no capabilities but for files, Docker's seccomp.

    A command of root's that may write keeps the four capabilities for files of other users.
    """

    tried: ClassVar[int | None] = 1
    by_daemon: ClassVar[bool] = True

    dockerfile: Path | None = None
    """Build the image from this Dockerfile first (without a network); its folder is the context."""

    seccomp: bool = True
    """Docker's own system-call filter; false runs without it."""

    @model_validator(mode="after")
    def _one_image(self) -> Docker:
        if self.image is not None and self.dockerfile is not None:
            raise ValueError("an image is either named (`image`) or built (`dockerfile`), not both")
        return self

    def obstacles(self, host: Host) -> list[Ruling]:
        stopped = [*engine.obstacles(host), *limits.limit_obstacles(host, self), *gpu_obstacles(host, self.gpu)]
        stopped += self.user_obstacles(host)
        if self.dockerfile is not None and not self.dockerfile.is_file():
            stopped.append(obstacle("needs.file", f"no {self.dockerfile} to build the image from."))
        if not stopped and self.image is not None and not is_path(self.image) and engine.answers(host):
            with engine.opened(host) as client:
                if client.image(self.image) is None:
                    stopped.append(
                        obstacle(
                            "needs.image",
                            f"the engine has no image {self.image}: run `docker pull {self.image}` (with an engine of "
                            "your own running, not one that tare started), or name its tarball, `image: ./FILE.tar`.",
                        )
                    )
        return stopped

    def here(self, host: Host) -> dict[str, Json]:
        with engine.opened(host) as client:
            reported = _info(client)
        names = {"version": "ServerVersion", "storage": "Driver", "cgroup_driver": "CgroupDriver"}
        return {name: reported[key] for name, key in names.items() if reported.get(key)}

    def image_now(self, host: Host) -> str | None:
        if self.rootfs is not None:
            return None
        with engine.opened(host) as client:
            return self._image_id(client)

    @classmethod
    def for_run(cls, host: Host) -> AbstractContextManager[str | None]:
        return engine.held(host)

    @classmethod
    def brought_by_run(cls, host: Host) -> dict[str, Json]:
        return {"engine": "not running; a run starts a private one"} if engine.could_start(host) else {}

    @classmethod
    def left_by_dead_run(cls, host: Host) -> str | None:
        return engine.left_over(host)

    @classmethod
    def after_dead_run(cls, host: Host) -> str | None:
        return engine.stop_left_over(host)

    def client(self, host: Host, stack: ExitStack) -> Client:
        return stack.enter_context(engine.opened(host))

    def root(self, client: Client, site: Site, stack: ExitStack) -> Root:
        host = client.host
        if self.rootfs is None:
            image = self._image_id(client)
            about = client.image(image) or {}
            root = self.image_root(host, site, stack, image, image_config(about.get("Config") or {}))
            return replace(root, facts={**root.facts, "image_id": image})
        tops = roots.tops(host)
        if self.sees_all(host, site):
            return self._view(client, site, stack, tops)
        below, kind = "", "binds"
        if identity(host).can_mount:
            below, kind = layers.overlay(host, site, stack), "overlay"
        on_top = roots.binds(host, site)
        folders = {f"/{top.name}" for top in tops if not top.link} - {bind.target for bind in on_top}
        if kind == "binds":
            left_out = _holding_the_engine(client, folders)
            folders -= left_out
            on_top += roots.needed_below(host, site, left_out)
            if self.may_write(site) and (copy := layers.copied(host, site, stack)):
                on_top = [bind for bind in on_top if bind.target != str(site.folder)]
                on_top.append(Bind(copy, str(site.folder), writable=True))
        # Binds of an overlay are written to its upper layer; binds of the device itself never are.
        writable = self.may_write(site) and kind == "overlay"
        shown = [Bind(f"{below}{folder}", folder, writable) for folder in sorted(folders)]
        image = skeleton(client, tops)
        return Root(image, [*shown, *on_top], facts={"root": kind, "image_id": image})

    def _view(self, client: Client, site: Site, stack: ExitStack, tops: Sequence[Top]) -> Root:
        """All files of the host, writable: the folders of the root's layer, and the other layers."""
        view = layers.compose(client.host, site, stack)
        names = [*(top.name for top in tops if not top.link), "tmp"]
        shown = [Bind(f"{view.root}/{name}", f"/{name}", writable=True) for name in names]
        shown += [Bind(layer.at, layer.point, bool(layer.upper)) for layer in view.layers[1:]]
        there = {bind.target: bind for bind in (*shown, *roots.view_binds(client.host, site))}
        image = skeleton(client, tops)
        facts = {"root": "overlay", "image_id": image, **view.facts()}
        return Root(image, list(there.values()), own_tmp=False, facts=facts)

    def _image_id(self, client: Client) -> str:
        """The id now. The container is made from the id: a tag may move between two trials."""
        if self.dockerfile is not None:
            return built(client, self.dockerfile)
        name = imported(client, unpacked(str(self.image))) if is_path(str(self.image)) else str(self.image)
        if (about := client.image(name)) is None:
            raise ObstacleError(f"the engine has no image {name}; `docker pull {name}` fetches it.")
        return str(about["Id"])

    def engine_options(self, client: Client, site: Site, root: Root) -> list[str]:
        host, info = client.host, _info(client)
        # The same parent as on bare metal, so that both sides lie equally deep; under systemd it has to be a slice.
        parent = _PARENTS[1] if info["CgroupDriver"] == "systemd" else f"/{_PARENTS[0]}"
        tmpfs = {**own_tmpfs(root), **dict.fromkeys(_own_engine(host, root), "ro,nosuid,nodev,noexec,mode=000,size=4k")}
        # The read-only option does not reach what is mounted further down, so that nothing further down is shown.
        alone = "bind-recursive=disabled" if _version(client) >= _RECURSIVE_BY_NAME else "bind-nonrecursive=true"
        return [
            "--no-healthcheck",  # it would run beside the measurement
            "--pull=never",
            f"--env={tree.KEEPER_VARIABLE}={site.name}",
            f"--pids-limit={tree.PIDS_LIMIT}",
            f"--cgroup-parent={parent}",
            *([] if self.seccomp else ["--security-opt=seccomp=unconfined"]),
            *self._gpu_runtime(info, bool(handed_on(host, self.gpu))),
            *(f"--tmpfs={path}:{options}" for path, options in tmpfs.items()),
            *mount_options([*root.binds, *_covers(host, root)], "bind-propagation=rprivate", alone),
        ]

    def _gpu_runtime(self, info: Json, has_gpus: bool) -> Sequence[str]:
        """NVIDIA's runtime, which puts the driver's libraries into an image; the host's own root has them."""
        if self.rootfs is not None or not has_gpus:
            return ()
        if _NVIDIA in (info.get("Runtimes") or {}):
            return (f"--runtime={_NVIDIA}", *_FOR_NVIDIA)
        if self.gpu is None:
            return ()
        raise TrialError(
            "`gpu: true` with an image needs NVIDIA's container runtime, and this engine has none: install "
            "nvidia-container-toolkit, then `nvidia-ctk runtime configure --runtime=docker`, and restart the engine."
        )

    @classmethod
    def remove_groups(cls, host: Host) -> None:
        tree.remove_parent(host)

    @classmethod
    def leftovers(cls, host: Host) -> list[Leftover]:
        if engine.find() is None and not engine.holds_containers(host):
            return [Leftover(engine.SITE, f"the mount {point}") for point in engine.dead_mounts(host)]
        with engine.for_removal(host) as client:
            return [] if client is None else client.leftovers()

    @classmethod
    def sweep(cls, host: Host, name: str) -> None:
        if name == engine.SITE:
            _unmount_dead(host)
            return
        with ExitStack() as stack:
            stack.callback(tree.remove_parent, host)
            stack.callback(layers.remove, host, name)
            client = stack.enter_context(engine.for_removal(host))
            if client is None:
                _end_without_engine(host, name)
                _unmount_dead(host)  # of a container that the engine was creating when it was killed
            elif not client.remove(name):
                # The engine goes on creating one whose runner was killed, and lists it when it is made.
                host.clock.sleep_until(host.clock.now_ns() + round(_CREATED_WITHIN_S * 1e9))
                client.remove(name)


def _info(client: Client) -> dict[str, Any]:
    reported = json.loads(client.checked("say what it is", "info", "--format={{json .}}"))
    return dict(reported)


def _version(client: Client) -> int:
    """The first number of the command's own version."""
    words = client.host.run(["docker", "--version"]).out.split()
    first = words[2].partition(".")[0] if len(words) > 2 else ""
    return int(first) if first.isdigit() else 0


def skeleton(client: Client, tops: Iterable[Top]) -> str:
    """The id of an image with nothing but the folders and links of the host's root; made once an engine."""
    archive = _skeleton_tar(tops)
    name = f"{_SKELETON}:{hashlib.sha256(archive.encode()).hexdigest()[:16]}"
    if (about := client.image(name)) is not None:
        return str(about["Id"])
    return client.checked("make the skeleton image", "import", "-", name, stdin=archive)


def _skeleton_tar(tops: Iterable[Top]) -> str:
    """The same bytes for the same names."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for top in (*tops, *(Top(name) for name in OWN)):
            entry = tarfile.TarInfo(top.name)
            entry.type = tarfile.SYMTYPE if top.link else tarfile.DIRTYPE
            entry.linkname = top.link
            entry.mode = 0o1777 if top.name == "tmp" else 0o755
            tar.addfile(entry)
    return archive.getvalue().decode()


def built(client: Client, dockerfile: Path) -> str:
    """The id of the image that a Dockerfile describes; built without a network, and again only when a file changed."""
    name = f"{_BUILT}:{_context_hash(dockerfile)}"
    if (about := client.image(name)) is not None:
        return str(about["Id"])
    words = ["--network=none", "--force-rm", f"--tag={name}", f"--file={dockerfile}", str(dockerfile.parent.resolve())]
    done = client.run("build", *words, limit_s=_BUILT_WITHIN_S)
    about = client.image(name) if done.code == 0 else None
    if about is None:
        tail = f"{done.err}\n{done.out}".strip()[-1500:]
        raise ObstacleError(f"{dockerfile} cannot be built (no network in a build): {tail}")
    return str(about["Id"])


def _context_hash(dockerfile: Path) -> str:
    """Changes when the Dockerfile or any file beside it does."""
    digest = hashlib.sha256(dockerfile.read_bytes())
    context = dockerfile.parent
    for path in sorted(context.rglob("*")):
        seen = path.lstat()
        digest.update(f"{path.relative_to(context)}\0{seen.st_mode}\0{seen.st_size}\0{seen.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _holding_the_engine(client: Client, folders: set[str]) -> set[str]:
    """Folders that an engine refuses to bind because its own data lie in them: /var as a rule, and no software."""
    data = PurePosixPath(_info(client).get("DockerRootDir") or "/var/lib/docker")
    return {folder for folder in folders if data.is_relative_to(folder)}


def _own_engine(host: Host, root: Root) -> list[str]:
    """The folder of our own engine, where the container would see it: all of it is covered."""
    folder = str(engine.folder())
    return [folder] if _is_seen(mounts(host), root, folder) and _is(host, "-d", folder) else []


def _covers(host: Host, root: Root) -> list[Bind]:
    """Nothing over each engine's socket that the container would see: whoever reaches one is root (faults.md S15).

    The socket alone, for there is no telling what else its folder holds; where it lies is asked through all links.
    """
    if isinstance(host, OwnDevice):
        found = [os.path.realpath(path) for path in engine.candidates()]
    else:
        found = [host.run(["readlink", "-f", "--", path]).out.removesuffix("\n") for path in engine.candidates()]
    mounted, own = mounts(host), engine.folder()
    shown = [path for path in found if _is_seen(mounted, root, path) and not PurePosixPath(path).is_relative_to(own)]
    return [Bind("/dev/null", path) for path in dict.fromkeys(shown) if _is(host, "-S", path)]


def _is(host: Host, kind: Literal["-d", "-S"], path: str) -> bool:
    """Whether this is a folder, or a socket; on the device itself without a command, which takes milliseconds."""
    if isinstance(host, OwnDevice):
        try:
            mode = host.file(path).stat().st_mode
        except OSError:  # also where we may not look
            return False
        return stat.S_ISDIR(mode) if kind == "-d" else stat.S_ISSOCK(mode)
    return host.run(["test", kind, path]).code == 0


def _is_seen(mounted: list[Mount], root: Root, path: str) -> bool:
    """Whether a folder that is shown inside shows this path too: binds do not show what is mounted further down."""
    if root.image is not None or not path:
        return False
    above = [bind.target for bind in root.binds if PurePosixPath(path).is_relative_to(bind.target)]
    return any(holding(mounted, path) == holding(mounted, target) for target in above)


def _unmount_dead(host: Host) -> None:
    for point in engine.dead_mounts(host):
        host.run(["umount", "--", point]).checked()


def _end_without_engine(host: Host, name: str) -> None:
    """End what an engine that is no more has left running: the group of what kept the container open, and its jobs."""
    for pid in sorted(tree.processes_named(host, name, tree.KEEPER_VARIABLE)):
        folders = tree.folders_of_pid(host, pid)
        ours = {key: folder for key, folder in folders.items() if PurePosixPath(folder).parent.name in _PARENTS}
        if ours:
            tree.remove(host, ours)
    tree.kill_named(host, name)
    tree.remove(host, tree.own_folders(host, name))
