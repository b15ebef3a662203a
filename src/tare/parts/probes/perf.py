"""Counters, page faults with their causes, and call graphs of block events, by role.

Tables (`t_ns` is CLOCK_MONOTONIC of the device):

- `counters`: t_ns, role, event, count, time_enabled, time_running. Sums over all cores of a tenth of a second each,
  which begins at t_ns; the two times are seconds of core time, and differ where counters took turns: then the whole
  count is about count * time_enabled / time_running. The role `idle` is a core on which nothing ran. `task-clock` is in
  nanoseconds.
- `faults`: t_ns, cpu, pid, comm, role, file, function, cause, address, mapping. One row a page fault: where the
  instruction was (file, function), what lies at the address (mapping), and why the page was needed (cause; see
  tare.traces.faults).
- `callgraphs`: event, role, comm, stack, count. Stacks outermost function first, joined by `;`.
- `lost`: what, events. Only where the kernel could not hand over everything: then all counts are at least.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field as Setting

from tare.base.host import Host, Scope
from tare.base.processes import is_root
from tare.base.rulings import Ruling, obstacle
from tare.base.units import SizeBytes
from tare.drivers.tracing import tracefs
from tare.parts.protocols import Feed, Recorder, Table

_EVENT = r"^[a-z0-9_]+:[a-z0-9_]+$"
_IN_METRICS = ("cycles", "instructions", "cache-misses", "loads", "stores")
_OF_THE_CONTAINER = ("workload", "tenant", "daemon")
_STACK = "max-stack=4"  # as many as tare.traces.faults looks at


class Perf(Recorder):
    """Counters of CPU and kernel, page faults with call stacks, call graphs: of the workload, daemons, the host."""

    faults: bool = True
    """Record every page fault with its call stack; needs the `perf` program."""
    callgraphs: str | None = Setting(default="block:block_rq_issue", pattern=_EVENT)
    """The event whose call graphs are recorded, like block:block_rq_insert; null for none. Needs `perf`."""
    everyone: bool = False
    """Keep the faults and call graphs of the rest of the host too, not only of the workload and the daemons."""
    limit: SizeBytes = 512 << 20
    """Recording stops when its files are this large; what comes later is not counted, and the record says so."""

    def obstacles(self, host: Host) -> list[Ruling]:
        stopped = []
        if not is_root(host):
            stopped.append(obstacle("needs.root", "watching every process needs root (or CAP_PERFMON): run as root."))
        if host.run(["test", "-e", "/proc/sys/kernel/perf_event_paranoid"]).code != 0:
            stopped.append(obstacle("needs.kernel", "this kernel has no perf events (CONFIG_PERF_EVENTS)."))
        if self._recorded():
            stopped += _without_program(host)
        if not stopped and self.callgraphs and not _is_there(host, self.callgraphs):
            stopped.append(
                obstacle(
                    "needs.kernel",
                    f"this kernel has no event {self.callgraphs}; name another one, or null, as `callgraphs`.",
                )
            )
        return stopped

    def record(self, host: Host, scopes: Sequence[Scope], folder: Path) -> Feed:
        from tare.drivers.tracing.perf_feed import PerfFeed

        tracefs.remove_dead(host)
        return PerfFeed(host, scopes, folder, events=self._recorded(), limit_bytes=self.limit)

    def _recorded(self) -> list[str]:
        """What `perf record` is asked for."""
        chosen = [f"page-faults/period=1,{_STACK},name=page-faults/"] if self.faults else []
        return [*chosen, self.callgraphs] if self.callgraphs else chosen

    def tables(self, folder: Path) -> Iterator[Table]:
        from tare.drivers.tracing import perf_feed
        from tare.drivers.tracing.perf_feed import META
        from tare.traces import perf

        kept = perf.Kept(folder, META)
        yield Table("counters", perf.counters(kept))
        if lost := sum(ring.lost for ring in kept.rings):
            yield Table("lost", {"what": ["switches"], "events": [lost]})
        if (folder / perf_feed.DATA).exists():
            threads = [] if self.everyone else kept.threads(without=("host", "tare"))
            samples = perf_feed.read(folder / perf_feed.DATA, threads)
            for name, columns in perf.sample_tables(samples, kept.roles):
                yield Table(name, columns)

    def figures(self, tables: Mapping[str, Mapping[str, Any]], steps: int | None) -> dict[str, float]:
        """Of the workload: cycles and their kin; of it and the daemons: how concentrated their faults are."""
        figures: dict[str, float] = {}
        if "counters" in tables:
            figures |= _counted(tables["counters"], steps)
        if "faults" in tables:
            figures |= _concentration(tables["faults"])
        return figures


def _is_there(host: Host, event: str) -> bool:
    """Whether the kernel has it; where tracefs cannot be looked at, `perf record` will say."""
    path = f"events/{event.replace(':', '/')}"
    found = tracefs.present(host, [path])
    return found is None or path in found


def _without_program(host: Host) -> list[Ruling]:
    requested = host.run(["perf", "--version"])
    if requested.code == 0:
        return []
    sentence = (
        "page faults and call graphs need the `perf` program (`apt-get install linux-perf`, or your system's "
        "way); `perf: {faults: false, callgraphs: null}` counts without it."
    )
    return [obstacle("needs.program", sentence)]


def _counted(table: Mapping[str, Any], steps: int | None) -> dict[str, float]:
    """The kinds of cores of a hybrid CPU together: a mini-batch does not care which of them ran it."""
    import numpy as np

    ours = np.asarray(table["role"]) == "workload"
    of_workload = {name: np.asarray(column)[ours] for name, column in table.items()}
    found: dict[str, float] = {}
    for kind in _IN_METRICS:
        count = _scaled(of_workload, kind)
        if count is not None:
            name = kind.replace("-", "_")
            found[name] = count
            if steps:
                found[f"{name}_step"] = count / steps
    return found


def _scaled(table: Mapping[str, Any], kind: str) -> float | None:
    total, any_ran = 0.0, False
    for event in {event for event in table["event"].tolist() if event == kind or event.endswith(f"/{kind}")}:
        mine = table["event"] == event
        enabled, running = table["time_enabled"][mine].sum(), table["time_running"][mine].sum()
        if running > 0:
            total += float(table["count"][mine].sum() * enabled / running)
            any_ran = True
    return total if any_ran else None


def _concentration(table: Mapping[str, Any]) -> dict[str, float]:
    import numpy as np

    from tare.traces.faults import top_share

    roles = np.asarray(table["role"]).tolist()
    begins = {role: str(role).startswith(_OF_THE_CONTAINER) for role in set(roles)}
    share = top_share(table["file"][np.array([begins[role] for role in roles], bool)])
    return {} if share is None else {"fault_top10_share": share}
