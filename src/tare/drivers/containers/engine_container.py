"""A container that an engine keeps open: Docker's and Podman's, which differ in their roots and in a few options."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import ExitStack

from tare.base.errors import TrialError
from tare.base.host import Completed, Exit, Host, ImageConfig, Job, Process, Site, node_name
from tare.base.processes import identity, ulimits
from tare.drivers.cgroups import limits, tree
from tare.drivers.cgroups.job import Group, begun, run_in_group
from tare.drivers.containers import roots
from tare.drivers.containers.client import Client, labels
from tare.drivers.containers.daemons import serving
from tare.drivers.containers.oci import SLEEPER
from tare.drivers.containers.place import TMPFS, Container, ContainerPlace, Root, handed_over
from tare.drivers.containers.roots import Bind, csv_line
from tare.drivers.containers.unpacked import Unpacked, as_changes, packed
from tare.drivers.nvidia import handed_on
from tare.drivers.places import Phases

_ADDED = ("HOSTNAME", "TERM", "container", "PWD", tree.KEEPER_VARIABLE)  # what a command inside has without our doing
# What the engine's command, the Go runtime or the loader would heed if it were in the command's own environment.
_CLIENTS_OWN = re.compile(
    r"PATH|HOME|TMPDIR|TERM|USER|LOGNAME|SHELL|PWD|GLIBC_TUNABLES|NOTIFY_SOCKET|TARE_NAME|\w+_proxy|\w+_PROXY"
    r"|(LD|XDG|GO|LISTEN|CONTAINERS?|PODMAN|STORAGE|REGISTRY|BUILDAH|DBUS|DOCKER|BUILDX|OTEL)_\w+"
    r"|GO(DEBUG|GC|MAXPROCS|MEMLIMIT|TRACEBACK)"
)


class EngineContainer(Container):
    """No network, no capabilities but for files, a root that is only read unless a command of the user's runs."""

    @abstractmethod
    def client(self, host: Host, stack: ExitStack) -> Client:
        """The engine's command line on this host."""

    @abstractmethod
    def root(self, client: Client, site: Site, stack: ExitStack) -> Root: ...

    @abstractmethod
    def engine_options(self, client: Client, site: Site, root: Root) -> list[str]:
        """The options of `create` that only this engine has."""

    @classmethod
    @abstractmethod
    def remove_groups(cls, host: Host) -> None:
        """Remove the control groups that the engine leaves behind."""

    def started(self, host: Host, site: Site, stack: ExitStack, phases: Phases) -> tuple[ContainerPlace, Root]:
        with phases.timed("open.engine"):
            client = self.client(host, stack)
        stack.callback(self.remove_groups, host)
        with phases.timed("open.root"):
            root = self.covered(self.root(client, site, stack))
        stack.callback(client.remove, site.name)
        with phases.timed("open.create"):
            options = [*self.create_options(client, site, root), *self.engine_options(client, site, root)]
            client.checked(f"make the container {site.name}", "create", *options, root.path, *SLEEPER)
        # Podman's monitor leaves a file where it was started when a container runs out of memory.
        with phases.timed("open.start"), tree.parent_kept(host):
            host.run(
                ["env", "-C", str(site.scratch), *client.words, "start", site.name], limit_s=client.limit_s
            ).checked()
        place = EnginePlace(client, site.name, self.group(client, site.name), in_image=root.image is not None)
        gpus = handed_on(host, self.gpu)
        place.facts |= {"gpu_files": len(gpus)} if gpus else {}
        return place, root

    def group(self, client: Client, name: str) -> Group:
        """The control group of the container that runs, with its limits."""
        pid = first_pid(client, name)
        folders = tree.folders_of_pid(client.host, pid)
        limits.check_held(client.host, self, folders)
        return Group(client.host, folders, pid)

    def create_options(self, client: Client, site: Site, root: Root) -> list[str]:
        """The walls (faults.md S14, S15) and the limits. An image's own entry point would swallow the sleeper."""
        host, name = client.host, node_name(client.host)
        return [
            f"--name={site.name}",
            *(f"--label={label}={value}" for label, value in labels(site.name).items()),
            f"--hostname={name}",
            f"--network={self.network}",
            f"--add-host={name}:{roots.loop_address(host, name)}",
            "--ipc=private",
            "--cap-drop=ALL",
            *(f"--cap-add={capability}" for capability in self.capabilities(host, site)),
            "--security-opt=no-new-privileges",
            *([] if self.may_write(site) or not root.own_tmp else ["--read-only"]),
            f"--shm-size={self.shm_bytes(host)}b",
            f"--user={self.engines_user(host, site, root)}",
            "--workdir=/",
            "--entrypoint=",
            "--log-driver=none",
            *self._limits(host),
            *(f"--device={file.path}" for file in handed_on(host, self.gpu)),
        ]

    def _limits(self, host: Host) -> list[str]:
        flags = [f"--ulimit={name}={soft}:{hard}" for name, (soft, hard) in self.process_limits(host).items()]
        if self.quota is not None:
            flags += [f"--cpu-quota={self.quota_us()}", f"--cpu-period={limits.PERIOD_US}"]
        if self.cpuset is not None:
            flags.append(f"--cpuset-cpus={self.cpuset}")
        if self.mems is not None:
            flags.append(f"--cpuset-mems={self.mems}")
        if self.memory is not None:  # memory and swap together: no swap
            flags += [f"--memory={self.memory}b", f"--memory-swap={self.memory}b"]
        return flags

    def process_limits(self, host: Host) -> dict[str, tuple[int, int]]:
        return ulimits(host)

    def image_root(self, host: Host, site: Site, stack: ExitStack, image: str, config: ImageConfig) -> Root:
        """The root of an image that the engine has."""
        if config.user and site.layered:
            roots.open_to_all(host, site)
        own_tmp = not self.may_write(site) and not roots.hidden_by_tmp(config)
        facts = {"root": "image"}
        return Root(image, roots.image_binds(host, site, stack), own_tmp, facts, image=config)

    def engines_user(self, host: Host, site: Site, root: Root) -> str:
        """Whom the engine starts commands as: who was requested, the image's own for a command in it, or the runner."""
        if (requested := self.user_inside(host)) is not None:
            return requested.user
        return (root.image.user if root.image and site.layered else "") or identity(host).user


