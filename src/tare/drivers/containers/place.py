"""What every container platform has in common: its fields, and the host that an opened container is."""

from __future__ import annotations

import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, ClassVar, Literal, Self

from pydantic import field_validator, model_validator

from tare.base.errors import TrialError
from tare.base.files import caller_ids
from tare.base.host import (
    OUTPUT_LIMIT_BYTES,
    Completed,
    Host,
    ImageConfig,
    InnerHost,
    Job,
    LocalHost,
    Process,
    Scope,
    Site,
    clock_inside,
    facts_of,
    shares_workdir,
)
from tare.base.processes import Identity, identity, user_of
from tare.base.rulings import Ruling, obstacle
from tare.base.secrets import masked_words
from tare.base.units import SizeBytes
from tare.drivers import layers
from tare.drivers.cgroups.job import Group
from tare.drivers.cgroups.limits import Limits
from tare.drivers.cgroups.tree import NAME_VARIABLE
from tare.drivers.containers import roots
from tare.drivers.containers.daemons import serving
from tare.drivers.containers.differing import inside
from tare.drivers.containers.roots import Bind
from tare.drivers.containers.unpacked import unpacked
from tare.drivers.places import Phases
from tare.parts.protocols import Json

OF_FILES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID")
# As on the device, a program may be run from /tmp: compilers of kernels put theirs there.
TMPFS = {"/tmp": "rw,nosuid,nodev,exec,mode=1777", "/run": "rw,nosuid,nodev,noexec,mode=755,size=65536k"}
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NO_SUCH_FILE = 66
CALLER = "caller"
NO_ENTRY = "none"
_USER = re.compile(r"[0-9]{1,9}(:[0-9]{1,9})?")
_MUST_EXIST = f'[ -e "$1" ] || exit {_NO_SUCH_FILE}'


_READ_ALL = """exec > /dev/null 2>&1
if command -v find; then find / -xdev -type f -exec cat {} +; exit 0; fi
all() { for path in "$1"/*; do
    if [ -h "$path" ]; then continue; fi
    case $path in /proc|/sys|/dev) continue;; esac
    if [ -d "$path" ]; then (all "$path"); elif [ -f "$path" ]; then cat "$path"; fi
done; }
all ""; true"""  # small images have a shell and no find
_COMPILE = """import compileall, os, re, sys
for path in sys.argv[1:]:
    if os.path.isdir(path):  # other folders of modules that lie in it are named themselves
        others = re.compile(re.escape(path) + r"/(.*/)?(site-packages|dist-packages|tests?)/")
        compileall.compile_dir(path, rx=others, quiet=2)
    else:
        compileall.compile_file(path, quiet=2)"""
_PREPARED_WITHIN_S = 600.0


@dataclass(frozen=True, slots=True)
class Root:
    """The file system of a container: where it is, what is bound on top, and what a record says of it."""

    path: str  # a folder or a file of the device; or what an engine calls an image
    binds: Sequence[Bind]
    own_tmp: bool = True  # else /tmp is the root's
    facts: Mapping[str, Json] = field(default_factory=dict)
    image: ImageConfig | None = None  # where it is an image's
    user: Identity | None = None  # the image's own; else the runner
    writable: bool = False
    over: str = ""  # a folder that what is written goes to, where the root itself is not for writing


