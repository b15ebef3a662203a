"""A container of somebody's own line: made, watched and removed by the command that the line itself calls.

Every option means what that command takes it for, and the engine is the one that it would use (a context,
DOCKER_HOST, a rootless socket). The container runs as it is: its entry point, health check, limits, log driver and
variables; nothing is assumed inside, and nothing of ours runs there but what the step hook needs. What would touch
what is the user's (a name, ports, a restart policy, folders that are written to, the network) is left out or stands on
a copy.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import stat
import tempfile
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from tare.base.errors import StudyError, TareError
from tare.base.files import state_dir
from tare.base.host import Completed, Exit, Host, Job, LocalHost, Process, Scope, Site
from tare.base.processes import is_root
from tare.base.secrets import Scrubber, masked_words, shown_env
from tare.drivers.cgroups import tree
from tare.drivers.cgroups.job import may_make_groups
from tare.drivers.containers.client import LABEL, UNIX, labels
from tare.drivers.containers.daemons import listener
from tare.drivers.containers.line import Flag, Line
from tare.drivers.containers.roots import give_work_folder
from tare.drivers.layers import LARGEST_COPY_BYTES
from tare.drivers.places import Phases, comes_true
from tare.drivers.surroundings import installed, surroundings, throttled
from tare_inside import launch
from tare_inside.fingerprint import MODULES

Allow: TypeAlias = Literal["network", "volumes", "privileged"]

_OWN = (  # what belongs to the one container that they run, or to their terminal
    "--name", "--publish", "--publish-all", "--restart", "--detach", "--interactive", "--tty", "--cidfile",
    "--attach", "--detach-keys", "--sig-proxy", "--replace", "--rmi", "--pidfile", "--conmon-pidfile", "--pod",
    "--pod-id-file", "--label", "--label-file",
)  # fmt: skip
OF_NETWORKS = ("--network", "--net", "--link", "--ip", "--ip6", "--link-local-ip", "--mac-address", "--network-alias",
                "--net-alias")  # fmt: skip
_NETWORKS = ("host", "bridge", "default", "slirp4netns", "pasta", "private")
_USUAL_RUNTIMES = ("", "runc", "crun", "oci", "io.containerd.runc.v2")
_MOUNTS = ("--volume", "--mount")
_INSTALLED: dict[str, dict[str, Any]] = {}  # by the image: it is read once, in a run that comes before those compared
_CHANGE_DEVICE = {  # its clock, modules, memory, kernel log, audit, security, kernel and files
    "ALL", "SYS_ADMIN", "SYS_TIME", "SYS_MODULE", "SYS_RAWIO", "SYSLOG", "AUDIT_CONTROL", "MAC_ADMIN", "BPF",
    "SYS_BOOT", "DAC_READ_SEARCH",
}  # fmt: skip
_ENGINES = ("/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock")
_ENGINE_NAMES = {Path(each).name for each in _ENGINES}
_MOST_LOOKED_AT = 10_000  # entries of a volume
MADE_WITHIN_S = 1800.0  # it may fetch the image
_ENDS_WITHIN_S = 60.0
_MONITOR_ENDS_WITHIN_S = 2.0
_REAL = "`--set platform.real_volumes=true`"
_FOR_LOADERS = " For data loaders --shm-size 8g does what --ipc host does: the batches of their workers have room."
_LOOKS_EVERY_S = 0.05
# What becomes the user's program, or starts it, by its name before a colon: runc calls itself `runc:[2:INIT]`.
_BEFORE = ("runc", "crun", "docker-init", "catatonit", "tini")
_PYTHONPATH = "PYTHONPATH"
_ANONYMOUS = re.compile(r"[0-9a-f]{64}")


def folder_bytes(path: str, most: int | None = None) -> int | None:
    """What a folder holds; None where that cannot be told, or is more than `most`."""
    asked = LocalHost().run(["du", "-sxb", "--", path], limit_s=600)
    size = int(asked.out.split()[0]) if asked.code == 0 else None  # it prints a sum also of what it could read
    return None if size is None or (most is not None and size > most) else size


class Mount(NamedTuple):
    """What one of the user's volumes is."""

    source: str  # on the device
    target: str
    writable: bool

    @property
    def size(self) -> int | None:
        """None where it cannot be told."""
        return folder_bytes(self.source)


