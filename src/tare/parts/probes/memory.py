"""Memory of the whole device: what is free, cached and waiting to be written, faults and swapping."""

from __future__ import annotations

from tare.base.host import Host, Scope
from tare.base.rulings import Ruling
from tare.base.units import Channel
from tare.drivers.kernel_files import Field, FileFeed, KernelFile, keyed, unreadable
from tare.parts.protocols import Feed, Probe

MEMINFO = "/proc/meminfo"
VMSTAT = "/proc/vmstat"


def _size(key: str, name: str, about: str) -> Field:
    return Field(key, Channel(f"memory.{name}_bytes", "bytes", "gauge", about), 1024)


def _count(name: str, about: str) -> Field:
    return Field(name, Channel(f"memory.{name}", "1", "counter", about))


_SIZES = (  # in the kernel's order
    _size("MemFree", "free", "memory that nothing uses"),
    _size("MemAvailable", "available", "what new programs could have without swapping"),
    _size("Cached", "cached", "page cache and shared memory"),
    _size("SwapFree", "swap_free", "swap that nothing uses"),
    _size("Dirty", "dirty", "waits to be written to disk"),
    _size("Writeback", "writeback", "is being written to disk"),
)
_COUNTS = (
    _count("pswpin", "pages swapped in"),
    _count("pswpout", "pages swapped out"),
    _count("pgfault", "page faults, minor and major"),
    _count("pgmajfault", "page faults that had to wait for a disk"),
)


class Memory(Probe):
    """Memory, page cache, faults and swapping of the whole device."""

    may_block = False  # counters in the kernel's memory

    def obstacles(self, host: Host) -> list[Ruling]:
        return unreadable(host, MEMINFO)

    def open(self, host: Host, scope: Scope) -> Feed:
        sizes = KernelFile(MEMINFO, keyed(*_SIZES, after=":", unit=" kB"))
        counts = KernelFile(VMSTAT, keyed(*_COUNTS), slow=True)  # the kernel sums it over all cores at each read
        return FileFeed("memory", host, [sizes, counts])
