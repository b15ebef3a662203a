"""What the workload's own cgroup counts: CPU time, throttling, memory, faults, I/O and switches.

It is read from the device, so that a container, a guest and a bare process are counted in the same way.
"""

from __future__ import annotations

from pydantic import PositiveInt

from tare.base.host import Host, Scope
from tare.base.rulings import Ruling, probe_note
from tare.base.units import PositiveSeconds
from tare.drivers.cgroups.files import ThreadSwitches, files_of, own_groups, threads_file
from tare.drivers.kernel_files import FileFeed, is_gone, unreadable
from tare.parts.protocols import Feed, Probe, Reading


class Cgroup(Probe):
    """The workload's cgroup, versions 1 and 2, and hybrids of them."""

    scoped = True
    may_block = False  # counters in the kernel's memory

    switches: bool = True
    """Context switches of its threads."""
    threads: PositiveInt = 64
    """At most so many threads are looked at for their switches."""
    slow_period_s: PositiveSeconds = 1.0
    """How often the figures that matter as a sum are read: switches, I/O, pressure, peak. The end is always read."""

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
