"""What every virtual machine has in common: its fields, how it is booted, and how it is taken away."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field

from tare.base import units
from tare.base.errors import ObstacleError, TareError, TrialError
from tare.base.host import Exit, Host, InnerHost, Job, LocalHost, OwnDevice, Scope, Site
from tare.base.processes import is_root, mounts
from tare.base.rulings import Ruling, obstacle
from tare.drivers.cgroups import limits
from tare.drivers.cgroups.job import GroupPlatform
from tare.drivers.guests import boot as initramfs
from tare.drivers.guests import boot as kernels
from tare.drivers.guests.boot import Export, Kernel, export
from tare.drivers.guests.channel import GuestGone, GuestSilent, Link, Wire
from tare.drivers.guests.place import GuestPlace, tail
from tare.drivers.places import PATH, Phases, comes_true
from tare.parts.protocols import Json
from tare_inside.jobs import remove_tree

Accel: TypeAlias = Literal["kvm", "tcg"]
KVM = "/dev/kvm"
EMULATED = "every instruction is emulated (TCG), so its times say nothing about virtualisation"


@dataclass(frozen=True, slots=True)
class Choice:
    """An accelerator to try, and the sentence that a record should carry about it."""

    accel: Accel
    note: str = ""


def kvm_trouble(host: Host) -> str | None:
    """Why KVM cannot be used here, as the end of a sentence; None if nothing speaks against it."""
    if host.run(["test", "-c", KVM]).code != 0:
        return f"no {KVM}"
    if host.run(["sh", "-c", 'exec 3<> "$1"', "open", KVM]).code != 0:
        return f"{KVM} cannot be opened: it needs root or the group kvm"
    modules = set(host.run(["ls", "/sys/module"]).out.split())  # what is built into the kernel is listed, of use or not
    if "kvm_pvm" in modules and (modules.isdisjoint({"kvm_intel", "kvm_amd"}) or not _virtualises(host)):
        return f"{KVM} is of the kind PVM (kvm_pvm without kvm_intel or kvm_amd), which stock kernels do not boot on"
    return None


def _virtualises(host: Host) -> bool:
    """Whether the processor has the instructions that kvm_intel and kvm_amd need; taken to be so where nobody says."""
    try:
        flags = re.search(r"^flags\s*:(.*)$", host.read("/proc/cpuinfo"), re.MULTILINE)
    except OSError:
        return True
    return flags is None or not {"vmx", "svm"}.isdisjoint(flags[1].split())


def choices(host: Host, requested: str) -> list[Choice]:
    """What to boot with, in order: with `auto`, KVM that looks right but does not boot is followed by TCG."""
    if requested == "tcg":
        return [Choice("tcg", f"requested by `accel: tcg`: {EMULATED}.")]
    trouble = kvm_trouble(host)
    if requested == "kvm":
        return [Choice("kvm")]
    if trouble is None:
        return [Choice("kvm"), Choice("tcg", f"{KVM} is there, but no guest booted with it: {EMULATED}.")]
    return [Choice("tcg", f"{trouble}: {EMULATED}.")]


FOLDER = Path("/run/tare/vm")  # sockets want short paths, and a sweep wants to know where to look
MEMORY_BYTES = 2 << 30
_CONSOLE_LINES = 40  # a panic fills half a screen, and its cause stands before it
_LOOK_EVERY_S = 0.02
_LIMITS = {"quota", "cpuset", "cores", "pin", "numa", "leave_idle"}  # held on the device; memory is the guest's own


class NoBoot(TrialError):
    """A guest that did not come up; its console's last lines are in the text."""


class ChildProcess:
    """A program that keeps the guest going; how it ended is known as soon as it has."""

    def __init__(self, group: Host, argv: Sequence[str]) -> None:
        self.program = Path(argv[0]).name
        self.exit: Exit | None = None
        self._process = group.spawn(Job(tuple(argv), env={"PATH": PATH}))
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        with contextlib.suppress(TareError, OSError):  # its group was taken away under it
            self.exit = self._process.wait(threading.TIMEOUT_MAX / 2)

    def last_words(self) -> str:
        if self.exit is None:
            return ""
        reported = self.exit.err.strip()[-1000:]
        return f"{self.program} ended with code {self.exit.code}{': ' + reported if reported else '.'}"


