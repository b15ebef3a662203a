"""A container of the Docker engine, through its SDK."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from tare.base.errors import TrialError
from tare.base.host import Completed, Host, Job, OwnDevice, Process, Site, node_name
from tare.base.processes import Mount, holding, identity, mounts, ulimits
from tare.base.rulings import Ruling, obstacle
from tare.drivers import layers
from tare.drivers.cgroups import limits, tree
from tare.drivers.cgroups.job import Group
from tare.drivers.containers import docker, engine, roots
from tare.drivers.containers.daemons import serving
from tare.drivers.containers.docker import ExecProcess, Inside, environment
from tare.drivers.containers.oci import PATH, SLEEPER
from tare.drivers.containers.place import LABEL, TMPFS, Container, ContainerPlace, Root, labels, leftover
from tare.drivers.containers.roots import Bind, Top, is_path, unpacked
from tare.drivers.nvidia import GpuFile, gpu_obstacles, handed_on
from tare.drivers.places import Phases
from tare.parts.protocols import Json, Leftover

_ADDED = ("HOSTNAME", tree.KEEPER_VARIABLE)  # what the container has and a command inside does not get
_NVIDIA = "nvidia"
_ALL_GPUS = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}  # for NVIDIA's runtime
_CREATED_WITHIN_S = 2.0
_PARENTS = (tree.PARENT, f"{tree.PARENT}.slice")


class Docker(Container):
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
        if not stopped and self.image is not None and engine.answers(host):
            with engine.opened(host) as client:
                if not is_path(self.image) and docker.missing(client, self.image):
                    stopped.append(
                        obstacle(
                            "needs.image",
                            f"the engine has no image {self.image}: run `docker pull {self.image}` (with an engine of "
                            "your own running, not one that tare started), or name its tarball, `image: ./FILE.tar`.",
                        )
                    )
        return stopped

    def here(self, host: Host) -> dict[str, Json]:
        with engine.opened(host) as client, engine.errors("say what it is"):
            reported = client.info()
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

    def started(self, host: Host, site: Site, stack: ExitStack, phases: Phases) -> tuple[ContainerPlace, Root]:
        with phases.timed("open.engine"):
            client = stack.enter_context(engine.opened(host))
        stack.callback(tree.remove_parent, host)
        with phases.timed("open.root"):
            root = self.covered(self._root(host, client, site, stack))
        with phases.timed("open.start"):
            gpus = handed_on(host, self.gpu)
            inside = self._inside(host, client, site, root, gpus, stack)
        limits.check_held(host, self, inside.group.folders)
        place = DockerPlace(host, site.name, inside, root)
        place.facts |= {**root.facts, **({"gpu_files": len(gpus)} if gpus else {})}
        return place, root

    def _root(self, host: Host, client: Any, site: Site, stack: ExitStack) -> Root:
        """What the container sees as its file system."""
        if self.rootfs is None:
            image = self._image_id(client)
            root = self.image_root(host, site, stack, image, docker.config_of(client, image))
            return replace(root, facts={"root": "image", "image_id": image})
        tops = roots.tops(host)
        if self.sees_all(host, site):
            return self._view(host, client, site, stack, tops)
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
        skeleton = docker.skeleton(client, tops)
        return Root(skeleton, [*shown, *on_top], facts={"root": kind, "image_id": skeleton})

    def _view(self, host: Host, client: Any, site: Site, stack: ExitStack, tops: Sequence[Top]) -> Root:
        """All files of the host, writable: the folders of the root's layer, and the other layers."""
        view = layers.compose(host, site, stack)
        names = [*(top.name for top in tops if not top.link), "tmp"]
        shown = [Bind(f"{view.root}/{name}", f"/{name}", writable=True) for name in names]
        shown += [Bind(layer.at, layer.point, bool(layer.upper)) for layer in view.layers[1:]]
        there = {bind.target: bind for bind in (*shown, *roots.view_binds(host, site))}
        skeleton = docker.skeleton(client, tops)
        facts = {"root": "overlay", "image_id": skeleton, **view.facts()}
        return Root(skeleton, list(there.values()), own_tmp=False, facts=facts)

    def _image_id(self, client: Any) -> str:
        if self.dockerfile is not None:
            return docker.built(client, self.dockerfile)
        if is_path(str(self.image)):
            return docker.taken(client, unpacked(str(self.image)))
        return docker.pinned(client, str(self.image))

    def _inside(
        self, host: Host, client: Any, site: Site, root: Root, gpus: Sequence[GpuFile], stack: ExitStack
    ) -> Inside:
        runtime = self._gpu_runtime(client, gpus)
        devices = [{"PathOnHost": file.path, "PathInContainer": file.path, "CgroupPermissions": "rwm"} for file in gpus]
        # An image's own entry point would swallow the sleeper, and its health check would run beside the measurement.
        config = {
            "Image": root.path,
            "Cmd": list(SLEEPER),
            "Entrypoint": [],
            "User": self.engines_user(host, site, root),
            "Hostname": node_name(host),
            "Env": environment(
                {**_environment(root), **(_ALL_GPUS if runtime else {}), tree.KEEPER_VARIABLE: site.name}
            ),
            "Labels": labels(site.name),
            "WorkingDir": "/",
            "Healthcheck": {"Test": ["NONE"]},
            "HostConfig": {
                **self._walls(host, site, root),
                "CgroupParent": _cgroup_parent(client),
                **({"Devices": devices} if gpus else {}),
                **({"Runtime": runtime} if runtime else {}),
                **self._resources(),
            },
        }
        stack.callback(_remove, client, site.name)
        with tree.parent_kept(host), engine.errors(f"start the container {site.name}"):
            made = client.api.create_container_from_config(config, name=site.name)["Id"]
            client.api.start(made)
            pid = client.api.inspect_container(made)["State"]["Pid"]
        if not pid:
            raise TrialError(
                f"the container {site.name} ended at once: its image needs a `sleep` command to be kept open, "
                "and the user that tare runs as must be allowed to run it."
            )
        return Inside(client.api, made, host, Group(host, tree.folders_of_pid(host, pid), pid))

    def _walls(self, host: Host, site: Site, root: Root) -> dict[str, Json]:
        """No network, no capability but for files, a read-only root unless a command of the user's runs (S14, S15)."""
        name = node_name(host)
        own = {path: options for path, options in TMPFS.items() if path != "/tmp" or root.own_tmp}
        return {
            "NetworkMode": self.network,
            "ExtraHosts": [f"{name}:{roots.loop_address(host, name)}"],
            "IpcMode": "private",
            "CapDrop": ["ALL"],
            "CapAdd": self.capabilities(host, site),
            "SecurityOpt": ["no-new-privileges", *([] if self.seccomp else ["seccomp=unconfined"])],
            "Privileged": False,
            "ReadonlyRootfs": root.own_tmp and not self.may_write(site),
            "PidsLimit": tree.PIDS_LIMIT,
            "ShmSize": self.shm_bytes(host),
            "LogConfig": {"Type": "none"},
            "RestartPolicy": {"Name": "no"},
            "Mounts": [_mount(bind) for bind in (*root.binds, *_covers(host, root))],
            "Tmpfs": {**own, **dict.fromkeys(_own_engine(host, root), "ro,nosuid,nodev,noexec,mode=000,size=4k")},
            "Ulimits": [{"Name": name, "Soft": soft, "Hard": hard} for name, (soft, hard) in ulimits(host).items()],
        }

    def _resources(self) -> dict[str, Json]:
        # CpuQuota, not NanoCpus: a container made with the latter cannot be updated with the former.
        quota = {} if self.quota is None else {"CpuQuota": self.quota_us(), "CpuPeriod": limits.PERIOD_US}
        # Memory and swap together: no swap.
        memory = {} if self.memory is None else {"Memory": self.memory, "MemorySwap": self.memory}
        cores = {"CpusetCpus": self.cpuset, "CpusetMems": self.mems}
        return {**quota, **memory, **{name: value for name, value in cores.items() if value is not None}}

    def _gpu_runtime(self, client: Any, gpus: Sequence[GpuFile]) -> str:
        """NVIDIA's runtime, which puts the driver's libraries into an image; the host's own root has them."""
        if self.rootfs is not None or not gpus:
            return ""
        with engine.errors("say which runtimes it has"):
            there = _NVIDIA in (client.info().get("Runtimes") or {})
        if there or self.gpu is None:
            return _NVIDIA if there else ""
        raise TrialError(
            "`gpu: true` with an image needs NVIDIA's container runtime, and this engine has none: install "
            "nvidia-container-toolkit, then `nvidia-ctk runtime configure --runtime=docker`, and restart the engine."
        )

    @classmethod
    def leftovers(cls, host: Host) -> list[Leftover]:
        if engine.find() is None and not engine.holds_containers(host):
            return [Leftover(engine.SITE, f"the mount {point}") for point in engine.dead_mounts(host)]
        with engine.for_removal(host) as client:
            if client is None:
                return []
            with engine.errors("list its containers"):
                listed = client.api.containers(all=True, filters={"label": LABEL})
        return [leftover("Docker", each["Id"], each["Labels"]) for each in listed]

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
            elif not _remove(client, name):
                # The engine goes on creating one whose runner was killed, and lists it when it is made.
                host.clock.sleep_until(host.clock.now_ns() + round(_CREATED_WITHIN_S * 1e9))
                _remove(client, name)


