"""A virtual machine of QEMU with the device's own root file system."""

from __future__ import annotations

import platform

from tare.parts.qemu_machine import Board, QemuGuest

# x86: without AVX the libraries take their SSE paths, which emulate far quicker; and most boots crash where the guest
# uses cmpxchg16b. Arm: pointer authentication as in real silicon costs an emulator dearly.
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
        emulated_cpu="max,pauth-impdef=on",
        console="ttyAMA0",
        bus="pci",
    ),
}


class Qemu(QemuGuest):
    """Run in a virtual machine of QEMU: a kernel of its own, the device's software, no network."""

    def board(self) -> Board | None:
        return _BOARDS.get(platform.machine())
