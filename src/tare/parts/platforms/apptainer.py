"""Containers of Apptainer (or Singularity), as clusters have them: no daemon, with or without root.

Each command is a call of the program, in a control group of ours; between commands nothing runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import ClassVar

from tare.base.errors import TrialError
from tare.base.host import Completed, Host, ImageConfig, Job, OwnDevice, Process, Site, node_name
from tare.base.processes import Identity, identity, is_root, mounts
from tare.base.rulings import Ruling, obstacle
from tare.drivers import layers
from tare.drivers.cgroups import limits, tree
from tare.drivers.cgroups.job import Group, begun, entered, limited_group, may_make_groups, run_in_group
from tare.drivers.containers import roots
from tare.drivers.containers.oci import SHELLS_OWN
from tare.drivers.containers.place import Container, ContainerPlace, Root, handed_over
from tare.drivers.containers.roots import Bind, csv_line
from tare.drivers.containers.unpacked import OF_APPTAINER, is_path, is_sif, unpacked
from tare.drivers.nvidia import gpu_obstacles, handed_on
from tare.drivers.places import PATH, Phases
from tare.parts.protocols import Json

_PROGRAMS = ("apptainer", "singularity")
_MISSING = "apptainer is not installed here: `apt-get install apptainer` (or your system's way, or a cluster's module)"
# No environment, home, /tmp or working folder of the caller's; no right that a job does not need.
_WALLS = ("--containall", "--no-eval", "--no-privs", "--uts", "--no-mount", "home,tmp,cwd,bind-paths")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What Apptainer sets itself, or appends to, or what the loader would heed in its own process.
_BY_WORD = re.compile(
    rf"PATH|HOME|PWD|PS1|PROMPT_COMMAND|TERM|(LD|APPTAINER|SINGULARITY)_\w+|GLIBC_TUNABLES|{SHELLS_OWN}"
)
_WORDS_KEPT = 2000
_KERNELS_FOLDERS = ("/proc", "/sys", "/dev", "/run", "/tmp", "/etc")
_MAKE_TARGETS = """
while [ $# -gt 0 ]; do
  case "$(realpath -m -- "$2")/" in
    "$(realpath -m -- "$3")"/*) ;;
    *) echo "$2 leads out of the container's root by a link of the image" >&2; exit 1 ;;
  esac
  if [ -d "$1" ]; then mkdir -p "$2"
  elif [ ! -e "$2" ]; then mkdir -p "${2%/*}" && : > "$2"; fi || exit 1
  shift 3
done
"""


class Apptainer(Container):
    """Run in a container of Apptainer or Singularity, also without root.

    Each command is an `apptainer exec` of its own. No network, no capabilities but for files; no system-call filter,
    as Apptainer has none by default. `image` is a SIF file, or what the other containers take, run from a folder.
    """

    tried: ClassVar[int | None] = 4

    def obstacles(self, host: Host) -> list[Ruling]:
        stopped = [*limits.limit_obstacles(host, self), *gpu_obstacles(host, self.gpu)]
        requested = self.user_inside(host) if self.user is not None else None
        if requested is not None and requested.uid != identity(host).uid:
            stopped.append(
                obstacle("needs.root", "Apptainer runs as the user that calls it: run tare as that user instead.")
            )
        if self.image is not None and is_path(self.image) and host.run(["test", "-e", self.image]).code != 0:
            stopped.append(obstacle("needs.image", f"no image {self.image}: there is no such file or folder."))
        if not self.program(host):
            stopped.append(obstacle("needs.program", f"{_MISSING} brings it."))
        if self.asked() and not stopped and not may_make_groups(host):
            stopped.append(
                obstacle("needs.root", "a limit needs a control group, and only root can make one here: leave it away.")
            )
        if self.shm is not None and not is_root(host):
            stopped.append(obstacle("needs.root", "the size of /dev/shm is set by root alone: leave `shm` away."))
        return stopped

    def here(self, host: Host) -> dict[str, Json]:
        program = self.program(host)
        return {"version": host.run([program, "--version"]).out.strip().rpartition(" ")[2], "program": program}

    @classmethod
    def program(cls, host: Host) -> str:
        return next((name for name in _PROGRAMS if host.run([name, "--version"]).code == 0), "")

    def started(self, host: Host, site: Site, stack: ExitStack, phases: Phases) -> tuple[ContainerPlace, Root]:
        with phases.timed("open.root"):
            root = self.covered(self._root(host, site, stack))
            self._make_targets(host, root)
            binds = _bindable(host, root.binds, f"{site.scratch}/{site.name}")
        group = Group(host, limited_group(host, site.name, self, stack) if may_make_groups(host) else {})
        if not group.folders:
            stack.callback(tree.kill_named, host, site.name)
        place = ApptainerPlace(host, site.name, group, self._call(host, site, root, binds))
        with phases.timed("open.start"):
            return place, replace(root, image=place.look_inside(root.image))

    def _call(self, host: Host, site: Site, root: Root, binds: Sequence[Bind]) -> _Exec:
        kept = self.capabilities(host, site)
        flags = [
            *_WALLS,
            *(["--net", "--network", "none"] if self.network == "none" else []),
            *(["--add-caps", ",".join(f"CAP_{name}" for name in kept)] if kept else []),
            *(["--nv"] if handed_on(host, self.gpu) else []),
            *(["--writable"] if root.writable else []),
            *(["--overlay", root.over] if root.over else []),
            *(_mount(bind) for bind in binds),
        ]
        return _Exec(self.program(host) or _PROGRAMS[0], tuple(flags), root.path)

    def _root(self, host: Host, site: Site, stack: ExitStack) -> Root:
        folder = f"{site.scratch}/{site.name}"
        stack.callback(_remove_own, host, site.name, folder)
        host.run(["mkdir", "-p", "--", folder]).checked()
        own = self._own(host, site, folder)
        if self.image is not None:
            return self._image_root(host, site, stack, own, self.image)
        if not is_root(host):
            bound = roots.bound_root(host, site, stack)
            return Root(bound.path, [*own.kernels, *own.tmp, *bound.binds], facts=bound.facts)
        files = {"/etc/hosts": roots.hosts_text(host, node_name(host))}
        if self.sees_all(host, site):
            view = layers.compose(host, site, stack, files=files)
            further = [Bind(layer.at, layer.point, writable=bool(layer.upper)) for layer in view.layers[1:]]
            binds = [*own.kernels, *further, *roots.view_binds(host, site)]
            return Root(view.root, binds, writable=True, facts={"root": "overlay", **view.facts()})
        path = layers.overlay(host, site, stack, files=files)
        binds = [*own.kernels, *own.tmp, *roots.binds(host, site)]
        return Root(path, binds, writable=self.may_write(site), facts={"root": "overlay"})

    def _image_root(self, host: Host, site: Site, stack: ExitStack, own: _Own, image: str) -> Root:
        binds = [*own.kernels, *roots.image_binds(host, site, stack)]
        own_tmp = [] if self.may_write(site) else own.tmp
        over = _made(host, f"{site.scratch}/{site.name}/over") if self.may_write(site) else ""
        here = isinstance(host, OwnDevice)
        if here and is_path(image) and is_sif(image):
            facts = {"root": "image", "image": "sif"}
            return Root(image, [*binds, *own_tmp], over=over, facts=facts, image=ImageConfig())
        found = unpacked(image) if here else None
        facts = {"root": "image", **({"image_id": found.id} if found is not None and found.id else {})}
        config = ImageConfig() if found is None else replace(found.config, user="")
        if config.env and roots.hidden_by_tmp(config):
            own_tmp = []
        lower = image if found is None else str(found.root)
        if not is_root(host):
            return Root(lower, [*binds, *own_tmp], over=over, facts=facts, image=config)
        path = layers.overlay(host, site, stack, lower=lower)
        return Root(path, [*binds, *own_tmp], writable=self.may_write(site), facts=facts, image=config)

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
        return _Own([bind for at, bind in binds.items() if at != "/tmp"], [binds["/tmp"]])

    def _make_targets(self, host: Host, root: Root) -> None:
        """A folder or file for each mount to lie on: in what we made, and in the root if that is ours to write to."""
        own = {bind.target: bind.source for bind in root.binds if bind.target in ("/run", "/tmp", "/dev/shm")}
        ours = root.writable  # elsewhere the program makes these places by itself
        words = [(bind.source, f"{root.path}{bind.target}", root.path) for bind in root.binds if ours]
        words += [("/", f"{root.path}{path}", root.path) for path in (*_KERNELS_FOLDERS, "/usr") if ours]
        for bind in root.binds:
            for target, source in own.items():
                if bind.target.startswith(f"{target}/"):
                    words.append((bind.source, source + bind.target.removeprefix(target), source))
        if words:
            host.run(["sh", "-c", _MAKE_TARGETS, "targets", *(each for pair in words for each in pair)]).checked()

    @classmethod
    def sweep(cls, host: Host, name: str) -> None:
        tree.remove(host, tree.own_folders(host, name))
        tree.kill_named(host, name)
        layers.remove(host, name)
        _remove_own(host, name)


@dataclass(frozen=True)
class _Own:
    """What a container has of its own: in any case, and where /tmp is not that of the root."""

    kernels: Sequence[Bind]
    tmp: Sequence[Bind]


def _bindable(host: Host, binds: Sequence[Bind], folder: str) -> Sequence[Bind]:
    """Apptainer takes a source below /dev for a device and mounts it elsewhere: such a one goes by a link to it."""
    sources = {f"{folder}/link-{number}": bind for number, bind in enumerate(binds)}
    links = {link: bind for link, bind in sources.items() if bind.source.startswith("/dev/")}
    for link, bind in links.items():
        host.run(["ln", "-sfn", "--", bind.source, link]).checked()
    by_bind = {bind: link for link, bind in links.items()}
    return [replace(bind, source=by_bind.get(bind, bind.source)) for bind in binds]


def _made(host: Host, path: str) -> str:
    host.run(["mkdir", "-p", "--", path]).checked()
    return path


def _shm(name: str) -> str:
    """The folder that stands for /dev/shm where we may not mount one."""
    return f"/dev/shm/{name}-shm"


def _source(name: str) -> str:
    return f"tare:{name}"


def _remove_own(host: Host, name: str, folder: str = "") -> None:
    """Unmount the file systems in memory of this site, and remove the folder that they lie in; none is no error."""
    own = [mount.point for mount in mounts(host) if (mount.kind, mount.source) == ("tmpfs", _source(name))]
    for point in own:
        layers.unmount(host, point)
    above = [str(parent) for point in own for parent in PurePosixPath(point).parents if parent.name == name]
    for each in dict.fromkeys([*([folder] if folder else []), *above, _shm(name)]):
        host.run(["rm", "-rf", "--one-file-system", "--", each]).checked()


class ApptainerPlace(ContainerPlace):
    """A root and a way to run in it; between commands nothing of it runs."""

    def __init__(self, host: Host, name: str, group: Group, call: _Exec) -> None:
        super().__init__(host, name, group)
        self._call = call
        self._entry = entered(group.folders)
        self._home = host.run(["sh", "-c", 'echo "${HOME:-/}"', "home"]).out.strip() or "/"
        self._added: tuple[str, ...] = ()
        self._images_own = False

    def look_inside(self, image: ImageConfig | None) -> ImageConfig | None:
        """Learn which variables are set inside without our doing: the program's, and those of an image."""
        done = self.run(["env", "-0"])
        if done.code != 0:
            words = done.err.strip() or done.out.strip() or f"it ended with code {done.code} and printed nothing"
            raise TrialError(f"no command could be started in the container {self.name}: {words[-_WORDS_KEPT:]}")
        env = dict(line.partition("=")[::2] for line in done.out.split("\0") if "=" in line)
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
        command = [*self._entry, *client, *self._call.argv("/"), *argv]
        if self._group.folders:
            return run_in_group(self._group, command, argv, limit_s=limit_s, stdin=stdin)
        return replace(self._host.run(command, limit_s=limit_s, stdin=stdin), argv=tuple(argv))

    def spawn(self, job: Job) -> Process:
        env = {name: value for name, value in job.env.items() if not (self._images_own and name == "PATH")}
        passed, inside = handed_over(
            env, lambda name: _PLAIN.fullmatch(name) and not _BY_WORD.fullmatch(name), self._added, self.name
        )
        client = {"PATH": PATH, "HOME": self._home, **self._call.lent(passed)}
        command = (*self._entry, *self._call.argv(job.cwd), *inside, *job.argv)
        return begun(self._group, Job(command, env=client))


@dataclass(frozen=True)
class _Exec:
    """`apptainer exec`, with the flags of one container."""

    program: str
    flags: tuple[str, ...]
    root: str

    def argv(self, cwd: str) -> list[str]:
        """What goes before a command that is started in `cwd`."""
        return [self.program, "--silent", "exec", *self.flags, "--pwd", cwd, self.root]

    def lent(self, env: Mapping[str, str]) -> dict[str, str]:
        """The variables of a job, under the names by which the program sets them inside."""
        return {f"{self.program.upper()}ENV_{name}": value for name, value in env.items()}


def _mount(bind: Bind) -> str:
    words = ["type=bind", f"source={bind.source}", f"destination={bind.target}", *([] if bind.writable else ["ro"])]
    return f"--mount={csv_line(words)}"
