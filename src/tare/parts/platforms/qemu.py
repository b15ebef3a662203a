"""A virtual machine of QEMU, which shows the device's own root file system."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence

from tare.base.host import Host
from tare.base.rulings import Ruling, obstacle
from tare.drivers.guests import vfio
from tare.drivers.guests.machine import BootContext, Choice
from tare.drivers.guests.qemu import Board, QemuGuest, cpuinfo
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

    gpu: vfio.Gpu | None = None
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
        return [*own, *vfio.obstacles(host, self.gpu, self.guest_kernel())]

    def needed_modules(self) -> tuple[str, ...]:
        return self.modules if self.gpu is None else (*self.modules, *vfio.DRIVERS)

    def passed(self, host: Host) -> Sequence[str]:
        return () if self.gpu is None else vfio.words(host, self.gpu)

    def machine_facts(self, boot: BootContext) -> dict[str, Json]:
        own = super().machine_facts(boot)
        return own if self.gpu is None else {**own, "gpu": dict(vfio.facts(boot.host, self.gpu))}

    def board(self) -> Board | None:
        board = _BOARDS.get(platform.machine())
        if board is None or (like := like_the_devices(cpuinfo())) is None:
            return board
        return board._replace(emulated_cpu=like)


def like_the_devices(cpuinfo: str) -> str | None:
    """QEMU's name for the processor of an Arm device, where it knows it and all cores are alike."""
    parts = set(re.findall(r"^CPU part\s*:\s*(\S+)$", cpuinfo, re.MULTILINE))
    return _ARM_PARTS.get(parts.pop()) if len(parts) == 1 else None
