"""What the workload's own cgroup counts: CPU time, throttling, memory, faults, I/O and switches.

It is read from the device, so that a container, a guest and a bare process are counted in the same way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pydantic import PositiveInt

from tare.base.host import Host, Scope
from tare.base.rulings import Ruling, probe_note
from tare.base.units import Channel, PositiveSeconds
from tare.drivers.cgroups.tree import own_groups, threads_file
from tare.drivers.kernel_files import (
    Field,
    FileFeed,
    KernelFile,
    Keyed,
    Parser,
    Rising,
    is_gone,
    keyed,
    make_reading,
    number,
    pressure,
    unreadable,
    whole,
)
from tare.parts.protocols import Feed, Probe, Reading

ParserFor: TypeAlias = Callable[[str], Parser]


def _seconds(name: str, about: str = "", **shown: Any) -> Channel:
    return Channel(f"cgroup.{name}_s", "s", "counter", about, **shown)


def _count(name: str, about: str = "", **shown: Any) -> Channel:
    return Channel(f"cgroup.{name}", "1", "counter", about, **shown)


_CPU = _seconds("cpu", words="cores", group="CPU of the workload", rank=10)
_USER, _SYSTEM = _seconds("user"), _seconds("system")
_THROTTLED = _seconds("throttled", "time for which the CPU quota stopped the group, summed over cores")
_PERIODS = _count("nr_periods", "quota periods in which the group wanted to run")
_TIMES_THROTTLED = _count("nr_throttled", "quota periods in which the quota was used up")
_PRESSURE = _seconds("pressure_some", "time in which some task of the group waited for a core")
_MEMORY = Channel(
    "cgroup.memory_bytes", "bytes", "gauge", "with its page cache", group="Memory of the workload", rank=50
)
_PEAK = Channel("cgroup.memory_peak_bytes", "bytes", "gauge", "the most since the group was made")
_OOM_KILLS = _count("oom_kills", "tasks that the kernel ended for want of memory")
_TASKS = Channel("cgroup.tasks", "1", "gauge", "processes and threads")
_MINOR = _count("minor_faults", "page faults that needed no disk")
_MAJOR = _count("major_faults", "page faults that had to wait for a disk")
_SWAPPED_IN = _count("pswpin", "pages of the group that were read back from swap")
_SWAPPED_OUT = _count("pswpout", "pages of the group that were written to swap")
_SWAP = Channel("cgroup.swap_bytes", "bytes", "gauge", "how much of the group lies in swap")
_READ = Channel(
    "cgroup.read_bytes", "bytes", "counter", "from block devices, not from the page cache",
    group="Read from disk by the workload", rank=60,
)  # fmt: skip
_WRITTEN = Channel("cgroup.write_bytes", "bytes", "counter", "to block devices; late where the kernel writes back")
_READS = _count("reads", words="reads per second", group="Number of reads from disk", rank=80)
_WRITES = _count("writes")


class Faults:
    """Faults from memory.stat, where `pgfault` counts the major ones too, and what the kernel tells there of swap."""

    def __init__(self, prefix: str, text: str) -> None:
        fields = (Field(f"{prefix}pgfault", _MINOR), Field(f"{prefix}pgmajfault", _MAJOR))
        self._keyed = Keyed(fields, text)
        self._minor = Rising()  # the two are flushed one after the other, so the difference may slip by a few
        swap = ((f"{prefix}swap", _SWAP),) if prefix else ()  # version 2 has a file for it
        swapped = (("pswpin", _SWAPPED_IN), ("pswpout", _SWAPPED_OUT))
        named = [*swap, *((f"{prefix}{key}", channel) for key, channel in swapped)]
        self._swap = Keyed([Field(key, channel) for key, channel in named], text)
        self._counts_faults = len(self._keyed.channels) == len(fields)
        self.channels = (*((_MINOR, _MAJOR) if self._counts_faults else ()), *self._swap.channels)

    def __call__(self, t_ns: int, text: str) -> list[Reading]:
        swap = self._swap(t_ns, text)
        if not self._counts_faults:
            return swap
        faults, major = self._keyed(t_ns, text)
        minor = self._minor(max(0.0, faults.value - major.value))
        return [make_reading((t_ns, _MINOR.name, minor)), major, *swap]


class BlkioOperations:
    """A version 1 blkio file: `254:0 Read 4096` lines, summed over devices."""

    def __init__(self, read: Channel, write: Channel) -> None:
        self.channels = (read, write)

    def __call__(self, t_ns: int, text: str) -> list[Reading]:
        # No line for a device means that the group did not use it: zero is what the kernel says.
        sums = {"Read": 0, "Write": 0}
        for line in text.splitlines():
            if line.startswith("Total "):
                continue
            _device, kind, value = line.split()
            if kind in sums:
                sums[kind] += whole(value)
        pairs = zip(self.channels, sums.values(), strict=True)
        return [make_reading((t_ns, channel.name, value)) for channel, value in pairs]


class IoStat:
    """Version 2 io.stat: `254:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0`, summed over devices."""

    channels = (_READ, _WRITTEN, _READS, _WRITES)

    def __call__(self, t_ns: int, text: str) -> list[Reading]:
        sums = {"rbytes": 0, "wbytes": 0, "rios": 0, "wios": 0}
        for word in text.split():
            key, _, value = word.partition("=")
            if key in sums:
                sums[key] += whole(value)
        pairs = zip(self.channels, sums.values(), strict=True)
        return [make_reading((t_ns, channel.name, value)) for channel, value in pairs]


_CLOCK_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
# What moves within a second and is worth a series. The rest matters as a sum, or never goes back: both ends are read.
_FAST_V1 = frozenset({"cpuacct.usage", "memory.usage_in_bytes"})
_FAST_V2 = frozenset({"cpu.stat", "memory.current"})
_V1: Mapping[str, tuple[tuple[str, ParserFor], ...]] = {
    "cpuacct": (
        ("cpuacct.usage", number(_CPU, 1e-9)),
        ("cpuacct.stat", keyed(Field("user", _USER, _CLOCK_TICK_S), Field("system", _SYSTEM, _CLOCK_TICK_S))),
    ),
    "cpu": (
        (
            "cpu.stat",
            keyed(
                Field("nr_periods", _PERIODS),
                Field("nr_throttled", _TIMES_THROTTLED),
                Field("throttled_time", _THROTTLED, 1e-9),
            ),
        ),
    ),
    "memory": (
        ("memory.usage_in_bytes", number(_MEMORY)),
        ("memory.max_usage_in_bytes", number(_PEAK)),
        ("memory.stat", lambda text: Faults("total_", text)),  # total_: with the groups below
        ("memory.oom_control", keyed(Field("oom_kill", _OOM_KILLS))),
    ),
    "blkio": (  # the recursive files are newer
        ("blkio.throttle.io_service_bytes_recursive", lambda _: BlkioOperations(_READ, _WRITTEN)),
        ("blkio.throttle.io_service_bytes", lambda _: BlkioOperations(_READ, _WRITTEN)),
        ("blkio.throttle.io_serviced_recursive", lambda _: BlkioOperations(_READS, _WRITES)),
        ("blkio.throttle.io_serviced", lambda _: BlkioOperations(_READS, _WRITES)),
    ),
    "pids": (("pids.current", number(_TASKS)),),
}
_V2: tuple[tuple[str, ParserFor], ...] = (
    (
        "cpu.stat",
        keyed(
            Field("usage_usec", _CPU, 1e-6),
            Field("user_usec", _USER, 1e-6),
            Field("system_usec", _SYSTEM, 1e-6),
            Field("nr_periods", _PERIODS),
            Field("nr_throttled", _TIMES_THROTTLED),
            Field("throttled_usec", _THROTTLED, 1e-6),
        ),
    ),
    ("cpu.pressure", pressure(_PRESSURE)),
    ("memory.current", number(_MEMORY)),
    ("memory.peak", number(_PEAK)),
    ("memory.swap.current", number(_SWAP)),
    ("memory.stat", lambda text: Faults("", text)),
    ("memory.events", keyed(Field("oom_kill", _OOM_KILLS))),
    ("io.stat", lambda _: IoStat()),
    ("pids.current", number(_TASKS)),
)


def files_of(groups: Mapping[str, str]) -> list[KernelFile]:
    """What to watch; a hybrid device has both kinds, and version 1 has the controllers there."""
    tables = [(groups[controller], table, _FAST_V1) for controller, table in _V1.items() if controller in groups]
    if "" in groups:
        tables.append((groups[""], _V2, _FAST_V2))
    return [
        KernelFile(f"{folder}/{name}", parser_for, slow=name not in fast)
        for folder, table, fast in tables
        for name, parser_for in table
    ]


_CAVEAT = "at least: threads that came and went between two looks are not seen"
VOLUNTARY = Channel("cgroup.voluntary_switches", "1", "counter", _CAVEAT)
INVOLUNTARY = Channel("cgroup.involuntary_switches", "1", "counter", _CAVEAT)


class ThreadSwitches:
    """Sums over the threads that a cgroup lists; what an ended thread had counted stays in the sum."""

    channels = (VOLUNTARY, INVOLUNTARY)

    def __init__(self, host: Host, threads_file: str, limit: int) -> None:
        self._host, self._threads_file, self._limit = host, threads_file, limit
        self._counts: dict[str, tuple[int, int]] = {}  # of threads that live
        self._ended = [0, 0]
        self.most_threads = 0

    def poll(self) -> list[Reading]:
        """One look at the list and at every thread; raises OSError when the cgroup is gone."""
        here = self._host.read(self._threads_file).split()
        self.most_threads = max(self.most_threads, len(here))
        known = list(self._counts)
        fresh = [thread for thread in here if thread not in self._counts]
        for thread in known + fresh[: max(0, self._limit - len(known))]:
            self._look_at(thread)
        t_ns = self._host.clock.now_ns()
        voluntary, involuntary = map(sum, zip(self._ended, *self._counts.values(), strict=True))
        return [Reading(t_ns, VOLUNTARY.name, voluntary), Reading(t_ns, INVOLUNTARY.name, involuntary)]

    def _look_at(self, thread: str) -> None:
        try:
            self._counts[thread] = switches(self._host.read(f"/proc/{thread}/status"))
        except OSError:
            for kind, count in enumerate(self._counts.pop(thread, ())):
                self._ended[kind] += count


def switches(status: str) -> tuple[int, int]:
    """Voluntary and involuntary switches from /proc/<thread>/status, where they are near the end."""
    _, _, tail = status.rpartition("\nvoluntary_ctxt_switches:")
    voluntary, _, involuntary = tail.partition("\nnonvoluntary_ctxt_switches:")
    return whole(voluntary), whole(involuntary.partition("\n")[0])  # some kernels have another line after them


class Cgroup(Probe):
    """The workload's cgroup, versions 1 and 2, and hybrids of them."""

    reads_files_only = True
    scoped = True
    may_block = False  # counters in the kernel's memory

    switches: bool = True
    """Context switches of its threads."""
    threads: PositiveInt = 64
    """At most so many threads are looked at for their switches."""
    slow_period_s: PositiveSeconds = 1.0
    """How often what matters as a sum is read: switches, faults, I/O, pressure, peak. The end is always read."""

    def obstacles(self, host: Host) -> list[Ruling]:
        return unreadable(host, "/proc/self/cgroup")

    def open(self, host: Host, scope: Scope) -> Feed:
        limit = self.threads if self.switches else 0
        return CgroupFeed(host, own_groups(host, scope.cgroups), limit, round(self.slow_period_s * 1e9))


