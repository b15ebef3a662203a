"""perf_event_open(2) without the `perf` program: counters of one CPU, read at every switch between tasks.

Each group of events on a CPU has `context-switches` as its leader, sampled at every switch together with the values of
the whole group. What a counter grew by between two samples belongs to the task that the second sample names: so tasks
that start later, end sooner or move between cores are counted exactly, with no list of tasks to attach to.
A timer beside it (10 a second) reads the group too, so that a task that never switches is seen over time.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

from tare.base.errors import TareError
from tare.base.host import Host
from tare.base.units import cores
from tare.kernel.traces.recording import call_number

HARDWARE, SOFTWARE, TRACEPOINT, CACHE, RAW = 0, 1, 2, 3, 4
SWITCHES, CPU_CLOCK = 3, 0  # of SOFTWARE
_TICKS_HZ = 10

_ATTR = struct.Struct("=IIQQQQQIIQQQQIiQIHH")  # struct perf_event_attr as of Linux 4.1 (PERF_ATTR_SIZE_VER5)
# What a sample holds, in this order: identifier, pid and tid, time, cpu, then the group's values.
_SAMPLE = 1 << 16 | 1 << 1 | 1 << 2 | 1 << 7 | 1 << 4
_RAW = 1 << 16 | 1 << 1 | 1 << 2 | 1 << 7 | 1 << 10  # the same with a tracepoint's own fields in place of values
_READ = 1 << 3 | 1 << 0 | 1 << 1  # the whole group, with the times for which it was enabled and counted
_DISABLED, _COMM, _FREQ, _TASK = 1 << 0, 1 << 9, 1 << 10, 1 << 13
_ID_ALL, _COMM_EXEC, _CLOCK_ID = 1 << 18, 1 << 24, 1 << 25
_MONOTONIC = 1
_CLOSE_ON_EXEC = 8
_ENABLE, _DISABLE, _SET_OUTPUT, _ID = 0x2400, 0x2401, 0x2405, 0x80082407
_WHOLE_GROUP = 1
_HEAD, _TAIL = 1024, 1032  # in the first page of a ring


class Event(NamedTuple):
    """What to count: its name for people, and the kernel's numbers for it."""

    name: str
    type: int
    config: int
    config1: int = 0


class Group(NamedTuple):
    """Events that are counted together on one CPU, as they were opened; each sample has their values in this order."""

    cpu: int
    leader: int
    ids: tuple[int, ...]  # of the events that make samples: leader and timer
    events: tuple[str, ...]


def open_event(
    event: Event,
    cpu: int,
    leader: int = -1,
    *,
    period: int = 0,
    hz: int = 0,
    named: bool = False,
    sample: int = _SAMPLE,
) -> int:
    """A counter for everything that runs on this CPU; OSError where the kernel or the CPU does not have it."""
    flags = _CLOCK_ID | _ID_ALL
    flags |= _DISABLED if leader < 0 else 0
    flags |= _FREQ if hz else 0
    flags |= _COMM | _TASK | _COMM_EXEC if named else 0
    sampled = sample if period or hz else 0
    attributes = _ATTR.pack(
        event.type, _ATTR.size, event.config, period or hz, sampled, _READ, flags,
        0, 0, event.config1, 0, 0, 0, 0, _MONOTONIC, 0, 0, 0, 0,
    )  # fmt: skip
    libc = ctypes.CDLL(None, use_errno=True)
    number = call_number(platform.machine(), "perf_event_open")
    if number is None:
        raise TareError(f"perf: the number of perf_event_open on {platform.machine()} is not known to tare.")
    descriptor: int = libc.syscall(number, attributes, -1, cpu, leader, _CLOSE_ON_EXEC)
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return descriptor