class Container(Limits):
    """The software inside a container, either the host's own or an image's, and its shared memory."""

    extra_s: ClassVar[float] = 1.0
    why_no_turns: ClassVar[str | None] = None

    rootfs: Literal["host"] | None = "host"
    """host: the host's own root file system under an overlay, so that both sides run the same software."""

    image: str | None = None
    """An image instead of the host's root: a name that Docker or Podman has, a tarball of `docker save` or `podman
    save` or an OCI layout (both need Podman), a folder with a root file system, or (apptainer, bare) a SIF file."""

    python: str = "python3"
    """The interpreter inside an image; with `rootfs: host` it is the host's own."""

    shm: SizeBytes | None = None
    """Size of /dev/shm inside, where data loader workers pass their batches; the host's own by default."""

    network: Literal["none", "host"] = "none"
    """none: the loopback and nothing else, with the host's name resolved to it; host: the host's own network."""

    warm: bool = False
    """Read all files of the image before the workload starts, so that none of them comes from the disk. Needs an
    image."""

    hidden: tuple[str, ...] = ()
    """Files that are empty inside, like a sitecustomize.py or a *.pth file: to see what each of them costs."""

    compiled: tuple[str, ...] = ()
    """Files and folders inside of which Python compiles the modules before the workload starts: an image may lack their
    `__pycache__`. Needs a Python inside, and a root that can be written to."""

    taken: tuple[str, ...] = ()
    """Files and folders that are inside as they are in `taken_from`, and empty where it has none of that name: to see
    what each of them costs. They are only read."""

    taken_from: str | None = None
    """The image that `taken` is from; this device by default."""

    entry: str | None = None
    """What goes before a command in an image in place of the image's own entry point; `none` for nothing."""

    gpu: bool | None = None
    """Hand the NVIDIA GPUs on: by default all that there are, to an image the driver too, by NVIDIA's runtime."""

    writable: bool | None = None
    """By default a command of yours sees all files of the host and writes anywhere, to layers that go with the trial;
    a built-in workload sees a read-only root, unless it saves checkpoints. true: that may write to it too; false: the
    root is sealed for both."""

    user: str | None = None
    """The user inside: `caller` (who called tare, also by sudo) or ids like 1000 or 1000:1000. By default an image's
    own for a command in it, else the one that tare runs as. `writes` folders must be open to that user."""

    @field_validator("hidden", "compiled", "taken")
    @classmethod
    def _are_whole(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [path for path in value if not path.startswith("/")]:
            raise ValueError(f"{wrong[0]!r} is no whole path of a file inside")
        return value

    @field_validator("user", mode="before")
    @classmethod
    def _ids(cls, value: object) -> object:
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if isinstance(value, str) and not (value == CALLER or _USER.fullmatch(value)):
            raise ValueError(f"{value!r} is no user: write `{CALLER}`, or ids like 1000 or 1000:1000")
        return value

    @model_validator(mode="before")
    @classmethod
    def _image_instead_of_rootfs(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and "rootfs" not in fields and cls._names_image(fields):
            return {**fields, "rootfs": None}
        return fields

    @model_validator(mode="after")
    def _one_root(self) -> Container:
        if self.warm and self.rootfs is not None:
            raise ValueError("`warm` reads the files of an image, and there is none (`image`)")
        if (self.rootfs is None) != self._names_image(self.__dict__):
            raise ValueError("a container has one root: either `rootfs: host`, or an image (then leave `rootfs` away)")
        return self

    def open(self, host: Host, site: Site) -> InnerHost:
        place = super().open(host, site)
        try:
            if isinstance(place, ContainerPlace):
                place.hand_over(site)
            if self.warm:
                place.run(["sh", "-c", _READ_ALL], limit_s=_PREPARED_WITHIN_S).checked()
            if self.compiled:
                place.run([place.python, "-I", "-c", _COMPILE, *self.compiled], limit_s=_PREPARED_WITHIN_S).checked()
        except BaseException:
            place.close()
            raise
        return place

    def make(self, host: Host, site: Site) -> InnerHost:
        with ExitStack() as stack:
            phases = Phases(host.clock)
            place, root = self.started(host, site, stack, phases)
            place.facts |= root.facts
            if root.image is not None:
                entry = root.image.entry if self.entry is None else _words_of(self.entry)
                place.image = replace(root.image, entry=entry)
                place.facts["entry"] = shlex.join(masked_words(entry)) or NO_ENTRY
            if self.rootfs is None:
                place.find_python(self.python, needed=not site.layered)
            return place.keep(stack.pop_all(), phases)

    def covered(self, root: Root) -> Root:
        """The root with nothing in the files that are hidden, and with those that are taken from elsewhere."""
        other = Path("/") if self.taken_from is None or not self.taken else unpacked(self.taken_from).root
        taken = {path: inside(other, path) for path in self.taken}
        sources = {path: str(source) if source.exists() else "/dev/null" for path, source in taken.items()}
        hidden = dict.fromkeys(self.hidden, "/dev/null")
        return replace(root, binds=[*root.binds, *(Bind(s, path) for path, s in {**sources, **hidden}.items())])

    @abstractmethod
    def started(self, host: Host, site: Site, stack: ExitStack, phases: Phases) -> tuple[ContainerPlace, Root]:
        """The container as it runs, with its limits; the stack removes it."""

    def user_inside(self, host: Host) -> Identity | None:
        """The user that was requested; None where it is the image's own, or the runner."""
        if self.user is None:
            return None
        ours = identity(host)
        if self.user == CALLER:
            uid, gid = caller_ids() or (ours.uid, ours.gid)
            return replace(ours, uid=uid, gid=gid)
        name, _, group = self.user.partition(":")
        return replace(ours, uid=int(name), gid=int(group or name))

    def user_obstacles(self, host: Host) -> list[Ruling]:
        """Why the requested user cannot be the one inside: its work folder is ours to give, and it needs our Python."""
        try:
            user, ours = self.user_inside(host), identity(host)
        except (OSError, KeyError, ValueError):
            return []
        if user is None or user.uid == ours.uid:
            return []
        if ours.uid != 0:
            return [obstacle("needs.root", f"`user: {self.user}` needs root: the work folder is given to that user.")]
        as_user = ["setpriv", f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups"]
        if self.rootfs is None or host.run([*as_user, "test", "-x", host.python]).code != 1:
            return []
        above = [*reversed(Path(host.python).parents), *reversed(Path(host.python).resolve().parents)]
        closed = list(dict.fromkeys(str(each) for each in above if host.run([*as_user, "test", "-x", str(each)]).code))
        hidden = (
            f"user {user.uid} cannot reach the interpreter {host.python}. `chmod o+x {' '.join(closed)}` lets others"
        )
        ways = "pass there, without a list of what it holds; or name an `image` with a Python of its own."
        return [obstacle("needs.file", f"{hidden} {ways}")]

    def may_write(self, site: Site) -> bool:
        """Whether the workload may write to its root."""
        return (site.layered or site.saves) if self.writable is None else self.writable

    def sees_all(self, host: Host, site: Site) -> bool:
        """Whether the root is a view of all files of the host; else an overlay of its root, or an image."""
        return self.rootfs is not None and self.may_write(site) and layers.possible(host, site)

    def hides(self, host: Host, program: Path, shown: Sequence[Path]) -> bool:
        if self.rootfs is None:
            return False  # an image has programs of its own
        return roots.is_hidden(host, program, shown, sealed=self.writable is False or not identity(host).can_mount)

    def capabilities(self, host: Host, site: Site) -> list[str]:
        """Those that a command keeps: root writes to other users' folders on bare metal, and so it must inside."""
        return (
            list(OF_FILES)
            if self.may_write(site) and site.layered and (self.user_inside(host) or identity(host)).uid == 0
            else []
        )

    def shm_bytes(self, host: Host) -> int:
        return roots.shm_bytes(host) if self.shm is None else self.shm

    @classmethod
    def _names_image(cls, fields: Mapping[str, Any]) -> bool:
        return any(fields.get(name) is not None for name in ("image", "dockerfile"))


def _words_of(entry: str) -> tuple[str, ...]:
    return () if entry == NO_ENTRY else tuple(shlex.split(entry))


class ContainerPlace(ABC):
    """Inside a container: a host where even files are read and written by commands that run there."""

    def __init__(self, host: Host, name: str, group: Group) -> None:
        self.name = name
        self.clock = host.clock
        self.python = host.python
        self.facts = facts_of(host)  # what a record should say about this place
        self.guest_clock = clock_inside(host)
        self.shares_workdir = shares_workdir(host)
        self.phases = Phases(host.clock)
        self.image: ImageConfig | None = None
        self._host = host
        self._group = group
        self._made = ExitStack()

    def keep(self, made: ExitStack, phases: Mapping[str, float]) -> Self:
        """From here on, closing the place removes what was made for it; `phases` is what making it took."""
        self._made = made
        self.phases.update(phases)
        return self

    def hand_over(self, site: Site) -> None:
        """The work folder to the user that runs inside, before anything of the workload does."""
        if (user := self.user()) is None:
            return
        self.facts["user"] = user.uid
        roots.give_work_folder(self._host, site, user.user)

    def user(self) -> Identity | None:
        """The user of what keeps the container open, and so of its commands, by the kernel's word."""
        keeper = self._group.keeper
        return None if keeper is None else user_of(self._host, keeper)

    def helpers(self) -> set[int]:
        """The processes on the device that serve this container from outside of it."""
        return serving(self._host, self._group.keeper)

    def find_python(self, python: str, *, needed: bool) -> None:
        """Take the interpreter of an image: where it lies there, since a job comes with a PATH of the host's."""
        self.python = python_in(self, python, needed=needed)

    @abstractmethod
    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed: ...

    @abstractmethod
    def spawn(self, job: Job) -> Process: ...

    def read(self, path: PurePath | str) -> str:
        done = self.run(["sh", "-c", f'{_MUST_EXIST}; exec cat -- "$1"', "read", str(path)])
        _check(path, done)
        if len(done.out) >= OUTPUT_LIMIT_BYTES:
            raise TrialError(f"{path} in {self.name} is too long to be read whole.")
        return done.out

    def write(self, path: PurePath | str, text: str) -> None:
        _check(path, self.run(["sh", "-c", f'{_MUST_EXIST}; cat > "$1"', "write", str(path)], stdin=text))

    def scope(self) -> Scope:
        if not self._group.folders:  # without a group of its own it is counted with the host
            return self._host.scope()
        return seen_from_device(self._host, Scope(pid=self._group.keeper, cgroups=self._group.folders))

    def close(self) -> None:
        with self.phases.timed("close.remove"):
            self._made.close()


def handed_over(
    env: Mapping[str, str], is_lent: Callable[[str], object], present: Iterable[str], name: str, program: str = "env"
) -> tuple[dict[str, str], list[str]]:
    """A job's variables in two parts: those for the environment of the program that brings it in, and the words that
    set all others inside, and take away what is `present` there by itself.

    Anyone can read a command line, so that values go by the environment wherever they may. The name by which leftovers
    are found does not: the program itself is none.
    """
    lent = {key: value for key, value in env.items() if is_lent(key)}
    words = {key: value for key, value in env.items() if key not in lent} | {NAME_VARIABLE: name}
    away = [word for key in present if key not in env for word in ("-u", key)]
    return lent, [program, *away, *(f"{key}={value}" for key, value in words.items())]


def python_in(place: Host, python: str, *, needed: bool) -> str:
    """Where the interpreter of an image lies; empty where there is none, and a command can be timed from outside."""
    done = place.run(["sh", "-c", 'command -v -- "$1"', "find", python])
    if done.code == 0 and done.out.startswith("/"):
        return done.out.strip()
    if needed:
        raise TrialError(
            f"the image has no interpreter {python!r} that a shell finds: {done.err.strip() or 'nothing found'}\n"
            "tare times a job from inside, with Python 3.6 or newer; name the image's with `python: /path/to/it`."
        )
    return ""


def _check(path: PurePath | str, done: Completed) -> None:
    if done.code == _NO_SUCH_FILE:
        raise FileNotFoundError(str(path))
    if done.code != 0:
        raise OSError(f"{path}: {done.err.strip()}")


def seen_from_device(host: Host, inner: Scope) -> Scope:
    """`inner`, if `host` runs on the device's own kernel; a guest's pids mean nothing on the device."""
    try:
        same = host.read(_BOOT_ID) == LocalHost().read(_BOOT_ID)
    except OSError:
        same = False
    return inner if same else host.scope()