@dataclass(frozen=True)
class Seen:
    """What the engine makes of a line, by a container that was never started."""

    argv: tuple[str, ...]  # entry point and command
    env: Mapping[str, str]
    folder: str
    mounts: tuple[Mount, ...]
    image: str  # its id
    user: str  # `1000:1000`; empty where its ids are not known
    open_to_device: tuple[str, ...]  # by what it could change the device itself
    engine: Mapping[str, Any] = field(default_factory=dict)  # how the engine runs it, by names of facts

    def on_device(self, path: str) -> str:
        """The file of the device that stands at this path inside; the path itself where that is the image's."""
        for mount in sorted(self.mounts, key=lambda each: -len(each.target)):
            if Path(path).is_relative_to(mount.target):
                return str(Path(mount.source, Path(path).relative_to(mount.target)))
        return path


def left_out(line: Line, allow: Collection[str]) -> list[Flag]:
    """The options that are not honoured."""
    away = (*_OWN, *(() if "network" in allow else OF_NETWORKS))
    return [flag for flag in line.flags if flag.name in away]


def bounded(line: Line, allow: Collection[str]) -> Line:
    """The line without what is not honoured, and without `--rm`: tare removes the container when it was read."""
    away = left_out(line, allow)
    return replace(line, flags=tuple(flag for flag in line.flags if flag not in away and flag.name != "--rm"))


def _network(allow: Collection[str]) -> list[str]:
    return [] if "network" in allow else ["--network=none"]


def look_at(host: Host, line: Line, allow: Collection[str]) -> Seen:
    """Ask the engine what the line means; raises with the engine's own words where it refuses it."""
    name = f"tare-look-{secrets.token_hex(4)}"
    words = bounded(line, allow).words("create")
    at = len(line.engine) + 1
    made = host.run(
        [*words[:at], f"--name={name}", f"--label={LABEL}={name}", *_network(allow), *words[at:]],
        limit_s=MADE_WITHIN_S,
    )
    if made.code != 0:
        remove(host, line.engine, name)
        raise StudyError(f"the engine does not take this line, and nothing was run: {_why(made, line, {})}")
    try:
        found = inspected(host, line.engine, name)
        return _seen(found, line, _ids(host, line.engine, name, str(found["Config"].get("User") or "0")))
    finally:
        remove(host, line.engine, name)


def _why(refused: Completed, line: Line, env: Mapping[str, str]) -> str:
    """The engine's own sentence, without the values of these variables and of the line's."""
    given = {**dict(value.partition("=")[::2] for value in line.values("--env")), **env}
    hidden = [given[name] for name, shown in shown_env(given).items() if shown != given[name]]
    rows = [row for row in refused.err.splitlines() if row.strip() and not row.startswith(("Run '", "See '"))]
    return Scrubber(hidden).text(rows[-1]) if rows else f"code {refused.code}"