def _mount(bind: Bind) -> dict[str, Json]:
    # The read-only flag does not reach what is mounted further down, so that nothing further down is shown.
    options = {"Propagation": "rprivate", "NonRecursive": True}
    there = {"Type": "bind", "Source": bind.source, "Target": bind.target}
    return {**there, "ReadOnly": not bind.writable, "BindOptions": options}


def _environment(root: Root) -> Mapping[str, str]:
    """What the container itself gets."""
    return {"PATH": PATH} if root.image is None else root.image.env


def _cgroup_parent(client: Any) -> str:
    """The same parent as on bare metal, so that both sides lie equally deep; under systemd it has to be a slice."""
    with engine.errors("say which control groups it uses"):
        driver = client.info()["CgroupDriver"]
    return _PARENTS[1] if driver == "systemd" else f"/{_PARENTS[0]}"


def _holding_the_engine(client: Any, folders: set[str]) -> set[str]:
    """Folders that an engine refuses to bind because its own data lie in them: /var as a rule, and no software."""
    with engine.errors("say where its data are"):
        data = PurePosixPath(client.info().get("DockerRootDir") or "/var/lib/docker")
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


def _remove(client: Any, name: str) -> bool:
    """Remove the container that carries our label, if there is one; one that only has the name is someone else's."""
    from docker.errors import NotFound

    with engine.errors(f"remove the container {name}"):
        listed = client.api.containers(all=True, filters={"label": f"{LABEL}={name}"})
        for found in listed:
            try:
                client.api.remove_container(found["Id"], force=True, v=True)
            except NotFound:
                continue
    return bool(listed)


