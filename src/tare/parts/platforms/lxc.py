"""A container of LXC: a configuration file, a process that keeps it open, and commands that are attached to it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tare.base.errors import TrialError
from tare.base.host import Completed, Host, Job, Process, Site, make_file, node_name
from tare.base.processes import Identity
from tare.base.rulings import Ruling
from tare.drivers.cgroups import limits, tree
from tare.drivers.cgroups.job import Group, Nested, begun, run_in_group
from tare.drivers.containers.oci import (
    PATH,
    SHELLS_OWN,
    SLEEPER,
    Bundle,
    OciContainer,
    Runtime,
)
from tare.drivers.containers.place import ContainerPlace, Root, handed_over
from tare.drivers.containers.roots import Bind
from tare.drivers.nvidia import gpu_obstacles, handed_on

_RUNTIME = Runtime("lxc-start", "lxc")
_STATE = _RUNTIME.state
_LOCKS = f"/run/lxc/lock{_STATE}"
_FILTER = Path("/usr/share/lxc/config/common.seccomp")  # the one that LXC's own configurations name
# Without what the loader would heed in its own process, and what it sets itself.
_PLAIN = re.compile(rf"(?!(PATH|GLIBC_TUNABLES|container|(LD|LXC)_\w+|{SHELLS_OWN})$)[A-Za-z_][A-Za-z0-9_]*")
_ADDED = ("container", "PATH", "PWD", "OLDPWD", "SHLVL", "_")
_INSIDE = ("/.lxc", "")  # the groups of a container: its own, with one below for commands
_BESIDE = ("-monitor", "-pivot/lxc.pivot", "-pivot")  # and what it makes for the process that watches it
_IN = 'cd "$0" && exec "$@"'
_ESCAPED = str.maketrans({"\\": "\\134", " ": "\\040", "\t": "\\011", "\n": "\\012"})
_TMPFS = {
    "/run": "rw,nosuid,nodev,noexec,mode=755,size=65536k",
    "/tmp": "rw,nosuid,nodev,mode=1777",
    "/dev/shm": "rw,nosuid,nodev,noexec,mode=1777,size={shm}",
}


class Lxc(OciContainer):
    """Run in a container of LXC: no network, no capabilities, the system-call filter that comes with LXC.

    Each command is an `lxc-attach` to a process that only waits. Needs root. `image` is run from a folder.
    """

    @classmethod
    def runtime(cls) -> Runtime:
        return _RUNTIME

    def obstacles(self, host: Host) -> list[Ruling]:
        return [*super().obstacles(host), *gpu_obstacles(host, self.gpu)]

    def bundle(self, host: Host, site: Site, root: Root, user: Identity) -> Bundle:
        gpus = handed_on(host, self.gpu)
        files = [Bind(str(file.path), str(file.path), writable=True) for file in gpus]
        return Bundle(
            name=site.name,
            rootfs=root.path,
            user=user,
            limits=self,
            binds=[*root.binds, *files],
            shm_bytes=self.shm_bytes(host),
            layers=("network",) if self.network == "none" else (),
            writable=self.may_write(site) or not root.own_tmp,
            gpus=gpus,
            needed=self.capabilities(host, site),
            hostname=node_name(host),
            own_tmp=root.own_tmp,
        )

    def start(self, host: Host, made: Bundle, bundle: str, stack: ExitStack) -> Group:
        """The limits come after the start: nothing but what waits is in it yet."""
        stack.callback(self.remove, host, made.name)
        host.run(["mkdir", "-p", "-m", "0700", "--", f"{_STATE}/{made.name}", f"{bundle}/mounted"]).checked()
        make_file(host, f"{_STATE}/{made.name}/config", _config(made, bundle))
        log = f"{bundle}/log"
        done = host.run([*_lxc("lxc-start", made.name), "--daemon", "--logfile", log, "--logpriority", "ERROR"])
        if done.code != 0:
            reported = tree.text_of(host, log).strip() or done.err.strip()
            raise TrialError(f"lxc-start could not start the container {made.name}: {reported[-2000:]}")
        pid = int(host.run([*_lxc("lxc-info", made.name), "--pid", "--no-humanize"]).checked().out)
        folders = tree.folders_of_pid(host, pid)
        limits.apply(host, self, folders)
        try:
            tree.limit_pids(host, folders)
        except OSError as error:
            raise TrialError(f"the number of processes in {made.name} cannot be limited: {error}") from error
        return Nested(host, folders, pid, below=_groups(host, made.name, _INSIDE))

    def place(self, host: Host, name: str, group: Group, bundle: str, made: Bundle) -> ContainerPlace:
        return LxcPlace(host, name, group, made)

    @classmethod
    def remove(cls, host: Host, name: str) -> None:
        groups = _groups(host, name, (*_INSIDE, *_BESIDE))
        tree.empty(host, groups)  # at once, and whether its own monitor lives or not
        host.run([*_lxc("lxc-stop", name), "--kill"])  # waits for the monitor's end; one that is not there is no error
        tree.remove(host, groups)
        host.run(["rm", "-rf", "--", f"{_STATE}/{name}", f"{_LOCKS}/.{name}"]).checked()


def _lxc(program: str, name: str) -> list[str]:
    return [program, f"--name={name}", f"--lxcpath={_STATE}"]


def _groups(host: Host, name: str, which: Sequence[str]) -> dict[str, str]:
    made: dict[str, str] = {}
    for below in which:
        made |= {f"{key}{below}": f"{folder}{below}" for key, folder in tree.every_folder(host, name).items()}
    return made


def _config(made: Bundle, bundle: str) -> str:
    capabilities = " ".join(name.lower() for name in made.needed) or "none"
    lines = [
        f"lxc.uts.name = {made.hostname}",
        f"lxc.rootfs.path = dir:{made.rootfs}",
        f"lxc.rootfs.mount = {bundle}/mounted",
        f"lxc.rootfs.options = {'rw' if made.writable else 'ro'}",
        f"lxc.init.cmd = {' '.join(SLEEPER)}",
        f"lxc.init.uid = {made.user.uid}",
        f"lxc.init.gid = {made.user.gid}",
        f"lxc.net.0.type = {'empty' if 'network' in made.layers else 'none'}",
        "lxc.mount.auto = proc:mixed sys:ro",
        "lxc.autodev = 1",
        "lxc.pty.max = 16",
        "lxc.tty.max = 0",
        "lxc.no_new_privs = 1",
        f"lxc.cap.keep = {capabilities}",
        *([f"lxc.seccomp.profile = {_FILTER}"] if _FILTER.is_file() else []),
        f"lxc.cgroup.dir.container = {tree.PARENT}/{made.name}",
        f"lxc.cgroup.dir.monitor = {tree.PARENT}/{made.name}-monitor",
        f"lxc.cgroup.dir.monitor.pivot = {tree.PARENT}/{made.name}-pivot",
    ]
    for at, options in _TMPFS.items():
        if at != "/tmp" or made.own_tmp:
            flags = options.format(shm=made.shm_bytes)
            lines.append(f"lxc.mount.entry = tmpfs {at.lstrip('/')} tmpfs {flags},create=dir 0 0")
    lines += [_entry(bind) for bind in made.binds]
    return "\n".join(lines) + "\n"


def _entry(bind: Bind) -> str:
    """As a line of fstab, relative to the root; what would end a word or the line is escaped."""
    source, target = (path.translate(_ESCAPED) for path in (bind.source, bind.target))
    kind = "dir" if Path(bind.source).is_dir() else "file"
    mode = "rw" if bind.writable else "ro"
    return f"lxc.mount.entry = {source} {target.lstrip('/')} none bind,{mode},create={kind} 0 0"


class LxcPlace(ContainerPlace):
    """A running container of LXC; each command comes in by `lxc-attach`."""

    def __init__(self, host: Host, name: str, group: Group, made: Bundle) -> None:
        super().__init__(host, name, group)
        self.facts |= {"root": "overlay", "seccomp": _FILTER.is_file()}
        user = [f"--uid={made.user.uid}", f"--gid={made.user.gid}"]
        self._attach = [*_lxc("lxc-attach", name), *user, "--clear-env"]

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        command = [*self._attach, "--", "sh", "-c", _IN, "/", *argv]
        return run_in_group(self._group, command, argv, limit_s=limit_s, stdin=stdin)

    def spawn(self, job: Job) -> Process:
        kept, inside = handed_over(job.env, _PLAIN.fullmatch, _ADDED, self.name)
        keep = [f"--keep-var={name}" for name in kept]
        command = (*self._attach, *keep, "--", "sh", "-c", _IN, job.cwd, *inside, *job.argv)
        return begun(self._group, Job(command, env={"PATH": PATH, **kept}))