def refuse_remote(host: Host, line: Line) -> None:
    """tare measures this device: an engine on another one runs its containers there."""
    if line.program == "podman":
        if host.run([*line.engine, "info", "--format", "{{.Host.ServiceIsRemote}}"]).out.strip() == "true":
            raise StudyError(
                "the podman of this line runs its containers through a service, which may be on another device: "
                "run tare there, and take --remote and CONTAINER_HOST away."
            )
        return
    asked = host.run([*line.engine, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"])
    address = asked.out.strip()
    if asked.code == 0 and address and not address.startswith((UNIX, "npipe:")):
        raise StudyError(
            f"the engine of this line is at {address}, and not on this device: run tare there, or unset DOCKER_HOST."
        )


def variables_of_image(host: Host, line: Line) -> set[str]:
    """The names of those that the image itself sets."""
    asked = host.run([*line.engine, "image", "inspect", "--format", "{{json .Config.Env}}", line.image])
    return {each.partition("=")[0] for each in json.loads(asked.out) or ()} if asked.code == 0 else set()


def inspected(host: Host, engine: Sequence[str], name: str) -> dict[str, Any]:
    (found,) = json.loads(host.run([*engine, "container", "inspect", name]).checked().out)
    return dict(found)


def _seen(found: Mapping[str, Any], line: Line, user: str) -> Seen:
    config, settings = found["Config"], found["HostConfig"]
    mounts = [
        Mount(each["Source"], os.path.normpath(each["Destination"]), bool(each.get("RW")))
        for each in found.get("Mounts") or ()
        if each.get("Source") and each.get("Type") in ("bind", "volume") and not _is_fresh(each, line)
    ]
    return Seen(
        argv=(found["Path"], *(found.get("Args") or ())),
        env=dict(each.split("=", 1) for each in config.get("Env") or () if "=" in each),
        folder=config.get("WorkingDir") or "/",
        mounts=tuple(mounts),
        image=str(found["Image"]),
        user=user,
        open_to_device=tuple(_open_to_device(settings, line)),
        engine=_of_engine(config, settings),
    )


def _of_engine(config: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """How the engine runs a container, beside its limits: names that say nothing of anybody."""
    network, runtime = (str(settings.get(name) or "") for name in ("NetworkMode", "Runtime"))
    health = (config.get("Healthcheck") or {}).get("Test") or ["NONE"]
    entry = config.get("Entrypoint") or ()  # one text where an engine is Podman before 5
    found = {
        "log_driver": (settings.get("LogConfig") or {}).get("Type"),
        "network": None if network == "none" else network if network in _NETWORKS else "another",
        "runtime": None if runtime in _USUAL_RUNTIMES else runtime,
        "health_check": None if health[0] == "NONE" else "yes",
        "init": "yes" if settings.get("Init") else None,
        "read_only": "yes" if settings.get("ReadonlyRootfs") else None,
        "user": config.get("User") or None,
        "entry": shlex.join(masked_words(shlex.split(entry) if isinstance(entry, str) else entry)) or None,
    }
    return {name: value for name, value in found.items() if value}


def _open_to_device(settings: Mapping[str, Any], line: Line) -> Iterator[str]:
    """The options by which it could change the device or other programs; seccomp and AppArmor switched off, SYS_PTRACE,
    and the device's names (--uts, --cgroupns, --userns) alone do not let it."""
    if settings.get("Privileged"):
        yield "--privileged"  # all capabilities with it
    else:
        added = {str(each).upper().removeprefix("CAP_") for each in settings.get("CapAdd") or ()}
        risky = _CHANGE_DEVICE | ({"NET_ADMIN"} if settings.get("NetworkMode") == "host" else set())
        yield from (f"--cap-add {each}" for each in sorted(added & risky))
    if settings.get("PidMode") == "host":
        yield "--pid host"
    if "host" in (settings.get("IpcMode"), *line.values("--ipc")):  # Podman's `inspect` calls it "shareable"
        yield "--ipc host"
    yield from (f"--device {each['PathOnHost']}" for each in settings.get("Devices") or ())
    yield from (f"--device-cgroup-rule {rule!r}" for rule in line.values("--device-cgroup-rule"))  # Podman lists none
    for option in line.values("--security-opt"):
        if option.partition("=")[0] in ("systempaths", "unmask"):  # /proc/sys is written to
            yield f"--security-opt {option}"


def _ids(host: Host, engine: Sequence[str], name: str, user: str) -> str:
    """The ids of the user inside, of one that has a name by the image's own list."""
    wanted, _, group = user.partition(":")
    if wanted.isdigit() and (group.isdigit() or not group):
        return f"{wanted}:{group or wanted}"
    with tempfile.TemporaryDirectory(prefix="tare-") as folder:
        copy = Path(folder, "passwd")
        if host.run([*engine, "cp", f"{name}:/etc/passwd", str(copy)]).code != 0:
            return ""
        rows = [row.split(":") for row in copy.read_text(errors="replace").splitlines()]
    return next((f"{row[2]}:{row[3]}" for row in rows if len(row) > 3 and row[0] == wanted), "")


def _is_fresh(mount: Mapping[str, Any], line: Line) -> bool:
    """Whether each container gets one of its own, which goes with it: a volume without a name of anybody's."""
    name = str(mount.get("Name") or "")
    is_named = any(name in flag.value for flag in line.flags if flag.name in _MOUNTS)
    # One that stands in another container looks the same.
    return _ANONYMOUS.fullmatch(name) is not None and not is_named and not line.values("--volumes-from")


def refusals(line: Line, seen: Seen, allow: Collection[str]) -> list[str]:
    """Why this container is not run: what it could do to the device, and which option allows it."""
    found = []
    if seen.open_to_device and "privileged" not in allow:
        found.append(
            f"{' and '.join(seen.open_to_device)} let the container change this device itself: "
            "`--set platform.allow_privileged=true` runs it so, or take it out of the line."
            + (_FOR_LOADERS if "--ipc host" in seen.open_to_device else "")
        )
    if "volumes" in allow:
        return found
    if line.program == "podman" and (theirs := line.values("--volumes-from")):
        found.append(
            f"--volumes-from {theirs[0]} shares folders that podman does not list: {_REAL} lets the runs write "
            "to them, or write them into the line by -v."
        )
    total = 0
    for mount in seen.mounts:
        if socket := _socket_in(mount):
            found.append(f"{socket} gives the container an engine or a service: {_REAL} hands it on.")
        elif mount.writable and not any(_is_at(flag, mount) for flag in line.flags):
            found.append(
                f"{mount.source}, which the container may write to at {mount.target}, is in no --volume or --mount "
                "of the line that a copy could stand in for (--volumes-from?): {_REAL} lets them write to it."
            )
        elif mount.writable and (size := mount.size) is not None:
            total += size
        elif mount.writable:
            found.append(f"{mount.source} cannot be read by us to be copied: {_REAL} lets the runs write to it.")
    if total > LARGEST_COPY_BYTES:
        found.append(
            f"the volumes that it may write to have {total / 1e9:.1f} GB, too much for a copy in each trial: "
            "mount them read-only (`:ro`), or let the runs write to them by `--set platform.real_volumes=true`."
        )
    return found


def _socket_in(mount: Mount) -> str:
    """A socket that it hands on, looked for in its first folders from the top; in a copy only an engine's is missed."""
    top = Path(mount.source).resolve()
    if _is_socket(top):
        return mount.source
    known = (path for path in map(Path, _ENGINES) if path.resolve().is_relative_to(top) and _is_socket(path))
    folders, left = deque([str(top)]), _MOST_LOOKED_AT
    while folders and left > 0:
        with suppress(OSError), os.scandir(folders.popleft()) as entries:
            for entry in islice(entries, left):
                left -= 1
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif (not mount.writable or entry.name in _ENGINE_NAMES) and _is_socket(Path(entry.path)):
                    return entry.path
    return str(next(known, ""))


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False


def on_copies(host: Host, line: Line, seen: Seen, folder: str, targets: Collection[str] | None = None) -> Line:
    """The line with a fresh copy in place of each volume that it may write to, or of those with these targets."""
    wanted = [mount for mount in seen.mounts if (mount.writable if targets is None else mount.target in targets)]
    flags, left = [], list(wanted)
    for flag in line.flags:
        mount = next((each for each in left if _is_at(flag, each)), None)
        if mount is None:
            flags.append(flag)
            continue
        left.remove(mount)
        _, target, options = _parts(flag)
        copy = f"{folder}/{len(flags)}"
        host.run(["mkdir", "-p", "--", folder]).checked()
        host.run(["cp", "-a", "--reflink=auto", "--", mount.source, copy], limit_s=600).checked()
        value = ":".join([copy, target, *([options] if options else [])])
        flags.append(Flag("--volume", value, (f"--volume={value}",)))
    if left:  # options that a study takes out may leave one that was not looked at
        raise StudyError(f"{left[0].source} would be written to for real, and real_volumes does not allow it.")
    return replace(line, flags=tuple(flags))


def _is_at(flag: Flag, mount: Mount) -> bool:
    return flag.name in _MOUNTS and _parts(flag)[1] == mount.target


def source_and_target(flag: Flag) -> tuple[str, str]:
    """What a volume is of, and where it is mounted."""
    return _parts(flag)[:2]


def _parts(flag: Flag) -> tuple[str, str, str]:
    """What a volume is of, where it is mounted, and how."""
    if flag.name == "--mount":
        pairs = dict(word.partition("=")[::2] for word in flag.value.split(","))
        source = next((pairs[key] for key in ("source", "src") if key in pairs), "")
        found = next((pairs[key] for key in ("target", "destination", "dst") if key in pairs), "")
        return source, os.path.normpath(found), "ro" if {"readonly", "ro"} & pairs.keys() else ""
    parts = flag.value.split(":")
    source, target = ("", parts[0]) if len(parts) == 1 else parts[:2]
    return source, os.path.normpath(target), ":".join(parts[2:])


def begin(
    host: Host, line: Line, seen: Seen, site: Site, allow: Collection[str], stack: ExitStack, phases: Phases,
    in_memory: Collection[str] = (),
) -> OwnPlace:  # fmt: skip
    """The place in which a container of this line is run by the next job."""
    with phases.timed("open.copy"):
        if "volumes" not in allow:
            folder = f"{site.scratch}/volumes"
            stack.callback(host.run, ["rm", "-rf", "--", folder])
            line = on_copies(host, line, seen, folder)
        if in_memory:
            folder = f"/dev/shm/{site.name}"
            stack.callback(host.run, ["rm", "-rf", "--", folder])
            line = on_copies(host, line, seen, folder, in_memory)
    groups = _groups(host, line, site, stack)
    stack.callback(remove, host, line.engine, site.name)
    return OwnPlace(host, site, bounded(line, allow), seen, _network(allow), groups)


def _groups(host: Host, line: Line, site: Site, stack: ExitStack) -> dict[str, str]:
    """A control group of ours around the container, so that it is counted after it has ended; none where the line names
    a parent of its own, or where its engine keeps its groups in systemd's slices."""
    what = "{{.CgroupDriver}}" if line.program == "docker" else "{{.Host.CgroupManager}}"
    manager = host.run([*line.engine, "info", "--format", what]).out.strip()
    if line.has("--cgroup-parent") or manager != "cgroupfs" or not may_make_groups(host):
        return {}
    folders = tree.make(host, site.name)
    stack.callback(remove_groups, host, folders)
    return folders


def remove_groups(host: Host, folders: Mapping[str, str]) -> None:
    """With those that Podman leaves in them: its monitor's, which ends a moment after the container."""
    monitors = {key: f"{folder}/conmon" for key, folder in folders.items()}
    comes_true(host.clock, lambda: not tree.pids(host, monitors), _MONITOR_ENDS_WITHIN_S)
    there = [folder for folder in dict.fromkeys(folders.values()) if tree.is_there(host, f"{folder}/cgroup.procs")]
    if there:
        host.run(["find", *there, "-mindepth", "1", "-depth", "-type", "d", "-exec", "rmdir", "--", "{}", ";"])
    tree.remove(host, folders)


def remove(host: Host, engine: Sequence[str], name: str) -> None:
    """The containers and networks that carry this label of ours; what only has the name is someone else's."""
    ours = f"--filter=label={LABEL}={name}"
    listed = host.run([*engine, "ps", "--all", "--quiet", "--no-trunc", ours])
    for each in listed.out.split():
        host.run([*engine, "rm", "--force", "--volumes", each], limit_s=_ENDS_WITHIN_S).checked()
    for each in host.run([*engine, "network", "ls", "--quiet", ours]).out.split():
        host.run([*engine, "network", "rm", each], limit_s=_ENDS_WITHIN_S)


def note_of(name: str) -> Path:
    """The file that says which engine has the containers of this name, while they may be there."""
    return state_dir() / "own" / name


class OwnPlace:
    """A place that is one container and one run of it: it is started by the job, and ends with it."""

    python = ""  # whether the image has one is not asked: the job is timed from outside
    image = None
    guest_clock = None
    shares_workdir = True

    def __init__(
        self, host: Host, site: Site, line: Line, seen: Seen, added: Sequence[str], groups: Mapping[str, str]
    ) -> None:
        self.name, self.clock = site.name, host.clock
        self.facts: dict[str, Any] = {"root": "image", "image_id": seen.image, "engine": dict(seen.engine)}
        self.phases = Phases(host.clock)
        self._host, self._site, self._line, self._seen = host, site, line, seen
        self._added, self._groups = added, groups
        self._made = ExitStack()

    def keep(self, made: ExitStack, phases: Mapping[str, float]) -> OwnPlace:
        self._made = made
        self.phases.update(phases)
        return self

    def job(self, hooks: Mapping[str, str]) -> Job:
        """What the container runs, with its own variables; `hooks`: ours, and what stands first on PYTHONPATH."""
        if not self._seen.user or (not self._seen.user.startswith("0:") and not is_root(self._host)):
            hooks = {}  # the work folder cannot be given to its user, who could not write there
        env = {**self._seen.env, **hooks}
        if _PYTHONPATH in hooks and _PYTHONPATH in self._seen.env:
            env[_PYTHONPATH] = os.pathsep.join((hooks[_PYTHONPATH], self._seen.env[_PYTHONPATH]))
        return Job(self._seen.argv, env, self._seen.folder)

    def spawn(self, job: Job) -> Process:
        """Make the container with what the job has beside the line's own variables, and start it."""
        workdir, own = self._site.writes[0], self._seen.env
        taken = [name for name in own if name not in job.env]
        given = {name: value for name, value in job.env.items() if own.get(name) != value}
        given[tree.NAME_VARIABLE] = self.name  # by which its processes on a GPU are known as ours
        line = self._line.changed(dict.fromkeys(taken), {}, taken)
        words, at = line.words("create"), len(line.engine) + 1
        ours = [
            f"--name={self.name}",
            *(f"--label={name}={value}" for name, value in labels(self.name).items()),
            *self._added,
            f"--volume={workdir}:{workdir}",
            *([f"--cgroup-parent=/{tree.PARENT}/{self.name}"] if self._groups else []),
            *(f"--env={name}={value}" for name, value in given.items()),
        ]
        if self._seen.user:
            give_work_folder(self._host, self._site, self._seen.user)
        with self.phases.timed("open.create"):
            # A name alone would take over what we have.
            alone = ["env", *(word for name in taken for word in ("-u", name))] if taken else []
            made = self._host.run([*alone, *words[:at], *ours, *words[at:]], limit_s=MADE_WITHIN_S)
        if made.code != 0:
            why = _why(made, line, {**own, **job.env})
            raise TareError(f"the engine made no container of `{line.shown()}`: {why}")
        attached = Job((*line.engine, "start", "--attach", self.name), dict(os.environ), "/")
        watch = Watch(self._host, self._groups, self.facts, self._seen.image)
        return OwnProcess(self._host, line, self.name, self._groups, self._host.spawn(attached), watch)

    def helpers(self) -> set[int]:
        """The daemon of the engine, and the containerd that it reports to."""
        if self._line.program != "docker":
            return set()
        asked = [*self._line.engine, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]
        address = self._host.run(asked).out.strip()
        daemon = listener(address.removeprefix(UNIX)) if address.startswith(UNIX) else None
        return set() if daemon is None else {daemon, *_containerds(self._host, daemon)}

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        return Completed(tuple(argv), 127, "", f"{self.name} runs its own command alone")

    def read(self, path: object) -> str:
        raise FileNotFoundError(f"{path}: files of {self.name} are not looked at")

    def write(self, path: object, text: str) -> None:
        raise FileNotFoundError(f"{path}: files of {self.name} are not written")

    def scope(self) -> Scope:
        return Scope(cgroups=self._groups) if self._groups else self._host.scope()

    def close(self) -> None:
        with self.phases.timed("close.remove"):
            self._made.close()


def _containerds(host: Host, daemon: int) -> set[int]:
    listed = host.run(["ps", "-o", "pid=", "-C", "containerd"]).out.split()
    return {int(each) for each in listed if each.isdigit()} - {daemon}


class Watch:
    """Looks at a container from outside while it runs: what it has around it, and what is gone when it has ended.

    The engine puts it into a group of its own in ours, where its quota is, and removes that with it.
    """

    def __init__(self, host: Host, groups: Mapping[str, str], facts: dict[str, Any], image: str = "") -> None:
        self.counted: dict[str, float] = {}
        self._host, self._groups, self._facts, self._image = host, groups, facts, image
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> None:
        if self._groups:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._groups:
            self._thread.join()

    def _look(self) -> None:
        pid = None
        while pid is None and not self._ended.wait(_LOOKS_EVERY_S):
            pid = self._first()
        if pid is None:
            return
        around = surroundings(self._host, pid)
        if os.environ.get(MODULES) and self._image not in _INSTALLED and (found := installed(pid)):
            _INSTALLED[self._image] = found
        self._facts["around"] = around | _INSTALLED.get(self._image, {})
        own = tree.folders_of_pid(self._host, pid)
        while not self._ended.wait(_LOOKS_EVERY_S):
            if (waits := _waits(self._host, pid, own)) is not None:
                self.counted.pop("run_queue_s", None)
                self.counted |= waits
            self.counted |= throttled(self._host, own)

    def _first(self) -> int | None:
        """The container's first process, once it runs the user's program; of an init the one that it started."""
        within = next((self._groups[key] for key in ("cpu", "") if key in self._groups), "")
        below = [folder for folder, _, _ in os.walk(within) if folder != within and Path(folder).name != "conmon"]
        pids = sorted({pid for folder in below for pid in tree.pids(self._host, {"": folder})})
        programs = [tree.text_of(self._host, f"/proc/{pid}/comm").strip() for pid in pids]
        return next(
            (pid for pid, name in zip(pids, programs, strict=True) if name.partition(":")[0] not in _BEFORE), None
        )


class OwnProcess:
    """The run of a container: its output comes by `start --attach`, its times from the engine."""

    def __init__(
        self, host: Host, line: Line, name: str, groups: Mapping[str, str], inner: Process, watch: Watch
    ) -> None:
        self._host, self._engine, self._name = host, line.engine, name
        self._groups, self._inner, self._watch = groups, inner, watch

    def wait(self, limit_s: float) -> Exit:
        with self._watch:
            ended = self._inner.wait(limit_s)
        if ended.timed_out:
            self.kill()
        state = inspected(self._host, self._engine, self._name)["State"]
        begin_s, end_s = _time_s(state.get("StartedAt")), _time_s(state.get("FinishedAt"))
        if begin_s is None or end_s is None or end_s < begin_s:  # it never ran
            return ended
        oom_killed = bool(state.get("OOMKilled"))
        return replace(ended, seconds=end_s - begin_s, oom_killed=oom_killed, counted=self._counted(begin_s, end_s))

    def _counted(self, begin_s: float, end_s: float) -> dict[str, float]:
        """What tare's launcher counts where it can run: here from outside."""
        to_monotonic_s = time.clock_gettime(time.CLOCK_MONOTONIC) - time.time()
        used = cpu_s(self._host, self._groups)
        return {
            "start_ns": round((begin_s + to_monotonic_s) * 1e9),
            "end_ns": round((end_s + to_monotonic_s) * 1e9),
            "wall_s": end_s - begin_s,
            **({} if used is None else {"cpu_user_s": used[0], "cpu_system_s": used[1]}),
            **self._watch.counted,
        }

    def kill(self) -> None:
        self._host.run([*self._engine, "kill", self._name], limit_s=_ENDS_WITHIN_S)


def _time_s(text: object) -> float | None:
    """A time of the engine's; none of a container that did not start."""
    words = str(text or "")
    return None if not words or words.startswith("0001-") else datetime.fromisoformat(words).timestamp()


def _waits(host: Host, pid: int, groups: Mapping[str, str]) -> dict[str, float] | None:
    """How long its first thread waited for a core, if that did the work of the group; None where it has ended."""
    said, used = tree.text_of(host, f"/proc/{pid}/task/{pid}/schedstat"), cpu_s(host, groups)
    if not said or used is None:
        return None
    waits: dict[str, float] = launch.waits(said, sum(used))  # type: ignore[no-untyped-call]
    return waits


def cpu_s(host: Host, groups: Mapping[str, str]) -> tuple[float, float] | None:
    """User and system time of all that ever ran in these groups."""
    if (found := tree.locate(host, groups, "cpuacct")) is not None and found.version == 1:
        ticks = dict(line.split() for line in tree.text_of(host, f"{found.folder}/cpuacct.stat").splitlines())
        rate = os.sysconf("SC_CLK_TCK")
        return (int(ticks["user"]) / rate, int(ticks["system"]) / rate) if {"user", "system"} <= ticks.keys() else None
    if "" in groups:
        lines = tree.text_of(host, f"{groups['']}/cpu.stat").splitlines()
        used = dict(line.split() for line in lines if len(line.split()) == 2)
        if {"user_usec", "system_usec"} <= used.keys():
            return int(used["user_usec"]) / 1e6, int(used["system_usec"]) / 1e6
    return None
