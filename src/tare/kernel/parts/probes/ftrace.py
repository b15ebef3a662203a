"""The kernel's own events (`ftrace`, `syscalls`), recorded raw in a trace instance of ours and decoded after the trial;
and counters, page faults and call graphs (`perf`).

Tables: one for each event, under the event's name; every row has `t_ns` (CLOCK_MONOTONIC), `cpu`, `pid` (the thread),
`comm`, `role` (`workload`, `tenant1`..., `daemon`, `tare`, `host`; see `traces/roles.py`), and the event's own fields
under the kernel's names, with these exceptions: `ino` is `inode`, a page's `index` is `page`, a bdi's `name` is `bdi`
with `dev` beside it, a field called like one of the five is `event_<name>`, arguments of system calls are left out.
`dev` is the kernel's number, major x 2^20 + minor (0 where a bdi is no block device).

writeback    writeback_start, writeback_written: bdi, dev, nr_pages (still to be written: before and after), sb_dev,
             sync_mode, for_kupdate, range_cyclic, for_background, reason (a word), cgroup_ino
             writeback_dirty_folio: bdi, dev, inode, page (of the file; the first of a large folio); on kernels until
             5.17 the event is writeback_dirty_page, the table has the same name
             writeback_single_inode_start, writeback_single_inode: bdi, dev, inode, state, dirtied_when,
             writeback_index, nr_to_write, wrote, cgroup_ino
             writeback_pages_written: pages; block_bio_queue: see below
             page_writes: dev, inode, page (of the device), reason, role: one row for each page that was handed to a
             disk, made by joining the above; `kernel.traces.writeback` says how, and what it cannot know
block        block_touch_buffer, block_dirty_buffer: dev, sector, size
             block_rq_insert, block_rq_issue, block_rq_complete: dev, sector, nr_sector, bytes, rwbs, ...
             block_bio_queue, block_bio_backmerge, block_bio_frontmerge: dev, sector, nr_sector, rwbs
faults       page_fault_user, page_fault_kernel: address, ip, error_code (x86 and RISC-V kernels only)
sched        sched_switch: prev_*, next_*; sched_migrate_task: event_pid, orig_cpu, dest_cpu
syscalls     sys_enter: id; sys_exit: id, ret
lost         lost: cpu, events: what each core's buffer overwrote before it was read; absent where nothing was

Figures are those of `kernel.traces.writeback.figures`; `system_calls` and `page_faults` of the workload alone, with
`system_calls_step` and `page_faults_step`, for the families that count them; and `trace_lost_events`: made from a trace
that lost some, each count is "at least".

`Syscalls` records every entry and exit raw in an instance of its own (raw_syscalls), and sums them up after the trial.
Its tables: `syscalls`: t_ns, role, name, count, total_s, max_s, errors. Sums of a tenth of a second each, which begins
at t_ns; a call belongs to the one in which it was entered. `total_s` and `max_s` are from entry to exit, waiting
included, and need the exit to have been seen; `errors` are calls that returned an error. Names are those of this
architecture (kernel.traces.recording), `#<number>` where it is not known there; calls of 32-bit programs on a 64-bit
kernel are named as if they were 64-bit ones. `lost`: what, events, only where the buffer was too small.

`Perf` records counters, page faults with their causes, and call graphs of block events, by role. Its tables:

- `counters`: t_ns, role, event, count, time_enabled, time_running. Sums over all cores of a tenth of a second each,
  which begins at t_ns; the two times are seconds of core time, and differ where counters took turns: then the whole
  count is about count * time_enabled / time_running. The role `idle` is a core on which nothing ran. `task-clock` is in
  nanoseconds.
- `faults`: t_ns, cpu, pid, comm, role, file, function, cause, address, mapping. One row a page fault: where the
  instruction was (file, function), what lies at the address (mapping), and why the page was needed (cause; see
  tare.kernel.traces.perf).
- `callgraphs`: event, role, comm, stack, count. Stacks outermost function first, joined by `;`.
- `lost`: what, events. Only where the kernel could not hand over everything: then all counts are at least.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import Field as Setting

from tare.base.errors import ObstacleError
from tare.base.host import Host, Scope
from tare.base.processes import is_root
from tare.base.rulings import Ruling, obstacle
from tare.base.units import Channel, SizeBytes
from tare.ext.parts import Feed, Leftover, Reading, Recorder, Table
from tare.kernel.tracing import tracefs

Family: TypeAlias = Literal["writeback", "block", "faults", "sched", "syscalls"]

# Each event with the names that it has had; the first that a kernel has is traced.
FAMILIES: Mapping[Family, tuple[tuple[str, ...], ...]] = {
    "writeback": (
        ("writeback/writeback_start",),
        ("writeback/writeback_written",),
        ("writeback/writeback_dirty_folio", "writeback/writeback_dirty_page"),
        ("writeback/writeback_single_inode_start",),
        ("writeback/writeback_single_inode",),
        ("writeback/writeback_pages_written",),
        ("block/block_bio_queue",),
    ),
    "block": tuple(
        (f"block/{name}",)
        for name in (
            "block_touch_buffer", "block_dirty_buffer", "block_rq_insert", "block_rq_issue", "block_rq_complete",
            "block_bio_queue", "block_bio_backmerge", "block_bio_frontmerge",
        )
    ),
    "faults": (("exceptions/page_fault_user",), ("exceptions/page_fault_kernel",)),
    "sched": (("sched/sched_switch",), ("sched/sched_migrate_task",)),
    "syscalls": (("raw_syscalls/sys_enter",), ("raw_syscalls/sys_exit",)),
}  # fmt: skip
_ABOUT_TASKS = ("sched/sched_process_fork", "cgroup/cgroup_attach_task", "task/task_rename")
_NONE_SEEN = ("writeback_count", "writeback_background_count", "writeback_pages", "written_pages")
_ELSE = {"faults": " (kernels for ARM have none: the perf probe samples page faults there)"}


class Ftrace(Recorder):
    """Events of the kernel: write-backs, block I/O, page faults, scheduling, system calls."""

    short: ClassVar[str | None] = "families"

    families: tuple[Family, ...] = Setting(default=("writeback",), min_length=1)
    """Which events: writeback, block, faults, sched, syscalls."""

    buffer: SizeBytes = 16 << 20
    """Memory for each core's trace until it is copied; events are lost, and counted, where it is too small."""

    limit: SizeBytes = 4 << 30
    """The trace ends early where its raw files get larger than this."""

    @classmethod
    def leftovers(cls, host: Host) -> list[Leftover]:
        """The trace instances of all probes of this file."""
        return tracefs.leftovers(host)

    @classmethod
    def sweep(cls, host: Host, name: str) -> None:
        tracefs.sweep(host, name)

    @classmethod
    def after_dead_run(cls, host: Host) -> list[str]:
        return tracefs.remove_dead(host)

    def obstacles(self, host: Host) -> list[Ruling]:
        if found := tracefs.obstacles(host):
            return found
        here = self._present(host)
        if here is None:
            return [obstacle("needs.kernel", "tracefs cannot be mounted here, so the kernel's events cannot be seen.")]
        return [
            obstacle(
                "needs.kernel",
                f"this kernel has no event {' or '.join(map(_colon, names))}{_ELSE.get(family, '')}; "
                f"leave {family} out of `families`.",
            )
            for family in self.families
            for names in FAMILIES[family]
            if here.isdisjoint(names)
        ]

    def record(self, host: Host, scopes: Sequence[Scope], folder: Path) -> Feed:
        from tare.kernel.tracing import ftrace_feed

        tracefs.remove_dead(host)
        instance = tracefs.open_instance(host, "ftrace")
        missing = [names for names in self._wanted() if not any(instance.has(f"events/{name}") for name in names)]
        if missing:
            instance.remove()
            raise ObstacleError("ftrace cannot record what is requested.", self.obstacles(host))
        chosen = [next(name for name in names if instance.has(f"events/{name}")) for names in self._wanted()]
        chosen += [name for name in _ABOUT_TASKS if instance.has(f"events/{name}")]
        return ftrace_feed.start(
            host, scopes, folder, instance, list(dict.fromkeys(chosen)),
            buffer_bytes=self.buffer, limit_bytes=self.limit,
        )  # fmt: skip

    def tables(self, folder: Path) -> Iterator[Table]:
        import numpy as np

        from tare.kernel.traces.decode import lost_events
        from tare.kernel.traces.recording import ABOUT_TASKS, open_folder, tables

        recording = open_folder(folder)
        for chunk in tables(recording, without=ABOUT_TASKS):
            yield Table(chunk.name, chunk.columns)
        seen = {source.cpu: lost_events(source, recording.layout).events for source in recording.sources}
        lost = {cpu: max(seen.get(cpu, 0), recording.lost.get(cpu, 0)) for cpu in {*seen, *recording.lost}}
        if any(lost.values()):
            cpus = np.array(sorted(lost), np.int32)
            yield Table("lost", {"cpu": cpus, "events": np.array([lost[cpu] for cpu in cpus.tolist()], np.int64)})

    def figures(self, tables: Mapping[str, Mapping[str, Any]], steps: int | None) -> dict[str, float]:
        from tare.kernel.traces import writeback

        found: dict[str, float] = {}
        if "writeback" in self.families:
            found |= {**dict.fromkeys(_NONE_SEEN, 0.0), **writeback.figures(tables)}
        if "syscalls" in self.families:
            found |= _of_workload("system_calls", tables, ("sys_enter",), steps)
        if "faults" in self.families:
            found |= _of_workload("page_faults", tables, ("page_fault_user", "page_fault_kernel"), steps)
        found["trace_lost_events"] = float(sum(tables["lost"]["events"])) if "lost" in tables else 0.0
        return found

    def _wanted(self) -> list[tuple[str, ...]]:
        return list(dict.fromkeys(names for family in self.families for names in FAMILIES[family]))

    def _present(self, host: Host) -> set[str] | None:
        paths = [f"events/{name}" for names in self._wanted() for name in names]
        found = tracefs.present(host, paths)
        return None if found is None else {path.removeprefix("events/") for path in found}