class DockerPlace(ContainerPlace):
    """A running container; each command comes in by the engine's exec."""

    def __init__(self, host: Host, name: str, inside: Inside, root: Root) -> None:
        super().__init__(host, name, inside.group)
        self._inside = inside
        self._root = root

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        ended = ExecProcess(self._inside, argv, env=list(_ADDED), stdin=stdin).wait(limit_s)
        if ended.timed_out:
            err = f"{ended.err}\nended by tare: no answer within {limit_s:g} s"
            return Completed(tuple(argv), 124, ended.out, err)
        return Completed(tuple(argv), ended.code, ended.out, ended.err)

    def spawn(self, job: Job) -> Process:
        return ExecProcess(self._inside, job.argv, env=self._environment(job), cwd=job.cwd, clocked=True)

    def helpers(self) -> set[int]:
        found = engine.find() if isinstance(self._host, OwnDevice) else None
        return serving(self._host, self._group.keeper, None if found is None else found.socket)

    def _environment(self, job: Job) -> list[str]:
        """On the host's root the job's own and nothing else; in an image the image's stay, and its PATH wins."""
        env = {**job.env, tree.NAME_VARIABLE: self.name}
        added = dict.fromkeys(_ADDED, "")
        own = _environment(self._root)
        if self._root.image is None:
            return environment(env, present={**added, **own})
        own_path = {"PATH": own["PATH"]} if "PATH" in own else {}
        return environment({**env, **own_path}, present=added)
