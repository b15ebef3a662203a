"""The configuration of a container as the OCI runtime specification writes it: plain data from plain data."""

from __future__ import annotations

import itertools
import json
import re
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from tare.base.errors import TrialError
from tare.base.host import Completed, Host, ImageConfig, Job, OwnDevice, Process, Site, make_file, node_name
from tare.base.processes import Identity, identity, is_root
from tare.base.rulings import Ruling, obstacle
from tare.drivers import layers
from tare.drivers.cgroups import limits, tree
from tare.drivers.cgroups.job import Group, begun, run_in_group
from tare.drivers.cgroups.limits import PERIOD_US, Limits
from tare.drivers.cgroups.tree import PARENT, PIDS_LIMIT
from tare.drivers.containers import isolation, roots
from tare.drivers.containers.isolation import USUAL
from tare.drivers.containers.place import Container, ContainerPlace, Root
from tare.drivers.containers.roots import Bind
from tare.drivers.containers.unpacked import Unpacked, is_path, unpacked
from tare.drivers.nvidia import GpuFile, oci_devices, oci_rules
from tare.drivers.places import PATH, Phases
from tare.parts.protocols import Json, Leftover

SLEEPER = ("sleep", "2147483647")  # keeps the place open; the jobs come by exec
SHELLS_OWN = (  # variables that a shell on the way does not hand on as they came, or refuses to set
    r"E?UID|PPID|GROUPS|OPTIND|OPTARG|LINENO|S?RANDOM|SECONDS|EPOCH\w+|SHELLOPTS|BASHOPTS|BASH|BASHPID|BASH_\w+|DIRSTACK"
    r"|FUNCNAME|HISTCMD|PIPESTATUS"
)

_QUIET = ["nosuid", "noexec", "nodev"]


@dataclass(frozen=True, slots=True)
class Bundle:
    """Everything that differs from one bundle to the next."""

    name: str
    rootfs: str
    user: Identity
    limits: Limits
    binds: Sequence[Bind]
    shm_bytes: int
    swap_is_counted: bool = True
    layers: Collection[str] = USUAL
    seccomp: Json | None = None
    writable: bool = False
    gpus: Sequence[GpuFile] = ()
    held: Collection[str] = ()  # the runner's own capabilities, for a container that keeps them
    needed: Collection[str] = ()  # those that it keeps in any case
    hostname: str = "tare"
    own_tmp: bool = True  # else /tmp is the root's


def bundle_config(bundle: Bundle) -> dict[str, Json]:
    """config.json of a long-lived container with its root, and with the layers that were asked for."""
    return {
        "ociVersion": "1.0.2",
        **({"hostname": bundle.hostname} if "uts" in bundle.layers else {}),
        "process": process(bundle, SLEEPER, {"PATH": PATH}, "/"),
        "root": {"path": bundle.rootfs, "readonly": not bundle.writable},
        "mounts": [*_own_mounts(bundle), *(bind_mount(bind) for bind in bundle.binds)],
        "linux": {
            "cgroupsPath": f"/{PARENT}/{bundle.name}",
            "resources": _resources(bundle),
            "devices": oci_devices(bundle.gpus),
            **isolation.linux(bundle.layers),
            **({} if bundle.seccomp is None else {"seccomp": bundle.seccomp}),
        },
    }


