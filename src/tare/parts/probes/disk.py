"""Reads and writes of each block device, as the device saw them: below the page cache."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from operator import itemgetter, mul

from tare.base.host import Host, Scope
from tare.base.rulings import Ruling, obstacle
from tare.base.units import Channel
from tare.drivers.kernel_files import FileFeed, KernelFile, make_reading, unreadable, whole
from tare.drivers.storage import placing
from tare.parts.protocols import Feed, Probe, Reading

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
        return "storage" if _text(host, f"{folder}/loop/backing_file").strip() == str(placing.image()) else None
    if name.startswith(_NOT_DISKS):
        return None
    return name if _text(host, f"{folder}/size") else None


def _text(host: Host, path: str) -> str:
    try:
        return host.read(path)
    except OSError:
        return ""
