"""A container made by an OCI runtime alone: a bundle that its command line runs, and no daemon."""

from __future__ import annotations

import itertools
import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from tare.errors import TrialError
from tare.host import Completed, Host, Job, Process, Site
from tare.parts import cgroups, hostroot, limits, oci, strays
from tare.parts.container import Container, Place
from tare.parts.group import Group, GroupProcess, run_in_group
from tare.parts.identity import Identity, identity, is_root
from tare.parts.phases import Phases
from tare.parts.protocols import Json, Leftover

STATE = "/run/tare"


@dataclass(frozen=True, slots=True)
class Runtime:
    """The program that runs bundles, and how it is called."""

    program: str
    package: str
    flags: tuple[str, ...] = ()

    own_root: bool = False  # each container has a state folder of its own: the runtime takes a name for any longer one
    path: str = ""  # of the program, once it was looked up

    @property
    def state(self) -> str:
        """The folder that holds one folder a container, called by its name."""
        return f"{STATE}/{self.program}"

    def root(self, name: str) -> str:
        """The state folder that a container's calls name."""
        return f"{self.state}/{name}" if self.own_root else self.state

    def argv(self, name: str) -> tuple[str, ...]:
        """How every call about this container begins."""
        return (self.path or self.program, "--root", self.root(name), *self.flags)

    def found(self, host: Host) -> Runtime:
        """The same with the program's whole path: jobs come in with a PATH of their own, which may not lead to it."""
        return replace(self, path=host.run(["sh", "-c", 'command -v -- "$1"', "found", self.program]).out.strip())


class OciContainer(Container):
    """What every runtime shares: the overlay of the host's root, the bundle, and how commands come in."""

    @classmethod
    @abstractmethod
    def runtime(cls) -> Runtime: ...

    def own_runtime(self) -> Runtime:
        """The runtime as this very container calls it."""
        return self.runtime()

    @abstractmethod
    def bundle(self, host: Host, site: Site, rootfs: str, user: Identity) -> oci.Bundle: ...

    def obstacles(self, host: Host) -> list[str]:
        sentences, program = limits.limit_obstacles(host, self), self.runtime().program
        if host.run([program, "--version"]).code != 0:
            how = f"`apt-get install {self.runtime().package}` (or your system's way)"
            sentences.append(f"{program} is not installed here: {how} brings it.")
        if not is_root(host):
            sentences.append(f"{program} needs root here, to mount the container's root and to make its control group.")
        if self.image is not None and host.run(["test", "-d", self.image]).code != 0:
            sentences.append(f"there is no folder {self.image}: here `image` is an unpacked root file system.")
        return sentences

    def here(self, host: Host) -> dict[str, Json]:
        said = host.run([self.runtime().program, "--version"]).out.split("\n")[0]
        return {"version": said.rpartition(" ")[2]}

    def make(self, host: Host, site: Site) -> Host:
        with ExitStack() as stack:
            stack.callback(cgroups.remove, host, cgroups.own_folders(host, site.name))
            phases = Phases(host.clock)
            with phases.timed("open.root"):
                rootfs = hostroot.overlay(host, site, stack, lower=self.image or "/")
            bundle = rootfs.removesuffix("/root")
            user = identity(host)
            made = self.bundle(host, site, rootfs, user)
            config = oci.config(made)
            _make_file(host, f"{bundle}/config.json", json.dumps(config))
            with phases.timed("open.start"):
                pid = _start(host, self.own_runtime(), site.name, bundle, stack)
            folders = cgroups.folders_of_pid(host, pid)
            limits.check_held(host, made.limits, folders)
            place = self.place(host, site.name, Group(host, folders, pid), bundle, made)
            if self.image is not None:
                place.find_python(self.python)
            return place.keep(stack.pop_all(), phases)

    def place(self, host: Host, name: str, group: Group, bundle: str, made: oci.Bundle) -> RuntimePlace:
        """What is opened: the container that runs."""
        return RuntimePlace(host, name, group, bundle, made, self.own_runtime().found(host))

    def binds(self, host: Host, site: Site) -> list[hostroot.Bind]:
        return hostroot.binds(host, site) if self.image is None else hostroot.image_binds(site)

    @classmethod
    def leftovers(cls, host: Host) -> list[Leftover]:
        state = cls.runtime().state
        found = host.run(["find", state, "-mindepth", "1", "-maxdepth", "1", "-type", "d", "-printf", "%f\\n"])
        return [Leftover(name, f"the {cls.runtime().program} container {name}") for name in found.out.splitlines()]

    @classmethod
    def sweep(cls, host: Host, name: str) -> None:
        delete(host, cls.runtime(), name)
        hostroot.remove_overlay(host, name)
        cgroups.remove(host, cgroups.own_folders(host, name))


