"""Memory of the whole device (free, cached, dirty, faults, swapping), the data set in the page cache over time, and
reads and writes of each block device as the device saw them: below the page cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from operator import itemgetter, mul
from pathlib import Path
from typing import Self

from pydantic import PositiveInt

from tare.base.host import Host, OwnDevice, Scope
from tare.base.rulings import Ruling, obstacle, probe_note
from tare.base.units import Channel, PositiveSeconds
from tare.drivers.cgroups.tree import text_of
from tare.drivers.kernel_files import Field, FileFeed, KernelFile, keyed, make_reading, unreadable, whole
from tare.drivers.storage import loop
from tare.drivers.storage.paths import AbsolutePath
from tare.drivers.storage.residency import Residency, residency
from tare.drivers.storage.sampling import Sample, drawn
from tare.parts.protocols import Feed, Probe, Reading

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

    reads_files_only = True
    may_block = False  # counters in the kernel's memory

    def obstacles(self, host: Host) -> list[Ruling]:
        return unreadable(host, MEMINFO)

    def open(self, host: Host, scope: Scope) -> Feed:
        sizes = KernelFile(MEMINFO, keyed(*_SIZES, after=":", unit=" kB"))
        counts = KernelFile(VMSTAT, keyed(*_COUNTS), slow=True)  # the kernel sums it over all cores at each read
        return FileFeed("memory", host, [sizes, counts])


_RESIDENT = Channel("page_cache.resident_bytes", "bytes", "gauge", "of the data set; estimated where it is sampled")
_SHARE = Channel(
    "page_cache.share", "share", "gauge", "of the data set that is in memory",
    group="Data set in the page cache", rank=90,
)  # fmt: skip
_SAMPLED = Channel("page_cache.sampled_share", "share", "gauge", "of the data set that is looked at for this")
_CHANNELS = (_RESIDENT, _SHARE, _SAMPLED)


class PageCache(Probe):
    """Residency of the workload's data set in the page cache, by cachestat(2), or mincore(2) where that is absent."""

    paths: tuple[AbsolutePath, ...] = ()
    """The files and folders to watch; by default those that the workload reads."""
    pieces: PositiveInt = 128
    """At most so many pieces of 1 MiB are looked at each time, drawn evenly from the whole; a smaller data set is
    looked at whole."""
    period: PositiveSeconds = 1.0
    """How often, at most."""

    def obstacles(self, host: Host) -> list[Ruling]:
        if not isinstance(host, OwnDevice):
            return [obstacle("needs.outermost", f"it watches files of the device itself, not of {host.name}.")]
        return [obstacle("needs.file", f"no {path} to watch.") for path in self.paths if not path.exists()]

    def aimed(self, inputs: tuple[Path, ...]) -> Self:
        return self if self.paths else self.model_copy(update={"paths": tuple(dict.fromkeys(inputs))})

    def open(self, host: Host, scope: Scope) -> Feed:
        return PageCacheFeed(host, self.paths, self.pieces, round(self.period * 1e9))


class PageCacheFeed:
    """The pieces that are watched; their files stay open, so that a look is one system call a piece."""

    def __init__(self, host: Host, paths: tuple[Path, ...], most: int, period_ns: int) -> None:
        self.channels: tuple[Channel, ...] = ()
        self.lost: list[Ruling] = []
        self._host, self._period_ns = host, period_ns
        self._due_ns = host.clock.now_ns()
        self._sample = Sample((), 0)
        try:
            self._sample = drawn(paths, most)
        except OSError as error:
            self.lost.append(
                probe_note(
                    "probe.file-unreadable", "page_cache", f"{error.filename} cannot be watched: {error.strerror}."
                )
            )
        if self._sample.pieces:
            self.channels = _CHANNELS
        elif not self.lost:
            self.lost.append(
                probe_note(
                    "probe.not-started",
                    "page_cache",
                    "the workload names no files that it reads; name them in `paths`.",
                )
            )

    def poll(self) -> list[Reading]:
        now_ns = self._host.clock.now_ns()
        if now_ns < self._due_ns:
            return []
        self._due_ns = now_ns + self._period_ns
        return self._look()

    def close(self) -> list[Reading]:
        last = self._look()
        self._sample.close()
        self._sample = Sample((), 0)
        return last

    def _look(self) -> list[Reading]:
        if not self._sample.pieces:
            return []
        seen = Residency()
        for piece in self._sample.pieces:
            one = residency(piece.descriptor, piece.start, piece.length)
            if one is None:
                return self._give_up()
            seen += one
        share = seen.share or 0.0
        values = (share * self._sample.total_bytes, share, self._sample.share)
        now_ns = self._host.clock.now_ns()
        return [Reading(now_ns, channel.name, value) for channel, value in zip(_CHANNELS, values, strict=True)]

    def _give_up(self) -> list[Reading]:
        """What this user may not know is absent, and said once."""
        self.lost.append(
            probe_note(
                "probe.file-unreadable",
                "page_cache",
                "only root and the owner of a file can read how much of it is in memory.",
            )
        )
        self._sample.close()
        self._sample = Sample((), 0)
        return []


