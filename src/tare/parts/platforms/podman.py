"""A container of Podman, through its command line: no daemon."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import ClassVar

from tare.base.errors import TrialError
from tare.base.host import Completed, Host, Job, OwnDevice, Process, Site, node_name
from tare.base.processes import is_root, ulimits
from tare.base.rulings import Ruling, obstacle
from tare.drivers import layers
from tare.drivers.cgroups import limits, tree
from tare.drivers.cgroups.job import KILL_ALL, Group, Sandbox, begun, run_in_group
from tare.drivers.containers import roots
from tare.drivers.containers.oci import PATH, SLEEPER
from tare.drivers.containers.place import LABEL, TMPFS, Container, ContainerPlace, Root, handed_over, labels, leftover
from tare.drivers.containers.roots import Bind, Unpacked, as_changes, image_config, is_path, packed, unpacked
from tare.drivers.nvidia import gpu_obstacles, handed_on
from tare.drivers.places import Phases, comes_true
from tare.parts.protocols import Json, Leftover

# Without systemd there is no systemd manager; and one manager everywhere gives the same folders everywhere.
# Its log would be in the job's output: a user without subordinate ids is warned at each command.
_PODMAN = ("podman", "--cgroup-manager=cgroupfs", "--log-level=fatal")
_PROCESSES = 32768
# Without root there is no control group in which anything could be limited.
_GROUPS = {True: (f"--pids-limit={tree.PIDS_LIMIT}", f"--cgroup-parent=/{tree.PARENT}"), False: ("--pids-limit=-1",)}
_MONITOR_ENDS_WITHIN_S = 0.5
_ADDED = ("HOSTNAME", "TERM", "container", "PWD")  # what podman puts into the environment by itself
# What podman, the Go runtime or the loader would heed if it were in podman's own environment.
_CLIENTS_OWN = re.compile(
    r"PATH|HOME|TMPDIR|TERM|USER|LOGNAME|SHELL|PWD|GLIBC_TUNABLES|NOTIFY_SOCKET|TARE_NAME|\w+_proxy|\w+_PROXY"
    r"|(LD|XDG|GO|LISTEN|CONTAINERS?|PODMAN|STORAGE|REGISTRY|BUILDAH|DBUS)_\w+|GO(DEBUG|GC|MAXPROCS|MEMLIMIT|TRACEBACK)"
)


class Podman(Container):
    """Run in a container of Podman: no network, no capabilities but for files, Podman's seccomp.

    A command of root's that may write keeps the four capabilities for files of other users.
    Without root (rootless) the device's files are bound to be read, the working folder is a copy, and limits are
    refused; the workload is root inside, which is the calling user outside.
    """

    tried: ClassVar[int | None] = 2

    def obstacles(self, host: Host) -> list[Ruling]:
        stopped = [*limits.limit_obstacles(host, self), *gpu_obstacles(host, self.gpu), *self.user_obstacles(host)]
        if host.run(["podman", "--version"]).code != 0:
            stopped.append(
                obstacle(
                    "needs.program",
                    "podman is not installed here: `apt-get install podman` (or your system's way) brings it.",
                )
            )
        elif (
            self.image is not None
            and not is_path(self.image)
            and host.run([*_PODMAN, "image", "exists", self.image]).code != 0
        ):
            stopped.append(
                obstacle("needs.image", f"podman has no image {self.image}: run `podman pull {self.image}`.")
            )
        if not is_root(host):
            stopped += self._rootless_obstacles(host)
        return stopped

    def _rootless_obstacles(self, host: Host) -> list[Ruling]:
        found = []
        if self.asked():
            sentence = "a limit needs a control group of a known place, and rootless podman has none: run as root."
            found.append(obstacle("needs.root", sentence))
        if host.run(["newuidmap", "--help"]).code == 127:
            sentence = "rootless podman needs newuidmap: `apt-get install uidmap` (or your system's way) brings it."
            found.append(obstacle("needs.program", sentence))
        return found

    def here(self, host: Host) -> dict[str, Json]:
        return {"version": host.run(["podman", "--version"]).out.strip().rpartition(" ")[2]}

    def started(self, host: Host, site: Site, stack: ExitStack, phases: Phases) -> tuple[ContainerPlace, Root]:
        stack.callback(_remove_groups, host)
        with phases.timed("open.root"):
            root = self.covered(self._root(host, site, stack))
        stack.callback(_remove, host, site.name)
        folder = ["--rootfs"] if root.path.startswith("/") else []
        with phases.timed("open.create"):
            # With runc where it is there: crun does not start on machines with both versions of control groups.
            runtime = ["--runtime=runc"] if host.run(["runc", "--version"]).code == 0 else []
            options = self._options(host, site, root)
            host.run([*_PODMAN, *runtime, "create", *options, *folder, root.path, *SLEEPER]).checked()
        # Its monitor leaves a file where it was started when a container runs out of memory.
        with phases.timed("open.start"), tree.parent_kept(host):
            host.run(["env", "-C", str(site.scratch), *_PODMAN, "start", site.name]).checked()
        group = self._group(host, site.name, _pid(host, site.name))
        return PodmanPlace(host, site.name, group, in_image=self.image is not None), root

    def _group(self, host: Host, name: str, pid: int) -> Group:
        """Its control group; without root it has none of its own, and only from inside its processes are known."""
        if not is_root(host):
            return Sandbox(host, {}, pid, (*_PODMAN, "exec", name, "/bin/sh", "-c", KILL_ALL))
        folders = tree.folders_of_pid(host, pid)
        limits.check_held(host, self, folders)
        return Group(host, folders, pid)

    def _root(self, host: Host, site: Site, stack: ExitStack) -> Root:
        if self.image is not None and not is_root(host) and is_path(self.image):
            found = unpacked(self.image)  # podman itself could not give its files to users that we do not have
            binds = roots.image_binds(host, site, stack)
            return Root(f"{found.root}:O", binds, image=replace(found.config, user=""))
        if self.image is not None:
            name = _taken(host, unpacked(self.image)) if is_path(self.image) else self.image
            (seen,) = json.loads(host.run([*_PODMAN, "image", "inspect", name]).checked().out)
            return self.image_root(host, site, stack, name, image_config(seen["Config"]))
        if not is_root(host):
            bound = roots.bound_root(host, site, stack)
            return Root(bound.path, bound.binds, facts=bound.facts)
        if self.sees_all(host, site):
            view = layers.compose(host, site, stack)
            return Root(view.root, roots.view_binds(host, site), own_tmp=False, facts=view.facts())
        return Root("/:O", roots.binds(host, site))

    def _options(self, host: Host, site: Site, root: Root) -> list[str]:
        """The same walls as docker's (faults.md S14)."""
        name = node_name(host)
        return [
            f"--name={site.name}",
            *(f"--label={name}={value}" for name, value in labels(site.name).items()),
            f"--hostname={name}",
            f"--network={self.network}",
            f"--add-host={name}:{roots.loop_address(host, name)}",
            "--cap-drop=ALL",
            *(f"--cap-add={name}" for name in self.capabilities(host, site)),
            "--security-opt=no-new-privileges",
            *([] if self.may_write(site) or not root.own_tmp else ["--read-only"]),
            "--read-only-tmpfs=false",
            # Podman would fill them with what the root has there: the host's sockets.
            *(
                f"--tmpfs={path}:{options},notmpcopyup"
                for path, options in TMPFS.items()
                if path != "/tmp" or root.own_tmp
            ),
            *_GROUPS[is_root(host)],
            f"--shm-size={self.shm_bytes(host)}b",
            f"--user={self.engines_user(host, site, root)}",
            "--workdir=/",
            "--entrypoint=",
            "--log-driver=none",
            *self._limits(host),
            *(f"--device={file.path}" for file in handed_on(host, self.gpu)),
            *(_mount(bind, "" if is_root(host) else "rprivate") for bind in root.binds),
        ]

    def engines_user(self, host: Host, site: Site, root: Root) -> str:
        if self.user is None and not is_root(host):
            return "0:0"  # which is us outside
        return super().engines_user(host, site, root)

    def _limits(self, host: Host) -> list[str]:
        # What is above podman's own is refused where root lacks CAP_SYS_RESOURCE, and it lowers its own processes'.
        ours = ulimits(host)
        ours["nproc"] = (_PROCESSES, _PROCESSES)
        flags = [f"--ulimit={name}={soft}:{hard}" for name, (soft, hard) in ours.items()]
        if self.quota is not None:
            flags += [f"--cpu-quota={self.quota_us()}", f"--cpu-period={limits.PERIOD_US}"]
        if self.cpuset is not None:
            flags.append(f"--cpuset-cpus={self.cpuset}")
        if self.mems is not None:
            flags.append(f"--cpuset-mems={self.mems}")
        if self.memory is not None:
            flags += [f"--memory={self.memory}b", f"--memory-swap={self.memory}b"]
        return flags

    @classmethod
    def leftovers(cls, host: Host) -> list[Leftover]:
        listed = host.run([*_PODMAN, "ps", "--all", f"--filter=label={LABEL}", "--format=json"])
        rows = json.loads(listed.out or "[]") if listed.code == 0 else []
        return [leftover("Podman", row["Id"], row["Labels"]) for row in rows or ()]

    @classmethod
    def sweep(cls, host: Host, name: str) -> None:
        with ExitStack() as stack:
            stack.callback(_remove_groups, host)
            stack.callback(layers.remove, host, name)
            _remove(host, name)