def _of_workload(
    name: str, tables: Mapping[str, Mapping[str, Any]], events: Sequence[str], steps: int | None
) -> dict[str, float]:
    """How many events of the measured workload's own there were, and how many in a step."""
    import numpy as np

    from tare.kernel.traces.roles import WORKLOAD

    count = sum(int((np.asarray(tables[event]["role"]) == WORKLOAD).sum()) for event in events if event in tables)
    return {name: float(count)} | ({f"{name}_step": count / steps} if steps else {})


def _colon(path: str) -> str:
    return path.replace("/", ":")


EVENTS = ("raw_syscalls/sys_enter", "raw_syscalls/sys_exit")
BIN_NS = 100_000_000
_MACHINE = "machine.json"


class Syscalls(Recorder):
    """System calls by name, counted and timed."""

    buffer: SizeBytes = 16 << 20
    """Memory for each core's trace until it is copied; calls are lost, and counted, where it is too small."""

    limit: SizeBytes = 4 << 30
    """The trace ends early where its raw files get larger than this."""

    def obstacles(self, host: Host) -> list[Ruling]:
        if found := tracefs.obstacles(host):
            return found
        here = tracefs.present(host, [f"events/{event}" for event in EVENTS])
        if here is None:
            return [obstacle("needs.kernel", "tracefs cannot be mounted here, so system calls cannot be seen.")]
        if len(here) < len(EVENTS):
            return [obstacle("needs.kernel", "this kernel has no raw_syscalls events (CONFIG_FTRACE_SYSCALLS).")]
        return []

    def record(self, host: Host, scopes: Sequence[Scope], folder: Path) -> Feed:
        from tare.kernel.tracing import ftrace_feed

        tracefs.remove_dead(host)
        instance = tracefs.open_instance(host, "syscalls")
        if not all(instance.has(f"events/{event}") for event in EVENTS):
            instance.remove()
            raise ObstacleError("system calls cannot be recorded.", self.obstacles(host))
        (folder / _MACHINE).write_text(json.dumps(platform.machine()))
        chosen = [*EVENTS, *(event for event in _ABOUT_TASKS if instance.has(f"events/{event}"))]
        trace = ftrace_feed.start(
            host, scopes, folder, instance, chosen,
            buffer_bytes=self.buffer, limit_bytes=self.limit, probe=self.part_name(),
        )  # fmt: skip
        return UnderOurName(trace)

    def tables(self, folder: Path) -> Iterator[Table]:
        from tare.kernel.traces.decode import lost_events
        from tare.kernel.traces.recording import open_folder, syscall_columns

        recording = open_folder(folder)
        yield Table("syscalls", syscall_columns(recording, json.loads((folder / _MACHINE).read_text()), BIN_NS))
        seen = {source.cpu: lost_events(source, recording.layout).events for source in recording.sources}
        lost = sum(max(seen.get(cpu, 0), recording.lost.get(cpu, 0)) for cpu in {*seen, *recording.lost})
        if lost:
            yield Table("lost", {"what": ["events"], "events": [lost]})

    def figures(self, tables: Mapping[str, Mapping[str, Any]], steps: int | None) -> dict[str, float]:
        """Calls of the workload, and of them those in a step."""
        import numpy as np

        table = tables["syscalls"]
        count = float(np.asarray(table["count"])[np.asarray(table["role"], dtype=str) == "workload"].sum())
        return {"system_calls": count} | ({"system_calls_step": count / steps} if steps else {})


