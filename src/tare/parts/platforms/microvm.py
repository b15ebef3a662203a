"""QEMU's machine without a bus."""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import ClassVar

from tare.drivers.guests.qemu import Board, QemuGuest, cpuinfo

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
        if platform.machine() != "x86_64":
            return None
        # With cpufreq the clock that is told is that of the moment.
        counts = () if Path("/sys/devices/system/cpu/cpu0/cpufreq").exists() else time_stamps(cpuinfo())
        return _MICROVM._replace(words=(*_MICROVM.words, *counts))


def time_stamps(cpuinfo: str) -> tuple[str, ...]:
    """How fast the processor's time-stamp counter counts, for a kernel that is emulated and sees that same counter.

    The microvm has no clock of known rate but the timer chip, against which a kernel on a busy device cannot measure
    it: it then waits for ever. Nor may it check the counter against timer ticks, which come late on a busy device:
    it would take these as its clock, which then jumps by tenths of seconds. Where a processor's clock may change, the
    device does not say how fast the counter is.
    """
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    known = set(flags[1].split()) if flags else set()
    counts = re.search(r"^cpu MHz\s*:\s*([0-9.]+)$", cpuinfo, re.MULTILINE)
    if counts is None or "constant_tsc" not in known or "aperfmperf" in known:
        return ()
    return (f"tsc_early_khz={round(1000 * float(counts[1]))}", "tsc=reliable")