@dataclass
class BootContext:
    """What one machine is booted with, and where."""

    host: Host
    name: str
    group: Host  # what is started here is counted, limited and ended together
    folder: Path
    kernel: Kernel
    share: Export
    choice: Choice
    children: list[ChildProcess] = field(default_factory=list)

    @property
    def console(self) -> Path:
        return self.folder / "console"

    @property
    def initramfs(self) -> Path:
        return self.folder / "initramfs"

    def start(self, argv: Sequence[str]) -> ChildProcess:
        child = ChildProcess(self.group, argv)
        self.children.append(child)
        return child

    def connect(self, path: Path, within_s: float) -> socket.socket:
        """A line to a socket that one of the child processes makes."""
        end_ns = self.host.clock.now_ns() + round(within_s * 1e9)
        while True:
            line = socket.socket(socket.AF_UNIX)
            try:
                line.connect(str(path))
            except OSError as error:
                line.close()
                if self.host.clock.now_ns() >= end_ns or any(child.exit for child in self.children):
                    raise self.no_boot(f"nobody answers at {path}: {error.strerror}") from error
                self.host.clock.sleep_until(self.host.clock.now_ns() + round(_LOOK_EVERY_S * 1e9))
            else:
                return line

    def wait_for(self, path: Path, within_s: float) -> None:
        """Until a child process has made this file."""

        def is_decided() -> bool:
            return path.exists() or any(child.exit for child in self.children)

        comes_true(self.host.clock, is_decided, within_s, _LOOK_EVERY_S)
        if not path.exists():
            raise self.no_boot(f"{path} was never made")

    def last_words(self) -> str:
        console = tail(self.console, _CONSOLE_LINES)
        reported = [words for child in self.children if (words := child.last_words())]
        return "\n".join([*reported, *([f"Its console ends:\n{console}"] if console else ["Its console is empty."])])

    def no_boot(self, why: str) -> NoBoot:
        return NoBoot(
            f"the virtual machine {self.name} did not boot ({self.choice.accel}): {why}.\n{self.last_words()}"
        )


