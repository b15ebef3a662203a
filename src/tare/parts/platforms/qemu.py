"""A virtual machine of QEMU with the device's own root file system: a usual machine, or the microvm without a bus."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from typing import ClassVar

from tare.base.host import Host, LocalHost
from tare.base.rulings import Ruling, obstacle
from tare.drivers.guests import qemu
from tare.drivers.guests.machine import BootContext, Choice
from tare.drivers.guests.qemu import Board, QemuGuest
from tare.parts.protocols import Json

# x86: without AVX the libraries take their SSE paths, which emulate far quicker; and most boots crash where the guest
# uses cmpxchg16b. Arm: without SVE, for the same reason; pointer authentication as in real silicon costs dearly.
_BOARDS = {
    "x86_64": Board(
        program="qemu-system-x86_64",
        package="qemu-system-x86",
        machine="q35",
        emulated_cpu="Nehalem",
        console="ttyS0",
        bus="pci",
        words=("clearcpuid=cx16",),
    ),
    "aarch64": Board(
        program="qemu-system-aarch64",
        package="qemu-system-arm",
        machine="virt,gic-version=max",
        emulated_cpu="max,pauth-impdef=on,sve=off,sme=off",
        console="ttyAMA0",
        bus="pci",
    ),
}

# An emulated processor like the device's own: libraries then choose the same code, and losses agree bit for bit.
_ARM_PARTS = {
    "0xd03": "cortex-a53",
    "0xd07": "cortex-a57",
    "0xd08": "cortex-a72",
    "0xd0b": "cortex-a76",
    "0xd0c": "neoverse-n1",
}


class Qemu(QemuGuest):
    """Run in a virtual machine of QEMU: a kernel of its own, the device's software, no network."""

    gpu: qemu.Gpu | None = None
    """A GPU that is passed through (VFIO), by its PCI address; auto: the one bound to vfio-pci. Needs KVM."""

    def choices(self, host: Host) -> list[Choice]:
        return super().choices(host) if self.gpu is None else [Choice("kvm")]

    def slowness(self) -> float:
        return super().slowness() if self.gpu is None else 1.0

    def own_obstacles(self, host: Host) -> list[Ruling]:
        own = super().own_obstacles(host)
        if self.gpu is None:
            return own
        if self.accel == "tcg":
            return [*own, obstacle("needs.kvm", "a GPU is passed to a machine with KVM only: leave `accel: tcg` out.")]
        return [*own, *qemu.obstacles(host, self.gpu, self.guest_kernel())]

    def needed_modules(self) -> tuple[str, ...]:
        return self.modules if self.gpu is None else (*self.modules, *qemu.DRIVERS)

    def passed(self, host: Host) -> Sequence[str]:
        return () if self.gpu is None else qemu.words(host, self.gpu)

    def machine_facts(self, boot: BootContext) -> dict[str, Json]:
        own = super().machine_facts(boot)
        return own if self.gpu is None else {**own, "gpu": dict(qemu.facts(boot.host, self.gpu))}

    def board(self) -> Board | None:
        found = _BOARDS.get(platform.machine())
        if found is None or (like := like_the_devices(_cpuinfo())) is None:
            return found
        return found._replace(emulated_cpu=like)


def like_the_devices(cpuinfo: str) -> str | None:
    """QEMU's name for the processor of an Arm device, where it knows it and all cores are alike."""
    parts = set(re.findall(r"^CPU part\s*:\s*(\S+)$", cpuinfo, re.MULTILINE))
    return _ARM_PARTS.get(parts.pop()) if len(parts) == 1 else None


def _cpuinfo() -> str:
    try:
        return LocalHost().read("/proc/cpuinfo")
    except OSError:
        return ""


# Of the ways to emulate it, this one came up most often (8 of 8); others 3 to 7 of 8.
_MICROVM = Board(
    program="qemu-system-x86_64",
    package="qemu-system-x86",
    machine="microvm,x-option-roms=off,rtc=on,pit=on,pic=on,isa-serial=on",
    emulated_cpu="Nehalem",
    console="ttyS0",
    bus="device",
    threads="single",
    words=("nokaslr", "clearcpuid=cx16"),
)


class Microvm(QemuGuest):
    """Run in QEMU's microvm machine: no PCI bus, no firmware, otherwise as `qemu`. x86 only."""

    boots_within_s: ClassVar[float] = 60.0
    tries: ClassVar[int] = 4

    def board(self) -> Board | None:
        return _MICROVM if platform.machine() == "x86_64" else None