class UnderOurName:
    """A trace's feed without its readings; the `ftrace` probe may run beside it with readings of its own."""

    channels: tuple[Channel, ...] = ()

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property
    def lost(self) -> list[Ruling]:
        found: list[Ruling] = self._inner.lost
        return found

    def poll(self) -> list[Reading]:
        self._inner.poll()
        return []

    def close(self) -> list[Reading]:
        self._inner.close()
        return []


_EVENT = r"^[a-z0-9_]+:[a-z0-9_]+$"
_IN_METRICS = ("cycles", "instructions", "cache-misses", "loads", "stores")
_OF_THE_CONTAINER = ("workload", "tenant", "daemon")
_STACK = "max-stack=4"  # as many as tare.kernel.traces.perf looks at


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
        from tare.kernel.tracing.perf_feed import PerfFeed

        tracefs.remove_dead(host)
        return PerfFeed(host, scopes, folder, events=self._recorded(), limit_bytes=self.limit)

    def _recorded(self) -> list[str]:
        """What `perf record` is asked for."""
        chosen = [f"page-faults/period=1,{_STACK},name=page-faults/"] if self.faults else []
        return [*chosen, self.callgraphs] if self.callgraphs else chosen

    def tables(self, folder: Path) -> Iterator[Table]:
        from tare.kernel.traces import perf
        from tare.kernel.tracing import perf_feed
        from tare.kernel.tracing.perf_feed import META

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

    from tare.kernel.traces.perf import top_share

    roles = np.asarray(table["role"]).tolist()
    begins = {role: str(role).startswith(_OF_THE_CONTAINER) for role in set(roles)}
    share = top_share(table["file"][np.array([begins[role] for role in roles], bool)])
    return {} if share is None else {"fault_top10_share": share}