class Guest(limits.Limits):
    """A virtual machine with the device's own root file system, read-only under an overlay in its memory.

    `quota` and `cpuset` hold for the machine as the device sees it; `memory` is what the guest has.
    """

    cpus: Annotated[int, Field(ge=1, le=512)] | None = None
    """Virtual processors; by default as many as the cores that the machine may use."""

    kernel: Path | None = None
    """The guest's kernel; by default the best that is found here."""

    modules: ClassVar[tuple[str, ...]] = ()
    """What a guest of this kind needs of its kernel, built in or loaded."""

    extra_s: ClassVar[float] = 15.0
    boots_within_s: ClassVar[float] = 180.0
    tries: ClassVar[int] = 1
    """How often a boot is tried; some machines do not come up every time."""

    # What a kind of machine says for itself

    @abstractmethod
    def own_obstacles(self, host: Host) -> list[Ruling]:
        """What else is missing here."""

    @abstractmethod
    def choices(self, host: Host) -> list[Choice]:
        """The accelerators to try, in order."""

    @abstractmethod
    def start(self, boot: BootContext) -> Wire:
        """Start the machine and whatever serves it; returns the line to its agent."""

    @abstractmethod
    def machine_facts(self, boot: BootContext) -> dict[str, Json]:
        """What a record should say about this kind of machine."""

    def needed_modules(self) -> tuple[str, ...]:
        """The same, with what this one machine needs beyond its kind."""
        return self.modules

    # What is the same for all

    def obstacles(self, host: Host) -> list[Ruling]:
        limited = GroupPlatform(**self.model_dump(include=_LIMITS))
        return [*limited.obstacles(host), *self._without_limits(host)]

    def _without_limits(self, host: Host) -> list[Ruling]:
        stopped = []
        if not isinstance(host, OwnDevice):
            stopped.append(
                obstacle(
                    "needs.outermost", f"a virtual machine is opened on the device itself, not inside {host.name}."
                )
            )
        if not is_root(host):
            stopped.append(
                obstacle(
                    "needs.root",
                    "a virtual machine shares the device's root with mounts of its own, and that needs root.",
                )
            )
        return [*stopped, *self.own_obstacles(host)]

    def memory_bytes(self) -> int:
        return self.memory or MEMORY_BYTES

    def vcpus(self, host: Host) -> int:
        if self.cpus is not None:
            return self.cpus
        if self.cpuset is not None:
            return len(units.cores(self.cpuset))
        return self.cores or len(os.sched_getaffinity(0))

    def guest_kernel(self) -> Kernel | None:
        if self.kernel is not None:
            return kernels.named(self.kernel) if self.kernel.is_file() else None
        return next(iter(kernels.found()), None)

    def make(self, host: Host, site: Site) -> InnerHost:
        if stopped := self._without_limits(host):
            raise ObstacleError(f"{self.part_name()} cannot be used here.", stopped)
        attempts = [choice for choice in self.choices(host) for _ in range(self.tries)]
        for number, choice in enumerate(attempts, 1):
            try:
                return self._boot(host, site, choice, number)
            except NoBoot:
                if number == len(attempts):
                    raise
        raise AssertionError("there is always an accelerator to try")

    def _boot(self, host: Host, site: Site, choice: Choice, number: int) -> InnerHost:
        with ExitStack() as stack:
            boot = self._boot_context(host, site, choice, stack)
            phases = Phases(host.clock)
            with phases.timed("open.boot"):
                link, reported = self._up(boot, stack)
            place = GuestPlace(host, site.name, link, _scope(boot), boot.last_words)
            place.phases.update(phases)
            with place.phases.timed("open.prepare"):
                place.prepare_workdir(site)
            place.facts |= self._facts(boot, reported, number)
            return place.keep(stack.pop_all())

    def _boot_context(self, host: Host, site: Site, choice: Choice, stack: ExitStack) -> BootContext:
        kernel = self.guest_kernel()
        assert kernel is not None  # an obstacle otherwise
        folder = FOLDER / site.name
        stack.callback(remove_folder, folder)
        group = self._group(host, site)
        stack.callback(group.close)
        share = export(host, site, folder / "share")
        boot = BootContext(host, site.name, group, folder, kernel, share, choice)
        try:
            share.folder.mkdir(mode=0o700, parents=True)
            folder.chmod(0o700)
            boot.initramfs.write_bytes(
                initramfs.archive(initramfs.contents(host, kernel, self.needed_modules(), share.shown))
            )
        except OSError as error:
            raise TrialError(f"what the guest boots from cannot be written: {error}.") from error
        return boot

    def _group(self, host: Host, site: Site) -> Host:
        """The control group that the machine runs in, on the cores that were found for it."""
        limited = GroupPlatform(quota=self.quota, cpuset=self.cpuset)
        limited._mems = self.mems
        return limited.make(host, site)

    def _up(self, boot: BootContext, stack: ExitStack) -> tuple[Link, Mapping[str, Json]]:
        """Start the machine and wait for the agent's first word."""
        link = Link(self.start(boot))
        stack.callback(link.close)
        try:
            return link, link.hello(self.boots_within_s)
        except GuestSilent as error:
            raise boot.no_boot(f"nothing was heard of it within {self.boots_within_s:g} s") from error
        except GuestGone as error:
            raise boot.no_boot("it ended while it booted") from error

    def _facts(self, boot: BootContext, reported: Mapping[str, Json], number: int) -> dict[str, Json]:
        facts = {
            "machine": self.part_name(),
            "accel": boot.choice.accel,
            "kernel": reported.get("kernel"),
            "cpus": self.vcpus(boot.host),
            "memory_bytes": self.memory_bytes(),
            "boots": number,
            **self.machine_facts(boot),
        }
        return facts | ({"accel_note": boot.choice.note} if boot.choice.note else {})

    @classmethod
    def sweep(cls, host: Host, name: str) -> None:
        GroupPlatform.sweep(host, name)
        remove_folder(FOLDER / name)


def _scope(boot: BootContext) -> Scope:
    """The machine's process and its group, as the device sees them."""
    found = boot.group.scope()
    for file in (boot.folder / "pid", boot.folder / "machine" / "pid"):
        with contextlib.suppress(OSError, ValueError):
            return Scope(pid=int(file.read_text()), cgroups=found.cgroups)
    return Scope(cgroups=found.cgroups)


def remove_folder(folder: Path) -> None:
    """Remove what a machine had of files; its mounts lived in a namespace that went with its processes."""
    if any(Path(mount.point).is_relative_to(folder) for mount in mounts(LocalHost())):
        raise TareError(
            f"something is mounted in {folder}, so it was left alone: unmount it, then `tare device restore`."
        )
    remove_tree(folder)  # type: ignore[no-untyped-call]
    with contextlib.suppress(OSError):  # others are in there, or it is gone already
        FOLDER.rmdir()
