"""Containers that an OCI runtime makes of a bundle, without an engine: runc, crun, gVisor's runsc, and containerd.

crun is the runtime of most Podmans, written in C. gVisor answers system calls itself instead of the kernel. containerd
calls runc by its shim, as on Kubernetes nodes: its daemon and its `ctr` are the way in.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import field_validator

from tare.base.errors import StudyError, TrialError
from tare.base.host import Completed, Exit, Host, Job, Process, Site, make_file, node_name
from tare.base.processes import Identity
from tare.base.rulings import Ruling, obstacle
from tare.drivers.cgroups import limits, tree
from tare.drivers.cgroups.job import KILL_ALL, Group, Sandbox, begun, run_in_group
from tare.drivers.containers import daemons, isolation, oci
from tare.drivers.containers.daemons import Patience
from tare.drivers.containers.isolation import LAYERS, NEEDED_BY_USER, USUAL, Layer, held_capabilities
from tare.drivers.containers.oci import (
    SHELLS_OWN,
    Bundle,
    OciContainer,
    Runtime,
    RuntimePlace,
    bundle_config,
    number_in,
)
from tare.drivers.containers.place import ContainerPlace, Root
from tare.drivers.containers.roots import Bind
from tare.drivers.nvidia import gpu_obstacles, handed_on
from tare.drivers.places import PATH
from tare.parts.protocols import Json


class Runc(OciContainer):
    """Run in an OCI container made by runc alone: no daemon, every namespace and limit in the open.

    `image` is the folder of an unpacked root file system here (for one: `docker export NAME | tar -x -C FOLDER`).
    """

    tried: ClassVar[int | None] = 3

    isolation: tuple[Layer, ...] = USUAL
    """The layers of isolation beyond the mount namespace; fewer to see what each costs (then trust the workload)."""

    seccomp_profile: Path | None = None
    """A system-call filter of your own, as Docker writes them; else Docker's default one."""

    @field_validator("isolation", mode="after")
    @classmethod
    def _in_order(cls, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        if "user" in layers and not set(layers) >= NEEDED_BY_USER:
            raise ValueError(f"the layer `user` needs {', '.join(sorted(NEEDED_BY_USER))} with it")
        return tuple(layer for layer in LAYERS if layer in layers)

    def obstacles(self, host: Host) -> list[Ruling]:
        found = [*super().obstacles(host), *gpu_obstacles(host, self.gpu)]
        if not found:
            try:
                self._filter(host)
            except StudyError as error:
                found.append(obstacle("needs.file", str(error)))
        return found

    @classmethod
    def runtime(cls) -> Runtime:
        return Runtime("runc", "runc")

    def bundle(self, host: Host, site: Site, root: Root, user: Identity) -> oci.Bundle:
        return oci.Bundle(
            name=site.name,
            rootfs=root.path,
            user=user,
            limits=self.in_force(),
            binds=root.binds,
            shm_bytes=self.shm_bytes(host),
            swap_is_counted=limits.swap_is_counted(host),
            layers=tuple(layer for layer in self.isolation if layer != "network" or self.network == "none"),
            writable=self.may_write(site) or not root.own_tmp,
            seccomp=self._filter(host),
            gpus=handed_on(host, self.gpu),
            held=held_capabilities(host),
            needed=[f"CAP_{name}" for name in self.capabilities(host, site)],
            hostname=node_name(host),
            own_tmp=root.own_tmp,
        )

    def in_force(self) -> Self:
        """The limits whose layer is switched on."""
        off = {
            field: None
            for field, layer in {"quota": "cpu", "cpu_shares": "cpu", "cpuset": "cpuset", "memory": "memory"}.items()
            if layer not in self.isolation
        }
        copy = self.model_copy(update=off)
        copy._mems = self.mems if "cpuset" in self.isolation else None
        return copy

    def _filter(self, host: Host) -> Json | None:
        if "seccomp" not in self.isolation:
            return None
        machine = host.run(["uname", "-m"]).checked().out.strip()
        held = [] if "capabilities" in self.isolation else held_capabilities(host)
        if self.seccomp_profile is not None:
            return isolation.from_file(self.seccomp_profile, machine, held)
        return isolation.docker_default(machine)


# It refuses a machine that has control groups of both versions, by the list of those that the second offers. In a mount
# namespace of its own that list is empty, and it takes the first.
_HYBRID = """
list=/sys/fs/cgroup/unified/cgroup.controllers
[ -n "$(cat "$list" 2> /dev/null)" ] || exec "$@"
exec unshare --mount --propagation private sh -c 'mount --bind /dev/null "$0" && exec "$@"' "$list" "$@"
"""


class Crun(Runc):
    """Run in an OCI container made by crun: like runc, which it replaces on many systems.

    `image` is the folder of an unpacked root file system, or what the other containers take.
    """

    tried: ClassVar[int | None] = None

    @classmethod
    def runtime(cls) -> Runtime:
        return Runtime("crun", "crun", through=("sh", "-c", _HYBRID, "crun"))


_RUNTIME_FAILED = 128  # what runsc says of itself; of a command it says the command's own code
_NOT_STARTED = "executing processes for container"
_LOST = "waiting on pid"  # how it ends when the whole kernel went away under a command
_NO_SUCH_COMMAND, _KILLED = 127, 137  # as a shell says it


class Gvisor(OciContainer):
    """Run in gVisor (runsc): a kernel in user space between the workload and the device's.

    The device sees one process for all that runs inside: faults and switches that are counted inside are gVisor's, and
    past its memory limit the whole container dies. `image` is the folder of an unpacked root file system.
    """

    why_no_turns: ClassVar[str | None] = "has a kernel and clocks of its own"

    intercept: Literal["ptrace", "systrap", "kvm"] | None = None
    """How system calls are caught: what runsc calls its platform; its own choice by default."""

    @classmethod
    def runtime(cls) -> Runtime:
        # Without a network of its own there is none; and the device's files are only read.
        return Runtime("runsc", "runsc", ("--network=none", "--overlay=false"), own_root=True)

    def obstacles(self, host: Host) -> list[Ruling]:
        passed = (
            [obstacle("needs.gpu", "a GPU is not handed on to gVisor: take docker, podman or runc for it.")]
            if self.gpu
            else []
        )
        return [*super().obstacles(host), *passed]

    def own_runtime(self) -> Runtime:
        plain = self.runtime()
        flags = tuple(flag.replace("--network=none", f"--network={self.network}") for flag in plain.flags)
        chosen = () if self.intercept is None else (f"--platform={self.intercept}",)
        return replace(plain, flags=(*flags, *chosen))

    def bundle(self, host: Host, site: Site, root: Root, user: Identity) -> oci.Bundle:
        return oci.Bundle(
            name=site.name,
            rootfs=root.path,
            user=user,
            limits=self,
            binds=root.binds,
            shm_bytes=self.shm_bytes(host),
            swap_is_counted=limits.swap_is_counted(host),
            writable=self.may_write(site) or not root.own_tmp,
            needed=[f"CAP_{name}" for name in self.capabilities(host, site)],
            hostname=node_name(host),
            own_tmp=root.own_tmp,
        )

    def place(self, host: Host, name: str, group: Group, bundle: str, made: oci.Bundle) -> RuntimePlace:
        runtime = self.own_runtime().found(host)
        kill = (*runtime.argv(name), "exec", name, "/bin/sh", "-c", KILL_ALL)
        sandbox = Sandbox(group.host, group.folders, group.keeper, kill)
        return SandboxPlace(host, name, sandbox, bundle, made, runtime)


class SandboxPlace(RuntimePlace):
    """A running container of gVisor: a host with a kernel of its own."""

    def __init__(
        self, host: Host, name: str, sandbox: Sandbox, bundle: str, made: oci.Bundle, runtime: Runtime
    ) -> None:
        super().__init__(host, name, sandbox, bundle, made, runtime)
        self._sandbox = sandbox

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        done = super().run(argv, limit_s=limit_s, stdin=stdin)
        return replace(done, code=_code(self._sandbox, done.code, done.err))

    def spawn(self, job: Job) -> Process:
        return SandboxProcess(super().spawn(job), self._sandbox)


class SandboxProcess:
    """A job in gVisor, whose ending is told as on the other platforms."""

    def __init__(self, inner: Process, sandbox: Sandbox) -> None:
        self._inner = inner
        self._sandbox = sandbox

    def wait(self, limit_s: float) -> Exit:
        ended = self._inner.wait(limit_s)
        return replace(ended, code=_code(self._sandbox, ended.code, ended.err))

    def kill(self) -> None:
        self._inner.kill()


def _code(sandbox: Sandbox, code: int, err: str) -> int:
    """runsc's own failure in a shell's words: a command that is not there, or one that died with its whole kernel."""
    if code != _RUNTIME_FAILED:
        return code
    if _LOST in err or not sandbox.lives():
        return _KILLED
    return _NO_SUCH_COMMAND if _NOT_STARTED in err else code


_RUNTIME = Runtime("ctr", "containerd")
_NAMESPACE = "tare"
_SEEN_AT = "/run/tare-environment"  # where a container finds the environments of its commands
_PLAIN = re.compile(rf"(?!({SHELLS_OWN})$)[A-Za-z_][A-Za-z0-9_]*")
_TOLD = ("sh", "-c", 'exec "$@"', "sh")  # tells a command that is not there by its code, as containerd does not
_NOT_OURS = ("PATH", "HOME", "PWD", "OLDPWD", "SHLVL", "_")
_NOT_THERE = "not found"


class Containerd(Runc):
    """Run in a container of containerd, by `ctr`: like runc, which its shim calls, with the daemon's own way in.

    A private containerd runs for as long as a container is open; the system's own is left alone. `image` is the
    folder of an unpacked root file system, or what the other containers take.
    """

    tried: ClassVar[int | None] = None

    @classmethod
    def runtime(cls) -> Runtime:
        return _RUNTIME

    def obstacles(self, host: Host) -> list[Ruling]:
        found = super().obstacles(host)
        if host.run(["containerd", "--version"]).code != 0:
            sentence = (
                "containerd is not installed here: `apt-get install containerd` (or your system's way) brings it."
            )
            found.append(obstacle("needs.program", sentence))
        return found

    def here(self, host: Host) -> dict[str, Json]:
        return {"version": host.run(["containerd", "--version"]).out.split()[2]}

    def start(self, host: Host, made: Bundle, bundle: str, stack: ExitStack) -> Group:
        stack.callback(self.remove, host, made.name)
        folder = _folder(made.name)
        host.run(["mkdir", "-p", "-m", "0711", "--", f"{folder}/env"]).checked()
        daemons.containerd(host, folder, _PATIENCE)
        config = bundle_config(made)
        # Its own /run would hide it, so that it comes after that.
        config["mounts"].append(oci.bind_mount(Bind(f"{folder}/env", _SEEN_AT)))
        make_file(host, f"{bundle}/config.json", json.dumps(config))
        command = [*_ctr(made.name), "run", "--detach", "--null-io", "--config", f"{bundle}/config.json"]
        with tree.parent_kept(host):
            done = host.run([*command, "--pid-file", f"{bundle}/pid", made.name])
        if done.code != 0:
            raise TrialError(f"containerd could not start the container {made.name}: {done.err.strip()[-2000:]}")
        pid = int(host.read(f"{bundle}/pid"))
        return Group(host, tree.folders_of_pid(host, pid), pid)

    def place(self, host: Host, name: str, group: Group, bundle: str, made: Bundle) -> ContainerPlace:
        return ContainerdPlace(host, name, group, made)

    @classmethod
    def remove(cls, host: Host, name: str) -> None:
        """By its own daemon, which is started again where a dead run left a container without one."""
        folder = _folder(name)
        if host.run(["test", "-d", folder]).code != 0:
            return
        tree.empty(host, tree.own_folders(host, name))
        daemons.containerd(host, folder, _PATIENCE)
        for words in (["tasks", "delete", "--force", name], ["containers", "delete", name]):
            done = host.run([*_ctr(name), *words])
            if done.code != 0 and _NOT_THERE not in done.err:
                raise TrialError(f"containerd could not remove the container {name}: {done.err.strip()}")
        daemons.stop_containerd(host, folder, _PATIENCE)
        host.run(["rm", "-rf", "--one-file-system", "--", folder]).checked()


_PATIENCE = Patience()


def _folder(name: str) -> str:
    """Of one container and its daemon: short, for the path of a socket has at most 107 characters."""
    return _RUNTIME.root(name) + f"/{name}"


def _ctr(name: str) -> list[str]:
    return ["ctr", "--address", daemons.containerd_socket(_folder(name)), "--namespace", _NAMESPACE]


class ContainerdPlace(ContainerPlace):
    """A running container of containerd; each command comes in by `ctr tasks exec`."""

    def __init__(self, host: Host, name: str, group: Group, made: Bundle) -> None:
        super().__init__(host, name, group)
        self.facts |= {"root": "overlay", "isolation": list(made.layers)}
        self._user = made.user
        self._folder = _folder(name)
        self._numbers = itertools.count()

    def user(self) -> Identity:
        return self._user

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        command = [*self._exec(next(self._numbers), "/"), *_TOLD, *argv]
        return run_in_group(self._group, command, argv, limit_s=limit_s, stdin=stdin)

    def spawn(self, job: Job) -> Process:
        number = next(self._numbers)
        file = f"{self._folder}/env/{number}"
        owned = [f"--owner={self._user.uid}", f"--group={self._user.gid}", "--mode=0400"]
        text = _environment({**job.env, tree.NAME_VARIABLE: self.name})
        self._host.run(["install", *owned, "/dev/stdin", file], stdin=text).checked()
        inside = ("sh", "-c", '. "$0"', f"{_SEEN_AT}/{number}", *job.argv)
        command = (*self._exec(number, job.cwd), *inside)
        pid_file = (
            f"{self._folder}/containerd.state/io.containerd.runtime.v2.task/{_NAMESPACE}/{self.name}/{number}.pid"
        )
        return begun(self._group, Job(command, env={"PATH": PATH}), lambda: number_in(self._host, pid_file))

    def _exec(self, number: int, cwd: str) -> list[str]:
        return [*_ctr(self.name), "tasks", "exec", "--exec-id", str(number), "--cwd", cwd, self.name]


def _environment(env: Mapping[str, str]) -> str:
    """What a shell reads to have these variables and no other: `ctr` takes none, and a command line is public.

    Those that a shell cannot export as they are (bash refuses UID, and ends) are left to `env`.
    """
    plain = [name for name in env if _PLAIN.fullmatch(name)]
    away = [word for name in _NOT_OURS if name not in env for word in ("-u", name)]
    others = [shlex.quote(f"{name}={value}") for name, value in env.items() if name not in plain]
    lines = [f"export {name}={shlex.quote(env[name])}" for name in plain]
    return "\n".join([*lines, " ".join(["exec env", *away, *others, '"$@"'])]) + "\n"