def _taken(host: Host, image: Unpacked) -> str:
    """The name of an image that came from a file or folder; imported once."""
    name = f"localhost/tare/taken:{image.id[:16] or 'folder'}"
    if not image.id or host.run([*_PODMAN, "image", "exists", name]).code != 0:
        changes = [f"--change={change}" for change in as_changes(image.config)]
        with packed(image) as archive:
            host.run([*_PODMAN, "import", "--quiet", *changes, str(archive), name], limit_s=600).checked()
    return name


def _client_env(host: Host) -> dict[str, str]:
    """Of the podman command itself; without root its containers are where the user's variables say."""
    if is_root(host) or not isinstance(host, OwnDevice):
        return {"PATH": PATH, "HOME": "/root"}
    kept = ("HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME")
    return {"PATH": PATH, **{name: os.environ[name] for name in kept if name in os.environ}}


def _mount(bind: Bind, recursive: str = "") -> str:
    """In a user namespace the kernel refuses to show a folder without what is mounted in it."""
    mode = "rw" if bind.writable else "ro"
    depth = f"bind-propagation={recursive}" if recursive else "bind-propagation=private,bind-nonrecursive"
    return f"--mount=type=bind,src={bind.source},dst={bind.target},{mode}=true,{depth}"


def _pid(host: Host, name: str) -> int:
    (seen,) = json.loads(host.run([*_PODMAN, "container", "inspect", "--format=json", name]).checked().out)
    if pid := seen["State"]["Pid"]:
        return int(pid)
    raise TrialError(f"the container {name} ended at once: its image needs a `sleep` command to be kept open.")


