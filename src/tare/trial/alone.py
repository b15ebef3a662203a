"""A rehearsal by turns without a partner: does its program hold after a step, which threads compute, and where?

Also what keeps a second process of the program from running beside it: ports that it listens on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tare.base.errors import TrialError
from tare.base.host import Host, Scope
from tare.drivers.cgroups.tree import text_of, threads_file
from tare.plan.turning import LEAST_STEPS
from tare.trial.tenants import Grants, Tenant
from tare_inside.turns import FREE

_LOOK_EVERY_S = 0.1
_PATIENCE_S = 10.0
_LISTENS = "0A"  # TCP_LISTEN, as /proc/net/tcp writes it


def threads_of(host: Host, scope: Scope) -> list[int]:
    """All threads of a place's control group and of those below it; none where it has no group.

    The kernel shows 0 for a thread of another PID namespace. For the calls that take a thread, 0 is the caller.
    """
    path = threads_file(scope.cgroups)
    if path is None:
        return []
    below = sorted(Path(path).parent.glob(f"*/**/{Path(path).name}"))  # where an engine makes a group in ours
    texts = [host.read(path), *(text_of(host, str(each)) for each in below)]
    return [tid for text in texts for tid in map(int, text.split()) if tid]


def ports_of(host: Host, scope: Scope) -> list[int]:
    """The TCP ports that these processes listen on, without those that the kernel chose for them."""
    chosen_by_kernel = text_of(host, "/proc/sys/net/ipv4/ip_local_port_range").split()
    first, last = map(int, chosen_by_kernel) if len(chosen_by_kernel) == 2 else (65536, 65536)
    ports, sockets = dict[str, int](), set[str]()
    for pid in threads_of(host, scope):
        with suppress(OSError):
            sockets |= {str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()}
        for family in ("tcp", "tcp6") if sockets and not ports else ():  # of one network namespace
            rows = [line.split() for line in text_of(host, f"/proc/{pid}/net/{family}").splitlines()[1:]]
            ports |= {f"socket:[{row[9]}]": int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTENS}
    return sorted({port for name, port in ports.items() if name in sockets and not first <= port <= last})


def affinity(tid: int) -> set[int]:
    """The cores that a thread may run on; empty for one that has ended."""
    with suppress(ProcessLookupError):
        return os.sched_getaffinity(tid)
    return set()


@dataclass
class Alone:
    """What was seen of the steps of one process that nobody took turns with."""

    holds: bool = False
    chooses_cores: bool = False  # a thread may run on other cores than tare itself
    busy_ns: dict[int, int] = field(default_factory=dict)  # CPU time in the turns, by thread that is still there
    group_ns: int | None = 0  # CPU time in the turns of all that ran; None where the group does not count it
    spent_ns: int = 0  # in the turns
    held_at: int = 0  # so many steps had ended when it held for the last time
    listens_on: list[int] = field(default_factory=list)  # TCP ports

    def others(self) -> float | None:
        """The cores that all threads but the busiest one kept busy; None where the kernel does not tell."""
        if not self.spent_ns or not self.busy_ns or self.group_ns is None:
            return None
        return (max(self.group_ns, sum(self.busy_ns.values())) - max(self.busy_ns.values())) / self.spent_ns


@contextmanager
def seen_alone(host: Host, tenant: Tenant, stack: ExitStack) -> Iterator[Alone]:
    """Meanwhile its program is granted its steps: 1, 2, 4 and so on, at most as many as a turn has at least."""
    seen, grants, ended = Alone(), Grants(tenant.workdir, stack), threading.Event()
    granting = threading.Thread(target=_grant, args=(host, tenant.place.scope(), grants, seen, ended), daemon=True)
    granting.start()
    try:
        yield seen
    finally:
        ended.set()
        granting.join(_PATIENCE_S)


def _grant(host: Host, scope: Scope, grants: Grants, seen: Alone, ended: threading.Event) -> None:
    """Until it has ended; whatever goes wrong here, the program is not kept from going on."""
    steps, before, group_before = 1, dict[int, int](), None
    try:
        while not ended.is_set():
            if (report := grants.report(_LOOK_EVERY_S)) is None:
                continue
            following, begin_ns, end_ns = report
            now, group_now = _cpu_ns(host, scope), _group_ns(host, scope)
            own = os.sched_getaffinity(0)
            seen.chooses_cores = seen.chooses_cores or any((affinity(tid) or own) != own for tid in now)
            if seen.holds:
                seen.spent_ns += end_ns - begin_ns
                for tid, cpu_ns in now.items():
                    seen.busy_ns[tid] = seen.busy_ns.get(tid, 0) + cpu_ns - before.get(tid, 0)
                grown = None if group_now is None or group_before is None else group_now - group_before
                seen.group_ns = None if seen.group_ns is None or grown is None else seen.group_ns + grown
            if not seen.holds:
                seen.listens_on = ports_of(host, scope)
            seen.holds, seen.held_at, before, group_before = True, following, now, group_now
            grants.grant(steps)
            steps = min(2 * steps, LEAST_STEPS)
    finally:
        with suppress(OSError):
            grants.grant(FREE)


def _cpu_ns(host: Host, scope: Scope) -> dict[int, int]:
    """The CPU time of each thread so far; of those that the kernel tells of."""
    found = {}
    with suppress(OSError, TrialError):
        for tid in threads_of(host, scope):
            with suppress(OSError, ValueError, IndexError):
                found[tid] = int(host.read(f"/proc/{tid}/schedstat").split()[0])
    return found


def _group_ns(host: Host, scope: Scope) -> int | None:
    """The CPU time of the group so far, also of threads and processes that have ended; None if it is not counted."""
    if "cpuacct" in scope.cgroups:
        words = text_of(host, f"{scope.cgroups['cpuacct']}/cpuacct.usage").split()
        return int(words[0]) if words else None
    lines = text_of(host, f"{scope.cgroups['']}/cpu.stat").splitlines() if "" in scope.cgroups else []
    return next((int(line.split()[1]) * 1000 for line in lines if line.startswith("usage_usec ")), None)
