"""A guest that QEMU runs: its programs, its command line, and the line to its agent."""

from __future__ import annotations

import platform
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from tare.host import Host
from tare.parts import guest_root, kernels
from tare.parts.accel import KVM, Choice, choices, kvm_trouble
from tare.parts.guest import Guest, Room
from tare.parts.guest_channel import Wire
from tare.parts.protocols import Json

_NAME = "tare"  # of the agent's port, and of the share
_CONNECT_WITHIN_S = 20.0
EMULATED_SLOWNESS = 45.0  # LeNet-5 under TCG on a Neoverse-N1 (docs/how-to/virtual-machines.md)
_SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


class Board(NamedTuple):
    """How QEMU plays one kind of computer."""

    program: str
    package: str
    machine: str
    emulated_cpu: str
    console: str
    bus: str  # what a device's name ends in: `pci`, or `device` where there is no such bus
    threads: str = "multi"  # of the emulator
    words: tuple[str, ...] = ()  # for the kernel, when it is emulated


class QemuGuest(Guest):
    """A virtual machine of QEMU."""

    accel: Literal["auto", "kvm", "tcg"] = "auto"
    """kvm: run by the processor. tcg: emulated, one or two orders of magnitude slower. auto: kvm where it works."""

    modules: ClassVar[tuple[str, ...]] = (
        "virtio_pci", "virtio_mmio", "virtio_console", "virtiofs", "9pnet_virtio", "9p", "overlay",
    )  # fmt: skip

    @abstractmethod
    def board(self) -> Board | None:
        """The computer to play; None if this processor has none of the kind."""

    def slowness(self) -> float:
        emulated = self.accel == "tcg" or (self.accel == "auto" and not Path(KVM).exists())
        return EMULATED_SLOWNESS if emulated else 1.0

    def choices(self, host: Host) -> list[Choice]:
        return choices(host, self.accel)

    def own_obstacles(self, host: Host) -> list[str]:
        board = self.board()
        if board is None:
            return [
                f"QEMU's {self.part_name()} machine is for x86 processors; this is {platform.machine()}: use `qemu`."
            ]
        sentences = []
        if host.run([board.program, "--version"]).code != 0:
            sentences.append(f"there is no {board.program} here: `apt-get install {board.package}` brings it.")
        if host.run(["busybox"]).code == 127:
            sentences.append("a guest starts with busybox: `apt-get install busybox-static` brings it.")
        if self.accel == "kvm" and (trouble := kvm_trouble(host)) is not None:
            sentences.append(f"KVM was asked for, but {trouble}; `accel: tcg` emulates instead.")
        return [*sentences, *self._kernel_obstacles(host)]

    def _kernel_obstacles(self, host: Host) -> list[str]:
        kernel = self.guest_kernel()
        if kernel is None and self.kernel is not None:
            return [f"there is no kernel {self.kernel}."]
        if kernel is None:
            return [f"there is no kernel for a guest here: {kernels.HOW_TO_GET_ONE}."]
        if guest_root.way(host, kernel) is None:
            return [
                f"the kernel {kernel.image} cannot see a folder of the device: it needs virtiofs and the program "
                f"virtiofsd (`apt-get install qemu-system-common`, or `virtiofsd` on a newer system), or 9p."
            ]
        return []

    def start(self, room: Room) -> Wire:
        by = guest_root.way(room.host, room.kernel)
        if by == "virtiofs":
            self._serve_share(room)
            room.start(self.command(room, by))
        else:
            room.start(room.share.around(self.command(room, str(by))))
        return room.connect(room.folder / "agent", _CONNECT_WITHIN_S)

    def _serve_share(self, room: Room) -> None:
        program = guest_root.virtiofsd(room.host)
        assert program is not None  # an obstacle otherwise
        socket = room.folder / "virtiofs"
        served = guest_root.virtiofsd_command(room.host, program, socket, room.share.folder)
        room.start(room.share.around(served))
        room.wait_for(socket, _CONNECT_WITHIN_S)

    def command(self, room: Room, by: str) -> tuple[str, ...]:
        """QEMU with nothing but what is named here: no network, no screen, no disk, and few system calls."""
        board = self.board()
        assert board is not None
        kvm = room.choice.accel == "kvm"
        memory = self.memory_bytes()
        return (
            board.program, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-sandbox", _SANDBOX,
            "-name", room.name, "-pidfile", str(room.folder / "pid"), "-serial", f"file:{room.console}",
            "-accel", "kvm" if kvm else f"tcg,thread={board.threads}",
            "-machine", f"{board.machine},memory-backend=ram", "-cpu", "host" if kvm else board.emulated_cpu,
            "-smp", str(self.vcpus(room.host)), "-m", f"{memory >> 20}M",
            "-object", f"memory-backend-memfd,id=ram,size={memory >> 20}M,share=on",
            "-kernel", str(room.kernel.image), "-initrd", str(room.initramfs), "-append", self._words(room, by),
            "-chardev", f"socket,id=agent,path={room.folder}/agent,server=on,wait=off",
            "-device", f"virtio-serial-{board.bus}", "-device", f"virtserialport,chardev=agent,name={_NAME}",
            *_SHARES[by](room, board.bus),
        )  # fmt: skip

    def _words(self, room: Room, by: str) -> str:
        board = self.board()
        assert board is not None
        emulated = board.words if room.choice.accel == "tcg" else ()
        options = {"virtiofs": "ro", "9p": "ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000"}[by]
        ours = {"fs": by, "source": _NAME, "options": options, "below": "root", "port": f"virtio:{_NAME}"}
        said = [f"tare.{name}={value}" for name, value in ours.items()]
        return " ".join([f"console={board.console}", "quiet", "loglevel=4", "panic=-1", *emulated, *said])

    def machine_facts(self, room: Room) -> dict[str, Json]:
        board = self.board()
        assert board is not None
        version = room.host.run([board.program, "--version"]).out.partition("\n")[0]
        model = "host" if room.choice.accel == "kvm" else board.emulated_cpu
        return {"emulator": version, "cpu_model": model, "root": guest_root.way(room.host, room.kernel)}


def _virtiofs(room: Room, bus: str) -> Sequence[str]:
    line = f"socket,id=share,path={room.folder}/virtiofs"
    return ("-chardev", line, "-device", f"vhost-user-fs-{bus},queue-size=1024,chardev=share,tag={_NAME}")


def _9p(room: Room, bus: str) -> Sequence[str]:
    share = f"local,id=share,path={room.share.folder},security_model=none,readonly=on,multidevs=remap"
    return ("-fsdev", share, "-device", f"virtio-9p-{bus},fsdev=share,mount_tag={_NAME}")


_SHARES = {"virtiofs": _virtiofs, "9p": _9p}