def process(bundle: Bundle, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> dict[str, Json]:
    """One process inside: this environment and no other, and the rights that the layers leave it."""
    return {
        "terminal": False,
        "user": {"uid": bundle.user.uid, "gid": bundle.user.gid},
        "args": list(argv),
        "env": [f"{name}={value}" for name, value in env.items()],
        "cwd": cwd,
        **isolation.process(bundle.layers, bundle.held, bundle.needed),
    }


def _own_mounts(bundle: Bundle) -> list[dict[str, Json]]:
    """What every container has of its own. No cgroup mount: on a hybrid machine runc refuses it."""
    return [
        _mount("/proc", "proc", _QUIET),
        _mount("/dev", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
        _mount("/dev/pts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
        _mount("/dev/mqueue", "mqueue", _QUIET),
        _mount("/dev/shm", "tmpfs", [*_QUIET, "mode=1777", f"size={bundle.shm_bytes}"]),
        _mount("/sys", "sysfs", [*_QUIET, "ro"]),
        _mount("/run", "tmpfs", [*_QUIET, "mode=755", "size=65536k"]),
        # As on the device, a program may be run from /tmp: compilers of kernels put theirs there.
        *([_mount("/tmp", "tmpfs", ["nosuid", "nodev", "mode=1777"])] if bundle.own_tmp else []),
    ]


def _mount(destination: str, kind: str, options: list[str]) -> dict[str, Json]:
    return {"destination": destination, "type": kind, "source": kind, "options": options}


def bind_mount(bind: Bind) -> dict[str, Json]:
    # Not recursive: the read-only flag does not reach what is mounted further down.
    options = ["bind", "rw" if bind.writable else "ro", "rprivate"]
    return {"destination": bind.target, "type": "bind", "source": bind.source, "options": options}


def _resources(bundle: Bundle) -> dict[str, Json]:
    limits = bundle.limits
    resources: dict[str, Json] = {"devices": [{"allow": False, "access": "rwm"}, *oci_rules(bundle.gpus)]}
    if "pids" in bundle.layers:
        resources["pids"] = {"limit": PIDS_LIMIT}
    cpu: dict[str, Json] = {}
    if limits.quota is not None:
        cpu |= {"quota": limits.quota_us(), "period": PERIOD_US}
    if limits.cpuset is not None:
        cpu |= {"cpus": limits.cpuset}
    if limits.mems is not None:
        cpu |= {"mems": limits.mems}
    if cpu:
        resources["cpu"] = cpu
    if limits.memory is not None:
        # What OCI calls swap is memory and swap together: the same number means no swap.
        resources["memory"] = {"limit": limits.memory} | ({"swap": limits.memory} if bundle.swap_is_counted else {})
    return resources


STATE = "/run/tare"


@dataclass(frozen=True, slots=True)
class Runtime:
    """The program that runs bundles, and how it is called."""

    program: str
    package: str
    flags: tuple[str, ...] = ()

    own_root: bool = False  # each container has a state folder of its own: the runtime takes a name for any longer one
    path: str = ""  # of the program, once it was looked up
    through: tuple[str, ...] = ()  # what every call goes through

    @property
    def state(self) -> str:
        """The folder that holds one folder a container, called by its name."""
        return f"{STATE}/{self.program}"

    def root(self, name: str) -> str:
        """The state folder that a container's calls name."""
        return f"{self.state}/{name}" if self.own_root else self.state

    def argv(self, name: str) -> tuple[str, ...]:
        """How every call about this container begins."""
        return (*self.through, self.path or self.program, "--root", self.root(name), *self.flags)

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

    def bundle(self, host: Host, site: Site, root: Root, user: Identity) -> Bundle:
        return Bundle(
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

    def obstacles(self, host: Host) -> list[Ruling]:
        stopped, program = limits.limit_obstacles(host, self), self.runtime().program
        stopped += self.user_obstacles(host)
        if host.run([program, "--version"]).code != 0:
            how = f"`apt-get install {self.runtime().package}` (or your system's way)"
            stopped.append(obstacle("needs.program", f"{program} is not installed here: {how} brings it."))
        if not is_root(host):
            stopped.append(
                obstacle(
                    "needs.root",
                    f"{program} needs root here, to mount the container's root and to make its control group.",
                )
            )
        if self.image is not None and is_path(self.image) and host.run(["test", "-e", self.image]).code != 0:
            stopped.append(obstacle("needs.image", f"no image {self.image}: there is no such file or folder."))
        return stopped

    def here(self, host: Host) -> dict[str, Json]:
        reported = host.run([self.runtime().program, "--version"]).out.split("\n")[0]
        return {"version": reported.rpartition(" ")[2]}

    def started(self, host: Host, site: Site, stack: ExitStack, phases: Phases) -> tuple[ContainerPlace, Root]:
        stack.callback(tree.remove, host, tree.own_folders(host, site.name))
        with phases.timed("open.root"):
            root = self.covered(self._root(host, site, stack))
        bundle = root.path.removesuffix("/root")
        user = self.user_inside(host) or root.user or identity(host)
        made = self.bundle(host, site, root, user)
        with phases.timed("open.start"):
            group = self.start(host, made, bundle, stack)
        limits.check_held(host, made.limits, group.folders)
        place = self.place(host, site.name, group, bundle, made)
        place.facts |= {"gpu_files": len(made.gpus)} if made.gpus else {}
        return place, root

    def start(self, host: Host, made: Bundle, bundle: str, stack: ExitStack) -> Group:
        """Start the container, whose first process only waits; the stack removes it."""
        make_file(host, f"{bundle}/config.json", json.dumps(bundle_config(made)))
        pid = _start(host, self.own_runtime(), made.name, bundle, stack)
        return Group(host, tree.folders_of_pid(host, pid), pid)

    def place(self, host: Host, name: str, group: Group, bundle: str, made: Bundle) -> ContainerPlace:
        """What is opened: the container that runs."""
        return RuntimePlace(host, name, group, bundle, made, self.own_runtime().found(host))

    def _root(self, host: Host, site: Site, stack: ExitStack) -> Root:
        """The file system inside, mounted. The host's name resolves in it, and others where there is a network."""
        files = {"/etc/hosts": roots.hosts_text(host, node_name(host))}
        if self.network == "host" and (resolvers := tree.text_of(host, "/etc/resolv.conf").strip()):
            files["/etc/resolv.conf"] = f"{resolvers}\n"  # which may be a link into /run
        if self.sees_all(host, site):
            view = layers.compose(host, site, stack, files=files)
            return Root(view.root, roots.view_binds(host, site), own_tmp=False, facts=view.facts())
        if self.image is None:
            path = layers.overlay(host, site, stack, files=files)
            return Root(path, roots.binds(host, site))
        # Of another machine's images only a folder there can be taken.
        here = isinstance(host, OwnDevice)
        folder = not here or (Path(self.image).is_dir() and not is_path(self.image))
        image = Unpacked(Path(self.image).absolute(), ImageConfig(), "") if folder else unpacked(self.image)
        path = layers.overlay(host, site, stack, lower=str(image.root), files=files)
        odd = roots.hidden_by_tmp(image.config) or any((image.root / "tmp").glob("*"))
        own_tmp = not self.may_write(site) and not odd
        facts = {"root": "image", "image_id": image.id} if image.id else {}
        user = replace(identity(host), uid=image.user()[0], gid=image.user()[1]) if image.config.user else None
        if user is not None:
            roots.open_to_all(host, site)
        return Root(path, roots.image_binds(host, site, stack), own_tmp, facts, image.config, user)

    @classmethod
    def remove(cls, host: Host, name: str) -> None:
        """Remove the container of this name; one that is not there is no error."""
        delete(host, cls.runtime(), name)

    @classmethod
    def leftovers(cls, host: Host) -> list[Leftover]:
        state = cls.runtime().state
        found = host.run(["find", state, "-mindepth", "1", "-maxdepth", "1", "-type", "d", "-printf", "%f\\n"])
        return [Leftover(name, f"the {cls.runtime().program} container {name}") for name in found.out.splitlines()]

    @classmethod
    def sweep(cls, host: Host, name: str) -> None:
        cls.remove(host, name)
        layers.remove(host, name)
        tree.remove(host, tree.own_folders(host, name))


def _start(host: Host, runtime: Runtime, name: str, bundle: str, stack: ExitStack) -> int:
    """Start the container; its first process would hold our pipes open, so that it gets files instead."""
    stack.callback(delete, host, runtime, name)
    script = 'log=$1; shift; exec "$@" < /dev/null > "$log" 2>&1'
    start = [*runtime.argv(name), "run", "--detach", "--bundle", bundle, "--pid-file", f"{bundle}/pid", name]
    host.run(["mkdir", "-p", "-m", "0700", "--", runtime.root(name)]).checked()
    with tree.parent_kept(host):
        done = host.run(["sh", "-c", script, "start", f"{bundle}/log", *start])
    if done.code != 0:
        reported = tree.text_of(host, f"{bundle}/log").strip() or done.err.strip()
        raise TrialError(f"{runtime.program} could not start the container {name}: {reported[-2000:]}")
    return int(host.read(f"{bundle}/pid"))


def delete(host: Host, runtime: Runtime, name: str) -> None:
    """Kill and remove; with --force, one that is not there is no error."""
    tree.empty(host, tree.own_folders(host, name))  # runc itself looks only ten times a second
    done = host.run([*runtime.argv(name), "delete", "--force", name])
    if done.code not in (0, 127):  # 127: without the program there is no container of its either
        reported = done.err.strip()
        raise TrialError(
            f"{runtime.program} could not remove the container {name}: {reported}\nRun `tare device restore`."
        )
    if runtime.own_root:
        host.run(["rm", "-rf", "--one-file-system", "--", runtime.root(name)]).checked()


class RuntimePlace(ContainerPlace):
    """A running container; each command comes in by the runtime's `exec`, with an environment of its own."""

    def __init__(self, host: Host, name: str, group: Group, bundle: str, made: Bundle, runtime: Runtime) -> None:
        super().__init__(host, name, group)
        self.facts |= {"root": "overlay", "isolation": list(made.layers)}
        self._bundle = bundle
        self._made_of = made
        self._runtime = runtime
        self._numbers = itertools.count()

    def user(self) -> Identity:
        return self._made_of.user  # gVisor's own process has another one

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        command = self._exec(next(self._numbers), argv, {"PATH": PATH}, "/")
        return run_in_group(self._group, command, argv, limit_s=limit_s, stdin=stdin)

    def spawn(self, job: Job) -> Process:
        number = next(self._numbers)
        command = self._exec(number, job.argv, {**job.env, tree.NAME_VARIABLE: self.name}, job.cwd)
        return begun(
            self._group,
            Job(tuple(command), env={"PATH": PATH}),
            lambda: number_in(self._host, self._pid_file(number)),
        )

    def _exec(self, number: int, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> list[str]:
        """The whole process is in a file: on the command line its environment could be read by anyone."""
        file = f"{self._bundle}/process-{number}.json"
        make_file(self._host, file, json.dumps(process(self._made_of, argv, env, cwd)))
        begun = [*self._runtime.argv(self.name), "exec", "--process", file]
        return [*begun, "--pid-file", self._pid_file(number), self.name]

    def _pid_file(self, number: int) -> str:
        return f"{self._bundle}/process-{number}.pid"


def number_in(host: Host, path: str) -> int | None:
    """The number in a file; None while it is not there or not written yet."""
    text = tree.text_of(host, path).strip()
    return int(text) if text.isdigit() else None


# What is known of the versions of runc.

_RUNC_VERSION = re.compile(r"\brunc version (\d+)\.(\d+)\.(\d+)")
_ESCAPE_2024 = (1, 1, 12)
_ESCAPE_2025 = {(1, 2): (1, 2, 8)}  # the older branch got the fix too; all others with 1.3.3
_ESCAPE_2025_NEWEST = (1, 3, 3)


def runc_advice(version_text: str) -> list[str]:
    """Sentences about the version that `runc --version` names; none where it names none."""
    found = _RUNC_VERSION.search(version_text)
    if found is None:
        return []
    version = (int(found[1]), int(found[2]), int(found[3]))
    fixed_2025 = _ESCAPE_2025.get(version[:2], _ESCAPE_2025_NEWEST)
    known = []
    if version < _ESCAPE_2024:
        known.append("CVE-2024-21626")
    if version < fixed_2025:
        known.append("CVE-2025-31133")
    if not known:
        return []
    number = ".".join(found.groups())
    return [
        f"runc {number} is of a version in which a hostile image can leave the container ({', '.join(known)}). "
        "Distributions mend old versions without a new number, so look at theirs; run only images that you trust."
    ]


def advice(host: Host) -> list[str]:
    """What to say about the runtime of this host; nothing where it has none."""
    requested = host.run(["runc", "--version"])
    return runc_advice(requested.out) if requested.code == 0 else []
