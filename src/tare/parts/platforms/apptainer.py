"""A container of Apptainer (or Singularity), as clusters have it: one process, no daemon, with or without root."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import ClassVar

from tare.base.host import Completed, Host, ImageConfig, InnerHost, Job, LocalHost, Process, Site
from tare.base.mounts import mounts
from tare.base.processes import Identity, identity, is_root
from tare.base.rulings import Ruling, obstacle
from tare.drivers import layers
from tare.drivers.cgroups import limits, orphans, tree
from tare.drivers.cgroups.job import Group, GroupProcess, entered, limited_group, may_make_groups, run_in_group
from tare.drivers.containers import hostroot
from tare.drivers.containers.hostroot import Bind
from tare.drivers.containers.oci import PATH
from tare.drivers.containers.place import Container, ContainerPlace
from tare.drivers.containers.unpacked import OF_APPTAINER, is_path, is_sif, unpacked
from tare.drivers.nvidia.devices import gpu_obstacles, handed_on
from tare.drivers.places import Phases
from tare.parts.protocols import Json

_PROGRAMS = ("apptainer", "singularity")
_MISSING = "apptainer is not installed here: `apt-get install apptainer` (or your system's way, or a cluster's module)"
# No environment, home, /tmp or working folder of the caller's; no right that a job does not need.
_WALLS = ("--containall", "--no-eval", "--no-privs", "--uts", "--no-mount", "home,tmp,cwd,bind-paths")
# What Apptainer sets itself, or appends to, or what the loader would heed in its own process.
_BY_WORD = re.compile(r"PATH|HOME|PWD|PS1|PROMPT_COMMAND|TERM|(LD|APPTAINER|SINGULARITY)_\w+|GLIBC_TUNABLES")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KERNELS_FOLDERS = ("/proc", "/sys", "/dev", "/run", "/tmp", "/etc")
_MAKE_TARGETS = """
while [ $# -gt 0 ]; do
  if [ -d "$1" ]; then mkdir -p "$2"
  elif [ ! -e "$2" ]; then mkdir -p "${2%/*}" && : > "$2"; fi || exit 1
  shift 2
done
"""


class Apptainer(Container):
    """Run in a container of Apptainer or Singularity, also without root.

    Each command is an `apptainer exec` of its own. No network, no capabilities; no system-call filter, as Apptainer
    has none by default. `image` is a SIF file, or what the other containers take, run from a folder.
    """

    tried: ClassVar[int | None] = 4

    def obstacles(self, host: Host) -> list[Ruling]:
        stopped = [*limits.limit_obstacles(host, self), *gpu_obstacles(host, self.gpu)]
        if not _program(host):
            stopped.append(obstacle("needs.program", f"{_MISSING} brings it."))
        if self.asked() and not stopped and not may_make_groups(host):
            stopped.append(
                obstacle("needs.root", "a limit needs a control group, and only root can make one here: leave it away.")
            )
        requested = self.user_inside(host) if self.user is not None else None
        if requested is not None and requested.uid != identity(host).uid:
            stopped.append(
                obstacle("needs.root", "Apptainer runs as the user that calls it: run tare as that user instead.")
            )
        if self.shm is not None and not is_root(host):
            stopped.append(obstacle("needs.root", "the size of /dev/shm is set by root alone: leave `shm` away."))
        if self.image is not None and is_path(self.image) and host.run(["test", "-e", self.image]).code != 0:
            stopped.append(obstacle("needs.image", f"no image {self.image}: there is no such file or folder."))
        return stopped

    def here(self, host: Host) -> dict[str, Json]:
        program = _program(host)
        return {"version": host.run([program, "--version"]).out.strip().rpartition(" ")[2], "program": program}

    def make(self, host: Host, site: Site) -> InnerHost:
        with ExitStack() as stack:
            phases = Phases(host.clock)
            with phases.timed("open.root"):
                root = self._root(host, site, stack)
                _make_targets(host, root)
                binds = _linked(host, root.binds, f"{site.scratch}/{site.name}")
            folders = self._group(host, site.name, stack)
            if not folders:
                stack.callback(orphans.kill_all, host, site.name)
            program = _program(host) or _PROGRAMS[0]
            flags = [*_WALLS, *self._flags(host, site), *root.flags, *(_mount(bind) for bind in binds)]
            place = ApptainerPlace(host, site.name, Group(host, folders), _Call(program, tuple(flags), root.path))
            place.facts |= root.facts
            with phases.timed("open.start"):
                place.image = place.look_inside(root.image)
            if self.image is not None:
                place.find_python(self.python, needed=not site.layered)
            return place.keep(stack.pop_all(), phases)

    def _flags(self, host: Host, site: Site) -> list[str]:
        kept = self.capabilities(host, site)
        return [
            *(["--net", "--network", "none"] if self.network == "none" else []),
            *(["--add-caps", ",".join(f"CAP_{name}" for name in kept)] if kept else []),
            *(["--nv"] if handed_on(host, self.gpu) else []),
        ]

    def _group(self, host: Host, name: str, stack: ExitStack) -> dict[str, str]:
        """A control group of ours, which each command starts in: Apptainer's own need systemd."""
        if not may_make_groups(host):
            return {}
        return limited_group(host, name, self, stack)

    def _root(self, host: Host, site: Site, stack: ExitStack) -> _Root:
        folder = f"{site.scratch}/{site.name}"
        stack.callback(_remove_own, host, site.name, folder)
        host.run(["mkdir", "-p", "--", folder]).checked()
        own = self._own(host, site, folder)
        if self.image is not None:
            return self._image_root(host, site, stack, own, self.image)
        if not is_root(host):
            bound = hostroot.bound_root(host, site, stack)
            return _Root(bound.path, [*own.kernels, *own.tmp, *bound.binds], facts=bound.facts)
        files = {"/etc/hosts": hostroot.hosts_text(host, hostroot.host_name(host))}
        if self.sees_all(host, site):
            view = layers.compose(host, site, stack, files=files)
            further = [Bind(layer.at, layer.point, writable=bool(layer.upper)) for layer in view.layers[1:]]
            binds = [*own.kernels, *further, *hostroot.view_binds(host, site)]
            return _Root(view.root, binds, ["--writable"], {"root": "overlay", **view.facts()})
        path = layers.overlay(host, site, stack, files=files)
        binds = [*own.kernels, *own.tmp, *hostroot.binds(host, site)]
        return _Root(path, binds, self._writable(site), {"root": "overlay"})

    def _writable(self, site: Site) -> list[str]:
        return ["--writable"] if self.may_write(site) else []

    def _image_root(self, host: Host, site: Site, stack: ExitStack, own: _Own, image: str) -> _Root:
        binds = [*own.kernels, *hostroot.image_binds(host, site, stack)]
        own_tmp = [] if self.may_write(site) else own.tmp
        over = ["--overlay", _made(host, f"{site.scratch}/{site.name}/over")] if self.may_write(site) else []
        if isinstance(host, LocalHost) and is_path(image) and is_sif(image):
            return _Root(image, [*binds, *own_tmp], over, {"root": "image", "image": "sif"}, ImageConfig())
        here = isinstance(host, LocalHost)
        found = unpacked(image) if here else None
        facts = {"root": "image", **({"image_id": found.id} if found is not None and found.id else {})}
        config = ImageConfig() if found is None else replace(found.config, user="")
        if config.env and hostroot.hidden_by_tmp(config):
            own_tmp = []
        lower = image if found is None else str(found.root)
        if not is_root(host):
            return _Root(lower, [*binds, *own_tmp], over, facts, config)
        path = layers.overlay(host, site, stack, lower=lower)
        return _Root(path, [*binds, *own_tmp], self._writable(site), facts, config)

    def _own(self, host: Host, site: Site, folder: str) -> _Own:
        """A /run, a /tmp and a /dev/shm of its own: file systems in memory where root can mount them, else folders."""
        sizes = {
            "/run": "mode=755,size=65536k",
            "/tmp": "mode=1777",
            "/dev/shm": f"mode=1777,size={self.shm_bytes(host)}",
        }
        if is_root(host):
            binds = {at: Bind(_made(host, f"{folder}/own{at}"), at, writable=True) for at in sizes}
            for at, options in sizes.items():
                flags = f"nosuid,nodev,{options}"
                host.run(["mount", "-t", "tmpfs", _source(site.name), "-o", flags, binds[at].source]).checked()
        else:
            made = {at: f"{folder}/own{at}" for at in sizes} | {"/dev/shm": _shm(site.name)}
            binds = {at: Bind(_made(host, path), at, writable=True) for at, path in made.items()}
        return _Own([binds["/run"], binds["/dev/shm"]], [binds["/tmp"]])

    @classmethod
    def sweep(cls, host: Host, name: str) -> None:
        tree.remove(host, tree.own_folders(host, name))
        orphans.kill_all(host, name)
        layers.remove(host, name)
        _remove_own(host, name)


@dataclass(frozen=True)
class _Own:
    """What a container has of its own: in any case, and where /tmp is not that of the root."""

    kernels: Sequence[Bind]
    tmp: Sequence[Bind]


@dataclass(frozen=True)
class _Root:
    """The folder or file that is the root, and what is bound on top."""

    path: str
    binds: Sequence[Bind]
    flags: Sequence[str] = ()
    facts: Mapping[str, Json] = field(default_factory=dict)
    image: ImageConfig | None = None


@dataclass(frozen=True)
class _Call:
    """How every command line about this container goes."""

    program: str
    flags: tuple[str, ...]
    root: str

    @property
    def prefix(self) -> str:
        """Of the variables that it passes on."""
        return f"{self.program.upper()}ENV_"

    def argv(self, cwd: str) -> list[str]:
        return [self.program, "--silent", "exec", *self.flags, "--pwd", cwd, self.root]


def _program(host: Host) -> str:
    return next((name for name in _PROGRAMS if host.run([name, "--version"]).code == 0), "")


def _made(host: Host, path: str) -> str:
    host.run(["mkdir", "-p", "--", path]).checked()
    return path


def _make_targets(host: Host, root: _Root) -> None:
    """A folder or file for each mount to lie on: in what we made, and in the root if it can be written to."""
    own = {bind.target: bind.source for bind in root.binds if bind.target in ("/run", "/tmp", "/dev/shm")}
    writable = "--writable" in root.flags
    words = [(bind.source, f"{root.path}{bind.target}") for bind in root.binds if writable]
    words += [("/", f"{root.path}{path}") for path in _KERNELS_FOLDERS if writable]
    for bind in root.binds:
        for target, source in own.items():
            if bind.target.startswith(f"{target}/"):
                words.append((bind.source, source + bind.target.removeprefix(target)))
    if words:
        host.run(["sh", "-c", _MAKE_TARGETS, "targets", *(each for pair in words for each in pair)]).checked()


def _linked(host: Host, binds: Sequence[Bind], folder: str) -> list[Bind]:
    """Apptainer takes a source below /dev for a device and mounts it elsewhere: such a one goes by a link to it."""
    links = {f"{folder}/link-{number}": bind for number, bind in enumerate(binds) if bind.source.startswith("/dev/")}
    for link, bind in links.items():
        host.run(["ln", "-sfn", "--", bind.source, link]).checked()
    by_bind = {bind: link for link, bind in links.items()}
    return [replace(bind, source=by_bind.get(bind, bind.source)) for bind in binds]


def _shm(name: str) -> str:
    """The folder that stands for /dev/shm where we may not mount one."""
    return f"/dev/shm/{name}-shm"


def _mount(bind: Bind) -> str:
    """As a line of CSV, so that a path may have a colon or a comma in it."""
    words = ["type=bind", f"source={bind.source}", f"destination={bind.target}", *([] if bind.writable else ["ro"])]
    quoted = [f'"{word.replace(chr(34), chr(34) * 2)}"' if set(word) & set(',"') else word for word in words]
    return f"--mount={','.join(quoted)}"


def _source(name: str) -> str:
    return f"tare:{name}"


def _remove_own(host: Host, name: str, folder: str = "") -> None:
    """Unmount the file systems in memory of this site, and remove the folder that they lie in; none is no error."""
    own = [mount.point for mount in mounts(host) if (mount.kind, mount.source) == ("tmpfs", _source(name))]
    for point in own:
        host.run(["umount", "--", point])
    above = [str(parent) for point in own for parent in PurePosixPath(point).parents if parent.name == name]
    for each in dict.fromkeys([*([folder] if folder else []), *above, _shm(name)]):
        host.run(["rm", "-rf", "--one-file-system", "--", each]).checked()


class ApptainerPlace(ContainerPlace):
    """A root and a way to run in it; between commands nothing of it runs."""

    def __init__(self, host: Host, name: str, group: Group, call: _Call) -> None:
        super().__init__(host, name, group)
        self._call = call
        self._home = host.run(["sh", "-c", 'echo "${HOME:-/}"', "home"]).out.strip() or "/"
        self._added: tuple[str, ...] = ()
        self._images_own = False

    def look_inside(self, image: ImageConfig | None) -> ImageConfig | None:
        """Learn which variables are set inside without our doing: Apptainer's, and those of an image."""
        seen = self.run(["env", "-0"]).checked().out
        env = dict(line.partition("=")[::2] for line in seen.split("\0") if "=" in line)
        self._images_own = image is not None
        if image is None:
            self._added = tuple(env)
            return None
        self._added = tuple(name for name in env if OF_APPTAINER.fullmatch(name))
        return replace(image, env={**{k: v for k, v in env.items() if k not in self._added}, **image.env})

    def user(self) -> Identity:
        return identity(self._host)

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        client = ["env", "-i", f"PATH={PATH}", f"HOME={self._home}"]
        command = [*entered(self._group.folders), *client, *self._call.argv("/"), *argv]
        if self._group.folders:
            return run_in_group(self._group, command, argv, limit_s=limit_s, stdin=stdin)
        return replace(self._host.run(command, limit_s=limit_s, stdin=stdin), argv=tuple(argv))

    def spawn(self, job: Job) -> Process:
        before = self._group.oom_kills()
        env = {name: value for name, value in job.env.items() if not (self._images_own and name == "PATH")}
        passed = {name: env[name] for name in env if _PLAIN.fullmatch(name) and not _BY_WORD.fullmatch(name)}
        words = {name: value for name, value in env.items() if name not in passed}
        words[orphans.VARIABLE] = self.name
        away = [part for name in self._added if name not in env for part in ("-u", name)]
        inside = ["env", *away, *(f"{name}={value}" for name, value in words.items()), *job.argv]
        client = {"PATH": PATH, "HOME": self._home}
        client |= {f"{self._call.prefix}{name}": value for name, value in passed.items()}
        command = (*entered(self._group.folders), *self._call.argv(job.cwd), *inside)
        return GroupProcess(self._host.spawn(Job(command, env=client)), self._group, before)