class CgroupFeed(FileFeed):
    """The files of the group; its threads with the slow ones, because each of them is a file to read."""

    def __init__(self, host: Host, groups: dict[str, str], thread_limit: int, slow_period_ns: int) -> None:
        super().__init__("cgroup", host, files_of(groups), slow_period_ns)
        self._limit = thread_limit
        self._switches: ThreadSwitches | None = None
        self._counted: list[Reading] = []
        if not groups:
            self.lost.append(
                probe_note(
                    "probe.not-started",
                    "cgroup",
                    "the workload has no group of its own here, so nothing is counted for it alone.",
                )
            )
        threads = threads_file(groups)
        if threads is not None and thread_limit:
            self._switches = ThreadSwitches(host, threads, thread_limit)
            self.channels += ThreadSwitches.channels

    def close(self) -> list[Reading]:
        last = super().close()
        if self._switches is not None and self._switches.most_threads > self._limit:
            most = self._switches.most_threads
            self.lost.append(
                probe_note(
                    "probe.limited",
                    "cgroup",
                    f"{most} threads in the group, switches counted in {self._limit} of them.",
                )
            )
        self._switches = None
        return last

    def taken(self) -> list[Reading]:
        counted, self._counted = self._counted, []
        return super().taken() + counted

    def _take_slow(self) -> None:
        super()._take_slow()
        self._counted += self._poll_switches()

    def _poll_switches(self) -> list[Reading]:
        if self._switches is None:
            return []
        try:
            return self._switches.poll()
        except OSError as error:
            if is_gone(error):
                self.lost.append(
                    probe_note("probe.file-gone", "cgroup", f"its list of threads vanished at {self._age_s():.1f} s.")
                )
                self._switches = None
            else:
                self.errors["threads"] += 1
        except ValueError:
            self.errors["threads"] += 1
        return []