def own_tmpfs(root: Root) -> dict[str, str]:
    """The file systems in memory that a container has of its own, with their options."""
    return {path: options for path, options in TMPFS.items() if path != "/tmp" or root.own_tmp}


def mount_options(binds: Iterable[Bind], *options: str) -> list[str]:
    """Each bind as the option that mounts it."""
    return [f"--mount={csv_line(_mount(bind, options))}" for bind in binds]


def _mount(bind: Bind, options: Sequence[str]) -> list[str]:
    return ["type=bind", f"src={bind.source}", f"dst={bind.target}", *([] if bind.writable else ["ro=true"]), *options]


def imported(client: Client, image: Unpacked) -> str:
    """The name of an image that came from a file or folder; what cannot change is imported once."""
    name = f"localhost/tare/taken:{image.id[:16] or 'folder'}"
    if not image.id or client.image(name) is None:
        with packed(image) as archive:
            client.import_archive(archive, name, as_changes(image.config))
    return name


def first_pid(client: Client, name: str) -> int:
    """The process that keeps the container open."""
    reported = client.checked(f"look at the container {name}", "container", "inspect", "--format={{.State.Pid}}", name)
    if pid := int(reported or 0):
        return pid
    raise TrialError(
        f"the container {name} ended at once: its image needs a `sleep` command to be kept open, "
        "and the user that tare runs as must be allowed to run it."
    )


# Docker's command is told its engine and settings by options, and asks no proxy for a socket: values may be secrets,
# and are kept off its command line wherever it would not heed them.
_DOCKERS_OWN = re.compile(
    r"PATH|HOME|TMPDIR|TERM|GLIBC_TUNABLES|TARE_NAME|(LD|GO|OTEL|BUILDX)_\w+|GO(DEBUG|GC|MAXPROCS|MEMLIMIT|TRACEBACK)"
    r"|DOCKER_(HOST|CONFIG|CONTEXT|API_VERSION|CERT_PATH|TLS\w*|CONTENT_TRUST\w*|CLI_\w+|DEFAULT_PLATFORM|HIDE_\w+)"
)


class EnginePlace(ContainerPlace):
    """A running container; each command comes in by the engine's `exec`."""

    def __init__(self, client: Client, name: str, group: Group, *, in_image: bool) -> None:
        super().__init__(client.host, name, group)
        self._client = client
        self._in_image = in_image

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        command = [*self._client.words, "exec", *(["--interactive"] if stdin else []), self.name, *argv]
        return run_in_group(self._group, command, argv, limit_s=limit_s, stdin=stdin)

    def spawn(self, job: Job) -> Process:
        """With its own variables and nothing else; in an image the image's stay too, and its PATH wins."""
        env = {name: value for name, value in job.env.items() if not (self._in_image and name == "PATH")}
        program = "env" if self._in_image else "/usr/bin/env"
        heeded = _DOCKERS_OWN if self._client.program == "docker" else _CLIENTS_OWN
        lent, inside = handed_over(env, lambda name: not heeded.fullmatch(name), _ADDED, self.name, program)
        passed = [f"--env={name}" for name in lent]
        if self._client.program == "docker":  # an image may lack `env`; a name alone takes away what is there
            own = {name: value for name, value in env.items() if name not in lent} | {tree.NAME_VARIABLE: self.name}
            passed += [*(f"--env={name}={value}" for name, value in own.items())]
            passed += [f"--env={name}" for name in _ADDED if name not in env]
            inside = []
        command = (*self._client.words, "exec", f"--workdir={job.cwd}", *passed, self.name, *inside, *job.argv)
        inner = begun(self._group, Job(command, env={**lent, **self._client.env}))
        return EngineProcess(inner, self._client) if self._client.socket else inner

    def helpers(self) -> set[int]:
        return serving(self._host, self._group.keeper, self._client.socket or None)


class EngineProcess:
    """A job that a daemon brought in: where the daemon ended, the job's end is not known."""

    def __init__(self, inner: Process, client: Client) -> None:
        self._inner = inner
        self._client = client

    def wait(self, limit_s: float) -> Exit:
        ended = self._inner.wait(limit_s)
        if ended.code != 0 and not ended.timed_out:
            self._client.checked("say how the job ended", "version")
        return ended

    def kill(self) -> None:
        self._inner.kill()