class CpuCounters:
    """The groups of one CPU, all of which sample into one ring."""

    def __init__(
        self, cpu: int, groups: Sequence[Sequence[Event]], ring_bytes: int, reported: Event | None = None
    ) -> None:
        """`told`: a tracepoint whose every event goes into the ring whole, with its fields."""
        self.cpu = cpu
        self.groups: list[Group] = []
        self.told_id: int | None = None
        self.missing: list[str] = []
        self._alone: list[int] = []
        self._descriptors: list[int] = []
        self._ring: mmap.mmap | None = None
        self._size = ring_bytes
        self._seen = self._copied = 0
        try:
            for events in groups:
                self._open(events)
            if reported is not None:
                self._open_told(reported)
        except BaseException:
            self.close()
            raise

    def _open(self, events: Sequence[Event]) -> None:
        first = self._ring is None
        leader = self._keep(open_event(Event("context-switches", SOFTWARE, SWITCHES), self.cpu, period=1, named=first))
        if first:
            self._ring = mmap.mmap(leader, mmap.PAGESIZE + self._size)
        else:
            fcntl.ioctl(leader, _SET_OUTPUT, self.groups[0].leader)
        # What every group counts is kept of the first alone: the others carry it for their samples.
        counted = ["context-switches" if first else ""]
        for event in events:
            try:
                self._keep(open_event(event, self.cpu, leader))
            except OSError:
                self.missing.append(event.name)
            else:
                counted.append(event.name)
        timer = self._keep(open_event(Event("cpu-clock", SOFTWARE, CPU_CLOCK), self.cpu, leader, hz=_TICKS_HZ))
        fcntl.ioctl(timer, _SET_OUTPUT, self.groups[0].leader if self.groups else leader)
        self.groups.append(
            Group(self.cpu, leader, (_id(leader), _id(timer)), (*counted, "task-clock" if first else ""))
        )

    def _open_told(self, event: Event) -> None:
        descriptor = self._keep(open_event(event, self.cpu, period=1, sample=_RAW))
        fcntl.ioctl(descriptor, _SET_OUTPUT, self.groups[0].leader)
        self.told_id = _id(descriptor)
        self._alone.append(descriptor)

    def _keep(self, descriptor: int) -> int:
        self._descriptors.append(descriptor)
        return descriptor

    def enable(self) -> None:
        for descriptor in (*self._alone, *(group.leader for group in self.groups)):
            fcntl.ioctl(descriptor, _ENABLE, _WHOLE_GROUP)

    def disable(self) -> None:
        for descriptor in (*self._alone, *(group.leader for group in self.groups)):
            fcntl.ioctl(descriptor, _DISABLE, _WHOLE_GROUP)

    def copy(self, into: IO[bytes], *, all_of_it: bool = False) -> None:
        """Append what came to a file.

        Up to where the ring's head was at the last call, a tenth of a second ago: Python has no memory barrier, and
        what the kernel has announced a moment ago might not be visible on this CPU yet. `all_of_it` when nothing more
        comes, after `disable`.
        """
        assert self._ring is not None
        head = struct.unpack_from("=Q", self._ring, _HEAD)[0]
        end = head if all_of_it else self._seen
        # The kernel may write again where we have read; it is told one call later, for the same reason.
        struct.pack_into("=Q", self._ring, _TAIL, self._copied)
        begin, self._seen = self._copied, head
        while begin < end:
            at = begin % self._size
            length = min(end - begin, self._size - at)
            into.write(self._ring[mmap.PAGESIZE + at : mmap.PAGESIZE + at + length])
            begin += length
        self._copied = max(end, self._copied)

    def close(self) -> None:
        if self._ring is not None:
            self._ring.close()
            self._ring = None
        while self._descriptors:
            os.close(self._descriptors.pop())


def _id(descriptor: int) -> int:
    answer = bytearray(8)
    fcntl.ioctl(descriptor, _ID & 0xFFFFFFFF, answer)
    return int(struct.unpack("=Q", answer)[0])


SOFTWARE_EVENTS = (
    Event("page-faults", SOFTWARE, 2),
    Event("minor-faults", SOFTWARE, 5),
    Event("major-faults", SOFTWARE, 6),
    Event("cpu-migrations", SOFTWARE, 4),
)
BLOCK_EVENTS = (  # as in the paper's Table 5
    "block_touch_buffer", "block_dirty_buffer", "block_rq_insert", "block_rq_issue", "block_rq_complete",
    "block_bio_queue", "block_bio_backmerge", "block_bio_frontmerge",
)  # fmt: skip
_DEVICES = Path("/sys/bus/event_source/devices")
_L1_READ, _L1_WRITE = 0, 1 << 8  # level-1 data cache, accesses