def _make_file(host: Host, path: str, text: str) -> None:
    """A new file; `Host.write` never makes one."""
    host.run(["dd", f"of={path}", "status=none"], stdin=text).checked()


def _start(host: Host, runtime: Runtime, name: str, bundle: str, stack: ExitStack) -> int:
    """Start the container; its first process would hold our pipes open, so that it gets files instead."""
    stack.callback(delete, host, runtime, name)
    script = 'log=$1; shift; exec "$@" < /dev/null > "$log" 2>&1'
    start = [*runtime.argv(name), "run", "--detach", "--bundle", bundle, "--pid-file", f"{bundle}/pid", name]
    host.run(["mkdir", "-p", "-m", "0700", "--", runtime.root(name)]).checked()
    done = host.run(["sh", "-c", script, "start", f"{bundle}/log", *start])
    if done.code != 0:
        said = _text(host, f"{bundle}/log") or done.err.strip()
        raise TrialError(f"{runtime.program} could not start the container {name}: {said[-2000:]}")
    return int(host.read(f"{bundle}/pid"))


def _text(host: Host, path: str) -> str:
    try:
        return host.read(path).strip()
    except OSError:
        return ""


def delete(host: Host, runtime: Runtime, name: str) -> None:
    """Kill and remove; with --force, one that is not there is no error."""
    cgroups.empty(host, cgroups.own_folders(host, name))  # runc itself looks only ten times a second
    done = host.run([*runtime.argv(name), "delete", "--force", name])
    if done.code not in (0, 127):  # 127: without the program there is no container of its either
        said = done.err.strip()
        raise TrialError(f"{runtime.program} could not remove the container {name}: {said}\nRun `tare restore`.")
    if runtime.own_root:
        host.run(["rm", "-rf", "--one-file-system", "--", runtime.root(name)]).checked()


class RuntimePlace(Place):
    """A running container; each command comes in by the runtime's `exec`, with an environment of its own."""

    def __init__(self, host: Host, name: str, group: Group, bundle: str, made: oci.Bundle, runtime: Runtime) -> None:
        super().__init__(host, name, group)
        self.facts |= {"root": "overlay", "isolation": list(made.layers)}
        self.facts |= {"gpu_files": len(made.gpus)} if made.gpus else {}
        self._bundle = bundle
        self._made_of = made
        self._runtime = runtime
        self._numbers = itertools.count()

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        command = self._exec(next(self._numbers), argv, {"PATH": oci.PATH}, "/")
        return run_in_group(self._group, command, argv, limit_s=limit_s, stdin=stdin)

    def spawn(self, job: Job) -> Process:
        number, before = next(self._numbers), self._group.oom_kills()
        command = self._exec(number, job.argv, {**job.env, strays.VARIABLE: self.name}, job.cwd)
        inner = self._host.spawn(Job(tuple(command), env={"PATH": oci.PATH}))
        return GroupProcess(inner, self._group, before, lambda: _number_in(self._host, self._pid_file(number)))

    def _exec(self, number: int, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> list[str]:
        """The whole process is in a file: on the command line its environment could be read by anyone."""
        file = f"{self._bundle}/process-{number}.json"
        _make_file(self._host, file, json.dumps(oci.process(self._made_of, argv, env, cwd)))
        begun = [*self._runtime.argv(self.name), "exec", "--process", file]
        return [*begun, "--pid-file", self._pid_file(number), self.name]

    def _pid_file(self, number: int) -> str:
        return f"{self._bundle}/process-{number}.pid"


def _number_in(host: Host, path: str) -> int | None:
    """The number in a file; None while it is not there or not written yet."""
    text = _text(host, path)
    return int(text) if text.isdigit() else None
