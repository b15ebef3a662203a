"""QEMU's microvm: a machine without a bus or firmware that starts quickly; the same guest as `qemu`."""

from __future__ import annotations

import platform
from typing import ClassVar

from tare.drivers.guests.qemu import Board, QemuGuest

# Of the ways to emulate it, this one came up most often (8 of 8); others 3 to 7 of 8.
_BOARD = Board(
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
        return _BOARD if platform.machine() == "x86_64" else None