# What may stand for an event, best first: the kernel's own name for it, then one that the CPU's driver lists.
_GENERIC = {
    "cycles": Event("cycles", HARDWARE, 0),
    "instructions": Event("instructions", HARDWARE, 1),
    "cache-misses": Event("cache-misses", HARDWARE, 3),
    "loads": Event("loads", CACHE, _L1_READ),
    "stores": Event("stores", CACHE, _L1_WRITE),
}
_LISTED = {"loads": ("ld_retired", "mem_access_rd"), "stores": ("mem-stores", "st_retired", "mem_access_wr")}


def online(host: Host) -> list[int]:
    return cores(host.read("/sys/devices/system/cpu/online").strip())


def block_events(host: Host, root: Path | None) -> list[Event]:
    """Those of the paper's block events that this kernel has; `root` is where tracefs is mounted."""
    found = []
    for name in BLOCK_EVENTS if root is not None else ():
        try:
            found.append(Event(name, TRACEPOINT, int(host.read(f"{root}/events/block/{name}/id"))))
        except (OSError, ValueError):
            continue
    return found


def core_types(host: Host, root: Path = _DEVICES) -> dict[str, frozenset[int]]:
    """The CPU's counting units by name, with their cores; only where there are several kinds of cores."""
    units = {}
    for name in sorted(path.name for path in root.iterdir()) if root.is_dir() else ():
        try:
            units[name] = frozenset(cores(host.read(root / name / "cpus").strip()))
        except (OSError, ValueError):
            continue
    return units if len(units) > 1 else {}


def hardware_groups(cpu: int, unit: str, prefix: str, root: Path = _DEVICES) -> list[list[Event]]:
    """What this CPU can count, in groups that it can count at once; no group where it counts nothing."""
    found = [event for name in _GENERIC if (event := _working(cpu, name, root / unit)) is not None]
    groups: list[list[Event]] = []
    for event in found:
        named = event._replace(name=f"{prefix}{event.name}")
        if groups and _fits(cpu, [*groups[-1], named]):
            groups[-1].append(named)
        else:
            groups.append([named])
    return groups


def _working(cpu: int, name: str, unit: Path) -> Event | None:
    """The first of the candidates that can be opened on this CPU."""
    listed = [_listed(name, unit, other) for other in _LISTED.get(name, ())]
    return next((event for event in (_GENERIC[name], *listed) if event is not None and _fits(cpu, [event])), None)


def _listed(name: str, unit: Path, other: str) -> Event | None:
    """An event that the driver describes, such as `event=0x6` or `event=0xd0,umask=0x82`."""
    try:
        text = (unit / "events" / other).read_text()
        config = config_of(text, {path.name: path.read_text() for path in (unit / "format").iterdir()})
        return Event(name, int((unit / "type").read_text()), config)
    except (OSError, ValueError, KeyError):
        return None


def config_of(text: str, formats: dict[str, str]) -> int:
    """The number for `event=0xd0,umask=0x82`, from where the driver says that each field goes (`config:8-15`)."""
    config = 0
    for term in text.strip().split(","):
        key, _, value = term.partition("=")
        place = re.fullmatch(r"config:(\d+)(?:-\d+)?", formats[key].strip())
        if place is None:
            raise ValueError(f"{key} does not go into one stretch of config")
        config |= int(value or "1", 0) << int(place[1])
    return config


def _fits(cpu: int, events: Sequence[Event]) -> bool:
    """Whether the CPU can count these together; nothing stays open."""
    opened: list[int] = []
    try:
        for event in events:
            opened.append(open_event(event, cpu, opened[0] if opened else -1))
    except OSError:
        return False
    finally:
        for descriptor in reversed(opened):
            os.close(descriptor)
    return True