DISKSTATS = "/proc/diskstats"
_NOT_DISKS = ("ram", "zram", "fd", "sr")  # backed by a file or by memory, or with nothing in it

_COLUMNS = (  # column after the name, channel, unit, scale
    (0, "reads", "1", 1),
    (2, "read_bytes", "bytes", 512),  # always sectors of 512 bytes, whatever the device has
    (3, "read_s", "s", 0.001),
    (4, "writes", "1", 1),
    (6, "write_bytes", "bytes", 512),
    (7, "write_s", "s", 0.001),
    (8, "in_flight", "1", 1),  # begun and not ended, now
    (9, "busy_s", "s", 0.001),
    (10, "queue_s", "s", 0.001),  # each request's time in the queue, summed: by time, how long the queue was
)
_GAUGES = ("in_flight",)
_chosen = itemgetter(*(column for column, *_ in _COLUMNS))
_SCALES = [scale for *_, scale in _COLUMNS]


class Disk(Probe):
    """Requests, bytes, queue and busy time of each whole block device; an emulated medium is called `storage`."""

    reads_files_only = True
    may_block = False  # counters in the kernel's memory

    devices: tuple[str, ...] | None = None
    """Only these, by kernel name; partitions and loop devices are watched only if named here."""

    def obstacles(self, host: Host) -> list[Ruling]:
        if obstacles := unreadable(host, DISKSTATS):
            return obstacles
        here = _names(host.read(DISKSTATS))
        return [
            obstacle(
                "needs.hardware",
                f"no block device {name!r} on {host.name}. Available: {', '.join(here) or 'none'}.",
            )
            for name in self.devices or ()
            if name not in here
        ]

    def open(self, host: Host, scope: Scope) -> Feed:
        def parser_for(text: str) -> DiskstatsParser:
            here = _names(text)
            if self.devices is not None:
                return DiskstatsParser({name: name for name in self.devices if name in here})
            return DiskstatsParser({name: called for name in here if (called := _called(host, name)) is not None})

        return FileFeed("disk", host, [KernelFile(DISKSTATS, parser_for)])


class DiskstatsParser:
    """Reads the lines of the chosen devices; one that is unplugged just has no readings."""

    def __init__(self, devices: Mapping[str, str]) -> None:
        """`devices`: by the kernel's name, what each is called in channels."""
        self._devices = [
            (f" {name} ", [f"disk.{called}.{what}" for _, what, _, _ in _COLUMNS]) for name, called in devices.items()
        ]
        self.channels = tuple(
            Channel(f"disk.{called}.{what}", unit, "gauge" if what in _GAUGES else "counter")
            for called in devices.values()
            for _, what, unit, _ in _COLUMNS
        )

    def __call__(self, t_ns: int, text: str) -> list[Reading]:
        readings: list[Reading] = []
        for key, channels in self._devices:
            found = text.find(key)
            if found < 0:
                continue
            begin = found + len(key)
            fields = _chosen(text[begin : text.find("\n", begin)].split())
            values = map(mul, map(whole, fields), _SCALES)
            readings += map(make_reading, zip(repeat(t_ns), channels, values))
        return readings


def _names(diskstats: str) -> list[str]:
    return [fields[2] for line in diskstats.splitlines() if len(fields := line.split()) > 12]


def _called(host: Host, name: str) -> str | None:
    """What a device is called; None if it is no disk: only whole ones have a folder in /sys/block."""
    folder = f"/sys/block/{name.replace('/', '!')}"
    if name.startswith("loop"):
        return "storage" if text_of(host, f"{folder}/loop/backing_file").strip() == str(loop.image()) else None
    if name.startswith(_NOT_DISKS):
        return None
    return name if text_of(host, f"{folder}/size") else None
