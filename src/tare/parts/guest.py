"""What every virtual machine has in common: its fields, how it is booted, and how it is taken away."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from tare.errors import ObstacleError, TareError, TrialError
from tare.host import Exit, Host, Job, LocalHost, Scope, Site
from tare.parts import core_list, initramfs, kernels, limits
from tare.parts.accel import Choice
from tare.parts.guest_channel import GuestGone, GuestSilent, Link, Wire
from tare.parts.guest_place import GuestPlace, tail
from tare.parts.guest_root import Export, export
from tare.parts.identity import is_root
from tare.parts.kernels import Kernel
from tare.parts.mounts import mounts
from tare.parts.oci import PATH
from tare.parts.phases import Phases
from tare.parts.platforms.bare import Bare
from tare.parts.protocols import Json

FOLDER = Path("/run/tare/vm")  # sockets want short paths, and a sweep wants to know where to look
MEMORY_BYTES = 2 << 30
_CONSOLE_LINES = 40  # a panic fills half a screen, and its cause stands before it
_LOOK_EVERY_S = 0.02
_LIMITS = {"quota", "cpuset", "cores", "pin", "numa", "leave_idle"}  # held on the device; memory is the guest's own


class NoBoot(TrialError):
    """A guest that did not come up; its console's last lines are in the text."""


class Servant:
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
        said = self.exit.err.strip()[-1000:]
        return f"{self.program} ended with code {self.exit.code}{': ' + said if said else '.'}"


