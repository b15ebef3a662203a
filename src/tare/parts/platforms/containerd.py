"""Containers of containerd, which calls runc by its shim, as on Kubernetes nodes; `ctr` is the way in."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import ClassVar

from tare.base.errors import TrialError
from tare.base.host import Completed, Host, Job, Process, make_file
from tare.base.processes import Identity
from tare.base.rulings import Ruling, obstacle
from tare.drivers.cgroups import tree
from tare.drivers.cgroups.job import Group, begun, run_in_group
from tare.drivers.containers import daemons, oci
from tare.drivers.containers.daemons import Patience
from tare.drivers.containers.oci import SHELLS_OWN, Bundle, Runtime, bundle_config, number_in
from tare.drivers.containers.place import ContainerPlace
from tare.drivers.containers.roots import Bind
from tare.drivers.places import PATH
from tare.parts.platforms.runc import Runc
from tare.parts.protocols import Json

_RUNTIME = Runtime("ctr", "containerd")
_NAMESPACE = "tare"
_PATIENCE = Patience()
_SEEN_AT = "/run/tare-environment"  # where a container finds the environments of its commands
_PLAIN = re.compile(rf"(?!({SHELLS_OWN})$)[A-Za-z_][A-Za-z0-9_]*")
_THROUGH_SHELL = ("sh", "-c", 'exec "$@"', "sh")  # whose code says that a command is not there
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
        stopped = super().obstacles(host)
        if host.run(["containerd", "--version"]).code != 0:
            sentence = (
                "containerd is not installed here: `apt-get install containerd` (or your system's way) brings it."
            )
            stopped.append(obstacle("needs.program", sentence))
        return stopped

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
        command = [*self._exec(next(self._numbers), "/"), *_THROUGH_SHELL, *argv]
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