def _remove(host: Host, name: str) -> None:
    """Remove the container that carries our label; one that only has the name is someone else's."""
    listed = host.run([*_PODMAN, "ps", "--all", "--quiet", "--no-trunc", f"--filter=label={LABEL}={name}"])
    if listed.code == 127:  # without podman there is no container of its either
        return
    for found in listed.checked().out.split():
        host.run([*_PODMAN, "rm", "--force", "--time=0", "--volumes", "--ignore", found]).checked()


def _remove_groups(host: Host) -> None:
    """Podman leaves the group of its monitor behind; one that another container's monitor is in stays."""
    points = {key: f"{mount.point}/{tree.PARENT}/conmon" for key, mount in tree.hierarchies(host).items()}
    if points:
        comes_true(host.clock, lambda: not tree.pids(host, points), _MONITOR_ENDS_WITHIN_S)
    tree.remove_parent(host, points.values())


class PodmanPlace(ContainerPlace):
    """A running container of Podman; each command comes in by `podman exec`."""

    def __init__(self, host: Host, name: str, group: Group, *, in_image: bool) -> None:
        super().__init__(host, name, group)
        self.facts |= {"root": "image" if in_image else "overlay"}
        self._in_image = in_image

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        command = [*_PODMAN, "exec", *(["--interactive"] if stdin else []), self.name, *argv]
        return run_in_group(self._group, command, argv, limit_s=limit_s, stdin=stdin)

    def spawn(self, job: Job) -> Process:
        """With its own variables and nothing else; in an image the image's stay too, and its PATH wins."""
        env = {name: value for name, value in job.env.items() if not (self._in_image and name == "PATH")}
        program = "env" if self._in_image else "/usr/bin/env"
        lent, inside = handed_over(env, lambda name: not _CLIENTS_OWN.fullmatch(name), _ADDED, self.name, program)
        passed = [f"--env={name}" for name in lent]
        command = (*_PODMAN, "exec", f"--workdir={job.cwd}", *passed, self.name, *inside, *job.argv)
        return begun(self._group, Job(command, env={**lent, **_client_env(self._host)}))