@dataclass
class Room:
    """What one machine is booted with, and where."""

    host: Host
    name: str
    group: Host  # what is started here is counted, limited and ended together
    folder: Path
    kernel: Kernel
    share: Export
    choice: Choice
    servants: list[Servant] = field(default_factory=list)

    @property
    def console(self) -> Path:
        return self.folder / "console"

    @property
    def initramfs(self) -> Path:
        return self.folder / "initramfs"

    def start(self, argv: Sequence[str]) -> Servant:
        servant = Servant(self.group, argv)
        self.servants.append(servant)
        return servant

    def connect(self, path: Path, within_s: float) -> socket.socket:
        """A line to a socket that one of the servants makes."""
        end_ns = self.host.clock.now_ns() + round(within_s * 1e9)
        while True:
            line = socket.socket(socket.AF_UNIX)
            try:
                line.connect(str(path))
            except OSError as error:
                line.close()
                if self.host.clock.now_ns() >= end_ns or any(servant.exit for servant in self.servants):
                    raise self.no_boot(f"nobody answers at {path}: {error.strerror}") from error
                self.host.clock.sleep_until(self.host.clock.now_ns() + round(_LOOK_EVERY_S * 1e9))
            else:
                return line

    def wait_for(self, path: Path, within_s: float) -> None:
        """Until a servant has made this file."""
        end_ns = self.host.clock.now_ns() + round(within_s * 1e9)
        while not path.exists():
            if self.host.clock.now_ns() >= end_ns or any(servant.exit for servant in self.servants):
                raise self.no_boot(f"{path} was never made")
            self.host.clock.sleep_until(self.host.clock.now_ns() + round(_LOOK_EVERY_S * 1e9))

    def last_words(self) -> str:
        console = tail(self.console, _CONSOLE_LINES)
        said = [words for servant in self.servants if (words := servant.last_words())]
        return "\n".join([*said, *([f"Its console ends:\n{console}"] if console else ["Its console is empty."])])

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
    def own_obstacles(self, host: Host) -> list[str]:
        """What else is missing here, in sentences."""

    @abstractmethod
    def choices(self, host: Host) -> list[Choice]:
        """The accelerators to try, in order."""

    @abstractmethod
    def start(self, room: Room) -> Wire:
        """Start the machine and whatever serves it; returns the line to its agent."""

    @abstractmethod
    def machine_facts(self, room: Room) -> dict[str, Json]:
        """What a record should say about this kind of machine."""

    # What is the same for all

    def obstacles(self, host: Host) -> list[str]:
        limited = Bare(**self.model_dump(include=_LIMITS))
        return [*limited.obstacles(host), *self._without_limits(host)]

    def _without_limits(self, host: Host) -> list[str]:
        sentences = []
        if not isinstance(host, LocalHost):
            sentences.append(f"a virtual machine is opened on the device itself, not inside {host.name}.")
        if not is_root(host):
            sentences.append("a virtual machine shares the device's root with mounts of its own, and that needs root.")
        return [*sentences, *self.own_obstacles(host)]

    def memory_bytes(self) -> int:
        return self.memory or MEMORY_BYTES

    def vcpus(self, host: Host) -> int:
        if self.cpus is not None:
            return self.cpus
        if self.cpuset is not None:
            return len(core_list.cores(self.cpuset))
        return self.cores or len(os.sched_getaffinity(0))

    def guest_kernel(self) -> Kernel | None:
        if self.kernel is not None:
            return kernels.named(self.kernel) if self.kernel.is_file() else None
        return next(iter(kernels.found()), None)

    def make(self, host: Host, site: Site) -> Host:
        if sentences := self._without_limits(host):
            raise ObstacleError(f"{self.part_name()} cannot be used here.", sentences)
        attempts = [choice for choice in self.choices(host) for _ in range(self.tries)]
        for number, choice in enumerate(attempts, 1):
            try:
                return self._boot(host, site, choice, number)
            except NoBoot:
                if number == len(attempts):
                    raise
        raise AssertionError("there is always an accelerator to try")

    def _boot(self, host: Host, site: Site, choice: Choice, number: int) -> Host:
        with ExitStack() as stack:
            room = self._room(host, site, choice, stack)
            phases = Phases(host.clock)
            with phases.timed("open.boot"):
                link, said = self._up(room, stack)
            place = GuestPlace(host, site.name, link, _scope(room), room.last_words, folder=room.folder)
            place.phases.update(phases)
            with place.phases.timed("open.furnish"):
                place.furnish(site)
            place.facts |= self._facts(room, said, number)
            return place.keep(stack.pop_all())

    def _room(self, host: Host, site: Site, choice: Choice, stack: ExitStack) -> Room:
        kernel = self.guest_kernel()
        assert kernel is not None  # an obstacle otherwise
        folder = FOLDER / site.name
        stack.callback(remove_folder, folder)
        group = self._group(host, site)
        stack.callback(group.close)
        share = export(host, site, folder / "share")
        room = Room(host, site.name, group, folder, kernel, share, choice)
        try:
            share.folder.mkdir(mode=0o700, parents=True)
            folder.chmod(0o700)
            room.initramfs.write_bytes(initramfs.archive(initramfs.contents(host, kernel, self.modules, share.shown)))
        except OSError as error:
            raise TrialError(f"what the guest boots from cannot be written: {error}.") from error
        return room

    def _group(self, host: Host, site: Site) -> Host:
        """The control group that the machine runs in, on the cores that were found for it."""
        limited = Bare(quota=self.quota, cpuset=self.cpuset)
        limited._mems = self.mems
        return limited.make(host, site)

    def _up(self, room: Room, stack: ExitStack) -> tuple[Link, Mapping[str, Json]]:
        """Start the machine and wait for the agent's first word."""
        link = Link(self.start(room))
        stack.callback(link.close)
        try:
            return link, link.hello(self.boots_within_s)
        except GuestSilent as error:
            raise room.no_boot(f"nothing was heard of it within {self.boots_within_s:g} s") from error
        except GuestGone as error:
            raise room.no_boot("it ended while it booted") from error

    def _facts(self, room: Room, said: Mapping[str, Json], number: int) -> dict[str, Json]:
        facts = {
            "machine": self.part_name(),
            "accel": room.choice.accel,
            "kernel": said.get("kernel"),
            "cpus": self.vcpus(room.host),
            "memory_bytes": self.memory_bytes(),
            "boots": number,
            **self.machine_facts(room),
        }
        return facts | ({"accel_note": room.choice.note} if room.choice.note else {})

    @classmethod
    def sweep(cls, host: Host, name: str) -> None:
        Bare.sweep(host, name)
        remove_folder(FOLDER / name)


def _scope(room: Room) -> Scope:
    """The machine's process and its group, as the device sees them."""
    found = room.group.scope()
    for file in (room.folder / "pid", room.folder / "machine" / "pid"):
        with contextlib.suppress(OSError, ValueError):
            return Scope(pid=int(file.read_text()), cgroups=found.cgroups)
    return Scope(cgroups=found.cgroups)


def remove_folder(folder: Path) -> None:
    """Remove what a machine had of files; its mounts lived in a namespace that went with its processes."""
    if any(Path(mount.point).is_relative_to(folder) for mount in mounts(LocalHost())):
        raise TareError(f"something is mounted in {folder}, so it was left alone: unmount it, then `tare restore`.")
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # others are in there, or it is gone already
        FOLDER.rmdir()
