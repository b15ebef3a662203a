"""A container without an engine: an OCI bundle that runc runs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from pydantic import field_validator

from tare.errors import TrialError
from tare.host import Completed, Host, Job, Process, Site
from tare.parts import cgroups, hostroot, limits, oci, seccomp, strays
from tare.parts.container import Container, Place
from tare.parts.group import Group, GroupProcess, run_in_group
from tare.parts.identity import Identity, identity, is_root
from tare.parts.isolation import LAYERS, NEEDED_BY_USER, USUAL, Layer, held_capabilities
from tare.parts.protocols import Json

_STATE = "/run/tare/runc"
_RUNC = ("runc", "--root", _STATE)


class Runc(Container):
    """Run in an OCI container made by runc alone: no daemon, every namespace and limit in the open.

    `image` is the folder of an unpacked root file system here (for one: `docker export NAME | tar -x -C FOLDER`).
    """

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

    def obstacles(self, host: Host) -> list[str]:
        sentences = limits.limit_obstacles(host, self)
        if host.run(["runc", "--version"]).code != 0:
            sentences.append("runc is not installed here: `apt-get install runc` (or your system's way) brings it.")
        if not is_root(host):
            sentences.append("runc needs root here, to mount the container's root and to make its control group.")
        if self.image is not None and host.run(["test", "-d", self.image]).code != 0:
            sentences.append(f"there is no folder {self.image}: runc's `image` is an unpacked root file system.")
        return sentences

    def make(self, host: Host, site: Site) -> Host:
        with ExitStack() as stack:
            stack.callback(cgroups.remove, host, cgroups.own_folders(host, site.name))
            rootfs = hostroot.overlay(host, site, stack, lower=self.image or "/")
            bundle = rootfs.removesuffix("/root")
            user = identity(host)
            made = self._bundle(host, site, rootfs, user)
            config = oci.config(made)
            _make_file(host, f"{bundle}/config.json", json.dumps(config))
            pid = _start(host, site.name, bundle, stack)
            folders = cgroups.folders_of_pid(host, pid)
            limits.check_held(host, made.limits, folders)
            place = RuncPlace(host, site.name, Group(host, folders, pid), bundle, made)
            if self.image is not None:
                place.find_python(self.python)
            return place.keep(stack.pop_all())

    def _bundle(self, host: Host, site: Site, rootfs: str, user: Identity) -> oci.Bundle:
        binds = hostroot.binds(host, site) if self.image is None else hostroot.image_binds(site)
        return oci.Bundle(
            name=site.name,
            rootfs=rootfs,
            user=user,
            limits=self._held_limits(),
            binds=binds,
            shm_bytes=self.shm,
            swap_is_counted=limits.swap_is_counted(host),
            layers=self.isolation,
            writable=self.writable,
            seccomp=self._filter(host),
            held=held_capabilities(host),
        )

    def _held_limits(self) -> Runc:
        """The limits whose layer is switched on."""
        off = {
            field: None
            for field, layer in {"quota": "cpu", "cpuset": "cpuset", "memory": "memory"}.items()
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
            return seccomp.from_file(self.seccomp_profile, machine, held)
        return seccomp.docker_default(machine)

    @classmethod
    def sweep(cls, host: Host, name: str) -> None:
        _delete(host, name)
        hostroot.remove_overlay(host, name)
        cgroups.remove(host, cgroups.own_folders(host, name))


def _make_file(host: Host, path: str, text: str) -> None:
    """A new file; `Host.write` never makes one."""
    host.run(["dd", f"of={path}", "status=none"], stdin=text).checked()


def _start(host: Host, name: str, bundle: str, stack: ExitStack) -> int:
    """Start the container; its first process would hold our pipes open, so that it gets files instead."""
    stack.callback(_delete, host, name)
    script = 'log=$1; shift; exec "$@" < /dev/null > "$log" 2>&1'
    start = [*_RUNC, "run", "--detach", "--bundle", bundle, "--pid-file", f"{bundle}/pid", name]
    host.run(["mkdir", "-p", "-m", "0700", "--", _STATE]).checked()
    done = host.run(["sh", "-c", script, "start", f"{bundle}/log", *start])
    if done.code != 0:
        said = _text(host, f"{bundle}/log") or done.err.strip()
        raise TrialError(f"runc could not start the container {name}: {said[-2000:]}")
    return int(host.read(f"{bundle}/pid"))


def _text(host: Host, path: str) -> str:
    try:
        return host.read(path).strip()
    except OSError:
        return ""


def _delete(host: Host, name: str) -> None:
    """Kill and remove; with --force, one that is not there is no error."""
    cgroups.empty(host, cgroups.own_folders(host, name))  # runc itself looks only ten times a second whether all died
    done = host.run([*_RUNC, "delete", "--force", name])
    if done.code not in (0, 127):  # 127: without runc there is no container of its either
        raise TrialError(f"runc could not remove the container {name}: {done.err.strip()}\nRun `tare restore`.")


class RuncPlace(Place):
    """A running runc container; each command comes in by `runc exec`, with an environment of its own."""

    def __init__(self, host: Host, name: str, group: Group, bundle: str, made: oci.Bundle) -> None:
        super().__init__(host, name, group)
        self.facts |= {"root": "overlay", "isolation": list(made.layers)}
        self._bundle = bundle
        self._made_of = made
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
        return [*_RUNC, "exec", "--process", file, "--pid-file", self._pid_file(number), self.name]

    def _pid_file(self, number: int) -> str:
        return f"{self._bundle}/process-{number}.pid"


def _number_in(host: Host, path: str) -> int | None:
    """The number in a file; None while it is not there or not written yet."""
    text = _text(host, path)
    return int(text) if text.isdigit() else None
