"""A guest that QEMU runs: its programs, its command line, and the line to its agent."""

from __future__ import annotations

import platform
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from tare.base.host import Host, LocalHost
from tare.base.rulings import Ruling, obstacle
from tare.drivers.guests import boot as guest_root
from tare.drivers.guests import boot as kernels
from tare.drivers.guests.channel import Wire
from tare.drivers.guests.machine import KVM, BootContext, Choice, Guest, choices, kvm_trouble
from tare.parts.protocols import Json

_NAME = "tare"  # of the agent's port, and of the share
_CONNECT_WITHIN_S = 20.0
EMULATED_SLOWNESS = 45.0  # LeNet-5 under TCG on a Neoverse-N1 (docs/how-to/platforms.md)
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

    def own_obstacles(self, host: Host) -> list[Ruling]:
        board = self.board()
        if board is None:
            return [
                obstacle(
                    "needs.architecture",
                    f"QEMU's {self.part_name()} machine is for x86 processors; "
                    f"this is {platform.machine()}: use `qemu`.",
                )
            ]
        found = []
        if host.run([board.program, "--version"]).code != 0:
            found.append(
                obstacle("needs.program", f"{board.program} is not installed: run `apt-get install {board.package}`.")
            )
        if host.run(["busybox"]).code == 127:
            found.append(obstacle("needs.program", "a guest needs busybox: run `apt-get install busybox-static`."))
        if self.accel == "kvm" and (trouble := kvm_trouble(host)) is not None:
            found.append(obstacle("needs.kvm", f"KVM is requested, but {trouble}; `accel: tcg` emulates instead."))
        return [*found, *self._kernel_obstacles(host)]

    def _kernel_obstacles(self, host: Host) -> list[Ruling]:
        kernel = self.guest_kernel()
        if kernel is None and self.kernel is not None:
            return [obstacle("needs.guest-kernel", f"no kernel {self.kernel}.")]
        if kernel is None:
            return [obstacle("needs.guest-kernel", f"no kernel for a guest here: {kernels.HOW_TO_GET_ONE}.")]
        if guest_root.way(host, kernel) is None:
            return [
                obstacle(
                    "needs.program",
                    f"the kernel {kernel.image} cannot see a folder of the device: it needs virtiofs and the program "
                    f"virtiofsd (`apt-get install qemu-system-common`, or `virtiofsd` on a newer system), or 9p.",
                )
            ]
        return []

    def start(self, boot: BootContext) -> Wire:
        by = guest_root.way(boot.host, boot.kernel)
        if by == "virtiofs":
            self._serve_share(boot)
            boot.start(self.command(boot, by))
        else:
            boot.start(boot.share.around(self.command(boot, str(by))))
        return boot.connect(boot.folder / "agent", _CONNECT_WITHIN_S)

    def _serve_share(self, boot: BootContext) -> None:
        program = guest_root.virtiofsd(boot.host)
        assert program is not None  # an obstacle otherwise
        socket = boot.folder / "virtiofs"
        served = guest_root.virtiofsd_command(boot.host, program, socket, boot.share.folder)
        boot.start(boot.share.around(served))
        boot.wait_for(socket, _CONNECT_WITHIN_S)

    def command(self, boot: BootContext, by: str) -> tuple[str, ...]:
        """QEMU with nothing but what is named here: no network, no screen, no disk, and few system calls."""
        board = self.board()
        assert board is not None
        kvm = boot.choice.accel == "kvm"
        memory = self.memory_bytes()
        return (
            board.program, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-sandbox", _SANDBOX,
            "-name", boot.name, "-pidfile", str(boot.folder / "pid"), "-serial", f"file:{boot.console}",
            "-accel", "kvm" if kvm else f"tcg,thread={board.threads}",
            "-machine", f"{board.machine},memory-backend=ram", "-cpu", "host" if kvm else board.emulated_cpu,
            "-smp", str(self.vcpus(boot.host)), "-m", f"{memory >> 20}M",
            "-object", f"memory-backend-memfd,id=ram,size={memory >> 20}M,share=on",
            "-kernel", str(boot.kernel.image), "-initrd", str(boot.initramfs), "-append", self._words(boot, by),
            "-chardev", f"socket,id=agent,path={boot.folder}/agent,server=on,wait=off",
            "-device", f"virtio-serial-{board.bus}", "-device", f"virtserialport,chardev=agent,name={_NAME}",
            *_BUSES[board.bus], *_SHARES[by](boot, board.bus), *self.passed(boot.host),
        )  # fmt: skip

    def passed(self, host: Host) -> Sequence[str]:
        """Words for devices that the machine gets from the host."""
        return ()

    def _words(self, boot: BootContext, by: str) -> str:
        board = self.board()
        assert board is not None
        emulated = board.words if boot.choice.accel == "tcg" else ()
        options = {"virtiofs": "ro", "9p": "ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000"}[by]
        ours = {"fs": by, "source": _NAME, "options": options, "below": "root", "port": f"virtio:{_NAME}"}
        reported = [f"tare.{name}={value}" for name, value in ours.items()]
        return " ".join([f"console={board.console}", "quiet", "loglevel=4", "panic=-1", *emulated, *reported])

    def machine_facts(self, boot: BootContext) -> dict[str, Json]:
        board = self.board()
        assert board is not None
        version = boot.host.run([board.program, "--version"]).out.partition("\n")[0]
        model = "host" if boot.choice.accel == "kvm" else board.emulated_cpu
        return {"emulator": version, "cpu_model": model, "root": guest_root.way(boot.host, boot.kernel)}


def _virtiofs(boot: BootContext, bus: str) -> Sequence[str]:
    line = f"socket,id=share,path={boot.folder}/virtiofs"
    return ("-chardev", line, "-device", f"vhost-user-fs-{bus},queue-size=1024,chardev=share,tag={_NAME}")


def _9p(boot: BootContext, bus: str) -> Sequence[str]:
    share = f"local,id=share,path={boot.share.folder},security_model=none,readonly=on,multidevs=remap"
    return ("-fsdev", share, "-device", f"virtio-9p-{bus},fsdev=share,mount_tag={_NAME}")


# Devices without a bus are of the old kind by default, in which a share answers the first request and then no more.
_BUSES: Mapping[str, Sequence[str]] = {"pci": (), "device": ("-global", "virtio-mmio.force-legacy=false")}
_SHARES = {"virtiofs": _virtiofs, "9p": _9p}


def cpuinfo() -> str:
    try:
        return LocalHost().read("/proc/cpuinfo")
    except OSError:
        return ""
