"""A container of Podman: no daemon, with or without root."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import ClassVar

from tare.base.host import Host, Site
from tare.base.processes import is_root
from tare.base.rulings import Ruling, obstacle
from tare.drivers import layers
from tare.drivers.cgroups import limits, tree
from tare.drivers.cgroups.job import KILL_ALL, Group, Sandbox
from tare.drivers.containers import roots
from tare.drivers.containers.client import Client, is_installed, podman
from tare.drivers.containers.engine_container import EngineContainer, first_pid, imported, mount_options, own_tmpfs
from tare.drivers.containers.place import Root
from tare.drivers.containers.unpacked import image_config, is_path, unpacked
from tare.drivers.nvidia import gpu_obstacles
from tare.drivers.places import comes_true
from tare.parts.protocols import Json, Leftover

_PROCESSES = 32768
# Without root there is no control group in which anything could be limited.
_GROUPS = {True: (f"--pids-limit={tree.PIDS_LIMIT}", f"--cgroup-parent=/{tree.PARENT}"), False: ("--pids-limit=-1",)}
_MONITOR_ENDS_WITHIN_S = 0.5


class Podman(EngineContainer):
    """Run in a container of Podman: no network, no capabilities but for files, Podman's seccomp.

    A command of root's that may write keeps the four capabilities for files of other users.
    Without root (rootless) the device's files are bound to be read, the working folder is a copy, and limits are
    refused; the workload is root inside, which is the calling user outside.
    """

    tried: ClassVar[int | None] = 2

    def obstacles(self, host: Host) -> list[Ruling]:
        stopped = [*limits.limit_obstacles(host, self), *gpu_obstacles(host, self.gpu), *self.user_obstacles(host)]
        if not is_installed(host, "podman"):
            sentence = "podman is not installed here: `apt-get install podman` (or your system's way) brings it."
            stopped.append(obstacle("needs.program", sentence))
        elif self.image is not None and not is_path(self.image) and podman(host).image(self.image) is None:
            sentence = f"podman has no image {self.image}: run `podman pull {self.image}`."
            stopped.append(obstacle("needs.image", sentence))
        if not is_root(host):
            stopped += self._rootless_obstacles(host)
        return stopped

    def _rootless_obstacles(self, host: Host) -> list[Ruling]:
        stopped = []
        if self.asked():
            sentence = "a limit needs a control group of a known place, and rootless podman has none: run as root."
            stopped.append(obstacle("needs.root", sentence))
        if host.run(["newuidmap", "--help"]).code == 127:
            sentence = "rootless podman needs newuidmap: `apt-get install uidmap` (or your system's way) brings it."
            stopped.append(obstacle("needs.program", sentence))
        return stopped

    def here(self, host: Host) -> dict[str, Json]:
        return {"version": host.run(["podman", "--version"]).out.strip().rpartition(" ")[2]}

    def client(self, host: Host, stack: ExitStack) -> Client:
        # crun does not start on machines with both versions of control groups.
        return podman(host, *(["--runtime=runc"] if is_installed(host, "runc") else []))

    def group(self, client: Client, name: str) -> Group:
        """Without root it has no group of its own, and only from inside its processes are known."""
        if is_root(client.host):
            return super().group(client, name)
        return Sandbox(
            client.host, {}, first_pid(client, name), (*client.words, "exec", name, "/bin/sh", "-c", KILL_ALL)
        )

    def root(self, client: Client, site: Site, stack: ExitStack) -> Root:
        host = client.host
        if self.image is not None and not is_root(host) and is_path(self.image):
            image = unpacked(self.image)  # podman itself could not give its files to users that we do not have
            binds = roots.image_binds(host, site, stack)
            return Root(f"{image.root}:O", binds, facts={"root": "image"}, image=replace(image.config, user=""))
        if self.image is not None:
            name = imported(client, unpacked(self.image)) if is_path(self.image) else self.image
            about = client.image(name) or {}
            return self.image_root(host, site, stack, name, image_config(about.get("Config") or {}))
        if not is_root(host):
            bound = roots.bound_root(host, site, stack)
            return Root(bound.path, bound.binds, facts=bound.facts)
        if self.sees_all(host, site):
            view = layers.compose(host, site, stack)
            facts = {"root": "overlay", **view.facts()}
            return Root(view.root, roots.view_binds(host, site), own_tmp=False, facts=facts)
        return Root("/:O", roots.binds(host, site), facts={"root": "overlay"})

    def engine_options(self, client: Client, site: Site, root: Root) -> list[str]:
        host = client.host
        # In a user namespace the kernel refuses to show a folder without what is mounted in it.
        alone = ["bind-propagation=private", "bind-nonrecursive"]
        return [
            "--http-proxy=false",
            "--read-only-tmpfs=false",
            # Podman would fill them with what the root has there: the host's sockets.
            *(f"--tmpfs={path}:{options},notmpcopyup" for path, options in own_tmpfs(root).items()),
            *_GROUPS[is_root(host)],
            *mount_options(root.binds, *(alone if is_root(host) else ["bind-propagation=rprivate"])),
            *(["--rootfs"] if root.path.startswith("/") else []),
        ]

    def engines_user(self, host: Host, site: Site, root: Root) -> str:
        if self.user is None and not is_root(host):
            return "0:0"  # which is us outside
        return super().engines_user(host, site, root)

    def process_limits(self, host: Host) -> dict[str, tuple[int, int]]:
        # What is above podman's own is refused where root lacks CAP_SYS_RESOURCE, and it lowers its own processes'.
        return {**super().process_limits(host), "nproc": (_PROCESSES, _PROCESSES)}

    @classmethod
    def remove_groups(cls, host: Host) -> None:
        """Podman leaves the group of its monitor behind; one that another container's monitor is in stays."""
        points = {key: f"{mount.point}/{tree.PARENT}/conmon" for key, mount in tree.hierarchies(host).items()}
        if points:
            comes_true(host.clock, lambda: not tree.pids(host, points), _MONITOR_ENDS_WITHIN_S)
        tree.remove_parent(host, points.values())

    @classmethod
    def leftovers(cls, host: Host) -> list[Leftover]:
        return podman(host).leftovers() if is_installed(host, "podman") else []

    @classmethod
    def sweep(cls, host: Host, name: str) -> None:
        with ExitStack() as stack:
            stack.callback(cls.remove_groups, host)
            stack.callback(layers.remove, host, name)
            if is_installed(host, "podman"):
                podman(host).remove(name)
