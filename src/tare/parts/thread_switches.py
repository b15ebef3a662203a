"""Context switches of the threads in a cgroup: no cgroup file counts them, each thread's own status does."""

from __future__ import annotations

from tare.host import Host
from tare.measures import Channel
from tare.parts.procfs import whole
from tare.parts.protocols import Reading

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
